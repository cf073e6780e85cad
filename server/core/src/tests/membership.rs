//! Who is in a run, and when: scripts as [`super::harness`] reads them.

use super::harness::{Harness, check as check_in, play, run_of};

/// Of groups of these sizes, on so many servers without a folder.
fn check(sizes: &[u32], servers: u32, script: &str) {
    check_in(|| Harness::new(run_of(sizes), servers, false), script);
}

/// The same where leases run out: a recovered coordinator would grant them anew.
fn check_timed(sizes: &[u32], servers: u32, script: &str) {
    play(&mut Harness::new(run_of(sizes), servers, false), script);
}

#[test]
fn forming_waits_for_all_ranks_all_groups_and_all_servers() {
    check(
        &[2, 1],
        2,
        "
        join 0.0 a =>
        join 1.0 a => view 2 + 1@1 by 1@1
        ack 0 =>
        ack 1 => 1.0 joined as 1
        await 1.0@1 => 1.0@1 create
        join 0.1 b => view 3 + 0@1 1@1 by 1@1
        ack 0 =>
        ack 1 => 0.0 joined as 1 0/2 at store-0a, 0.1 joined as 1 1/2 at store-0a
        await 0.0@1 =>
        await 0.1@1 =>
        await 1.0@1 created =>
        ack 0 complete =>
        ack 1 complete => view 5 0@1:0 1@1:0 + by nobody
        ack 0 complete =>
        ack 1 complete => 0.0@1 start at 0, 0.1@1 start at 0, 1.0@1 start at 0
        ",
    );
}

#[test]
fn a_creator_that_dies_is_followed_by_another() {
    check_timed(
        &[1, 1],
        1,
        "
        join 0.0 a => view 2 + 0@1 by 0@1
        join 1.0 b => view 3 + 0@1 1@1 by 0@1
        ack 0 => 0.0 joined as 1, 1.0 joined as 1
        await 0.0@1 => 0.0@1 create
        await 1.0@1 =>
        pass 60 =>
        beat 1.0@1 => 1.0@1 at 3
        pass 60 => view 5 + 1@1 by 1@1
        ack 0 => 1.0@1 create
        beat 0.0@1 => 0.0@1 refused NotLive
        ",
    );
}

#[test]
fn a_new_life_is_fenced_and_starts_past_the_highest_clock() {
    check(
        &[1, 1],
        2,
        "
        join 0.0 a => view 2 + 0@1 by 0@1
        join 1.0 b => view 3 + 0@1 1@1 by 0@1
        ack 0 =>
        ack 1 => 0.0 joined as 1, 1.0 joined as 1
        await 0.0@1 => 0.0@1 create
        await 1.0@1 =>
        ack 0 complete =>
        ack 1 complete => view 5 0@1:0 1@1:0 + by nobody
        ack 0 =>
        ack 1 => 1.0@1 start at 0
        lost 0.0@1 => view 6 1@1:0 + by nobody
        join 0.0 c => view 7 1@1:0 + 0@2 by nobody
        await 0.0@1 => 0.0@1 refused StaleIncarnation
        beat 0.0@1 => 0.0@1 refused StaleIncarnation
        ack 0 saw 7 =>
        ack 1 saw 8 => 0.0 joined as 2, view 8 0@2:9 1@1:0 + by nobody
        await 0.0@2 =>
        ack 0 saw 9 =>
        ack 1 => 0.0@2 start at 9
        ",
    );
}

#[test]
fn a_group_that_leaves_or_dies_gives_its_data_back() {
    check_timed(
        &[1, 1],
        1,
        "
        join 0.0 a => view 2 + 0@1 by 0@1
        join 1.0 b => view 3 + 0@1 1@1 by 0@1
        ack 0 complete => 0.0 joined as 1, 1.0 joined as 1, view 5 0@1:0 1@1:0 + by nobody
        ack 0 complete =>
        lease 0@1 => 0@1 chunk 0
        lease 1@1 => 1@1 chunk 1
        leave 0.0@1 => 0.0@1 left, view 6 1@1:0 + by nobody
        leave 0.0@1 => 0.0@1 left
        lease 0@1 => 0@1 refused NotLive
        pass 120 => view 7 + by nobody
        join 0.0 c => view 8 + 0@2 by nobody
        ack 0 => 0.0 joined as 2, view 9 0@2:0 + by nobody
        ack 0 =>
        lease 0@2 => 0@2 chunk 0
        leave 0.0@1 => 0.0@1 refused StaleIncarnation
        ",
    );
}

#[test]
fn the_start_grace_ends_the_wait_for_groups_that_do_not_come() {
    check_timed(
        &[1, 1],
        1,
        "
        join 0.0 a => view 2 + 0@1 by 0@1
        ack 0 complete => 0.0 joined as 1, view 3 + 0@1 by nobody
        await 0.0@1 =>
        ack 0 complete =>
        pass 90 =>
        beat 0.0@1 => 0.0@1 at 3
        pass 90 => view 4 0@1:0 + by nobody
        ack 0 => 0.0@1 start at 0
        join 1.0 b => view 5 0@1:0 + 1@1 by nobody
        ack 0 saw 3 => 1.0 joined as 1, view 6 0@1:0 1@1:4 + by nobody
        await 1.0@1 =>
        ack 0 => 1.0@1 start at 4
        ",
    );
}

#[test]
fn what_is_repeated_is_answered_again_and_what_cannot_be_is_refused() {
    check(
        &[2],
        1,
        "
        join 7.0 a => 7.0 refused UnknownGroup
        join 0.2 a => 0.2 refused UnknownRank
        beat 0.0@1 => 0.0@1 refused NotLive
        join 0.0 a =>
        join 0.0 b => 0.0 refused Replaced
        beat 0.0@0 => 0.0@0 refused NotLive
        join 0.1 c => view 2 + 0@1 by 0@1
        join 0.0 b => 0.0 refused Replaced
        ack 0 => 0.0 joined as 1 0/2 at store-0b, 0.1 joined as 1 1/2 at store-0b
        join 0.1 c => 0.1 joined as 1 1/2 at store-0b
        await 0.0@1 => 0.0@1 create
        await 0.0@1 => 0.0@1 create
        await 0.0@1 created =>
        await 0.0@1 => 0.0@1 refused Replaced
        await 0.1@2 => 0.1@2 refused StaleIncarnation
        ",
    );
}

#[test]
fn a_shard_that_has_lost_its_values_fails_the_run() {
    check(
        &[1],
        1,
        "
        join 0.0 a => view 2 + 0@1 by 0@1
        ack 0 => 0.0 joined as 1
        await 0.0@1 => 0.0@1 create
        await 0.0@1 created =>
        ack 0 complete => view 4 0@1:0 + by nobody
        ack 0 => 0.0@1 start at 0
        ack 0 empty => view 5 + by nobody
        beat 0.0@1 => 0.0@1 refused Failed
        ",
    );
}

#[test]
fn a_rank_whose_sibling_has_left_is_not_lost() {
    check(
        &[2],
        1,
        "
        join 0.0 a =>
        join 0.1 b => view 2 + 0@1 by 0@1
        ack 0 complete => 0.0 joined as 1 0/2 at store-0a, 0.1 joined as 1 1/2 at store-0a, view 4 0@1:0 + by nobody
        leave 0.0@1 => 0.0@1 left, view 5 + by nobody
        beat 0.1@1 => 0.1@1 at 5
        leave 0.1@1 => 0.1@1 left
        ",
    );
}

/// Its process was started again, and took longer than the others had left to do.
#[test]
fn a_rank_that_comes_back_when_the_others_are_done_waits_no_longer_than_for_a_group_that_forms_again()
 {
    check_timed(
        &[2],
        1,
        "
        join 0.0 a =>
        join 0.1 b => view 2 + 0@1 by 0@1
        ack 0 complete => 0.0 joined as 1 0/2 at store-0a, 0.1 joined as 1 1/2 at store-0a, view 4 0@1:0 + by nobody
        leave 0.0@1 => 0.0@1 left, view 5 + by nobody
        join 0.1 c =>
        pass 40 =>
        pass 20 => view 6 + 0@2 by nobody
        ",
    );
}

#[test]
fn a_broken_connection_makes_a_group_gather_anew_at_once() {
    check(
        &[2],
        1,
        "
        join 0.1 b =>
        join 0.0 a => view 2 + 0@1 by 0@1
        ack 0 complete => 0.0 joined as 1 0/2 at store-0a, 0.1 joined as 1 1/2 at store-0a, view 4 0@1:0 + by nobody
        ack 0 =>
        beat 0.0@1 3 => 0.0@1 at 4
        await 0.1@1 => 0.1@1 start at 0
        lease 0@1 => 0@1 chunk 0
        lost 0.1@1 => view 5 + by nobody
        lost 0.1@1 =>
        beat 0.0@1 => 0.0@1 refused NotLive
        join 0.0 a =>
        join 0.1 c => view 6 + 0@2 by nobody
        ack 0 saw 4 => 0.0 joined as 2 0/2 at store-0a, 0.1 joined as 2 1/2 at store-0a, view 7 0@2:5 + by nobody
        lease 0.1@2 => 0.1@2 chunk 0
        lost 0.1@1 =>
        ack 0 =>
        beat 0.1@2 => 0.1@2 at 7
        events => server_up group_formed run_ready rank_lost group_formed
        ",
    );
}

#[test]
fn a_rank_that_saw_its_group_break_takes_it_out_of_the_view() {
    check(
        &[2],
        1,
        "
        join 0.0 a =>
        join 0.1 b => view 2 + 0@1 by 0@1
        ack 0 complete => 0.0 joined as 1 0/2 at store-0a, 0.1 joined as 1 1/2 at store-0a, view 4 0@1:0 + by nobody
        ack 0 =>
        join 0.1 b => 0.1 joined as 1 1/2 at store-0a
        beat 0.0@1 => 0.0@1 at 4
        beat 0.1@1 => 0.1@1 at 4
        join 0.1 b => view 5 + by nobody
        lost 0.0@1 =>
        join 0.0 a => view 6 + 0@2 by nobody
        events => server_up group_formed run_ready group_reforms group_formed
        ",
    );
}

#[test]
fn another_process_in_a_ranks_place_takes_the_group_out_of_the_view() {
    check(
        &[2],
        1,
        "
        join 0.0 a =>
        join 0.1 b => view 2 + 0@1 by 0@1
        ack 0 complete => 0.0 joined as 1 0/2 at store-0a, 0.1 joined as 1 1/2 at store-0a, view 4 0@1:0 + by nobody
        await 0.0@1 =>
        join 0.1 c => 0.0@1 refused NotLive, view 5 + by nobody
        beat 0.1@1 => 0.1@1 refused NotLive
        join 0.0 a => view 6 + 0@2 by nobody
        events => server_up group_formed run_ready rank_lost group_formed
        ",
    );
}

#[test]
fn a_group_goes_on_with_the_ranks_that_are_there() {
    check_timed(
        &[3],
        1,
        "
        join 0.0 a =>
        pass 100 =>
        join 0.2 c =>
        pass 40 =>
        pass 20 => view 2 + 0@1 by 0@1
        ack 0 complete => 0.0 joined as 1 0/2 at store-0a, 0.2 joined as 1 1/2 at store-0a, view 4 0@1:0 + by nobody
        ack 0 =>
        beat 0.0@1 => 0.0@1 at 4
        beat 0.2@1 => 0.2@1 at 4
        beat 0.1@1 => 0.1@1 refused NotLive
        join 0.1 b => view 5 + by nobody
        beat 0.0@1 => 0.0@1 refused NotLive
        join 0.2 c =>
        pass 60 => view 6 + 0@2 by nobody
        ack 0 => 0.1 joined as 2 0/2 at store-1b, 0.2 joined as 2 1/2 at store-1b, view 7 0@2:0 + by nobody
        ack 0 =>
        lost 0.1@2 => view 8 + by nobody
        join 0.2 c =>
        join 0.0 a =>
        join 0.1 d => view 9 + 0@3 by nobody
        pass 300 => 0.0 refused NotLive, 0.1 refused NotLive, 0.2 refused NotLive, view 10 + by nobody
        join 0.2 e =>
        pass 40 =>
        pass 10 => view 11 + 0@4 by nobody
        ack 0 => 0.2 joined as 4, view 12 0@4:0 + by nobody
        lease 0.2@4 => 0.2@4 chunk 0
        ",
    );
}

#[test]
fn beats_tell_how_fast_the_fastest_live_group_is() {
    check_timed(
        &[1, 1],
        1,
        "
        join 0.0 a => view 2 + 0@1 by 0@1
        join 1.0 b => view 3 + 0@1 1@1 by 0@1
        ack 0 => 0.0 joined as 1, 1.0 joined as 1
        await 0.0@1 => 0.0@1 create
        await 1.0@1 =>
        beat 0.0@1 0 speed 9 => 0.0@1 at 3
        await 0.0@1 created =>
        ack 0 complete => view 5 0@1:0 1@1:0 + by nobody
        ack 0 complete => 0.0@1 start at 0, 1.0@1 start at 0
        beat 0.0@1 1 speed 9 => 0.0@1 at 5
        beat 1.0@1 1 speed 4 => 1.0@1 at 5 fastest 9
        beat 0.0@1 2 speed 3 => 0.0@1 at 5 fastest 4
        beat 0.0@1 3 speed 7 => 0.0@1 at 5 fastest 4
        lost 0.0@1 => view 6 1@1:0 + by nobody
        beat 1.0@1 2 speed 4 => 1.0@1 at 6
        ",
    );
}

/// Or its values would be taken for those of the next run of that name.
#[test]
fn servers_forget_a_run_that_is_removed_without_a_folder_as_well() {
    check(
        &[1],
        1,
        "
        join 0.0 a => view 2 + 0@1 by 0@1
        ack 0 complete => 0.0 joined as 1, view 4 0@1:0 + by nobody
        ack 0 =>
        leave 0.0@1 => 0.0@1 left, view 5 + by nobody
        remove => server 0 forgets, removed
        ",
    );
}
