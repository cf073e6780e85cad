//! When snapshots are taken, and what comes of those that fail: scripts as [`super::harness`] reads
//! them.

use tradewind_common::Clock;
use tradewind_common::spec::ConsistencySpec;

use super::harness::{Harness, play, run_of};

/// One group of one rank on so many servers with a folder.
fn harness(servers: u32, consistency: ConsistencySpec) -> Harness {
    let mut spec = run_of(&[1]);
    spec.lease_ms = 1_000_000;
    spec.faults.patience_ms = 2_000_000;
    spec.consistency = consistency;
    spec.faults.replication = 2.min(servers);
    spec.faults.snapshot_ms = 500;
    spec.faults.snapshots_kept = 2;
    Harness::new(spec, servers, true)
}

const READY: &str = "
        join 0.0 a => view 2 + 0@1 by 0@1
        ack 0 complete => 0.0 joined as 1, view 2 + 0@1 by 0@1 | capture 1:0 at now
        captured 0 => manifest 1
        written => view 4 0@1:0 + by nobody
        ack 0 =>
";

#[test]
fn a_run_is_not_ready_before_its_first_snapshot() {
    let failing = "
        join 0.0 a => view 2 + 0@1 by 0@1
        shot x => x refused NotReady
        ack 0 complete =>
        ack 1 complete => 0.0 joined as 1, view 2 + 0@1 by 0@1 | capture 1:0 at now | capture 1:1 at now
        captured 0 =>
        captured 1 failed => delete 1
        captured 0 =>
        pass 2000 =>
        pass 1000 => view 2 + 0@1 by 0@1 | capture 2:0 at now | capture 2:1 at now
        captured 1 =>
        captured 0 => manifest 2
        written failed => delete 2
        written =>
        pass 3000 => view 2 + 0@1 by 0@1 | capture 3:0 at now | capture 3:1 at now
        captured 1 =>
        captured 0 => manifest 3
        written => view 4 0@1:0 + by nobody
        events => server_up server_up group_formed snapshot_failed snapshot_failed snapshot run_ready
    ";
    // Servers keep to their leases elsewhere.
    let mut harness = harness(2, ConsistencySpec::Async);
    harness.keep_servers = true;
    play(&mut harness, failing);
    let manifest = harness.manifests.last().unwrap();
    assert_eq!((manifest.number, manifest.files.len()), (3, 2));
    assert_eq!((manifest.clock, manifest.at_clock), (None, None));
}

#[test]
fn snapshots_are_taken_at_intervals_and_when_asked_for_and_the_oldest_deleted() {
    let mut harness = harness(1, ConsistencySpec::Async);
    harness.keep_servers = true;
    play(&mut harness, READY);
    play(
        &mut harness,
        "
        pass 400 =>
        pass 100 => view 4 0@1:0 + by nobody | capture 2:0 at now
        shot x =>
        captured 0 => manifest 2
        written => view 4 0@1:0 + by nobody | capture 3:0 at now
        captured 0 => manifest 3
        written => x snapshot 3, delete 1
        pass 400 =>
        shot y => view 4 0@1:0 + by nobody | capture 4:0 at now
        captured 0 failed => delete 4, y refused Snapshot
        pass 499 =>
        pass 1 =>
        pass 2500 => view 4 0@1:0 + by nobody | capture 5:0 at now
        captured 0 => manifest 5
        written failed => delete 5
        ",
    );
}

#[test]
fn what_was_trained_is_kept_when_the_last_group_has_left() {
    play(
        &mut harness(1, ConsistencySpec::Async),
        &(READY.to_owned()
            + "
        lease 0@1 => 0@1 chunk 0
        leave 0.0@1 => 0.0@1 left, view 5 + by nobody | capture 2:0 at now
        captured 0 failed => delete 2
        shot x => view 5 + by nobody | capture 3:0 at now
        captured 0 => manifest 3
        written => x snapshot 3
        "),
    );
}

/// Values that are not finite are never written, and the run could never be removed.
#[test]
fn a_last_snapshot_that_fails_and_fails_is_given_up() {
    let mut harness = harness(1, ConsistencySpec::Async);
    harness.keep_servers = true;
    play(
        &mut harness,
        &(READY.to_owned()
            + "
        leave 0.0@1 => 0.0@1 left, view 5 + by nobody | capture 2:0 at now
        captured 0 failed => delete 2
        remove => refused StillTrains
        pass 2999 =>
        pass 1 => view 5 + by nobody | capture 3:0 at now
        captured 0 failed => delete 3
        pass 6000 => view 5 + by nobody | capture 4:0 at now
        captured 0 failed => delete 4
        pass 12000 => view 5 + by nobody | capture 5:0 at now
        captured 0 failed => delete 5
        pass 24000 => view 5 + by nobody | capture 6:0 at now
        captured 0 failed => delete 6
        pass 48000 => view 5 + by nobody | capture 7:0 at now
        captured 0 failed => delete 7
        pass 96000 => view 5 + by nobody | capture 8:0 at now
        captured 0 failed => delete 8
        pass 95999 =>
        remove => refused StillTrains
        pass 1 => view 5 + by nobody | capture 9:0 at now
        captured 0 failed => delete 9
        pass 96000 =>
        remove => server 0 forgets, removed
        "),
    );
}

#[test]
fn under_sync_a_snapshot_is_set_a_little_ahead() {
    let mut harness = harness(2, ConsistencySpec::Sync);
    harness.keep_servers = true;
    play(
        &mut harness,
        "
        join 0.0 a => view 2 + 0@1 by 0@1
        ack 0 complete =>
        ack 1 complete => 0.0 joined as 1, view 2 + 0@1 by 0@1 | capture 1:0 at now | capture 1:1 at now
        captured 0 =>
        captured 1 => manifest 1
        written => view 4 0@1:0 + by nobody
        ack 0 saw 4 =>
        ack 1 =>
        beat 0.0@1 7 => 0.0@1 at 4
        shot x => view 4 0@1:0 + by nobody | capture 2:0 at 9 | capture 2:1 at 9
        captured 0 =>
        captured 1 passed 11 => delete 2, view 4 0@1:0 + by nobody | capture 3:0 at 15 | capture 3:1 at 15
        captured 0 passed 20 => delete 3, view 4 0@1:0 + by nobody | capture 4:0 at 28 | capture 4:1 at 28
        captured 0 =>
        captured 1 => manifest 4
        written => x snapshot 4
        shot y => view 4 0@1:0 + by nobody | capture 5:0 at 22 | capture 5:1 at 22
        captured 0 =>
        leave 0.0@1 => 0.0@1 left, delete 5, view 5 + by nobody | capture 6:0 at now | capture 6:1 at now
        captured 1 =>
        captured 0 => manifest 6
        written => y snapshot 6, delete 1
        ",
    );
    let at = |number| {
        let mut manifests = harness.manifests.iter();
        manifests.find(|m| m.number == number).unwrap()
    };
    assert_eq!(at(4).at_clock, Some(Clock(28)));
    assert_eq!(at(4).clock, Some(Clock(27)));
    assert_eq!(at(6).at_clock, None);
}

#[test]
fn a_snapshot_is_taken_anew_when_a_shard_changes_hands() {
    play(
        &mut harness(2, ConsistencySpec::Async),
        "
        join 0.0 a => view 2 + 0@1 by 0@1
        ack 0 complete =>
        ack 1 complete => 0.0 joined as 1, view 2 + 0@1 by 0@1 | capture 1:0 at now | capture 1:1 at now
        captured 0 =>
        captured 1 => manifest 1
        written => view 4 0@1:0 + by nobody
        ack 0 full 1 => view 5 0@1:0 + by nobody | 0:0@0+1@0* 1:1@0+0@0
        ack 1 full 0 => view 6 0@1:0 + by nobody | 0:0@0+1@0* 1:1@0+0@0*
        shot x => view 6 0@1:0 + by nobody | capture 2:0 at now | capture 2:1 at now
        captured 0 =>
        down 1 => delete 2, view 8 0@1:0 + by nobody | 0:0@0+1@0* 1:->0@8?1?0
        ack 0 => view 10 0@1:0 + by nobody | 0:0@0 1:0@8 | capture 3:0 at now | capture 3:1 at now
        captured 0 => manifest 3
        written => x snapshot 3
        ",
    );
}

#[test]
fn a_snapshot_waits_for_shards_without_a_holder() {
    play(
        &mut harness(1, ConsistencySpec::Async),
        &(READY.to_owned()
            + "
        shot x => view 4 0@1:0 + by nobody | capture 2:0 at now
        up 0 life 2 => delete 2, view 6 0@1:0 + by nobody | 0:->0@6 | restore 0<=1
        ack 0 complete restored 1 => view 7 0@1:0 + by nobody | 0:0@6^6 | capture 3:0 at now
        captured 0 => manifest 3
        written => x snapshot 3
        "),
    );
}

#[test]
fn no_snapshot_is_deleted_while_a_shard_may_be_read_from_it() {
    let mut harness = harness(2, ConsistencySpec::Async);
    harness.spec.faults.replication = 1;
    harness.spec.faults.snapshots_kept = 1;
    harness.keep_servers = true;
    play(
        &mut harness,
        "
        join 0.0 a => view 2 + 0@1 by 0@1
        ack 0 complete =>
        ack 1 complete => 0.0 joined as 1, view 2 + 0@1 by 0@1 | capture 1:0 at now | capture 1:1 at now
        captured 0 =>
        captured 1 => manifest 1
        written => view 4 0@1:0 + by nobody
        shot x => view 4 0@1:0 + by nobody | capture 2:0 at now | capture 2:1 at now
        captured 0 =>
        captured 1 => manifest 2
        up 1 life 2 => view 6 0@1:0 + by nobody | 0:0@0 1:->1@6 | restore 1<=1
        written => x snapshot 2
        ack 1 complete restored 1 => delete 1, view 7 0@1:0 + by nobody | 0:0@0 1:1@6^6
        ",
    );
}
