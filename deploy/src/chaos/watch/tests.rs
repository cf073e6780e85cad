//! Violations are fed in, one at a time, and must come out.

use tradewind_common::holders::CopyHolder;
use tradewind_common::{Generation, ServerId};

use super::*;
use crate::report::loss::tests::run;

fn record(group: u32, clock: u64, updates: u64) -> StepRecord {
    StepRecord {
        group,
        clock,
        updates,
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

fn round(watch: &mut Watch, seen: &[Seen]) {
    watch.handle_round(&holders(), seen, &holders());
}

#[test]
fn what_is_well_is_no_violation() {
    let mut watch = Watch::new(2);
    for clock in 0..5 {
        watch.handle_clock(&record(0, clock, clock + 1));
        watch.handle_status(&status(1, clock));
        let versions = clock + 1;
        round(
            &mut watch,
            &[seen(0, versions, true), seen(1, versions, false)],
        );
    }
    assert!(watch.violations().is_empty(), "{:?}", watch.violations());
    assert_eq!(watch.looked().digests, 5);
    assert_eq!(watch.looked().acknowledged, 5);
}

#[test]
fn a_clock_that_was_finished_twice() {
    let mut watch = Watch::new(2);
    watch.handle_clock(&record(0, 3, 1));
    watch.handle_clock(&record(1, 3, 1));
    watch.handle_clock(&record(0, 5, 1));
    watch.handle_clock(&record(0, 4, 1));
    assert_eq!(watch.looked().late, 1, "by a process that was stopped");
    watch.handle_clock(&record(0, 3, 1));
    found(&watch, "group 0 finished clock 3 twice");
}

#[test]
fn a_generation_that_goes_back() {
    let mut watch = Watch::new(2);
    watch.handle_status(&status(2, 7));
    watch.handle_status(&status(1, 6));
    assert!(watch.violations().is_empty(), "it is deposed");
    watch.handle_status(&status(3, 6));
    found(&watch, "the generation went back from 7 to 6");
}

#[test]
fn two_primaries_in_one_generation() {
    let mut watch = Watch::new(2);
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
    let mut watch = Watch::new(2);
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
    let mut watch = Watch::new(2);
    watch.handle_clock(&record(0, 4, 5));
    round(&mut watch, &[seen(0, 5, true)]);
    watch.handle_clock(&record(0, 5, 5));
    round(&mut watch, &[seen(0, 5, true)]);
    found(&watch, "group 0 has finished clock 5, but shard 0");
}

#[test]
fn a_version_that_nobody_has() {
    let mut watch = Watch::new(2);
    watch.handle_clock(&record(0, 1, 9));
    round(&mut watch, &[seen(0, 8, true)]);
    found(&watch, "a group was answered version 9");
}

#[test]
fn copies_that_differ_at_equal_versions() {
    let mut watch = Watch::new(2);
    let mut bad = seen(1, 4, false);
    bad.reply.digest = vec![1].into();
    let mut filling = holders();
    filling[0].copies[0].full = false;
    let both = [seen(0, 4, true), bad.clone()];
    watch.handle_round(&filling, &both, &filling);
    watch.handle_round(&filling, &both, &holders());
    assert!(watch.violations().is_empty(), "it is not full yet");
    round(&mut watch, &[seen(0, 5, true)]);
    round(&mut watch, &[seen(0, 6, true), bad]);
    found(
        &watch,
        "servers 0 and 1 differ in shard 0 at equal versions",
    );
}

#[test]
fn what_is_lost_and_what_is_restored() {
    let lost = |replication| {
        let mut watch = Watch::new(replication);
        let told = StatusReply {
            lost_updates: 3,
            lost_samples: 8,
            ..status(1, 1)
        };
        watch.handle_status(&told);
        watch
    };
    found(&lost(2), "3 updates of blocks (8 samples) were lost");
    assert!(lost(1).violations().is_empty(), "with one copy that may be");
    let mut restored = holders();
    restored[0].lineage = Generation(4);
    let mut primary = seen(0, 2, true);
    primary.reply.lineage = 4;
    let mut watch = Watch::new(2);
    watch.handle_round(&restored, &[primary], &restored);
    found(&watch, "shard 0 was restored from a snapshot");
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
