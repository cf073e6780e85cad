//! Violations are fed in, one at a time, and must come out.

mod falls;

use tradewind_common::holders::CopyHolder;
use tradewind_common::{Generation, ServerId};

use super::*;
use tradewind_common::record::fixture::run;

const RULES: Rules = Rules {
    replication: 2,
    one_at_a_time: false,
    patience: 20.0,
};

fn watch(replication: u32) -> Watch {
    let mut watch = Watch::new(Rules {
        replication,
        ..RULES
    });
    watch.handle_processes(alive(&[(0, 1), (1, 1), (2, 1)]), BTreeMap::new());
    watch
}

fn alive(lives: &[(u32, u64)]) -> BTreeMap<u32, u64> {
    lives.iter().copied().collect()
}

/// A clock that was finished so many seconds after the beginning.
fn record(group: u32, clock: u64, updates: u64, wall: f64) -> StepRecord {
    StepRecord {
        group,
        clock,
        updates,
        wall,
        samples: 8,
        ..run(1, 1)[0].clone()
    }
}

/// Shard 0: on server 0, with a full copy on server 1.
fn holders() -> Vec<Holders> {
    let copy = CopyHolder {
        server: ServerId(1),
        since: Generation(0),
        full: true,
    };
    vec![Holders {
        copies: vec![copy],
        ..Holders::alone(ServerId(0))
    }]
}

/// After so many updates, of group 0 alone.
fn seen(server: u32, versions: u64, primary: bool) -> Seen {
    let decided = DecidedClock {
        group: 0,
        clock: versions.saturating_sub(1),
    };
    let reply = ShardStatusReply {
        server,
        generation: 5,
        blocks: 1,
        version_sum: versions,
        version_max: versions,
        digest: versions.to_le_bytes().to_vec().into(),
        primary,
        decided: vec![decided],
        ..ShardStatusReply::default()
    };
    Seen { shard: 0, reply }
}

fn status(coordinator: u64, generation: u64) -> StatusReply {
    StatusReply {
        coordinator,
        generation,
        ..StatusReply::default()
    }
}

/// The only violation begins with `want`.
fn found(watch: &Watch, want: &str) {
    let [only] = watch.violations() else {
        panic!("{want:?} is not alone in {:?}", watch.violations());
    };
    assert!(only.starts_with(want), "{only}");
}

fn well(watch: &Watch) {
    assert!(watch.violations().is_empty(), "{:?}", watch.violations());
}

/// A round at a time, in which the coordinator on server 2 says the same before and after.
fn round_at(watch: &mut Watch, at: f64, holders: &[Holders], seen: &[Seen]) {
    watch.handle_round(Round {
        began: at - 0.1,
        ended: at,
        before: holders,
        after: holders,
        host: 2,
        seen,
    });
}

fn round(watch: &mut Watch, seen: &[Seen]) {
    round_at(watch, 1000.0, &holders(), seen);
}

#[test]
fn what_is_well_is_no_violation() {
    let mut watch = watch(2);
    for clock in 0..5 {
        watch.handle_clock(&record(0, clock, clock + 1, clock as f64 + 1.0));
        watch.handle_status(&status(1, clock + 5));
        let versions = clock + 1;
        round(
            &mut watch,
            &[seen(0, versions, true), seen(1, versions, false)],
        );
        assert!(watch.is_whole());
    }
    watch.finish();
    well(&watch);
    assert_eq!(watch.looked().digests, 5);
    assert_eq!(watch.looked().acknowledged, 5);
}

#[test]
fn a_clock_that_was_finished_twice() {
    let mut watch = watch(2);
    round(&mut watch, &[seen(0, 9, true)]);
    watch.handle_clock(&record(0, 3, 1, 1.0));
    watch.handle_clock(&record(1, 3, 1, 1.0));
    watch.handle_clock(&record(0, 5, 1, 2.0));
    watch.handle_clock(&record(0, 4, 1, 3.0));
    assert_eq!(watch.looked().late, 1, "by a process that was stopped");
    watch.handle_clock(&record(0, 3, 1, 4.0));
    found(&watch, "group 0 finished clock 3 twice");
}

#[test]
fn a_generation_that_goes_back() {
    let mut watch = watch(2);
    watch.handle_status(&status(2, 7));
    watch.handle_status(&status(1, 6));
    assert!(watch.violations().is_empty(), "it is deposed");
    watch.handle_status(&status(3, 6));
    assert!(watch.violations().is_empty(), "7 was not written down");
    watch.handle_status(&status(3, 5));
    found(&watch, "the generation went back from 6 to 5");
}

#[test]
fn a_generation_that_servers_have_followed_and_a_later_coordinator_does_not_know() {
    let mut watch = watch(2);
    watch.handle_status(&status(2, 5));
    round(&mut watch, &[seen(0, 4, true)]);
    watch.handle_status(&status(3, 4));
    found(&watch, "the generation went back from 5 to 4");
}

#[test]
fn two_primaries_in_one_generation() {
    let mut watch = watch(2);
    let mut other = seen(1, 4, true);
    other.reply.generation = 6;
    round(&mut watch, &[seen(0, 4, true), other.clone()]);
    assert!(watch.violations().is_empty(), "one has not heard of it yet");
    other.reply.generation = 5;
    round(&mut watch, &[seen(0, 4, true), other]);
    found(&watch, "servers 0 and 1 both answer for shard 0");
}

#[test]
fn versions_that_go_back_once_they_were_confirmed() {
    let mut watch = watch(2);
    let mut ahead = seen(0, 9, true);
    ahead.reply.unconfirmed = 1;
    round(&mut watch, &[seen(0, 8, true)]);
    round(&mut watch, &[ahead]);
    round(&mut watch, &[seen(0, 8, true)]);
    assert!(watch.violations().is_empty(), "nobody was told of 9");
    round(&mut watch, &[seen(0, 7, true)]);
    found(&watch, "versions of shard 0 went back from 8 to 7");
}

#[test]
fn an_acknowledged_clock_that_is_not_there() {
    for replication in [1, 2] {
        let mut watch = watch(replication);
        watch.handle_clock(&record(0, 4, 5, 1.0));
        round(&mut watch, &[seen(0, 5, true)]);
        watch.handle_clock(&record(0, 5, 5, 2.0));
        round(&mut watch, &[seen(0, 5, true)]);
        found(&watch, "group 0 has finished clock 5, but shard 0");
    }
}

#[test]
fn a_version_that_nobody_has() {
    let mut watch = watch(2);
    watch.handle_clock(&record(0, 1, 9, 1.0));
    round(&mut watch, &[seen(0, 8, true)]);
    found(&watch, "a group was answered version 9");
}

#[test]
fn copies_that_differ_at_equal_versions() {
    let mut watch = watch(2);
    let mut bad = seen(1, 4, false);
    bad.reply.digest = vec![1].into();
    let mut filling = holders();
    filling[0].copies[0].full = false;
    let both = [seen(0, 4, true), bad.clone()];
    round_at(&mut watch, 1.0, &filling, &both);
    watch.handle_round(Round {
        began: 1.0,
        ended: 1.1,
        before: &filling,
        after: &holders(),
        host: 2,
        seen: &both,
    });
    assert!(watch.violations().is_empty(), "it is not full yet");
    round(&mut watch, &[seen(0, 5, true)]);
    round(&mut watch, &[seen(0, 6, true), bad]);
    found(
        &watch,
        "servers 0 and 1 differ in shard 0 at equal versions",
    );
}

#[test]
fn losses_that_are_forgotten_again() {
    let mut watch = watch(2);
    let told = |coordinator, lost| StatusReply {
        lost_updates: lost,
        ..status(coordinator, 1)
    };
    watch.handle_status(&told(1, 7));
    watch.handle_status(&told(2, 7));
    well(&watch);
    watch.handle_status(&told(3, 0));
    found(
        &watch,
        "the coordinator told of 7 updates of blocks (0 samples) lost before",
    );
}

#[test]
fn at_the_end_copies_are_equal() {
    let same = [seen(0, 4, true), seen(1, 4, false)];
    assert_eq!(differs(&holders(), &same), None);
    let behind = [seen(0, 4, true), seen(1, 3, false)];
    assert!(differs(&holders(), &behind).unwrap().contains("differ"));
    assert!(
        differs(&holders(), &same[..1])
            .unwrap()
            .contains("says nothing")
    );
    assert_eq!(unhealthy(&status(1, 1), &holders(), 2), None);
    let lacking = unhealthy(&status(1, 1), &holders(), 3).unwrap();
    assert!(lacking.contains("1 full copies"), "{lacking}");
}

/// Nothing is decided of it, and so nothing can be missing.
#[test]
fn a_shard_without_blocks_is_whole_again_when_its_copy_is() {
    let mut watch = watch(2);
    let reply = |server, primary, blocks| {
        let Seen { shard, reply } = seen(server, 0, primary);
        let reply = ShardStatusReply {
            blocks,
            decided: vec![],
            ..reply
        };
        Seen { shard, reply }
    };
    let round = |watch: &mut Watch, blocks| {
        let holders = holders();
        watch.handle_round(Round {
            began: 10.0,
            ended: 11.0,
            before: &holders,
            after: &holders,
            host: 0,
            seen: &[reply(0, true, blocks), reply(1, false, blocks)],
        });
        watch.is_whole()
    };
    assert!(round(&mut watch, 0));
    watch.handle_clock(&record(0, 0, 1, 9.0));
    watch.handle_processes(alive(&[(0, 1), (1, 2), (2, 1)]), BTreeMap::new());
    assert!(!watch.is_whole(), "its copy has fallen");
    assert!(round(&mut watch, 0));
    watch.handle_processes(alive(&[(0, 1), (1, 3), (2, 1)]), BTreeMap::new());
    assert!(
        !round(&mut watch, 1),
        "of one with blocks the clock is missing"
    );
}
