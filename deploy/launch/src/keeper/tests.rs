//! With shell scripts in place of the programs: they are started, die, and are started again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard};

use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use tradewind_config::Config;
use tradewind_proto::v1::host_server::{Host, HostServer};
use tradewind_proto::v1::{CoordinateReply, CoordinateRequest, PingReply, PingRequest};

use super::*;
use crate::Secrets;
use crate::{Programs, RankProgram, Roster, processes};
use tradewind_folder::events::fixture::run;
use tradewind_folder::run::RunFolder;

/// Says where it listens, or somebody does in its place.
const SERVER: &str = r#"
for argument; do case $argument in
--address-file=*) file=${argument#*=} ;;
--server=*) address=$(cat "$0.${argument#*=}" 2> /dev/null) ;;
esac; done
echo "$@"
echo "${address:-127.0.0.1:1}" > "$file.part" && mv "$file.part" "$file"
while :; do sleep 0.05; done"#;

/// A folder with programs that do this.
struct Stage {
    _root: tempfile::TempDir,
    config: Config,
    programs: Programs,
    folder: RunFolder,
    resume: bool,
    gpus: bool,
}

impl Stage {
    /// Nobody hears of silence while a test lasts.
    fn new(server: &str, worker: &str) -> Self {
        Self::with_lease(server, worker, 20_000)
    }

    fn with_lease(server: &str, worker: &str, lease_ms: u64) -> Self {
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
        let text = format!("{text}liveness.lease_ms = {lease_ms}\nliveness.heartbeat_ms = 20\n");
        let config = Config::parse(&text, "c.toml", Path::new("/"), &[]).unwrap();
        Self {
            config,
            programs: Programs {
                server: script("server", server),
                rank: RankProgram::Worker(script("worker", worker)),
            },
            folder: RunFolder::create(&root.path().join("r")).unwrap(),
            resume: false,
            gpus: false,
            _root: root,
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.file(name)
    }

    /// Runs until this says so; what was told.
    fn keep(&self, until: impl FnMut(&Found, &Keeper<'_>) -> bool) -> (Vec<String>, Found) {
        self.keep_with(&[], until)
    }

    /// As [`keep`](Self::keep), while somebody answers in place of the first servers.
    fn keep_with(
        &self,
        voices: &[Voice],
        mut until: impl FnMut(&Found, &Keeper<'_>) -> bool,
    ) -> (Vec<String>, Found) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            for (server, voice) in voices.iter().enumerate() {
                let address = voice.speak().await;
                let file = self.programs.server.with_extension(server.to_string());
                fs::write(file, address).unwrap();
            }
            let context = LaunchContext {
                config: &self.config,
                programs: &self.programs,
                folder: &self.folder,
                secrets: &Secrets::of_token("secret"),
                lives_before: 0,
                resume: self.resume,
                gpus: self.gpus,
                roster: &Roster::default(),
                fronts: &[],
            };
            let mut keeper = Keeper::start(context, Clock::start()).unwrap();
            let mut messages = Vec::new();
            loop {
                let found = keeper.look().unwrap();
                messages.extend(found.messages.iter().cloned());
                if until(&found, &keeper) {
                    return (messages, found);
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
    }

    /// Kinds of what has happened, in order.
    fn kinds(&self) -> Vec<String> {
        let mut events = Events::of_fleet(self.folder.path());
        let kinds = events.fresh().unwrap().into_iter().map(|event| event.kind);
        kinds.collect()
    }
}

/// Answers in place of a server.
#[derive(Clone, Default)]
struct Voice(Arc<Mutex<Said>>);

#[derive(Default)]
struct Said {
    pong: PingReply,
    /// Nobody is answered.
    silent: bool,
    /// How often it was asked to host the coordinator.
    asked: u32,
}

impl Voice {
    fn new(server: u32, coordinates: bool) -> Self {
        let voice = Self::default();
        voice.said().pong = PingReply {
            server,
            incarnation: 1,
            coordinates,
        };
        voice
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.0.lock().unwrap()
    }

    /// From now on; where.
    async fn speak(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let incoming = TcpIncoming::from(listener);
        let service = HostServer::new(self.clone());
        let serving = Server::builder().add_service(service);
        tokio::spawn(serving.serve_with_incoming(incoming));
        address
    }
}

#[tonic::async_trait]
impl Host for Voice {
    async fn ping(&self, _: Request<PingRequest>) -> Result<Response<PingReply>, Status> {
        if self.said().silent {
            std::future::pending::<()>().await;
        }
        Ok(Response::new(self.said().pong))
    }

    async fn coordinate(
        &self,
        _: Request<CoordinateRequest>,
    ) -> Result<Response<CoordinateReply>, Status> {
        let mut said = self.said();
        said.asked += 1;
        if said.silent {
            return Err(Status::unavailable("not now"));
        }
        said.pong.coordinates = true;
        Ok(Response::new(CoordinateReply::default()))
    }
}

#[test]
fn a_silent_host_of_the_coordinator_is_killed_and_a_survivor_takes_over() {
    let stage = Stage::with_lease(SERVER, "sleep 1000", 2_000);
    let voices = [Voice::new(0, true), Voice::new(1, false)];
    let mut looks = 0;
    let mut has_moved = false;
    let (messages, found) = stage.keep_with(&voices, |found, keeper| {
        looks += 1;
        voices[0].said().silent = looks > 20;
        let moved = |message: &String| message.contains("hosts the coordinator now");
        has_moved |= found.messages.iter().any(moved);
        let back = keeper.local.address(0).is_some_and(|(life, _)| life == 2);
        (has_moved && back) || found.failure.is_some()
    });
    assert!(found.failure.is_none());
    let want = [
        "server 0 answered no ping for 2000 ms and was killed; restarted",
        "server 1 hosts the coordinator now: server 0 answered no ping for 2000 ms and was killed",
    ];
    assert_eq!(messages, want);
    let kinds = [
        "process_killed",
        "process_died",
        "process_restarted",
        "coordinator_moved",
    ];
    assert_eq!(stage.kinds(), kinds);
    assert_eq!((voices[0].said().asked, voices[1].said().asked), (0, 1));
    let log = fs::read_to_string(stage.file("logs/server-0.log")).unwrap();
    let lives: Vec<bool> = log.lines().map(|l| l.contains("--coordinate=2")).collect();
    assert_eq!(lives, [true, false], "it hosts it no more: {log}");
    assert!(!log.contains("--resume"), "{log}");
}

#[test]
fn a_rank_whose_lease_has_run_out_is_killed_though_it_sleeps() {
    let worker = r#"test -e "$0.slept" && exit 0; touch "$0.slept"; kill -STOP $$; sleep 1000"#;
    let stage = Stage::with_lease(SERVER, worker, 2_000);
    let log = EventLog::open(stage.folder.path()).unwrap();
    let text = "rank 0 of group 0 is lost, and the group forms again: its lease ran out";
    let rank = Member::Rank { group: 0, rank: 0 };
    let voices = [Voice::new(0, true), Voice::new(1, false)];
    let (messages, found) = stage.keep_with(&voices, |found, _| {
        // Said again and again; at first the process is too young to have been silent for so long.
        log.write(&Event::of(wall(), "rank_lost", text.into(), rank, 1).in_run(&run("r")));
        found.done || found.failure.is_some()
    });
    assert!(found.failure.is_none());
    let line = "rank 0 of group 0 was silent for its lease of 2000 ms and was killed; restarted";
    assert_eq!(messages, [line]);
    let mut kinds = stage.kinds();
    kinds.retain(|kind| kind != "rank_lost");
    assert_eq!(
        kinds,
        ["process_killed", "process_died", "process_restarted"]
    );
}

/// As on servers that two runs share: the ranks of both have the same numbers.
#[test]
#[expect(clippy::disallowed_methods, reason = "leases are of the clock's time")]
fn a_rank_of_another_run_may_lose_its_lease_without_harm_to_ours() {
    let stage = Stage::with_lease(SERVER, "kill -STOP $$; sleep 1000", 200);
    let log = EventLog::open(stage.folder.path()).unwrap();
    let text = "rank 0 of group 0 is lost, and the group forms again: its lease ran out";
    let rank = Member::Rank { group: 0, rank: 0 };
    let voices = [Voice::new(0, true), Voice::new(1, false)];
    let begun = std::time::Instant::now();
    let mut told = 0;
    let (messages, found) = stage.keep_with(&voices, |found, _| {
        // For several leases: our own would be old enough to be killed.
        let lost = Event::of(wall(), "rank_lost", text.into(), rank, 1);
        log.write(&lost.in_run(&run("other")));
        told += 1;
        let over = told > 20 && begun.elapsed() > Duration::from_secs(2);
        over || found.done || found.failure.is_some()
    });
    assert!(found.failure.is_none() && !found.done);
    assert_eq!(messages, <[String; 0]>::default());
    assert!(stage.kinds().iter().all(|kind| kind == "rank_lost"));
}

#[test]
fn a_rank_hears_in_every_life_that_the_check_has_found_gpus() {
    let worker = r#"echo "$@"; test -e "$0.died" && exit 0; touch "$0.died"; kill -9 $$"#;
    for gpus in [true, false] {
        let mut stage = Stage::new(SERVER, worker);
        stage.gpus = gpus;
        stage.keep(|found, _| found.done || found.failure.is_some());
        let log = fs::read_to_string(stage.file("logs/group-0-rank-0.log")).unwrap();
        let told: Vec<bool> = log.lines().map(|life| life.ends_with(" --gpu")).collect();
        assert_eq!(told, [gpus; 2], "{log}");
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
    assert_eq!(log, "no luck\n", "the previous life's words stay");
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

/// What a previous process of its returned is not why it is given up.
#[test]
fn a_rank_that_cannot_be_started_again_has_no_exit_status() {
    let stage = Stage::new(SERVER, r#"rm "$0"; exit 1"#);
    let (_, found) = stage.keep(|found, _| found.failure.is_some());
    let failure = found.failure.unwrap();
    let why = "rank 0 of group 0 could not be started: cannot start ";
    assert!(failure.text.starts_with(why), "{}", failure.text);
    assert_eq!(failure.cause.exit_status, None);
}

#[test]
fn a_server_that_dies_is_started_again_as_another_life() {
    let server = SERVER.replace(
        "while",
        r#"case $1$2 in --server=1--incarnation=1) while ! test -e "$0.go"; do sleep 0.05; done; exit 7 ;; esac
while"#,
    );
    let mut stage = Stage::new(&server, "sleep 1000");
    stage.resume = true;
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
    // Whichever of them hosts first goes on from the snapshot.
    let resumes = |life: &&str| life.contains(" --resume=r");
    assert!(first.lines().chain(lives).all(|life| resumes(&life)));
    assert!(
        first.contains("--lease-ms=20000 --host=127.0.0.1"),
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
