//! Who holds a shard, and who takes over: scripts as [`super::harness`] reads them.

use tradewind_common::ServerId;
use tradewind_common::loss::Loss;
use tradewind_common::spec::OnLoss;

use super::harness::{Harness, SERVER_LEASE_MS, check as check_in, play, run_of};
use crate::coordinator::Coordinator;

/// One group of one rank, shards held by so many of so many servers.
fn harness(servers: u32, replication: u32, folder: bool) -> Harness {
    let mut spec = run_of(&[1]);
    spec.faults.replication = replication;
    Harness::new(spec, servers, folder)
}

/// Without a folder.
fn check(servers: u32, replication: u32, script: &str) {
    check_in(|| harness(servers, replication, false), script);
}

/// The same where leases run out: a recovered coordinator would grant them anew.
fn check_timed(servers: u32, replication: u32, folder: bool, script: &str) {
    play(&mut harness(servers, replication, folder), script);
}

#[test]
fn copies_go_round_and_to_other_hosts() {
    check(
        4,
        2,
        "
        join 0.0 a => view 2 + 0@1 by 0@1
        holders => 0:0@0+2@0 1:1@0+2@0 2:2@0+0@0 3:3@0+0@0
        ",
    );
    check(
        2,
        3,
        "
        join 0.0 a => 0.0 refused Replication
        ",
    );
}

/// Two servers that hold both shards, a live group.
const LIVE: &str = "
        join 0.0 a => view 2 + 0@1 by 0@1
        ack 0 complete =>
        ack 1 complete => 0.0 joined as 1, view 4 0@1:0 + by nobody
        await 0.0@1 =>
        ack 0 =>
        ack 1 => 0.0@1 start at 0
        holders => 0:0@0+1@0 1:1@0+0@0
";

#[test]
fn a_run_is_ready_when_the_copies_are_complete() {
    check(
        2,
        2,
        "
        join 0.0 a => view 2 + 0@1 by 0@1
        ack 0 complete =>
        ack 1 complete of 1 => 0.0 joined as 1
        ack 1 complete of 0 => view 4 0@1:0 + by nobody
        ",
    );
}

#[test]
fn a_full_copy_takes_over() {
    check(
        2,
        2,
        &(LIVE.to_owned()
            + "
        ack 0 full 1 => view 5 0@1:0 + by nobody | 0:0@0+1@0* 1:1@0+0@0
        ack 1 full 0 => view 6 0@1:0 + by nobody | 0:0@0+1@0* 1:1@0+0@0*
        down 0 => view 8 0@1:0 + by nobody | 0:->1@8?0?1 1:1@0+0@0*
        lost 0.0@1 => view 9 + by nobody
        join 0.0 b => view 10 + 0@2 by nobody
        ack 1 saw 3 => 0.0 joined as 2, view 13 0@2:4 + by nobody | 0:1@8 1:1@0
        up 0 life 2 => view 14 0@2:4 + by nobody | 0:1@8+0@14 1:1@0+0@14
        ack 0 =>
        down 1 => view 15 0@2:4 + by nobody | 0:-?1 1:-?1
        events => server_up server_up group_formed run_ready copy_full copy_full server_lost heir rank_lost group_formed promoted copy_removed server_up copy_added copy_added server_lost orphaned orphaned
        "),
    );
}

#[test]
fn the_other_copies_are_filled_anew() {
    check(
        3,
        3,
        "
        join 0.0 a => view 2 + 0@1 by 0@1
        ack 0 complete =>
        ack 1 complete =>
        ack 2 complete => 0.0 joined as 1, view 4 0@1:0 + by nobody
        ack 0 of 0 full 2 => view 5 0@1:0 + by nobody | 0:0@0+2@0*+1@0 1:1@0+2@0+0@0 2:2@0+0@0+1@0
        ack 0 of 0 full 1 => view 6 0@1:0 + by nobody | 0:0@0+2@0*+1@0* 1:1@0+2@0+0@0 2:2@0+0@0+1@0
        ack 2 of 2 full 1 => view 7 0@1:0 + by nobody | 0:0@0+2@0*+1@0* 1:1@0+2@0+0@0 2:2@0+0@0+1@0*
        down 0 => view 9 0@1:0 + by nobody | 0:->1@9?0?2?1 1:1@0+2@0 2:2@0+1@0*
        ack 2 =>
        down 2 => view 11 0@1:0 + by nobody | 0:->1@9?0?2?1 1:1@0 2:->1@11?2?1
        ",
    );
}

#[test]
fn what_a_copy_said_before_it_took_over_fences_nobody() {
    check(
        2,
        2,
        &(LIVE.to_owned()
            + "
        ack 0 full 1 => view 5 0@1:0 + by nobody | 0:0@0+1@0* 1:1@0+0@0
        lost 0.0@1 => view 6 + by nobody
        join 0.0 b => view 7 + 0@2 by nobody
        ack 1 saw 3 =>
        down 0 => view 9 + 0@2 by nobody | 0:->1@9?0?1 1:1@0
        ack 1 at 7 saw 3 =>
        ack 1 at 8 saw 4 =>
        ack 1 saw 5 => 0.0 joined as 2, view 11 0@2:6 + by nobody | 0:1@9 1:1@0
        "),
    );
}

#[test]
fn a_copy_that_is_not_full_never_takes_over() {
    check(
        2,
        2,
        &(LIVE.to_owned()
            + "
        down 0 => view 5 0@1:0 + by nobody | 0:-?0 1:1@0
        lost 0.0@1 => view 6 + by nobody
        join 0.0 b => view 7 + 0@2 by nobody
        ack 1 =>
        up 0 => view 8 + 0@2 by nobody | 0:0@0+1@8 1:1@0+0@8
        ack 0 => 0.0 joined as 2, view 9 0@2:0 + by nobody
        ack 0 full 1 => view 10 0@2:0 + by nobody | 0:0@0+1@8* 1:1@0+0@8
        ack 1 full 0 => view 11 0@2:0 + by nobody | 0:0@0+1@8* 1:1@0+0@8*
        "),
    );
}

#[test]
fn a_copy_is_full_only_as_the_copy_that_it_is_now() {
    check(
        2,
        2,
        &(LIVE.to_owned()
            + "
        ack 1 full 0 => view 5 0@1:0 + by nobody | 0:0@0+1@0 1:1@0+0@0*
        down 1 => view 7 0@1:0 + by nobody | 0:0@0 1:->0@7?1?0
        up 1 => view 8 0@1:0 + by nobody | 0:0@0+1@8 1:->0@7?1?0
        ack 0 full 1 since 0 => view 9 0@1:0 + by nobody | 0:0@0+1@8 1:0@7+1@9
        ack 1 full 0 =>
        ack 0 at 7 full 1 => view 11 0@1:0 + by nobody | 0:0@0+1@8* 1:0@7+1@9*
        "),
    );
}

#[test]
fn one_that_was_only_cut_off_goes_on() {
    check(
        2,
        1,
        "
        join 0.0 a => view 2 + 0@1 by 0@1
        ack 0 complete =>
        ack 1 complete => 0.0 joined as 1, view 4 0@1:0 + by nobody
        ack 0 =>
        ack 1 =>
        down 1 => view 5 0@1:0 + by nobody | 0:0@0 1:-?1
        up 1 => view 6 0@1:0 + by nobody | 0:0@0 1:1@0
        ack 1 at 5 =>
        ack 1 =>
        down 0 => view 7 0@1:0 + by nobody | 0:-?0 1:1@0
        up 0 life 2 => view 9 + by nobody | 0:- 1:1@0
        join 0.0 b => 0.0 refused Failed
        events => server_up server_up group_formed run_ready server_lost orphaned server_up promoted server_lost orphaned server_up run_failed
        ",
    );
}

#[test]
fn another_life_means_that_the_one_before_is_dead() {
    check(
        2,
        2,
        &(LIVE.to_owned()
            + "
        ack 1 full 0 => view 5 0@1:0 + by nobody | 0:0@0+1@0 1:1@0+0@0*
        up 1 life 3 => view 7 0@1:0 + by nobody | 0:0@0+1@7 1:->0@7?0
        up 1 life 2 => 1 refused StaleServer
        up 2 => 2 refused UnknownServer
        ack 0 => view 8 0@1:0 + by nobody | 0:0@0+1@7 1:0@7+1@8
        ack 0 full 1 => view 10 0@1:0 + by nobody | 0:0@0+1@7* 1:0@7+1@8*
        "),
    );
}

#[test]
fn a_shard_that_nobody_has_trained_is_created_again() {
    check(
        2,
        1,
        "
        join 0.0 a => view 2 + 0@1 by 0@1
        ack 0 =>
        ack 1 => 0.0 joined as 1
        await 0.0@1 => 0.0@1 create
        await 0.0@1 created =>
        ack 0 complete =>
        up 1 life 2 => 0.0@1 refused NotLive, view 5 + by none yet | 0:0@0 1:->1@4
        join 0.0 a => view 7 + 0@2 by 0@2
        await 0.0@1 created => 0.0@1 refused StaleIncarnation
        ack 0 =>
        ack 1 => 0.0 joined as 2, view 8 + 0@2 by 0@2 | 0:0@0 1:1@4
        await 0.0@2 => 0.0@2 create
        await 0.0@2 created =>
        ack 1 complete => view 10 0@2:0 + by nobody
        ",
    );
}

#[test]
fn a_lease_that_runs_out_is_a_lost_server() {
    check_timed(
        3,
        2,
        false,
        "
        join 0.0 a => view 2 + 0@1 by 0@1
        ack 0 complete =>
        ack 1 complete =>
        ack 2 complete => 0.0 joined as 1, view 4 0@1:0 + by nobody
        holders => 0:0@0+2@0 1:1@0+2@0 2:2@0+0@0
        ack 2 full 0 => view 5 0@1:0 + by nobody | 0:0@0+2@0 1:1@0+2@0 2:2@0+0@0*
        pass 600 => view 6 + by nobody
        live 0 =>
        live 1 =>
        pass 600 => view 8 + by nobody | 0:0@0 1:1@0 2:->0@8?2?0
        live 0 =>
        live 1 =>
        live 2 => 2 refused NotRegistered
        pass 600 =>
        live 0 =>
        live 1 =>
        pass 500 => view 9 + by nobody | 0:0@0+1@9 1:1@0+0@9 2:->0@8?2?0
        up 2 => view 9 + by nobody
        ack 0 => view 10 + by nobody | 0:0@0+1@9 1:1@0+0@9 2:0@8+2@10
        ",
    );
}

#[test]
fn a_shard_that_fails_to_be_restored_fails_the_run() {
    let mut harness = harness(1, 1, true);
    play(&mut harness, READY);
    play(
        &mut harness,
        "
        up 0 life 2 => view 6 0@1:0 + by nobody | 0:->0@6 | restore 0<=1
        ack 0 failed damaged => view 7 + by nobody | 0:-
        events => server_up group_formed snapshot run_ready server_lost orphaned server_up damaged_snapshot run_failed
        ",
    );
}

/// One server, a folder, a live group.
const READY: &str = "
        join 0.0 a => view 2 + 0@1 by 0@1
        ack 0 => 0.0 joined as 1
        await 0.0@1 => 0.0@1 create
        await 0.0@1 created =>
        ack 0 complete => view 2 + 0@1 by 0@1 | capture 1:0 at now
        captured 0 => manifest 1
        written => view 4 0@1:0 + by nobody
        ack 0 => 0.0@1 start at 0
";

#[test]
fn a_shard_without_a_holder_is_restored_by_the_server_that_comes_back() {
    check_in(
        || harness(1, 1, true),
        &(READY.to_owned()
            + "
        up 0 life 2 => view 6 0@1:0 + by nobody | 0:->0@6 | restore 0<=1
        ack 0 at 5 complete =>
        ack 0 empty =>
        lost 0.0@1 => view 7 + by nobody | restore 0<=1
        join 0.0 b => view 8 + 0@2 by nobody | restore 0<=1
        ack 0 complete =>
        ack 0 complete damaged restored 1 lacks 5 => 0.0 joined as 2, view 10 0@2:0 + by nobody | 0:0@6^6
        ack 0 restored 1 lacks 5 =>
        ack 0 empty => view 11 + by nobody
        events => server_up group_formed snapshot run_ready server_lost orphaned server_up rank_lost group_formed damaged_snapshot restored updates_lost run_failed
        "),
    );
}

#[test]
fn losses_are_summed_over_lineages() {
    let mut harness = harness(1, 1, true);
    play(&mut harness, READY);
    for (line, lost) in [
        ("ack 0", 0),
        ("up 0 life 2", 0),
        // Before its order is followed, and once more when it has been counted.
        ("ack 0 at 5 complete restored 1 lacks 9", 0),
        ("ack 0 complete restored 1 lacks 5", 5),
        ("ack 0 complete restored 1 lacks 5", 5),
        // Who was cut off has answered more meanwhile; what was told of it already does not come back.
        ("ack 0 complete restored 1 lacks 7", 7),
        ("ack 0 complete restored 1 lacks 6", 7),
        ("up 0 life 3", 7),
        ("ack 0 complete restored 1 lacks 4", 11),
        // Nothing was told of that lineage: its loss is in the next one's again.
        ("up 0 life 4", 11),
        ("ack 0 complete restored 1 lacks 6 told 9", 17),
        ("up 0 life 5", 17),
        ("ack 0 complete restored 1 lacks 6 told 9", 17),
        // It is further than the one before, which nobody has seen.
        ("up 0 life 6", 17),
        ("ack 0 complete restored 1 lacks 3 told 9", 14),
    ] {
        harness.happen(line);
        let Loss { updates, samples } = harness.run().unwrap().lost();
        assert_eq!((updates, samples), (lost, 2 * lost), "{line}");
    }
}

#[test]
fn a_shard_is_restored_elsewhere_when_its_server_does_not_come_back() {
    check_timed(
        2,
        1,
        true,
        "
        join 0.0 a => view 2 + 0@1 by 0@1
        ack 0 complete =>
        ack 1 complete => 0.0 joined as 1, view 2 + 0@1 by 0@1 | capture 1:0 at now | capture 1:1 at now
        captured 0 =>
        captured 1 => manifest 1
        written => view 4 0@1:0 + by nobody
        down 1 => view 5 0@1:0 + by nobody | 0:0@0 1:-?1
        pass 90 =>
        pass 59900 =>
        up 0 => view 8 + by nobody
        ack 0 =>
        pass 10 => view 9 + by nobody | 0:0@0 1:->0@9?1 | restore 1<=1
        ack 0 complete restored 1 lacks 3 => view 10 + by nobody | 0:0@0 1:0@9^9
        up 1 => view 10 + by nobody
        down 0 => view 11 + by nobody | 0:-?0 1:-?0^9
        up 0 => view 12 + by nobody | 0:0@0 1:0@9^9
        ",
    );
}

#[test]
fn a_coordinator_that_is_cut_off_from_the_others_restores_nothing_that_they_have() {
    check_timed(
        3,
        2,
        true,
        "
        join 0.0 a => view 2 + 0@1 by 0@1
        ack 0 complete =>
        ack 1 complete =>
        ack 2 complete => 0.0 joined as 1, view 2 + 0@1 by 0@1 | capture 1:0 at now | capture 1:1 at now | capture 1:2 at now
        captured 0 =>
        captured 1 =>
        captured 2 => manifest 1
        written => view 4 0@1:0 + by nobody
        ack 1 full 2 => view 5 0@1:0 + by nobody | 0:0@0+2@0 1:1@0+2@0* 2:2@0+0@0
        down 1 => view 7 0@1:0 + by nobody | 0:0@0+2@0 1:->2@7?1?2 2:2@0+0@0
        down 2 => view 8 0@1:0 + by nobody | 0:0@0 1:-?1?2 2:-?2
        live 0 =>
        pass 900 => view 9 + by nobody
        live 0 =>
        pass 900 =>
        live 0 =>
        pass 900 =>
        up 1 => view 10 + by nobody | 0:0@0+1@10 1:->1@10?1?2 2:-?2
        up 2 => view 11 + by nobody | 0:0@0+1@10 1:->1@10?1?2 2:2@0+0@11
        ",
    );
}

/// Three servers that hold each shard twice, all copies full, a first snapshot, a live group.
const REPLICATED: &str = "
        join 0.0 a => view 2 + 0@1 by 0@1
        ack 0 complete =>
        ack 1 complete =>
        ack 2 complete => 0.0 joined as 1, view 2 + 0@1 by 0@1 | capture 1:0 at now | capture 1:1 at now | capture 1:2 at now
        captured 0 =>
        captured 1 =>
        captured 2 => manifest 1
        written => view 4 0@1:0 + by nobody
        ack 0 full 2 => view 5 0@1:0 + by nobody | 0:0@0+2@0* 1:1@0+2@0 2:2@0+0@0
        ack 1 full 2 => view 6 0@1:0 + by nobody | 0:0@0+2@0* 1:1@0+2@0* 2:2@0+0@0
        ack 2 full 0 => view 7 0@1:0 + by nobody | 0:0@0+2@0* 1:1@0+2@0* 2:2@0+0@0*
";

/// A coordinator that is cut off chooses a server that it cannot reach any more, and that dies: the
/// former primary, which lives, still has everything.
#[test]
fn an_heir_that_dies_leaves_the_former_primary_to_go_on() {
    check_in(
        || harness(3, 2, true),
        &(REPLICATED.to_owned()
            + "
        down 1 => view 9 0@1:0 + by nobody | 0:0@0+2@0* 1:->2@9?1?2 2:2@0+0@0*
        down 2 => view 11 0@1:0 + by nobody | 0:0@0+2@0* 1:-?1?2 2:->0@11?2?0
        up 2 life 2 => view 13 0@1:0 + by nobody | 0:0@0+2@13 1:-?1 2:->0@11?0
        ack 2 =>
        up 1 => view 14 0@1:0 + by nobody | 0:0@0+2@13 1:->1@14?1 2:->0@11?0
        ack 1 => view 15 0@1:0 + by nobody | 0:0@0+2@13 1:1@14+2@15 2:->0@11?0
        ack 0 => view 16 0@1:0 + by nobody | 0:0@0+2@13 1:1@14+2@15 2:0@11+2@16
        events => server_up server_up server_up group_formed snapshot run_ready copy_full copy_full copy_full server_lost heir server_lost orphaned heir copy_removed server_up copy_added server_up heir promoted copy_added promoted copy_added
        "),
    );
}

/// A harness whose coordinator runs on server 0, and always hears that one.
fn on_server_0(servers: u32, replication: u32) -> Harness {
    let mut harness = harness(servers, replication, true);
    let other = Coordinator::new(1, false, SERVER_LEASE_MS);
    harness.coordinator = std::mem::replace(&mut harness.coordinator, other).hosted_by(ServerId(0));
    harness
}

/// A coordinator that is cut off with the server on which it runs makes nobody the only one.
#[test]
fn what_the_coordinators_own_server_says_is_no_sign_that_others_are_gone() {
    play(
        &mut on_server_0(3, 2),
        &(REPLICATED.to_owned()
            + "
        down 2 => view 9 0@1:0 + by nobody | 0:0@0+2@0* 1:1@0+2@0* 2:->0@9?2?0
        ack 0 =>
        down 1 => view 10 0@1:0 + by nobody | 0:0@0+2@0* 1:-?1?2 2:->0@9?2?0
        ack 0 =>
        up 2 => view 11 0@1:0 + by nobody | 0:0@0+2@0* 1:->2@11?1?2 2:->0@9?2?0
        ack 2 => view 13 0@1:0 + by nobody | 0:0@0+2@0* 1:2@11 2:0@9+2@12
        "),
    );
    // The others are there: as anywhere.
    play(
        &mut on_server_0(3, 2),
        &(REPLICATED.to_owned()
            + "
        down 2 => view 9 0@1:0 + by nobody | 0:0@0+2@0* 1:1@0+2@0* 2:->0@9?2?0
        ack 0 =>
        ack 1 => view 10 0@1:0 + by nobody | 0:0@0 1:1@0 2:0@9
        "),
    );
    // There is nobody else who could say it.
    play(
        &mut on_server_0(2, 2),
        "
        join 0.0 a => view 2 + 0@1 by 0@1
        ack 0 complete =>
        ack 1 complete => 0.0 joined as 1, view 2 + 0@1 by 0@1 | capture 1:0 at now | capture 1:1 at now
        captured 0 =>
        captured 1 => manifest 1
        written => view 4 0@1:0 + by nobody
        ack 0 full 1 => view 5 0@1:0 + by nobody | 0:0@0+1@0* 1:1@0+0@0
        ack 1 full 0 => view 6 0@1:0 + by nobody | 0:0@0+1@0* 1:1@0+0@0*
        down 1 => view 8 0@1:0 + by nobody | 0:0@0+1@0* 1:->0@8?1?0
        ack 0 => view 10 0@1:0 + by nobody | 0:0@0 1:0@8
        ",
    );
}

/// While the coordinator is cut off with its own server, its copies seem to confirm nothing.
#[test]
fn copies_that_are_not_heard_are_not_taken_for_mute() {
    play(
        &mut harness(3, 2, true),
        &(REPLICATED.to_owned()
            + "
        pass 600 => view 8 + by nobody
        ack 0 stalled 2 =>
        live 2 =>
        ack 0 stalled 2 => view 10 + by nobody | 0:0@0+2@10 1:1@0+2@0* 2:2@0+0@0*
        "),
    );
}

/// Neither is told to be the only one while the coordinator reaches neither.
#[test]
fn a_copy_that_is_missed_with_its_primary_may_take_over() {
    check_in(
        || harness(3, 2, true),
        &(REPLICATED.to_owned()
            + "
        down 2 => view 9 0@1:0 + by nobody | 0:0@0+2@0* 1:1@0+2@0* 2:->0@9?2?0
        down 1 => view 10 0@1:0 + by nobody | 0:0@0+2@0* 1:-?1?2 2:->0@9?2?0
        up 2 => view 11 0@1:0 + by nobody | 0:0@0+2@0* 1:->2@11?1?2 2:->0@9?2?0
        ack 0 => view 12 0@1:0 + by nobody | 0:0@0+2@0* 1:->2@11?1?2 2:0@9+2@12
        "),
    );
}

#[test]
fn a_copy_that_confirms_nothing_is_removed_and_filled_anew() {
    check_in(
        || harness(3, 2, true),
        &(REPLICATED.to_owned()
            + "
        ack 0 of 0 stalled 1 =>
        ack 0 of 0 stalled 2 => view 9 0@1:0 + by nobody | 0:0@0+2@9 1:1@0+2@0* 2:2@0+0@0*
        events => server_up server_up server_up group_formed snapshot run_ready copy_full copy_full copy_full copy_removed copy_added
        "),
    );
}

/// A run that is to lose nothing: what its servers may come back with is waited for, what is surely
/// lost ends it.
fn strict() -> Harness {
    let mut harness = harness(3, 2, true);
    harness.spec.faults.on_loss = OnLoss::Stop;
    harness.keep_servers = true;
    harness
}

#[test]
fn a_run_that_is_to_lose_nothing_stops_when_something_is_lost() {
    let lost = REPLICATED.to_owned()
        + "
        up 1 life 2 => view 9 0@1:0 + by nobody | 0:0@0+2@0* 1:->2@9?2 2:2@0+0@0*
        up 2 life 2 => view 11 0@1:0 + by nobody | 0:0@0+2@11 1:->1@11 2:->0@11?0 | restore 1<=1
    ";
    play(
        &mut strict(),
        &(lost.clone()
            + "
        ack 1 complete restored 1 lacks 7 => view 12 + by nobody | 0:0@0+2@11 1:- 2:-?0
        join 0.0 b => 0.0 refused Stopped
        shot x => x refused Stopped
        "),
    );
    // Who was cut off answers after it was replaced: that is no less lost.
    play(
        &mut strict(),
        &(lost.clone()
            + "
        ack 1 complete restored 1 => view 12 0@1:0 + by nobody | 0:0@0+2@11 1:1@11+2@12^11 2:->0@11?0
        ack 1 complete restored 1 lacks 3 => view 13 + by nobody | 0:0@0+2@11 1:1@11+2@12^11 2:-?0
        join 0.0 b => 0.0 refused Stopped
        "),
    );
    // What nobody had been told need not be there.
    play(
        &mut strict(),
        &(lost
            + "
        ack 1 complete restored 1 => view 12 0@1:0 + by nobody | 0:0@0+2@11 1:1@11+2@12^11 2:->0@11?0
        "),
    );
}

#[test]
fn a_run_that_tolerates_a_small_loss_stops_at_a_larger_one() {
    let tolerant = || {
        let mut harness = strict();
        harness.spec.faults.tolerated_samples = 14;
        harness
    };
    let lost = REPLICATED.to_owned()
        + "
        up 1 life 2 => view 9 0@1:0 + by nobody | 0:0@0+2@0* 1:->2@9?2 2:2@0+0@0*
        up 2 life 2 => view 11 0@1:0 + by nobody | 0:0@0+2@11 1:->1@11 2:->0@11?0 | restore 1<=1
    ";
    play(
        &mut tolerant(),
        &(lost.clone()
            + "
        ack 1 complete restored 1 lacks 7 => view 12 0@1:0 + by nobody | 0:0@0+2@11 1:1@11+2@12^11 2:->0@11?0
        "),
    );
    play(
        &mut tolerant(),
        &(lost
            + "
        ack 1 complete restored 1 lacks 8 => view 12 + by nobody | 0:0@0+2@11 1:- 2:-?0
        join 0.0 b => 0.0 refused Stopped
        "),
    );
}

#[test]
fn a_run_that_is_to_lose_nothing_stops_when_nobody_comes_back() {
    play(
        &mut strict(),
        &(REPLICATED.to_owned()
            + "
        up 1 life 2 => view 9 0@1:0 + by nobody | 0:0@0+2@0* 1:->2@9?2 2:2@0+0@0*
        down 2 => view 11 0@1:0 + by nobody | 0:0@0+2@0* 1:-?2 2:->0@11?2?0
        pass 90 =>
        pass 59900 => view 12 + by nobody
        pass 10 => view 13 + by nobody | 0:0@0+2@0* 1:->1@13?2 2:->0@11?2?0 | restore 1<=1
        ack 1 complete restored 1 lacks 7 => view 14 + by nobody | 0:0@0+2@0* 1:-?2 2:-?2?0
        join 0.0 b => 0.0 refused Stopped
        "),
    );
}
