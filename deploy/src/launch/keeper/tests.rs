//! With shell scripts in place of the programs: they are started, die, and are started again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tradewind_common::config::Config;

use super::*;
use crate::folder::RunFolder;
use crate::launch::{Programs, processes};

/// Says where it listens, and that it is there.
const SERVER: &str = r#"
for argument; do case $argument in --address-file=*) file=${argument#*=} ;; esac; done
echo "$@"
echo 127.0.0.1:1 > "$file.part" && mv "$file.part" "$file"
while :; do sleep 0.05; done"#;

/// A folder with programs that do this.
struct Stage {
    _root: tempfile::TempDir,
    config: Config,
    programs: Programs,
    folder: RunFolder,
}

impl Stage {
    fn new(server: &str, worker: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        let script = |name: &str, text: &str| {
            let path = root.path().join(name);
            let beside = path.with_extension("text");
            fs::write(&beside, format!("#!/bin/sh\n{text}\n")).unwrap();
            // What is to be run must not be open for writing in a process that another test forks.
            let mut install = Command::new("install");
            let installed = install.args(["-m", "755"]).arg(&beside).arg(&path).status();
            assert!(installed.unwrap().success());
            path
        };
        let text = "run.name = \"r\"\ncluster.servers = 2\ncluster.groups = [1]\n\
            data.files = [\"x\"]\ndata.variable = \"x\"\ndata.validation = [1, 2]\n\
            data.held_out = [2, 3]\ntrain.samples = 8\noptimizer.learning_rate = 0.1\n";
        let config = Config::parse(text, "c.toml", Path::new("/"), &[]).unwrap();
        Self {
            config,
            programs: Programs {
                server: script("server", server),
                worker: script("worker", worker),
            },
            folder: RunFolder::create(&root.path().join("r")).unwrap(),
            _root: root,
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.file(name)
    }

    /// Runs until this says so; what was told.
    fn keep(&self, mut until: impl FnMut(&Found, &Keeper<'_>) -> bool) -> (Vec<String>, Found) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let ground = Ground {
                config: &self.config,
                programs: &self.programs,
                folder: &self.folder,
                token: "secret",
                lives_before: 0,
                resume: false,
            };
            let mut keeper = Keeper::start(ground, Clock::start()).unwrap();
            let mut messages = Vec::new();
            loop {
                let mut found = keeper.look().unwrap();
                messages.append(&mut found.messages);
                if until(&found, &keeper) {
                    return (messages, found);
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
    }

    fn kinds(&self) -> Vec<String> {
        let mut events = Lines::<Event>::new(self.file("events.jsonl"));
        let kinds = events.fresh().unwrap().into_iter().map(|event| event.kind);
        kinds.collect()
    }
}

#[test]
fn a_rank_that_dies_is_started_again_until_it_has_done_its_part() {
    let worker = r#"test -e "$0.died" && exit 0; touch "$0.died"; echo "no luck"; kill -9 $$"#;
    let stage = Stage::new(SERVER, worker);
    let (messages, found) = stage.keep(|found, _| found.done);
    assert!(found.failure.is_none());
    let line = "rank 0 of group 0 was killed by signal 9; restarted";
    assert_eq!(messages, [line]);
    assert_eq!(stage.kinds(), ["process_died", "process_restarted"]);
    let rows = processes(stage.folder.path());
    let lives: Vec<_> = rows.iter().map(|row| (row.index, row.life)).collect();
    assert_eq!(lives, [(0, 1), (1, 1), (0, 2)]);
    let log = fs::read_to_string(stage.file("logs/group-0-rank-0.log")).unwrap();
    assert_eq!(log, "no luck\n", "the former life's words stay");
}

#[test]
fn a_rank_that_gave_up_fails_the_run_with_its_last_words() {
    let stage = Stage::new(SERVER, "echo the data are gone; exit 4");
    let (_, found) = stage.keep(|found, _| found.failure.is_some());
    let text = found.failure.unwrap().text;
    let wanted = "rank 0 of group 0 ended with status 4; the last lines of ";
    assert!(text.starts_with(wanted), "{text}");
    assert!(text.ends_with("the data are gone"), "{text}");
    assert_eq!(stage.kinds(), ["gave_up"]);
}

#[test]
fn a_server_that_dies_is_started_again_as_another_life() {
    let server = SERVER.replace(
        "while",
        r#"case $1$2 in --server=1--incarnation=1) while ! test -e "$0.go"; do sleep 0.05; done; exit 7 ;; esac
while"#,
    );
    let stage = Stage::new(&server, "sleep 1000");
    fs::write(stage.programs.server.with_extension("go"), "").unwrap();
    let listens = |keeper: &Keeper<'_>| keeper.local.address(1).is_some_and(|(life, _)| life == 2);
    let (messages, _) = stage.keep(|_, keeper| listens(keeper));
    assert_eq!(messages, ["server 1 ended with status 7; restarted"]);
    let log = fs::read_to_string(stage.file("logs/server-1.log")).unwrap();
    let lives: Vec<&str> = log.lines().collect();
    assert_eq!(lives.len(), 2);
    assert!(lives[1].starts_with("--server=1 --incarnation=2 "), "{log}");
    assert!(lives.iter().all(|life| !life.contains("--coordinate=")));
    let first = fs::read_to_string(stage.file("logs/server-0.log")).unwrap();
    assert!(first.contains("--coordinate=2"), "{first}");
    assert!(
        first.contains("--lease-ms=10000 --host=127.0.0.1"),
        "{first}"
    );
}

#[test]
fn no_process_is_left_behind() {
    let stage = Stage::new(SERVER, "sleep 1000");
    stage.keep(|_, _| true);
    for row in processes(stage.folder.path()) {
        let path = format!("/proc/{}", row.pid);
        assert!(!Path::new(&path).exists(), "{row:?}");
    }
}

#[test]
fn what_the_machine_has_run_out_of_is_said() {
    let error = |errno: Errno| anyhow::Error::from(std::io::Error::from(errno)).context("start x");
    let said = reason(&error(Errno::AGAIN));
    assert!(said.ends_with("has no more processes to give"), "{said}");
    let said = reason(&error(Errno::NOENT));
    assert!(said.starts_with("start x: No such file"), "{said}");
}
