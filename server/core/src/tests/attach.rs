//! Groups are added to a run under way, and asked to leave.

use super::harness::{Harness, check as check_in, run_of};

fn check(sizes: &[u32], script: &str) {
    check_in(|| Harness::new(run_of(sizes), 1, true), script);
}

#[test]
fn a_group_that_was_added_joins_and_starts_where_the_others_are() {
    check(
        &[1],
        "
        join 0.0 a => view 2 + 0@1 by 0@1
        ack 0 => 0.0 joined as 1
        await 0.0@1 => 0.0@1 create
        join 1.0 b => 1.0 refused UnknownGroup
        attach 2+1 => 2+1 attached 1, view 3 + 0@1 by 0@1
        join 1.0 b =>
        join 1.1 c => view 4 + 0@1 1@1 by 0@1
        join 1.2 d => 1.2 refused UnknownRank
        join 3.0 d => 3.0 refused UnknownGroup
        ack 0 complete => 1.0 joined as 1 0/2 at store-0b, 1.1 joined as 1 1/2 at store-0b, view 4 + 0@1 1@1 by 0@1 | capture 1:0 at now
        captured 0 => manifest 1
        written => view 6 0@1:0 1@1:0 + by nobody
        ack 0 saw 7 =>
        await 1.0@1 => 1.0@1 start at 0
        join 2.0 e => view 7 0@1:0 1@1:0 + 2@1 by nobody
        ack 0 saw 7 => 2.0 joined as 1, view 8 0@1:0 1@1:0 2@1:8 + by nobody
        ",
    );
}

#[test]
fn who_is_asked_to_leave_leaves_and_does_not_come_back() {
    check(
        &[1, 1, 1],
        "
        join 0.0 a => view 2 + 0@1 by 0@1
        join 1.0 b => view 3 + 0@1 1@1 by 0@1
        join 2.0 c => view 4 + 0@1 1@1 2@1 by 0@1
        ack 0 => 0.0 joined as 1, 1.0 joined as 1, 2.0 joined as 1
        ack 0 complete => view 4 + 0@1 1@1 2@1 by 0@1 | capture 1:0 at now
        captured 0 => manifest 1
        written => view 6 0@1:0 1@1:0 2@1:0 + by nobody
        ack 0 =>
        beat 1.0@1 => 1.0@1 at 6
        drain 1 => 1 draining
        drain 3 => 3 refused UnknownGroup
        beat 1.0@1 => 1.0@1 at 6 and leave
        beat 0.0@1 => 0.0@1 at 6
        leave 1.0@1 => 1.0@1 left, view 7 0@1:0 2@1:0 + by nobody
        join 1.0 d => 1.0 refused Drained
        drain 2 => 2 draining
        lost 2.0@1 => view 8 0@1:0 + by nobody
        join 2.0 d => 2.0 refused Drained
        events => server_up group_formed group_formed group_formed snapshot run_ready group_drained group_left group_drained rank_lost group_left
        drain all => all draining
        beat 0.0@1 => 0.0@1 at 8 and leave
        leave 0.0@1 => 0.0@1 left, view 9 + by nobody | capture 2:0 at now
        captured 0 => manifest 2
        written =>
        join 0.0 d => 0.0 refused Drained
        ",
    );
}

#[test]
fn a_run_that_is_over_can_be_forgotten_and_begun_again() {
    check(
        &[1],
        "
        join 0.0 a => view 2 + 0@1 by 0@1
        ack 0 => 0.0 joined as 1
        remove => refused StillTrains
        ack 0 complete => view 2 + 0@1 by 0@1 | capture 1:0 at now
        captured 0 => manifest 1
        written => view 4 0@1:0 + by nobody
        ack 0 =>
        await 0.0@1 => 0.0@1 start at 0
        leave 0.0@1 => 0.0@1 left, view 5 + by nobody | capture 2:0 at now
        remove => refused StillTrains
        captured 0 => manifest 2
        written =>
        remove => server 0 forgets, removed
        join 0.0 b => view 7 + 0@2 by 0@2
        ",
    );
}
