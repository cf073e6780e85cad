//! Groups that leave before the budget is applied, or too late.

use tradewind_client::leaving::{Asked, Leaving};

use super::*;

/// The coordinator has taken it for dead meanwhile: what it has used up is leased out again, so the next
/// incarnation says how the run stands.
#[test]
fn an_incarnation_that_may_not_leave_any_more_is_followed_by_another() {
    let shard = FakeShard::new(|frame| match (frame.incarnation, decided(frame, true)) {
        (2, Does::Answers(answer)) => Does::Answers(PullFrame {
            stop: true,
            ..answer
        }),
        (_, does) => does,
    });
    let shard_runs = shard.run();
    let address = shard_runs.address.clone();
    let coordinator = FakeCoordinator::beats(|_| Does::Answers(BeatReply::default()))
        .joined(move |before| Ok(joined(u64::from(before) + 1, &address)))
        .leaving(|incarnation| match incarnation {
            1 => Err(fenced()),
            _ => Ok(()),
        });
    let coordinator_runs = coordinator.run();
    let runtime = runtime();
    let mut member = member(&coordinator_runs, &[], None, &runtime);
    let end = live(&mut member).unwrap();
    assert_eq!(end, End::Applied);
    assert_eq!(coordinator.left(), [1, 2]);
}

/// By its coordinator with a beat, or by a signal: what is under way is brought to its end.
#[test]
fn a_group_that_is_asked_to_leave_ends_its_exchange_and_leaves() {
    let modes = [
        "train.overlap=0",
        "train.overlap=1",
        "exchange.per_bucket=true",
    ];
    for (mode, by_beat) in modes
        .into_iter()
        .flat_map(|mode| [(mode, true), (mode, false)])
    {
        let leaving = Leaving::default();
        let (asks, asked) = (leaving.clone(), Arc::new(Mutex::new(None)));
        let answer = asked.clone();
        let shard = FakeShard::new(move |frame| {
            if !by_beat && frame.clock == 3 {
                answer.lock().unwrap().get_or_insert_with(|| asks.ask());
            }
            decided(frame, false)
        });
        let shard_runs = shard.run();
        let address = shard_runs.address.clone();
        let coordinator = FakeCoordinator::beats(move |beat| {
            Does::Answers(BeatReply {
                leave: by_beat && beat.clock >= 3,
                ..BeatReply::default()
            })
        });
        let coordinator = coordinator
            .joined(move |_| Ok(joined(1, &address)))
            .starting(|_| 0);
        let coordinator_runs = coordinator.run();
        let runtime = runtime();
        let mut member = member(&coordinator_runs, &[mode], None, &runtime);
        member.process.leaving = leaving;
        let end = live(&mut member).unwrap();
        assert_eq!(end, End::Left, "{mode}");
        assert_eq!(coordinator.left(), [1], "{mode}");
        if !by_beat {
            assert_eq!(*asked.lock().unwrap(), Some(Asked::Finishes), "{mode}");
            // With overlap the last values that came are not the model's.
            let last = if mode == "train.overlap=1" { 3.0 } else { 4.0 };
            assert_eq!(member.flat.read(), [last; 4], "{mode}");
        }
    }
}

#[test]
fn a_group_that_was_asked_to_leave_while_it_was_not_together_does_not_come_back() {
    for reason in [Reason::Drained, Reason::RevokedCertificate] {
        let coordinator = FakeCoordinator::joins(move |_| Err(status(reason, "leave".into())));
        let coordinator_runs = coordinator.run();
        let runtime = runtime();
        let mut member = member(&coordinator_runs, &[], None, &runtime);
        let end = live(&mut member).unwrap();
        assert_eq!(end, End::Left, "{reason:?}");
        assert_eq!(coordinator.joins_heard().len(), 1);
    }
}

/// It trains when its connections are closed, and hears why from a shard.
#[test]
fn a_group_that_is_shut_out_does_not_come_back() {
    let shard = FakeShard::new(move |frame| match frame.clock {
        3 => Does::Ends(Err(status(Reason::RevokedCertificate, "revoked".into()))),
        _ => decided(frame, false),
    });
    let shard_runs = shard.run();
    let address = shard_runs.address.clone();
    let coordinator = FakeCoordinator::beats(|_| Does::Answers(BeatReply::default()))
        .joined(move |before| Ok(joined(u64::from(before) + 1, &address)))
        .starting(|_| 0);
    let coordinator_runs = coordinator.run();
    let runtime = runtime();
    let mut member = member(&coordinator_runs, &[], None, &runtime);
    assert_eq!(live(&mut member).unwrap(), End::Left);
    assert_eq!(coordinator.joins_heard().len(), 1);
}

#[test]
fn a_rank_that_was_asked_to_leave_does_not_come_back_when_its_group_breaks_first() {
    let leaving = Leaving::default();
    let asks = leaving.clone();
    let shard = FakeShard::new(move |frame| match frame.clock {
        3 => {
            asks.ask();
            Does::Ends(Err(fenced()))
        }
        _ => decided(frame, false),
    });
    let shard_runs = shard.run();
    let address = shard_runs.address.clone();
    let coordinator = FakeCoordinator::beats(|_| Does::Answers(BeatReply::default()))
        .joined(move |before| Ok(joined(u64::from(before) + 1, &address)))
        .starting(|_| 0);
    let coordinator_runs = coordinator.run();
    let runtime = runtime();
    let mut member = member(&coordinator_runs, &[], None, &runtime);
    member.process.leaving = leaving;
    let end = live(&mut member).unwrap();
    assert_eq!(end, End::Left);
    assert_eq!(coordinator.joins_heard().len(), 1);
}
