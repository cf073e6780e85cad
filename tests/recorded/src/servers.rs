//! Processes of `tradewind-server` that nobody watches over but the test.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use rustix::process::{Pid, Signal, kill_process};
use tradewind_programs::server::{CoordinatorAt, ServerArguments};

use crate::wait::wait_for;

/// A fleet of processes. They die when it is dropped.
pub struct Servers {
    folder: PathBuf,
    lease_ms: u64,
    descriptors: Option<u64>,
    processes: Vec<ServerProcess>,
}

struct ServerProcess {
    life: u64,
    child: Option<Child>,
    stopped: bool,
}

/// Who hosts the coordinator when a server starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// This server, from the beginning.
    Hosting,
    /// Whoever does; or one of them, when nobody has for a lease.
    StandingIn,
}

impl Servers {
    /// Starts so many, each with at most so many descriptors, the first of which hosts the coordinator at first;
    /// waits until it says where.
    pub(super) fn start(
        (servers, descriptors): (u32, Option<u64>),
        lease_ms: u64,
        folder: &Path,
    ) -> Self {
        let process = |_| ServerProcess {
            life: 0,
            child: None,
            stopped: false,
        };
        let mut all = Self {
            folder: folder.to_owned(),
            lease_ms,
            descriptors,
            processes: (0..servers).map(process).collect(),
        };
        for server in 0..servers {
            let start = match server {
                0 => Start::Hosting,
                _ => Start::StandingIn,
            };
            all.begin(server, start);
            if server == 0 {
                let address = folder.join("coordinator/address.json");
                wait_for("a coordinator", || address.exists().then_some(()));
            }
        }
        all
    }

    /// The fleet's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.processes.len() as u32
    }

    /// Whether a server's process is there and not stopped.
    pub fn is_well(&self, server: u32) -> bool {
        let process = &self.processes[server as usize];
        process.child.is_some() && !process.stopped
    }

    /// Starts a server in its next life.
    ///
    /// # Panics
    /// If it is there, or cannot be started.
    pub fn begin(&mut self, server: u32, start: Start) {
        let servers = self.processes.len() as u32;
        let process = &mut self.processes[server as usize];
        assert!(process.child.is_none(), "server {server} is there");
        process.life += 1;
        let log = self
            .folder
            .join(format!("server-{server}.{}.log", process.life));
        let coordinator = match start {
            Start::Hosting => CoordinatorAt::Here { servers },
            Start::StandingIn => CoordinatorAt::InFolder,
        };
        let arguments = ServerArguments {
            folder: Some(self.folder.clone()),
            host: Some(format!("host-{server}")),
            lease_ms: self.lease_ms,
            stand_in: Some(servers),
            incarnation: process.life,
            ..ServerArguments::plain(server, coordinator)
        };
        let command = arguments.to_command(program());
        let mut command = match self.descriptors {
            None => command,
            Some(most) => limited(&command, most),
        };
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(log).expect("a file for its log"));
        process.child = Some(command.spawn().expect("tradewind-server starts"));
    }

    /// Kills a server's process, if it is there.
    pub fn kill(&mut self, server: u32) {
        let process = &mut self.processes[server as usize];
        if let Some(mut child) = process.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        process.stopped = false;
    }

    /// Stops a server's process, or lets it go on.
    pub fn stop(&mut self, server: u32, stopped: bool) {
        let process = &mut self.processes[server as usize];
        if let Some(child) = &process.child {
            let which = match stopped {
                true => Signal::STOP,
                false => Signal::CONT,
            };
            let pid = Pid::from_raw(child.id() as i32).expect("the process of a child");
            // One that has gone is left alone.
            let _ = kill_process(pid, which);
            process.stopped = stopped;
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for server in 0..self.count() {
            self.kill(server);
        }
    }
}

/// The same command in a process that may have so many descriptors, and cannot ask for more.
fn limited(command: &Command, descriptors: u64) -> Command {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "ulimit -n \"$0\" && exec \"$@\""])
        .arg(descriptors.to_string())
        .arg(command.get_program())
        .args(command.get_args());
    shell
}

/// `tradewind-server`, built once in the profile of the test, so that `cargo test` alone is enough. With
/// `TRADEWIND_BUILT` in the environment it is taken as it is.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let test = std::env::current_exe().expect("a test knows where it lies");
        let folder = test.ancestors().nth(2).expect("target/<profile>/deps/it");
        let name = folder.file_name().and_then(|name| name.to_str());
        let profile = match name.expect("a profile") {
            "debug" => "dev",
            other => other,
        };
        if std::env::var_os("TRADEWIND_BUILT").is_some() {
            return folder.join("tradewind-server");
        }
        let built = Command::new(env!("CARGO"))
            // Of the workspace: the package alone wants other features of what it depends on.
            .args(["build", "--quiet", "--workspace"])
            .args(["--bin", "tradewind-server", "--profile", profile])
            .arg("--target-dir")
            .arg(folder.parent().expect("target/<profile>"))
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .expect("cargo starts");
        let errors = String::from_utf8_lossy(&built.stderr);
        assert!(
            built.status.success(),
            "the server does not build:\n{errors}"
        );
        folder.join("tradewind-server")
    })
}
