//! `tradewind bench scale`: what an operation of a core costs in runs of more and more groups. A core is
//! asked directly, without a network and without other processes, so that what grows is its own.
//!
//! Beside times it counts: bytes written down, messages, groups that are looked at. Counts do not depend on
//! the machine, so that tests hold them to their bounds.

pub(crate) mod connected;
mod coordinator;
mod failover;
mod joining;
mod shard;
mod table;

use clap::builder::PossibleValuesParser;

use self::failover::Dies;
use self::table::{ScaleReport, Scaled};
use super::Stop;
use super::steady::{RUNS_MAX, Series};
use tradewind_common::spec::{GROUP_SIZE_MAX, GROUPS_MAX};
use tradewind_process::log::say;

/// Longest time in which nothing is pushed.
const IDLE_SECONDS_MAX: f64 = 3600.0;

/// Takes one sample of every figure, in a run of so many groups.
type Measure = fn(groups: u32) -> Vec<Figure>;

/// The cores that can be measured, by name.
const SUBJECTS: [(&str, Measure); 2] = [
    ("coordinator", coordinator::measure),
    ("shard", shard::measure),
];

/// What one operation costs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    /// The operation, and what of it is meant: `join`, `join: written`.
    pub(super) what: &'static str,
    pub(super) unit: Unit,
    pub(super) value: f64,
}

/// In what a figure is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Of time.
    Microseconds,
    Seconds,
    Bytes,
    /// Messages, or entries that are looked at.
    Count,
}

impl Unit {
    /// As the table has it.
    fn text(self) -> &'static str {
        match self {
            Self::Microseconds => "µs",
            Self::Seconds => "s",
            Self::Bytes => "B",
            Self::Count => "",
        }
    }
}

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Which core.
    #[arg(
        long, value_name = "NAME", default_value = SUBJECTS[0].0,
        value_parser = PossibleValuesParser::new(SUBJECTS.map(|(name, _)| name)),
    )]
    of: String,
    /// Numbers of groups, one after the other.
    #[arg(
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "10,100,1000,10000"
    )]
    groups: Vec<u32>,
    /// Instead of asking a core, have so many ranks of each group join a real coordinator over the
    /// network.
    #[arg(long, value_name = "RANKS", conflicts_with_all = ["of", "runs"])]
    joining: Option<u32>,
    /// With --joining, the ranks of a group share a connection: more ranks than a process may have descriptors for.
    #[arg(long, requires = "joining")]
    shared_connections: bool,
    /// Instead of asking a core, connect a rank of each group to a real server: what it costs that while
    /// it is idle, and when it pushes.
    #[arg(long, conflicts_with_all = ["of", "runs", "joining"])]
    connected: bool,
    /// Instead of asking a core, connect a rank of each group to two real servers, which hold copies for each other, and
    /// kill one, that with the coordinator or the other one: how long it takes until all ranks are served again.
    #[arg(
        long,
        value_name = "DIES",
        num_args = 0..=1,
        default_missing_value = "server",
        conflicts_with_all = ["of", "runs", "joining", "connected"],
    )]
    failover: Option<Dies>,
    /// With --connected, pushes that are timed, at least.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 20_000,
        requires = "connected"
    )]
    pushes: u32,
    /// With --connected, seconds in which nothing is pushed and the server's time for heartbeats is taken.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 10.0,
        requires = "connected"
    )]
    idle_seconds: f64,
    /// With --joining, --connected or --failover, threads of each server.
    #[arg(long, value_name = "N", default_value_t = 1)]
    server_threads: usize,
    /// Samples of each; their median counts.
    #[arg(long, value_name = "N", default_value_t = 3)]
    runs: usize,
    /// One JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Stop> {
    check(arguments).map_err(Stop::Input)?;
    if let Some(ranks) = arguments.joining {
        for groups in &arguments.groups {
            let shared = arguments.shared_connections;
            let report = joining::measure(*groups, ranks, shared, arguments.server_threads)?;
            say(match arguments.json {
                true => report.json(),
                false => report.table(),
            });
        }
        return Ok(());
    }
    if arguments.connected {
        let Arguments {
            pushes,
            idle_seconds,
            server_threads,
            ..
        } = *arguments;
        let groups = &arguments.groups;
        let report = connected::measure(groups, pushes, idle_seconds, server_threads)?;
        say(match arguments.json {
            true => report.json(),
            false => report.table(),
        });
        return Ok(());
    }
    if let Some(dies) = arguments.failover {
        let report = failover::measure(dies, &arguments.groups, arguments.server_threads)?;
        say(match arguments.json {
            true => report.json(),
            false => report.table(),
        });
        return Ok(());
    }
    let subject = SUBJECTS.iter().find(|(name, _)| *name == arguments.of);
    let (name, measure) = subject.expect("one of the possible values");
    let bar = super::progress(arguments.runs * arguments.groups.len());
    let mut scaled = Vec::new();
    for groups in &arguments.groups {
        let mut samples = Vec::<(Figure, Series)>::new();
        for _ in 0..arguments.runs {
            bar.set_message(format!("{groups} groups"));
            for (number, figure) in measure(*groups).into_iter().enumerate() {
                if number == samples.len() {
                    samples.push((figure.clone(), Series::default()));
                }
                samples[number].1.push(figure.value);
            }
            bar.inc(1);
        }
        let median = |(figure, series): (Figure, Series)| Figure {
            value: series.median().expect("one sample at least"),
            ..figure
        };
        scaled.push(Scaled {
            groups: *groups,
            figures: samples.into_iter().map(median).collect(),
        });
    }
    bar.finish_and_clear();
    let report = ScaleReport::new(name, scaled);
    say(match arguments.json {
        true => report.json(),
        false => report.table(),
    });
    Ok(())
}

/// What cannot be measured, and the way out.
fn check(arguments: &Arguments) -> Result<(), String> {
    if arguments.groups.is_empty() {
        return Err("--groups names no number; give one or more, such as 10,10000".into());
    }
    let within = |groups: &&u32| !(1..=GROUPS_MAX as u32).contains(*groups);
    if let Some(groups) = arguments.groups.iter().find(within) {
        return Err(format!("--groups has {groups}, not 1 to {GROUPS_MAX}"));
    }
    if let Some(ranks) = arguments.joining
        && !(1..=GROUP_SIZE_MAX).contains(&ranks)
    {
        return Err(format!("--joining is {ranks}, not 1 to {GROUP_SIZE_MAX}"));
    }
    if arguments.connected {
        connected::check(&arguments.groups)?;
    }
    if arguments.failover.is_some() {
        failover::check(&arguments.groups)?;
    }
    if arguments.pushes == 0 {
        return Err("--pushes is 0; at least 1 is timed".into());
    }
    let idle = arguments.idle_seconds;
    if !(idle > 0.0 && idle <= IDLE_SECONDS_MAX) {
        return Err(format!(
            "--idle-seconds is {idle}, not more than 0 and at most {IDLE_SECONDS_MAX}"
        ));
    }
    if arguments.server_threads == 0 {
        return Err("--server-threads is 0; a server has at least 1".into());
    }
    if !(1..=RUNS_MAX).contains(&arguments.runs) {
        return Err(format!("--runs is {}, not 1 to {RUNS_MAX}", arguments.runs));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_measured_is_named() {
        let usual = || Arguments {
            of: SUBJECTS[0].0.into(),
            groups: vec![10],
            joining: None,
            shared_connections: false,
            connected: false,
            failover: None,
            pushes: 1,
            idle_seconds: 1.0,
            server_threads: 1,
            runs: 1,
            json: false,
        };
        assert_eq!(check(&usual()), Ok(()));
        let check = |change: &dyn Fn(&mut Arguments), wanted: &str| {
            let mut arguments = usual();
            change(&mut arguments);
            let error = super::check(&arguments).unwrap_err();
            assert!(error.contains(wanted), "{error}");
        };
        check(&|a| a.groups = vec![], "--groups names no number");
        check(
            &|a| a.groups = vec![10, 0],
            "--groups has 0, not 1 to 65536",
        );
        check(&|a| a.groups = vec![65_537], "--groups has 65537");
        check(&|a| a.runs = 0, "--runs is 0");
        check(&|a| a.pushes = 0, "--pushes is 0");
        check(&|a| a.server_threads = 0, "--server-threads is 0");
        check(&|a| a.idle_seconds = 0.0, "--idle-seconds is 0");
        check(&|a| a.idle_seconds = f64::NAN, "--idle-seconds is NaN");
    }
}
