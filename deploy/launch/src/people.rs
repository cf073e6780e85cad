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
    if !people.is_empty() {
        make_people(folder)?;
    }
    for name in people {
        let file = folder.join(run_files::person(name.as_str()));
        whole::write_secret(&file, pass(Some(name.clone()))?)?;
    }
    // The last: by it all of them are told to be there.
    Ok(whole::write_secret(
        &folder.join(run_files::PERSON),
        pass(None)?,
    )?)
}

fn make_people(folder: &Path) -> anyhow::Result<()> {
    let within = folder.join(run_files::PEOPLE);
    let made = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&within);
    made.with_context(|| format!("cannot make {}", within.display()))
}

/// Whether what people show in this folder has had two thirds of its life, is damaged or gone, or of another authority than
/// that of `own`.
pub(crate) fn are_due(folder: &Path, own: &Tls) -> bool {
    let shown = fs::read_to_string(folder.join(run_files::PERSON)).unwrap_or_default();
    match Tls::from_pem(&shown) {
        Ok(shown_tls) => shown_tls.authority() != own.authority() || is_due(&shown),
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_of_which_one_could_not_be_written_are_due() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let authority = Authority::new("climate").unwrap();
        let own = authority.own_pass(&Identity::Server(None)).unwrap();
        let own = Tls::from_pem(&own).unwrap();
        let people = [PersonName::new("alice").unwrap()];
        let certify = || certify_people(folder, &authority, &people);
        // Where their folder is to be.
        fs::write(folder.join(run_files::PEOPLE), "").unwrap();
        certify().unwrap_err();
        assert!(are_due(folder, &own));
        fs::remove_file(folder.join(run_files::PEOPLE)).unwrap();
        certify().unwrap();
        assert!(!are_due(folder, &own));
        assert!(folder.join(run_files::person("alice")).exists());
        // Of an earlier start.
        let earlier = Authority::new("climate").unwrap();
        certify_people(folder, &earlier, &people).unwrap();
        assert!(are_due(folder, &own));
    }
}
