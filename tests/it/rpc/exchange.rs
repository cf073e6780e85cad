//! Frames of an exchange that are refused, and what stands.

use tonic::Code;
use tradewind_proto::v1::{PullFrame, PushFrame, Verdict, push_frame};

use super::frames::{CREATIONS, Change, GRADIENTS, gradient};
use super::stage::{READY, Stage, YOUNG};
use super::{Row, assert_refused, bytes, create, frame, push};

/// Sends each row's frame on a stream of its own and looks at everything that must not change.
async fn check(stage: &Stage, rows: &[Row<Change>], good: &PushFrame) {
    let mut before = stage.snapshot().await;
    for (name, change, want) in rows {
        let mut bad = good.clone();
        change(&mut bad);
        let of_shard = !["frame-too-large", "not-primary"].contains(&want.1);
        let known = bad.run == good.run && of_shard;
        assert_refused(name, stage.client.push(1, bad).await, *want);
        // Of the run's shard on server 1; a frame that is read by none belongs to none.
        before.refused[if good.run == READY { 1 } else { 3 }] += u64::from(known);
        let after = stage.snapshot().await;
        assert_eq!(after, before, "{name}");
    }
}

fn verdict(frame: &PullFrame) -> (Verdict, bool, u64) {
    (frame.verdict(), frame.repeated_verdict, frame.version)
}

#[test]
fn a_bad_frame_is_refused_and_changes_nothing() {
    let stage = Stage::new();
    stage.fleet.block_on(async {
        let good = push((READY, 0, 2), (3, 1), 3, &[1.0; 3]);
        check(&stage, GRADIENTS, &good).await;
        let applied = stage.client.push(1, good).await.unwrap();
        assert_eq!(verdict(&applied), (Verdict::Applied, false, 4));
    });
}

#[test]
fn before_the_run_is_ready_only_its_creator_is_heard() {
    let stage = Stage::new();
    stage.fleet.block_on(async {
        let good = create((YOUNG, 0, 1), 1, &[2.0; 3]);
        check(&stage, CREATIONS, &good).await;
        for values in [[2.0; 3], [5.0; 3]] {
            let again = create((YOUNG, 0, 1), 1, &values);
            let created = stage.client.push(1, again).await.unwrap();
            assert_eq!(verdict(&created), (Verdict::Created, false, 0));
            assert_eq!(created.values, bytes(&[2.0; 3]), "the first value wins");
        }
    });
}

#[test]
fn frames_before_a_bad_one_stand() {
    let stage = Stage::new();
    stage.fleet.block_on(async {
        let sender = (READY, 0, 2);
        let faults: [Row<Change>; 2] = [
            (
                "refused by the shard",
                |f| gradient(f).samples = 0,
                (Code::InvalidArgument, "no-samples", "block 2"),
            ),
            (
                "refused at the edge",
                |f| f.action = None,
                (Code::InvalidArgument, "malformed", "action"),
            ),
        ];
        for (clock, (name, change, want)) in (3..).zip(faults) {
            let first = push(sender, (clock, 1), clock, &[1.0; 3]);
            let mut second = push(sender, (clock, 2), clock, &[1.0; 3]);
            change(&mut second);
            let both = vec![first.clone(), second];
            let (answers, end) = stage.client.exchange(1, both).await;
            assert_refused(name, end, want);
            let [answer] = answers.as_slice() else {
                panic!("{name}: {answers:?}")
            };
            assert_eq!(
                verdict(answer),
                (Verdict::Applied, false, clock + 1),
                "{name}"
            );
            let repeated = stage.client.push(1, first).await.unwrap();
            assert_eq!(verdict(&repeated), (Verdict::Applied, true, clock + 1));
            let second = push(sender, (clock, 2), clock, &[1.0; 3]);
            let applied = stage.client.push(1, second).await.unwrap();
            assert_eq!(verdict(&applied), (Verdict::Applied, false, clock + 1));
        }
    });
}

#[test]
fn a_bare_pull_may_come_from_nobody() {
    let stage = Stage::new();
    stage.fleet.block_on(async {
        let read = frame(
            (READY, 0, 0),
            2,
            push_frame::Action::Pull(Default::default()),
        );
        let read = stage.client.push(1, read).await.unwrap();
        assert_eq!(verdict(&read), (Verdict::Read, false, 3));
        assert_eq!(read.values, bytes(&[-1.5; 3]), "three updates by 0.5 × 1");
    });
}
