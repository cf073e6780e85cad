//! `tradewind man`: writes the man pages, one for each verb.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;
use tradewind_folder::input;
use tradewind_process::Docs;
use tradewind_process::log::say;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The folder to write them into, such as ~/.local/share/man/man1.
    folder: PathBuf,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let folder = &arguments.folder;
    match write(folder) {
        Ok(()) => {
            say(format_args!("man pages are in {}", folder.display()));
            ExitCode::SUCCESS
        }
        Err(error) => input::fail(&error, Docs::COMMANDS).into(),
    }
}

fn write(folder: &Path) -> anyhow::Result<()> {
    let told = || format!("cannot write man pages into {}", folder.display());
    std::fs::create_dir_all(folder).with_context(told)?;
    clap_mangen::generate_to(crate::Arguments::command(), folder).with_context(told)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    #[test]
    fn every_verb_that_people_type_has_a_page() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path()).unwrap();
        let page = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap_or_default();
        let command = crate::Arguments::command();
        let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
        for verb in verbs {
            let name = format!("tradewind-{}.1", verb.get_name());
            let about = verb.get_about().unwrap().to_string();
            let words: Vec<&str> = about.split(' ').take(2).collect();
            assert!(page(&name).contains(&words.join(" ")), "{name}: {about}");
        }
        assert!(page("tradewind-run.1").contains("\\-\\-resume"));
        assert!(!page("tradewind-slurm-submit.1").is_empty());
        assert!(page("tradewind-man.1").is_empty(), "nobody types it");
    }

    /// Where there is groff it has nothing to complain of.
    #[test]
    fn pages_can_be_shown() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path()).unwrap();
        if Command::new("groff").arg("--version").output().is_err() {
            tradewind_process::complain!("skipped: there is no groff");
            return;
        }
        for entry in fs::read_dir(folder.path()).unwrap() {
            let page = entry.unwrap().path();
            let mut groff = Command::new("groff");
            groff.args(["-Kutf8", "-man", "-ww", "-z"]).arg(&page);
            let told = groff.output().unwrap();
            let errors = String::from_utf8_lossy(&told.stderr);
            assert!(
                told.status.success() && errors.is_empty(),
                "{page:?}: {errors}"
            );
        }
    }
}
