//! Real clusters: servers in this process, and runs of the `tradewind` command as a person starts
//! them.

pub mod client;
pub mod disk;
pub mod fleet;
pub mod gate;
pub mod member;
pub mod process;
pub mod proxy;
pub mod rank;
pub mod raw;
pub mod run;
pub mod slurm;
pub mod training;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// Pause between two looks at something that is waited for.
const LOOK: Duration = Duration::from_millis(50);

/// Looks before a wait is given up: ten minutes on an idle machine. Where others use the cores or the disk is
/// slow, loading libtorch's libraries alone has taken longer than one.
const LOOKS_MAX: u32 = 12_000;

/// Waits until `look` finds something.
///
/// # Panics
/// After ten minutes, naming what was waited for.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..LOOKS_MAX {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(LOOK);
    }
    panic!("waited in vain for {what}");
}

/// As [`wait_for`], on a runtime.
///
/// # Panics
/// After ten minutes, naming what was waited for.
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..LOOKS_MAX {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(LOOK).await;
    }
    panic!("waited in vain for {what}");
}

/// The root of the workspace.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests lies in the workspace")
}

/// The folder of the programs, built once in the profile of the test, so that `cargo test` alone
/// is enough. With `TRADEWIND_BUILT` in the environment they are taken as they are: cargo would wait for
/// whatever else it compiles.
///
/// # Panics
/// If they do not build.
pub fn programs() -> &'static Path {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let test = std::env::current_exe().expect("a test knows where it lies");
        let folder = test.ancestors().nth(2).expect("target/<profile>/deps/it");
        let target = folder.parent().expect("target/<profile>");
        let name = folder.file_name().and_then(|name| name.to_str());
        let profile = match name.expect("a profile") {
            "debug" => "dev",
            other => other,
        };
        if std::env::var_os("TRADEWIND_BUILT").is_some() {
            return folder.to_owned();
        }
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--workspace", "--bins"])
            .args(["--profile", profile])
            .arg("--target-dir")
            .arg(target)
            .current_dir(root())
            .output()
            .expect("cargo starts");
        let errors = String::from_utf8_lossy(&built.stderr);
        assert!(
            built.status.success(),
            "the programs do not build:\n{errors}"
        );
        folder.to_owned()
    })
}
