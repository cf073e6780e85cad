//! A rank is killed, one is stopped, and the one that serves the group's store is killed, each while
//! the group reduces nearly all the time: the ranks that are left step again, and the other group
//! goes on meanwhile.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;
use tradewind_client::stopwatch::wall;
use tradewind_common::record::StepRecord;

use crate::cluster::{Cluster, Ranks};
use crate::options::{Keys, Options};
use crate::report::Teller;

/// How long all groups may take to begin.
const BEGINS: Duration = Duration::from_secs(60);

/// How long a group may take to step again.
const RECOVERS: Duration = Duration::from_secs(40);

/// Steps of each group before the first fault, and of the hurt one after each.
const STEPS: usize = 3;

/// On a GPU, where NCCL takes seconds to connect ranks again, and on a CPU.
const LEASE_MS: [u64; 2] = [8000, 2000];

/// Ranks of the group that is hurt, and of the other one.
const GROUPS: [u32; 2] = [4, 2];

/// Name, signal, rank: each leaves one rank less.
const FAULTS: [(&str, Signal, u32); 3] = [
    ("killed", Signal::KILL, 3),
    ("stopped", Signal::STOP, 2),
    ("store_killed", Signal::KILL, 0),
];

pub(super) fn run(options: &Options, teller: &Teller) -> anyhow::Result<()> {
    // Few pixels and many parameters: reductions take most of a step.
    let lease_ms = options.size(LEASE_MS[0], LEASE_MS[1]);
    let keys = Keys::common(options, "check")
        .resnet(options, options.size(32, 8), 10)
        .with("model.blocks", "[1, 1, 1, 1]")
        .with("cluster.groups", format!("{GROUPS:?}"))
        .with("cluster.servers", 2)
        .with("train.consistency", "\"async\"")
        .with("train.batch", 2)
        .with("train.samples", 1_000_000_000_000u64)
        .with("liveness.lease_ms", lease_ms)
        .with("liveness.heartbeat_ms", 400)
        .with("liveness.reform_grace_ms", 500);
    let mut cluster = Cluster::start(options, "faults", &keys, Ranks::Workers)?;
    let began = cluster.watch(
        BEGINS,
        |_, _| false,
        |records| {
            let begun = |group| of(records, group).count() >= STEPS;
            (begun(0) && begun(1)).then_some(())
        },
    )?;
    anyhow::ensure!(
        began.is_some(),
        "after {} s not all groups train",
        BEGINS.as_secs()
    );
    let records = cluster.records();
    teller.figure("lease_seconds", lease_ms as f64 / 1000.0);
    teller.figure("reducing_fraction_of_step", reducing(&records));
    teller.figure(
        "other_groups_pause_before_seconds",
        longest_pause(&records, 1, 0.0, f64::MAX),
    );

    for (number, (name, signal, rank)) in FAULTS.into_iter().enumerate() {
        let hurt = &FAULTS[..=number];
        let left = GROUPS[0] - hurt.len() as u32;
        let at = wall();
        cluster.signal(0, rank, signal)?;
        let gone = |group, rank| group == 0 && hurt.iter().any(|fault| fault.2 == rank);
        let again = cluster.watch(options.patience(RECOVERS), gone, |records| {
            // A step of those who are left, and no fewer.
            let after = of(records, 0).filter(|record| record.wall > at);
            let steps: Vec<_> = after
                .filter(|record| record.samples == u64::from(2 * left))
                .collect();
            (steps.len() >= STEPS).then(|| steps[0].wall)
        })?;
        let Some(again) = again else {
            teller.fault(format!(
                "{name}: after {} s the {left} ranks that are left do not step",
                RECOVERS.as_secs()
            ));
            return Ok(());
        };
        let records = cluster.records();
        teller.figure(
            name,
            json!({
                "rank": rank,
                "ranks_left": left,
                "steps_again_after_seconds": again - at,
                "other_groups_longest_pause_seconds": longest_pause(&records, 1, at, again),
            }),
        );
    }
    Ok(())
}

fn of(records: &[StepRecord], group: u32) -> impl Iterator<Item = &StepRecord> {
    records.iter().filter(move |record| record.group == group)
}

/// The part of a step of group 0 in which it reduces, by the sums of all steps.
fn reducing(records: &[StepRecord]) -> f64 {
    let sum = |of_one: fn(&StepRecord) -> f64| of(records, 0).map(of_one).sum::<f64>();
    let reduce = sum(|record| record.reduce_seconds);
    let all = sum(|record| record.compute_seconds + record.reduce_seconds + record.exposed_seconds);
    reduce / all
}

/// The longest time without a step of a group within a span of time, in seconds; with the steps
/// before and after it.
fn longest_pause(records: &[StepRecord], group: u32, from: f64, to: f64) -> f64 {
    let walls: Vec<f64> = of(records, group).map(|record| record.wall).collect();
    let pauses = walls
        .windows(2)
        .filter(|pair| pair[1] > from && pair[0] < to);
    pauses.map(|pair| pair[1] - pair[0]).fold(0.0, f64::max)
}
