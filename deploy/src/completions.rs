//! `tradewind completions`: what a shell needs to complete verbs, options and files.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::{Shell, generate};
use tradewind_process::log;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The shell.
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match log::print(&script(arguments.shell)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tradewind_process::complain!("it cannot be printed: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The script that a shell reads.
fn script(shell: Shell) -> String {
    let mut command = crate::Arguments::command();
    let mut script = Vec::new();
    generate(shell, &mut command, "tradewind", &mut script);
    String::from_utf8(script).expect("it is text")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use clap::ValueEnum;

    use super::*;

    /// What bash offers when somebody types these words and asks for the last one.
    fn offered(words: &[&str]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tradewind.bash");
        fs::write(&file, script(Shell::Bash)).unwrap();
        let typed: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let last = words.len() - 1;
        let asked = format!(
            "source {}; COMP_WORDS=({}); COMP_CWORD={last}; _tradewind tradewind '{}' '{}'; \
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            file.display(),
            typed.join(" "),
            words[last],
            words[last - 1],
        );
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", &asked])
            .current_dir(folder.path());
        let told = bash.output().unwrap();
        assert!(told.status.success(), "{told:?}");
        let told = String::from_utf8(told.stdout).unwrap();
        told.lines().map(str::to_owned).collect()
    }

    #[test]
    fn bash_completes_verbs_and_options() {
        let check = |words: &[&str], want: &[&str]| assert_eq!(offered(words), want, "{words:?}");
        check(&["tradewind", "wat"], &["watch"]);
        check(&["tradewind", "slurm", "sub"], &["submit"]);
        check(&["tradewind", "run", "--res"], &["--resume"]);
        check(&["tradewind", "init", "--model", "cosmo"], &["cosmoflow"]);
    }

    #[test]
    fn every_shell_is_told_every_verb() {
        for shell in Shell::value_variants() {
            let script = script(*shell);
            for verb in crate::Arguments::command().get_subcommands() {
                let is_there = script.contains(verb.get_name());
                assert!(is_there, "{} of {shell}", verb.get_name());
            }
        }
    }
}
