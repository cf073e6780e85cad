//! What a task leaves that cannot go on, for whoever leads the run: `slurm/gave-up`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Says who gave up, and why; the first one counts.
pub(super) fn write(run: &Path, why: &str) -> anyhow::Result<()> {
    eprintln!("{why}");
    let path = path(run);
    let told = fs::File::create_new(&path).and_then(|mut file| file.write_all(why.as_bytes()));
    match told {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(error).with_context(|| format!("cannot write {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// What the first one said, if any did.
pub(super) fn read(run: &Path) -> Option<String> {
    fs::read_to_string(path(run)).ok()
}

fn path(run: &Path) -> PathBuf {
    run.join("slurm").join("gave-up")
}
