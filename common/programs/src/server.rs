//! The arguments of `tradewind-server`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{ArgMatches, Args, FromArgMatches, Parser};

use crate::SERVER;
use crate::render::{Render, render};

/// Where a server listens if it is not told: on any free port, for this machine alone.
pub const LISTEN: &str = "127.0.0.1:0";

/// How long a server may be silent until it is dead, milliseconds, if it is not told.
pub const LEASE_MS: u64 = 10_000;

/// Threads of a server's runtime if it is not told.
pub const THREADS: usize = 2;

/// A parameter server: holds shards of runs, applies gradients, answers with fresh parameters.
#[derive(Clone, Debug, PartialEq, Eq, Parser)]
#[command(name = SERVER, version)]
pub struct ServerArguments {
    /// Number of this server in its fleet, from 0.
    #[arg(long)]
    pub server: u32,
    /// Host name or address and port to listen on; port 0 picks a free one.
    #[arg(long, default_value = LISTEN)]
    pub listen: String,
    /// Host name or address under which others reach this server; the listening address if not given.
    #[arg(long)]
    pub advertise: Option<String>,
    /// Address (host:port) under which others reach this server, where it is not the one it listens
    /// on: of something that stands in front of it and passes on what comes.
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "advertise")]
    pub reached_at: Option<String>,
    /// Where the coordinator is.
    #[command(flatten)]
    pub coordinator: CoordinatorAt,
    /// The fleet's folder: snapshots, and what the coordinator must not forget. Without one nothing
    /// outlives the processes.
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// Go on with this run from its newest whole snapshot, unless the coordinator's state in the folder
    /// has got it already. To be given to all servers of the fleet: any of them may be the first that
    /// hosts the coordinator.
    #[arg(long, value_name = "RUN", requires = "folder")]
    pub resume: Option<String>,
    /// Name of this machine: copies of a shard go to different ones; the advertised host if not given.
    #[arg(long)]
    pub host: Option<String>,
    /// A server that has been silent for so many milliseconds is dead.
    #[arg(long, default_value_t = LEASE_MS)]
    pub lease_ms: u64,
    /// Write the address (host:port) into this file once the server listens.
    #[arg(long)]
    pub address_file: Option<PathBuf>,
    /// Serve Prometheus metrics under this address.
    #[arg(long)]
    pub metrics: Option<SocketAddr>,
    /// Send traces of steps to this collector of OpenTelemetry, over gRPC.
    #[arg(long, value_name = "URL")]
    pub otlp: Option<String>,
    /// Host the coordinator of a fleet of this many servers when the one that does is gone and nobody
    /// else does.
    #[arg(long, value_name = "SERVERS", requires = "folder")]
    pub stand_in: Option<u32>,
    /// When told to end, wait for so many milliseconds at most until groups have left and what they
    /// have trained is in a snapshot.
    #[arg(long, default_value_t = 0)]
    pub linger_ms: u64,
    /// Which life of this server; larger than all former ones.
    #[arg(long, default_value_t = 1)]
    pub incarnation: u64,
    /// Threads of the runtime.
    #[arg(long, default_value_t = THREADS)]
    pub threads: usize,
}

impl ServerArguments {
    /// Those of a server that is given no option: it listens on this machine alone, and keeps nothing.
    pub fn plain(server: u32, coordinator: CoordinatorAt) -> Self {
        Self {
            server,
            listen: LISTEN.into(),
            advertise: None,
            reached_at: None,
            coordinator,
            folder: None,
            resume: None,
            host: None,
            lease_ms: LEASE_MS,
            address_file: None,
            metrics: None,
            otlp: None,
            stand_in: None,
            linger_ms: 0,
            incarnation: 1,
            threads: THREADS,
        }
    }

    /// The words behind the program's name, which parse to this value again.
    pub fn words(&self) -> Vec<OsString> {
        let Self {
            server,
            listen,
            advertise,
            reached_at,
            coordinator,
            folder,
            resume,
            host,
            lease_ms,
            address_file,
            metrics,
            otlp,
            stand_in,
            linger_ms,
            incarnation,
            threads,
        } = self;
        // What tells servers apart comes first, for whoever looks at a list of processes.
        render![
            server,
            incarnation,
            listen,
            advertise,
            address_file,
            folder,
            lease_ms,
            host,
            threads,
            linger_ms,
            coordinator,
            resume,
            reached_at,
            stand_in,
            metrics,
            otlp,
        ]
    }

    /// What starts `program`, which is `tradewind-server`.
    pub fn to_command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.args(self.words());
        command
    }
}

/// Where the coordinator is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoordinatorAt {
    /// In this process, for a fleet of so many servers.
    Here {
        /// At least 1.
        servers: u32,
    },
    /// At host:port.
    Elsewhere(String),
    /// Where the fleet's folder says.
    InFolder,
}

/// The same as arguments.
#[derive(Args)]
struct CoordinatorArguments {
    /// Host the coordinator, for a fleet of this many servers.
    #[arg(long, conflicts_with = "coordinator")]
    coordinate: Option<u32>,
    /// Address (host:port) of the coordinator; if neither is given, the fleet's folder says it.
    #[arg(long, required_unless_present_any = ["coordinate", "folder"])]
    coordinator: Option<String>,
}

impl From<CoordinatorArguments> for CoordinatorAt {
    fn from(given: CoordinatorArguments) -> Self {
        match (given.coordinate, given.coordinator) {
            (Some(servers), _) => Self::Here { servers },
            (None, Some(address)) => Self::Elsewhere(address),
            (None, None) => Self::InFolder,
        }
    }
}

impl FromArgMatches for CoordinatorAt {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        CoordinatorArguments::from_arg_matches(matches).map(Self::from)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for CoordinatorAt {
    fn augment_args(command: clap::Command) -> clap::Command {
        CoordinatorArguments::augment_args(command)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        CoordinatorArguments::augment_args_for_update(command)
    }
}

impl Render for CoordinatorAt {
    fn render(&self, _: &str, words: &mut Vec<OsString>) {
        match self {
            Self::Here { servers } => servers.render("coordinate", words),
            Self::Elsewhere(address) => address.render("coordinator", words),
            Self::InFolder => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[OsString]) -> Result<ServerArguments, clap::Error> {
        let program = OsString::from(SERVER);
        ServerArguments::try_parse_from([&program].into_iter().chain(words))
    }

    /// All that a server may be told, but what excludes it.
    fn full() -> ServerArguments {
        ServerArguments {
            server: 3,
            listen: "[::1]:0".into(),
            advertise: Some("node-3".into()),
            reached_at: None,
            coordinator: CoordinatorAt::InFolder,
            folder: Some("/runs/a run".into()),
            resume: Some("-small=1".into()),
            host: Some("-node".into()),
            lease_ms: 5_000,
            address_file: Some("logs/server-3.address".into()),
            metrics: Some("127.0.0.1:9003".parse().unwrap()),
            otlp: Some("http://127.0.0.1:4317".into()),
            stand_in: Some(4),
            linger_ms: 20_000,
            incarnation: 7,
            threads: 6,
        }
    }

    fn plain() -> ServerArguments {
        ServerArguments::plain(0, CoordinatorAt::Here { servers: 1 })
    }

    #[test]
    fn what_is_rendered_parses_to_the_same_value() {
        let all = [
            plain(),
            full(),
            ServerArguments {
                advertise: None,
                reached_at: Some("front:1".into()),
                coordinator: CoordinatorAt::Elsewhere("node-0:4711".into()),
                ..full()
            },
        ];
        for arguments in all {
            let words = arguments.words();
            assert_eq!(parsed(&words).unwrap(), arguments, "{words:?}");
        }
    }

    #[test]
    fn what_a_server_is_not_told_has_a_default() {
        let given = ["--server=0", "--coordinate=1"].map(OsString::from);
        assert_eq!(parsed(&given).unwrap(), plain());
    }

    #[test]
    fn where_the_coordinator_is_is_said_once() {
        let check = |words: &[&str], refusal: &str| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let error = parsed(&words).unwrap_err().to_string();
            assert!(error.contains(refusal), "{error}");
        };
        check(&["--server=0"], "--coordinator <COORDINATOR>");
        check(
            &["--server=0", "--coordinate=1", "--coordinator=a:1"],
            "cannot be used with",
        );
    }
}
