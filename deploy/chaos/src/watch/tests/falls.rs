//! Who fell, what was restored, and what was told of it. Server 0 answers for shard 0, server 1 has
//! the copy, server 2 hosts the coordinator. Group 0 has finished clocks 0 to 9, one a second.

use super::*;

fn whole() -> Watch {
    begun(RULES)
}

fn begun(rules: Rules) -> Watch {
    let mut watch = Watch::new(rules);
    processes(&mut watch, &[(0, 1), (1, 1), (2, 1)], &[]);
    for clock in 0..10 {
        watch.handle_clock(&record(0, clock, clock + 1, clock as f64));
    }
    both(&mut watch, 10.0);
    assert!(watch.is_whole());
    watch
}

fn both(watch: &mut Watch, at: f64) {
    round_at(
        watch,
        at,
        &holders(),
        &[seen(0, 10, true), seen(1, 10, false)],
    );
}

fn silence(from: f64, until: Option<f64>) -> Silence {
    Silence {
        from,
        until,
        faults: u32::from(until.is_none()),
        stops: 0,
    }
}

fn processes(watch: &mut Watch, lives: &[(u32, u64)], silences: &[(u32, Silence)]) {
    watch.handle_processes(alive(lives), silences.iter().copied().collect());
}

/// Server 1 answers alone, since generation 6, for what it had as a copy.
fn promoted() -> Vec<Holders> {
    let mut holders = vec![Holders::alone(ServerId(1))];
    holders[0].primary.as_mut().unwrap().since = Generation(6);
    holders
}

fn heir(versions: u64) -> Seen {
    let mut heir = seen(1, versions, true);
    heir.reply.generation = 6;
    heir
}

/// A server has restored the shard from a snapshot after so many updates.
fn restores(watch: &mut Watch, at: f64, server: u32, versions: u64) {
    let mut holders = vec![Holders::alone(ServerId(server))];
    holders[0].lineage = Generation(8);
    holders[0].primary.as_mut().unwrap().since = Generation(8);
    let mut primary = seen(server, versions, true);
    primary.reply.lineage = 8;
    primary.reply.generation = 8;
    round_at(watch, at, &holders, &[primary]);
}

fn told(updates: u64, samples: u64) -> HolderEvent {
    HolderEvent {
        kind: "updates_lost".into(),
        shard: Some(0),
        lineage: Some(8),
        lost_updates: updates,
        lost_samples: samples,
        ..HolderEvent::default()
    }
}

fn tell(watch: &mut Watch, updates: u64, samples: u64) {
    watch.handle_event(&told(updates, samples));
    watch.handle_status(&StatusReply {
        lost_updates: updates,
        ..status(1, 9)
    });
}

#[test]
fn what_falls_together_may_be_restored_if_all_that_is_missing_is_told() {
    let mut watch = whole();
    processes(&mut watch, &[(0, 2), (1, 2), (2, 1)], &[]);
    restores(&mut watch, 12.0, 0, 4);
    tell(&mut watch, 6, 48);
    // It goes on; its first exchange may be in part of the previous lineage.
    watch.handle_clock(&record(0, 10, 11, 12.5));
    restores(&mut watch, 13.0, 0, 4);
    watch.handle_clock(&record(0, 11, 6, 13.5));
    restores(&mut watch, 14.0, 0, 12);
    watch.finish();
    well(&watch);
    let [lost] = watch.restored() else {
        panic!("{:?}", watch.restored());
    };
    assert_eq!((lost.updates_at_least, lost.samples_at_least), (6, 48));
    assert_eq!(lost.clocks[&0], (4, 9));
}

#[test]
fn a_loss_that_is_told_as_nothing_or_as_too_little() {
    for (updates, samples) in [(0, 0), (5, 48), (6, 47)] {
        let mut watch = whole();
        processes(&mut watch, &[(0, 2), (1, 2), (2, 1)], &[]);
        restores(&mut watch, 12.0, 0, 4);
        watch.handle_event(&told(updates, samples));
        watch.handle_status(&StatusReply {
            lost_updates: 6,
            ..status(1, 9)
        });
        watch.finish();
        found(
            &watch,
            "shard 0 began lineage 8 without 6 updates and 48 samples",
        );
    }
}

#[test]
fn a_loss_that_is_missing_in_the_sum() {
    let mut watch = whole();
    processes(&mut watch, &[(0, 2), (1, 2), (2, 1)], &[]);
    restores(&mut watch, 12.0, 0, 4);
    watch.handle_event(&told(6, 48));
    watch.finish();
    found(&watch, "6 updates at least were lost in all");
}

#[test]
fn a_loss_that_only_versions_show() {
    // The group has gone on before anybody asks, so that no clock seems to be missing.
    let mut watch = whole();
    processes(&mut watch, &[(0, 2), (1, 2), (2, 1)], &[]);
    let mut holders = vec![Holders::alone(ServerId(0))];
    holders[0].lineage = Generation(8);
    let mut ahead = seen(0, 4, true);
    ahead.reply.lineage = 8;
    ahead.reply.decided[0].clock = 10;
    round_at(&mut watch, 12.0, &holders, &[ahead]);
    watch.handle_event(&told(5, 48));
    watch.handle_status(&StatusReply {
        lost_updates: 6,
        ..status(1, 9)
    });
    watch.finish();
    found(&watch, "shard 0 began lineage 8 without 6 updates and 0");
}

#[test]
fn a_restore_although_a_process_holds_everything() {
    // As it was found: the primary is stopped for a moment, the coordinator is cut off and promotes
    // the copy, which dies before it hears of it.
    let mut watch = whole();
    let stopped = [(0, silence(10.5, None))];
    processes(&mut watch, &[(0, 1), (1, 1), (2, 1)], &stopped);
    round_at(&mut watch, 11.0, &promoted(), &[seen(1, 10, false)]);
    processes(
        &mut watch,
        &[(0, 1), (2, 1)],
        &[(0, silence(10.5, Some(12.0)))],
    );
    round_at(&mut watch, 13.0, &promoted(), &[seen(0, 10, true)]);
    processes(&mut watch, &[(0, 1), (1, 2), (2, 1)], &[]);
    restores(&mut watch, 15.0, 1, 4);
    tell(&mut watch, 6, 48);
    watch.finish();
    found(
        &watch,
        "shard 0 was restored from a snapshot, although server 0 (life 1) lives",
    );
}

#[test]
fn who_was_silent_beyond_the_patience_is_not_waited_for() {
    let restored = |lasted: f64, who: u32| {
        let mut watch = whole();
        let cut = [(who, silence(11.0, None))];
        processes(&mut watch, &[(0, 1), (2, 1)], &cut);
        both(&mut watch, 11.5);
        let over = [(who, silence(11.0, Some(11.0 + lasted)))];
        processes(&mut watch, &[(0, 1), (1, 2), (2, 1)], &over);
        restores(&mut watch, 12.0 + lasted, 1, 4);
        watch
    };
    well(&restored(21.0, 0));
    let lives = "shard 0 was restored from a snapshot, although server 0 (life 1) lives";
    found(&restored(19.0, 0), lives);
    found(&restored(19.0, 2), lives);
    // The coordinator heard nobody, and it was the only one who did not.
    found(
        &restored(21.0, 2),
        "shard 0 was restored from a snapshot, although of its holders only server 1 fell",
    );
}

#[test]
fn a_loss_although_holders_fell_one_at_a_time() {
    let mut watch = whole();
    // The copy dies, comes back, and is full again.
    processes(&mut watch, &[(0, 1), (2, 1)], &[]);
    let mut filling = holders();
    filling[0].copies[0].full = false;
    processes(&mut watch, &[(0, 1), (1, 2), (2, 1)], &[]);
    round_at(
        &mut watch,
        11.0,
        &filling,
        &[seen(0, 10, true), seen(1, 10, false)],
    );
    assert!(!watch.is_whole(), "it is not full yet");
    both(&mut watch, 12.0);
    assert!(watch.is_whole());
    // Then the primary dies, and the copy counts for nothing: not even as one that was removed.
    watch.handle_event(&HolderEvent {
        kind: "copy_removed".into(),
        shard: Some(0),
        server: Some(1),
        ..HolderEvent::default()
    });
    processes(&mut watch, &[(0, 2), (1, 2), (2, 1)], &[]);
    restores(&mut watch, 14.0, 0, 10);
    found(
        &watch,
        "shard 0 was restored from a snapshot, although of its holders only server 0 fell",
    );
}

#[test]
fn a_second_fall_before_the_copy_is_full_may_lose_something() {
    let mut watch = whole();
    processes(&mut watch, &[(0, 1), (2, 1)], &[]);
    let mut filling = holders();
    filling[0].copies[0].full = false;
    processes(&mut watch, &[(0, 1), (1, 2), (2, 1)], &[]);
    round_at(
        &mut watch,
        11.0,
        &filling,
        &[seen(0, 10, true), seen(1, 10, false)],
    );
    processes(&mut watch, &[(0, 2), (1, 2), (2, 1)], &[]);
    restores(&mut watch, 14.0, 0, 10);
    watch.finish();
    well(&watch);
}

#[test]
fn who_was_removed_because_it_had_fallen_has_fallen() {
    let mut watch = whole();
    watch.handle_event(&HolderEvent {
        kind: "copy_removed".into(),
        shard: Some(0),
        server: Some(1),
        ..HolderEvent::default()
    });
    processes(&mut watch, &[(0, 1), (1, 2), (2, 1)], &[]);
    processes(&mut watch, &[(0, 2), (1, 2), (2, 1)], &[]);
    restores(&mut watch, 14.0, 0, 10);
    watch.finish();
    well(&watch);
}

#[test]
fn who_was_replaced_and_missed_something_holds_not_everything() {
    // The heir answers, acknowledges a clock, and dies; its predecessor lives without it.
    let mut watch = whole();
    processes(
        &mut watch,
        &[(0, 1), (1, 1), (2, 1)],
        &[(0, silence(10.5, None))],
    );
    watch.handle_clock(&record(0, 10, 11, 11.2));
    round_at(&mut watch, 11.5, &promoted(), &[heir(11)]);
    processes(&mut watch, &[(0, 1), (1, 2), (2, 1)], &[]);
    restores(&mut watch, 14.0, 1, 4);
    tell(&mut watch, 7, 56);
    watch.finish();
    well(&watch);
}

#[test]
fn a_clock_that_an_heir_has_acknowledged_counts_though_nobody_saw_the_heir() {
    let mut watch = whole();
    processes(
        &mut watch,
        &[(0, 1), (1, 1), (2, 1)],
        &[(0, silence(10.5, None))],
    );
    round_at(&mut watch, 11.5, &promoted(), &[]);
    watch.handle_clock(&record(0, 10, 11, 11.2));
    processes(&mut watch, &[(0, 1), (1, 2), (2, 1)], &[]);
    restores(&mut watch, 14.0, 1, 4);
    tell(&mut watch, 7, 56);
    watch.finish();
    well(&watch);
}

#[test]
fn one_at_a_time_nothing_is_restored_at_all() {
    let mut watch = begun(Rules {
        one_at_a_time: true,
        ..RULES
    });
    processes(&mut watch, &[(0, 2), (1, 2), (2, 1)], &[]);
    restores(&mut watch, 12.0, 0, 10);
    found(
        &watch,
        "shard 0 was restored from a snapshot, although faults came one at a time",
    );
}

#[test]
fn with_one_copy_a_living_primary_is_waited_for_as_well() {
    let alone = |lives: &[(u32, u64)]| {
        let mut watch = Watch::new(Rules {
            replication: 1,
            ..RULES
        });
        processes(&mut watch, &[(0, 1), (1, 1), (2, 1)], &[]);
        watch.handle_clock(&record(0, 0, 1, 0.0));
        let holders = [Holders::alone(ServerId(0))];
        round_at(&mut watch, 10.0, &holders, &[seen(0, 1, true)]);
        processes(&mut watch, lives, &[]);
        restores(&mut watch, 14.0, 1, 1);
        watch
    };
    well(&alone(&[(0, 2), (1, 1), (2, 1)]));
    found(
        &alone(&[(0, 1), (1, 1), (2, 1)]),
        "shard 0 was restored from a snapshot, although server 0 (life 1) lives",
    );
}

#[test]
fn a_clock_is_finished_again_only_where_it_was_lost_everywhere() {
    let again = |lineage: u64| {
        let mut watch = whole();
        processes(&mut watch, &[(0, 2), (1, 2), (2, 1)], &[]);
        if lineage > 0 {
            restores(&mut watch, 12.0, 0, 4);
        }
        watch.handle_clock(&record(0, 9, 5, 13.0));
        watch
    };
    well(&again(8));
    found(&again(0), "group 0 finished clock 9 twice");
}
