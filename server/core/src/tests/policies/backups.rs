//! Groups that are not waited for.

use tradewind_common::Clock;
use tradewind_common::policy::Policies;
use tradewind_common::spec::ConsistencySpec::Sync;

use super::super::shard::{WEIGHT, only, push, ready_as, replies};
use super::{LIVE, decided, send, with};
use crate::ReplyTo;
use crate::decided::Verdict;
use crate::shard::{Action, Reply, Shard};

fn told(shard: &mut Shard) -> Vec<(Verdict, u64, u64, f32)> {
    let told = |(_, reply): (u64, Result<Reply, _>)| {
        let reply = reply.unwrap();
        let Clock(next) = reply.next;
        let value = reply.fresh.values()[0];
        (decided(&reply).verdict, next, reply.version, value)
    };
    replies(shard).into_iter().map(told).collect()
}

#[test]
fn a_group_that_is_left_behind_goes_on_where_the_others_are() {
    use Verdict::{Applied, Dropped};
    let policies = Policies {
        backup_groups: 1,
        ..Policies::default()
    };
    let mut shard = ready_as(with(Sync, policies), &LIVE);
    send(&mut shard, (1, 0), 1.0, 0, 1);
    assert_eq!(told(&mut shard), []);
    send(&mut shard, (0, 0), 3.0, 0, 1);
    assert_eq!(
        told(&mut shard),
        [(Applied, 1, 1, -1.0); 2],
        "clock 1 is next"
    );
    for _ in 0..2 {
        send(&mut shard, (2, 0), 99.0, 0, 1);
        assert_eq!(told(&mut shard), [(Dropped, 1, 1, -1.0)]);
    }
    // So is a skip that comes late: nobody waited for it.
    for clock in 1..3 {
        send(&mut shard, (0, clock), 1.0, clock, 1);
        send(&mut shard, (1, clock), 1.0, clock, 1);
        assert_eq!(
            told(&mut shard),
            [(Applied, clock + 1, clock + 1, -1.0 - clock as f32); 2]
        );
    }
    let skip = push(2, 1, WEIGHT, Action::Contribute(None));
    shard.handle_push(skip, ReplyTo(0), 0);
    assert_eq!(told(&mut shard), [(Dropped, 3, 3, -3.0)]);
    // It goes on two clocks further, and one more where another shard is ahead.
    send(&mut shard, (2, 4), 2.0, 3, 1);
    send(&mut shard, (0, 3), 1.0, 3, 1);
    assert_eq!(told(&mut shard), [], "group 1 is needed at clock 3");
    send(&mut shard, (1, 3), 1.0, 3, 1);
    assert_eq!(told(&mut shard), [(Applied, 4, 4, -4.0); 2]);
    send(&mut shard, (1, 4), 4.0, 4, 1);
    assert_eq!(told(&mut shard), [(Applied, 5, 5, -7.0); 2]);
    let counters = shard.counters();
    assert_eq!(
        (counters.dropped, counters.applied),
        (2 + 2, 10),
        "clocks 2 and 3 of group 2"
    );
}

/// It would decide the clock, and keep out the gradient that comes.
#[test]
fn a_skip_takes_nobodys_place() {
    use Verdict::{Applied, Skipped};
    let policies = Policies {
        backup_groups: 1,
        ..Policies::default()
    };
    let mut shard = ready_as(with(Sync, policies), &LIVE[..2]);
    let skip = |group, clock| push(group, clock, WEIGHT, Action::Contribute(None));
    shard.handle_push(skip(0, 0), ReplyTo(0), 0);
    assert_eq!(told(&mut shard), [], "group 1 may have a gradient");
    send(&mut shard, (1, 0), 1.0, 0, 1);
    assert_eq!(
        told(&mut shard),
        [(Skipped, 1, 1, 0.0), (Applied, 1, 1, 0.0)]
    );
    shard.handle_push(skip(0, 1), ReplyTo(0), 0);
    shard.handle_push(skip(1, 1), ReplyTo(0), 0);
    assert_eq!(
        told(&mut shard),
        [(Skipped, 2, 1, 0.0); 2],
        "nobody is left"
    );
}

#[test]
fn without_backups_no_clock_may_leave_a_gap() {
    let mut shard = ready_as(with(Sync, Policies::default()), &LIVE);
    send(&mut shard, (0, 1), 1.0, 0, 1);
    assert!(only(&mut shard).is_err());
}
