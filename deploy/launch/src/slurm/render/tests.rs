use std::path::PathBuf;

use super::super::job;
use super::*;
use tradewind_folder::config;

/// The scripts that are pinned in deploy/slurm/scripts.
fn pinned(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("../slurm/scripts").join(format!("{name}.sh"))
}

fn shipped(name: &str) -> Config {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    config::read(&root.join("../configs").join(format!("{name}.toml")), &[]).unwrap()
}

fn script<'a>(config: &'a Config, components: &'a [Component]) -> Script<'a> {
    Script {
        config,
        components,
        folder: Path::new("/scratch/runs/example"),
        program: Path::new("/opt/tradewind/bin/tradewind"),
        purpose: Purpose::Run { after: None },
    }
}

/// With TRADEWIND_PIN set they are written anew, to be read before they are committed.
fn check(name: &str, text: &str) {
    let path = pinned(name);
    if std::env::var_os("TRADEWIND_PIN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let want = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert_eq!(text, want, "{}", path.display());
}

#[test]
fn scripts_of_shipped_configurations_are_as_they_were_read_last() {
    for name in ["climate-forecast", "mnist", "resnet50", "perlmutter"] {
        let config = shipped(name);
        check(name, &script(&config, &job::of_run(&config)).text());
    }
}

#[test]
fn groups_beside_a_run_have_a_script_of_their_own() {
    let config = shipped("perlmutter");
    let groups = [2, 3].map(|number| job::group(&config.slurm, number, 8));
    let beside = Script {
        purpose: Purpose::Groups { beside: Some(4711) },
        ..script(&config, &groups)
    };
    check("perlmutter-more-groups", &beside.text());
}

#[test]
fn a_fleet_and_a_run_on_it_have_scripts() {
    let config = shipped("perlmutter");
    let servers = [job::servers(&config)];
    let fleet = Script {
        purpose: Purpose::Fleet,
        ..script(&config, &servers)
    };
    check("perlmutter-fleet", &fleet.text());
    let groups = job::of_groups(&config);
    let run = Script {
        purpose: Purpose::Run { after: Some(4711) },
        ..script(&config, &groups)
    };
    check("perlmutter-on-fleet", &run.text());
}

#[test]
fn nothing_that_is_passed_through_is_read_by_the_shell() {
    assert_eq!(word("--qos=debug"), "--qos=debug");
    assert_eq!(word("--mpi=a b"), "'--mpi=a b'");
    assert_eq!(word("it's $HOME"), "'it'\\''s $HOME'");
    assert_eq!(word(""), "''");
}
