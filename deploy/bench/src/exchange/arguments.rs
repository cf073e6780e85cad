//! What `bench exchange` is asked to measure, and beside what.

use std::str::FromStr;

use crate::fleet::{FleetKind, Names};
use crate::model::{Form, Model};
use crate::size;
use crate::steady::RUNS_MAX;

/// Longest sample that may be asked for.
const SECONDS_MAX: f64 = 3600.0;

/// Most processes of a kind.
const PROCESSES_MAX: u32 = 1024;

pub(super) const MAIN: Names = Names {
    server: "server",
    client: "client",
};
const FLOOR: Names = Names {
    server: "floor server",
    client: "floor client",
};
const BASELINE: Names = Names {
    server: "baseline server",
    client: "baseline client",
};

/// Own server processes, or a fleet that runs already.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Servers {
    Own(u32),
    At(String),
}

impl FromStr for Servers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text.parse(), text.rsplit_once(':')) {
            (Ok(servers), _) if (1..=PROCESSES_MAX).contains(&servers) => Ok(Self::Own(servers)),
            (Err(_), Some((host, port))) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                Ok(Self::At(text.to_owned()))
            }
            _ => Err(format!(
                "give a number of servers to start, 1 to {PROCESSES_MAX}, or HOST:PORT of a coordinator"
            )),
        }
    }
}

// The last one of an option wins, so that scripts can add to a common set.
#[derive(Debug, clap::Args)]
#[command(args_override_self = true)]
pub struct Arguments {
    /// Server processes to start; or HOST:PORT, the coordinator of a fleet that runs already (its
    /// token in TRADEWIND_TOKEN; the measurement's run stays on it until its servers end).
    #[arg(long, value_name = "N|HOST:PORT", default_value = "1")]
    pub(super) servers: Servers,
    #[command(flatten)]
    pub(super) model: Model,
    /// Length of a sample, seconds; a client makes at least one whole exchange in it.
    #[arg(long, default_value_t = 0.5)]
    pub(super) seconds: f64,
    /// Most samples; fewer are taken when 7 or more have a steady median.
    #[arg(long, value_name = "N", default_value_t = 25)]
    pub(super) runs: usize,
    /// Threads of each server; its share of the cores if not given.
    #[arg(long, value_name = "N")]
    pub(super) server_threads: Option<usize>,
    /// Measure no floor.
    #[arg(long)]
    pub(super) no_floor: bool,
    /// Instead of the floor, compare with blocks of this size.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(super) baseline_block_bytes: Option<usize>,
    /// Instead of the floor, compare with so many clients.
    #[arg(long, value_name = "N")]
    pub(super) baseline_clients: Option<u32>,
    /// Instead of the floor, compare with so many servers.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(PROCESSES_MAX)))]
    pub(super) baseline_servers: Option<u32>,
    /// Instead of the floor, compare with the same uncompressed.
    #[arg(long)]
    pub(super) baseline_plain: bool,
    /// Exchange over mutual TLS; instead of the floor, compare with the same in clear.
    #[arg(long, conflicts_with_all = [
        "no_floor", "baseline_block_bytes", "baseline_clients", "baseline_servers", "baseline_plain",
    ])]
    pub(super) tls: bool,
    /// One JSON object instead of a table.
    #[arg(long)]
    pub(super) json: bool,
    /// Words before the command of every process; {role}, {index} and {index1} are replaced.
    #[arg(long, hide = true, default_value = "")]
    pub(super) wrap: String,
    /// Where servers listen; {index} and {index1} are replaced.
    #[arg(long, hide = true, default_value = "127.0.0.1")]
    pub(super) host: String,
}

impl Arguments {
    /// What of it cannot be measured, and the way out.
    pub(super) fn check(&self) -> Result<(), String> {
        self.model.check()?;
        let baseline = self.baseline();
        if let Some((_, model)) = &baseline {
            model
                .check()
                .map_err(|fault| format!("the baseline: {fault}"))?;
        }
        let clients = baseline.iter().map(|(_, model)| model.clients);
        if clients
            .chain([self.model.clients])
            .any(|n| n > PROCESSES_MAX)
        {
            return Err(format!("more than {PROCESSES_MAX} clients; give fewer"));
        }
        if !(self.seconds > 0.0 && self.seconds <= SECONDS_MAX) {
            return Err(format!(
                "--seconds is {}, not more than 0 and at most {SECONDS_MAX}",
                self.seconds
            ));
        }
        if !(1..=RUNS_MAX).contains(&self.runs) {
            return Err(format!("--runs is {}, not 1 to {RUNS_MAX}", self.runs));
        }
        if self.server_threads == Some(0) {
            return Err("--server-threads is 0; a server has at least 1".into());
        }
        if self.attached() && self.server_threads.is_some() {
            return Err("--server-threads has no effect on servers that run already".into());
        }
        if self.attached() && self.baseline_servers.is_some() {
            return Err("--baseline-servers has no effect on servers that run already".into());
        }
        if self.attached() && self.tls {
            return Err("--tls has no effect on servers that run already".into());
        }
        if self.no_floor && baseline.is_some() {
            return Err("--no-floor has no effect beside a baseline, which takes its place".into());
        }
        Ok(())
    }

    /// Whether the servers run already.
    pub(super) fn attached(&self) -> bool {
        matches!(self.servers, Servers::At(_))
    }

    /// The fleet that is measured.
    pub(super) fn kind(&self) -> FleetKind {
        match &self.servers {
            Servers::Own(servers) => FleetKind::Exchange {
                servers: *servers,
                tls: self.tls,
            },
            Servers::At(coordinator) => FleetKind::Attached {
                coordinator: coordinator.clone(),
            },
        }
    }

    /// The fleet that it is compared with, if that is asked for.
    fn baseline(&self) -> Option<(FleetKind, Model)> {
        let asked = self.baseline_block_bytes.is_some()
            || self.baseline_clients.is_some()
            || self.baseline_servers.is_some()
            || self.baseline_plain
            || self.tls;
        let mut kind = self.kind();
        if let FleetKind::Exchange { servers, tls } = &mut kind {
            *servers = self.baseline_servers.unwrap_or(*servers);
            *tls = false;
        }
        let mut model = Model {
            block_bytes: self.baseline_block_bytes.unwrap_or(self.model.block_bytes),
            clients: self.baseline_clients.unwrap_or(self.model.clients),
            ..self.model.clone()
        };
        if self.baseline_plain {
            (model.up, model.down, model.topk_fraction) = (Form::None, Form::None, None);
        }
        asked.then_some((kind, model))
    }

    /// What is measured in turn with the fleet.
    pub(super) fn other(&self) -> Option<(Names, FleetKind, Model)> {
        if let Some((kind, model)) = self.baseline() {
            return Some((BASELINE, kind, model));
        }
        match self.servers {
            Servers::Own(servers) if !self.no_floor && self.model.step_seconds.is_none() => {
                let kind = FleetKind::Floor { servers };
                Some((FLOOR, kind, self.model.clone()))
            }
            _ => None,
        }
    }

    /// Threads of each server that is started.
    pub(super) fn threads(&self) -> usize {
        let servers = match self.servers {
            Servers::Own(servers) => servers as usize,
            Servers::At(_) => 0,
        };
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let share = cores / (servers + self.model.clients as usize).max(1);
        self.server_threads.unwrap_or(share.clamp(1, 8))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parse(arguments: &[&str]) -> Result<Arguments, clap::Error> {
        let line = Line::try_parse_from(["x"].iter().chain(arguments))?;
        Ok(line.arguments)
    }

    #[test]
    fn servers_are_a_number_or_an_address() {
        let servers = |text: &str| text.parse::<Servers>();
        assert_eq!(servers("3"), Ok(Servers::Own(3)));
        assert_eq!(servers("node7:5000"), Ok(Servers::At("node7:5000".into())));
        assert_eq!(servers("[::1]:5000"), Ok(Servers::At("[::1]:5000".into())));
        for bad in ["0", "9999", "node7", ":5000", "node7:x", ""] {
            assert!(servers(bad).unwrap_err().contains("HOST:PORT"), "{bad}");
        }
    }

    #[test]
    fn what_cannot_be_measured_is_named() {
        let check = |arguments: &[&str], wanted: &str| {
            let error = match parse(arguments) {
                Ok(arguments) => arguments.check().unwrap_err(),
                Err(error) => error.to_string(),
            };
            assert!(error.contains(wanted), "{error}");
        };
        check(&["--seconds=0"], "--seconds is 0");
        check(&["--seconds=NaN"], "--seconds is NaN");
        check(&["--runs=0"], "--runs is 0, not 1 to 1000");
        check(&["--server-threads=0"], "--server-threads is 0");
        check(&["--optimizer=sdg"], "sgd");
        check(&["--clients=2000"], "more than 1024 clients");
        check(&["--servers=a:1", "--server-threads=1"], "has no effect");
        check(&["--servers=a:1", "--baseline-servers=1"], "has no effect");
        check(&["--servers=a:1", "--tls"], "has no effect");
        check(&["--tls", "--no-floor"], "cannot be used with");
        check(
            &["--no-floor", "--baseline-clients=1"],
            "--no-floor has no effect",
        );
        check(&["--baseline-clients=0"], "the baseline: --clients is 0");
    }

    #[test]
    fn the_other_side_is_the_floor_or_a_baseline() {
        let other = |arguments: &[&str]| {
            let arguments = parse(arguments).unwrap();
            assert_eq!(arguments.check(), Ok(()));
            arguments
                .other()
                .map(|(_, kind, model)| (kind, model.clients, model.block_bytes))
        };
        let floor = FleetKind::Floor { servers: 2 };
        assert_eq!(other(&["--servers=2"]), Some((floor, 1, 256 << 10)));
        assert_eq!(other(&["--no-floor"]), None);
        assert_eq!(other(&["--servers=a:1"]), None);
        let fleet = |servers| FleetKind::Exchange {
            servers,
            tls: false,
        };
        assert_eq!(other(&["--tls"]), Some((fleet(1), 1, 256 << 10)));
        let want = Some((fleet(2), 1, 25_000_000));
        assert_eq!(other(&["--servers=2", "--baseline-block-bytes=25MB"]), want);
        let want = Some((fleet(1), 3, 256 << 10));
        assert_eq!(
            other(&[
                "--servers=2",
                "--baseline-servers=1",
                "--baseline-clients=3"
            ]),
            want
        );
    }
}
