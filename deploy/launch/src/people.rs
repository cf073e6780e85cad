//! What people show under TLS: files in the folder of a run or a fleet.

use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use anyhow::Context;
use tradewind_common::identity::{Identity, PersonName};
use tradewind_common::run_files;
use tradewind_process::whole;
use tradewind_proto::authority::Authority;
use tradewind_proto::renewal::is_due;
use tradewind_proto::tls::Tls;

/// Removes what people have shown in an earlier start of the run or fleet in this folder.
pub(crate) fn forget_people(folder: &Path) -> anyhow::Result<()> {
    let own = fs::remove_file(folder.join(run_files::PERSON));
    for removed in [own, fs::remove_dir_all(folder.join(run_files::PEOPLE))] {
        if let Err(error) = removed
            && error.kind() != ErrorKind::NotFound
        {
            return Err(error).context("cannot remove the certificates of an earlier start");
        }
    }
    Ok(())
}

/// Writes down what the owner of the run or fleet in this folder shows, and what these people do.
pub(crate) fn certify_people(
    folder: &Path,
    authority: &Authority,
    people: &[PersonName],
) -> anyhow::Result<()> {
    let pass = |name| {
        let pass = authority.pass(&Identity::Person(name));
        pass.context("no certificate can be issued")
    };
    whole::write_secret(&folder.join(run_files::PERSON), pass(None)?)?;
    if people.is_empty() {
        return Ok(());
    }
    let within = folder.join(run_files::PEOPLE);
    let made = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&within);
    made.with_context(|| format!("cannot make {}", within.display()))?;
    for name in people {
        let file = folder.join(run_files::person(name.as_str()));
        whole::write_secret(&file, pass(Some(name.clone()))?)?;
    }
    Ok(())
}

/// Whether what people show in this folder has had two thirds of its life, or is damaged or gone. Not if it is of another
/// authority than that of `own`: that of a later start, whose it is to renew it.
pub(crate) fn are_due(folder: &Path, own: &Tls) -> bool {
    let shown = fs::read_to_string(folder.join(run_files::PERSON)).unwrap_or_default();
    match Tls::from_pem(&shown) {
        Ok(shown_tls) => shown_tls.authority() == own.authority() && is_due(&shown),
        Err(_) => true,
    }
}
