//! Servers, as processes of their own, whose log cannot be written: they go on, whatever else fails
//! beside that.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Stdio};

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustix::process::Signal;
use serde_json::Value;
use tradewind_common::environment;
use tradewind_programs::SERVER;
use tradewind_programs::server::{CoordinatorAt, ServerArguments};
use tradewind_tests::cluster::process::signal;
use tradewind_tests::cluster::{programs, wait_for};

/// A `tradewind-server` of a fleet of two; it ends when this is dropped.
struct Server(Child);

impl Server {
    /// Server 0 hosts the coordinator, and hosts it again in a later life.
    fn start(folder: &Path, (server, life): (u32, u64), metrics: u16, errors: Stdio) -> Self {
        let coordinator = match server {
            0 => CoordinatorAt::Here { servers: 2 },
            _ => CoordinatorAt::InFolder,
        };
        let arguments = ServerArguments {
            folder: Some(folder.to_owned()),
            metrics: Some(([127, 0, 0, 1], metrics).into()),
            incarnation: life,
            ..ServerArguments::plain(server, coordinator)
        };
        let mut command = arguments.to_command(&programs().join(SERVER));
        let child = command
            .env(environment::LOG, "debug")
            .stderr(errors)
            .spawn();
        Self(child.expect("a server starts"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        signal(self.0.id(), Signal::KILL);
        let _ = self.0.wait();
    }
}

/// A fleet of two in a folder.
struct Fleet {
    folder: tempfile::TempDir,
    /// Server 0, in which life of it.
    coordinator: Server,
    life: u64,
    other: Server,
    metrics: u16,
}

impl Fleet {
    /// Server 1 logs into `errors`.
    fn start(errors: Stdio) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let coordinator = Server::start(folder.path(), (0, 1), port(), Stdio::null());
        let metrics = port();
        let other = Server::start(folder.path(), (1, 1), metrics, errors);
        let fleet = Self {
            folder,
            coordinator,
            life: 1,
            other,
            metrics,
        };
        fleet.registered(1);
        fleet
    }

    fn registered(&self, times: usize) {
        let path = self.folder.path().join("events.jsonl");
        wait_for("server 1 to register", || {
            let text = fs::read_to_string(&path).ok()?;
            // The last one may still be written.
            let events = text
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let up = events.filter(|event| event["kind"] == "server_up" && event["server"] == 1);
            (up.count() >= times).then_some(())
        });
    }

    /// The coordinator dies and another life of its server follows it, with which server 1, the same
    /// process as before, registers.
    fn coordinator_follows(&mut self) {
        signal(self.coordinator.0.id(), Signal::KILL);
        self.life += 1;
        let next = (0, self.life);
        self.coordinator = Server::start(self.folder.path(), next, port(), Stdio::null());
        self.registered(self.life as usize);
        assert!(self.other.0.try_wait().unwrap().is_none(), "it runs");
    }

    /// How many lines of its log server 1 says are lost.
    fn lost(&self) -> u64 {
        let mut stream = TcpStream::connect(("127.0.0.1", self.metrics)).unwrap();
        let request = "GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let mut lines = reply.lines();
        let lost = lines.find_map(|line| line.strip_prefix("tradewind_log_lines_lost_total "));
        let lost = lost.unwrap_or_else(|| panic!("no such metric in {reply}"));
        lost.parse().unwrap()
    }
}

/// A port that was free a moment ago.
fn port() -> u16 {
    let bound = TcpListener::bind("127.0.0.1:0").unwrap();
    bound.local_addr().unwrap().port()
}

#[test]
fn a_server_whose_log_is_on_a_full_disk_finds_the_next_coordinator() {
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut fleet = Fleet::start(full.into());
    fleet.coordinator_follows();
    assert!(fleet.lost() > 0);
}

#[test]
fn a_server_whose_log_nobody_reads_finds_the_next_coordinator() {
    let (unread, mut pipe) = std::io::pipe().unwrap();
    // As much as it holds: what comes next would wait for ever.
    pipe.write_all(&[b'x'; 1 << 16]).unwrap();
    let mut fleet = Fleet::start(pipe.into());
    fleet.coordinator_follows();
    drop(unread);
}

#[test]
fn a_server_whose_log_is_closed_finds_the_next_coordinator_and_says_what_is_missing() {
    let place = tempfile::tempdir().unwrap();
    let fifo = place.path().join("log");
    let mode = Mode::RUSR | Mode::WUSR;
    mknodat(CWD, &fifo, FileType::Fifo, mode, 0).unwrap();
    let read = || {
        let mut options = OpenOptions::new();
        let options = options
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits() as i32);
        options.open(&fifo).unwrap()
    };
    let reader = read();
    let pipe = OpenOptions::new().write(true).open(&fifo).unwrap();
    let mut fleet = Fleet::start(pipe.into());
    drop(reader);
    fleet.coordinator_follows();
    wait_for("a lost line", || (fleet.lost() > 0).then_some(()));

    let mut reader = read();
    // So that it has something to say.
    fleet.coordinator_follows();
    let mut text = String::new();
    let missing = wait_for("a word about them", || {
        let mut bytes = vec![0; 1 << 16];
        let read = reader.read(&mut bytes).unwrap_or(0);
        text += &String::from_utf8_lossy(&bytes[..read]);
        let found = text.lines().find(|line| line.starts_with("missing here"));
        found.map(str::to_owned)
    });
    let told = missing.split(' ').find_map(|word| word.parse::<u64>().ok());
    assert!(missing.contains("Broken pipe"), "{missing}");
    assert_eq!(told, Some(fleet.lost()), "{missing}");
}
