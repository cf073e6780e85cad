//! Frames of an exchange that are refused.

use ::bytes::Bytes;
use tonic::Code;
use tradewind_proto::v1::{Gradient, PullFrame, PushFrame, Skip, Verdict, push_frame};
use tradewind_server::FRAME_BYTES_MAX;

use super::stage::{READY, Stage, YOUNG};
use super::{Expected, assert_refused, bytes, create, frame, push};

type Change = fn(&mut PushFrame);

/// What is wrong with a frame that would be applied otherwise: the gradient of group 0 for block 1
/// at clock 3.
pub(super) const GRADIENTS: &[(&str, Change, Expected)] = &[
    (
        "a run name that is none",
        |f| f.run = "../ready".into(),
        (Code::InvalidArgument, "malformed", "run name \"../ready\""),
    ),
    (
        "no run name",
        |f| f.run.clear(),
        (Code::InvalidArgument, "malformed", "run name \"\""),
    ),
    (
        "an unknown run",
        |f| f.run = "other".into(),
        (Code::NotFound, "unknown-run", "run other is not known"),
    ),
    (
        "an unknown group",
        |f| f.group = 9,
        (Code::NotFound, "unknown-group", "groups 0 to 2, not 9"),
    ),
    (
        "a group that has not joined",
        |f| f.group = 2,
        (Code::PermissionDenied, "not-live", "group 2 is not live"),
    ),
    (
        "incarnation 0",
        |f| f.incarnation = 0,
        (
            Code::PermissionDenied,
            "stale-incarnation",
            "incarnation 0 of group 0",
        ),
    ),
    (
        "a former incarnation",
        |f| f.incarnation = 1,
        (
            Code::PermissionDenied,
            "stale-incarnation",
            "incarnation 1 of group 0",
        ),
    ),
    (
        "an incarnation to come",
        |f| f.incarnation = 3,
        (
            Code::PermissionDenied,
            "stale-incarnation",
            "the current one is 2",
        ),
    ),
    (
        "another group's incarnation",
        |f| f.group = 1,
        (
            Code::PermissionDenied,
            "stale-incarnation",
            "incarnation 2 of group 1",
        ),
    ),
    (
        "a clock that has passed",
        |f| f.clock = 1,
        (Code::OutOfRange, "clock-passed", "block 1 expects 3"),
    ),
    (
        "a clock of the former incarnation",
        |f| f.clock = 0,
        (Code::OutOfRange, "clock-passed", "clock 0 of group 0"),
    ),
    (
        "the next clock but one",
        |f| f.clock = 4,
        (
            Code::OutOfRange,
            "clock-ahead",
            "leaves a gap; block 1 expects 3",
        ),
    ),
    (
        "the last clock there is",
        |f| f.clock = u64::MAX,
        (Code::OutOfRange, "clock-ahead", "block 1 expects 3"),
    ),
    (
        "a block of another server",
        |f| f.block = 0,
        (
            Code::NotFound,
            "unknown-block",
            "block 0 is not in this shard",
        ),
    ),
    (
        "a block that is none",
        |f| f.block = u32::MAX,
        (Code::NotFound, "unknown-block", "block 4294967295"),
    ),
    (
        "no action",
        |f| f.action = None,
        (Code::InvalidArgument, "malformed", "action: is missing"),
    ),
    (
        "no values",
        |f| gradient(f).values.clear(),
        (
            Code::InvalidArgument,
            "wrong-length",
            "block 1 has 3 values, the frame brought 0",
        ),
    ),
    (
        "a value too few",
        |f| gradient(f).values.truncate(8),
        (Code::InvalidArgument, "wrong-length", "the frame brought 2"),
    ),
    (
        "a value too many",
        |f| gradient(f).values = bytes(&[1.0; 4]),
        (Code::InvalidArgument, "wrong-length", "the frame brought 4"),
    ),
    (
        "half a value",
        |f| gradient(f).values.truncate(10),
        (
            Code::InvalidArgument,
            "malformed",
            "values: 10 bytes are no whole number of f32",
        ),
    ),
    (
        "no type",
        |f| gradient(f).dtype = 0,
        (Code::InvalidArgument, "malformed", "dtype: 0 is not a type"),
    ),
    (
        "an unknown type",
        |f| gradient(f).dtype = 77,
        (
            Code::InvalidArgument,
            "malformed",
            "dtype: 77 is not a type",
        ),
    ),
    (
        "NaN",
        |f| gradient(f).values = bytes(&[1.0, f32::NAN, 1.0]),
        (
            Code::InvalidArgument,
            "not-finite",
            "value 1 for block 1 is NaN",
        ),
    ),
    (
        "infinity",
        |f| gradient(f).values = bytes(&[f32::INFINITY, 1.0, 1.0]),
        (
            Code::InvalidArgument,
            "not-finite",
            "value 0 for block 1 is inf",
        ),
    ),
    (
        "negative infinity",
        |f| gradient(f).values = bytes(&[1.0, 1.0, f32::NEG_INFINITY]),
        (
            Code::InvalidArgument,
            "not-finite",
            "value 2 for block 1 is -inf",
        ),
    ),
    (
        "no samples",
        |f| gradient(f).samples = 0,
        (Code::InvalidArgument, "no-samples", "send skip"),
    ),
    (
        "a version to come",
        |f| gradient(f).pulled_version = 4,
        (
            Code::OutOfRange,
            "version-ahead",
            "version 4, but the block is at 3",
        ),
    ),
    (
        "more than a frame may have",
        |f| gradient(f).values = Bytes::from(vec![0; FRAME_BYTES_MAX]),
        (Code::ResourceExhausted, "frame-too-large", "the limit is"),
    ),
    (
        "a skip at a clock to come",
        |f| {
            f.action = Some(push_frame::Action::Skip(Skip {}));
            f.clock = 4;
        },
        (Code::OutOfRange, "clock-ahead", "block 1 expects 3"),
    ),
    (
        "a skip of a former incarnation",
        |f| {
            f.action = Some(push_frame::Action::Skip(Skip {}));
            f.incarnation = 1;
        },
        (
            Code::PermissionDenied,
            "stale-incarnation",
            "incarnation 1 of group 0",
        ),
    ),
    (
        "a pull of a former incarnation",
        |f| {
            pull(f);
            f.incarnation = 1;
        },
        (
            Code::PermissionDenied,
            "stale-incarnation",
            "incarnation 1 of group 0",
        ),
    ),
    (
        "a pull of an unknown group",
        |f| {
            pull(f);
            f.group = 9;
        },
        (Code::NotFound, "unknown-group", "groups 0 to 2, not 9"),
    ),
    (
        "a pull of a block of another server",
        |f| {
            pull(f);
            f.block = 0;
        },
        (
            Code::NotFound,
            "unknown-block",
            "block 0 is not in this shard",
        ),
    ),
    (
        "a pull with a clock",
        |f| {
            pull(f);
            f.clock = 3;
        },
        (Code::InvalidArgument, "malformed", "clock: is not 0"),
    ),
    (
        "a creation in a run that is ready",
        |f| *f = create((READY, 0, 2), 1, &[9.0; 3]),
        (Code::AlreadyExists, "not-creator", "group 0 may not create"),
    ),
];

/// What is wrong with a frame for a run that is not ready, whose block 1 group 0 would create
/// otherwise.
pub(super) const CREATIONS: &[(&str, Change, Expected)] = &[
    (
        "a group that does not create",
        |f| f.group = 1,
        (Code::AlreadyExists, "not-creator", "group 1 may not create"),
    ),
    (
        "an unknown group",
        |f| f.group = 2,
        (Code::NotFound, "unknown-group", "groups 0 to 1, not 2"),
    ),
    (
        "incarnation 0",
        |f| f.incarnation = 0,
        (
            Code::PermissionDenied,
            "stale-incarnation",
            "incarnation 0 of group 0",
        ),
    ),
    (
        "an incarnation to come",
        |f| f.incarnation = 2,
        (
            Code::PermissionDenied,
            "stale-incarnation",
            "incarnation 2 of group 0",
        ),
    ),
    (
        "a clock",
        |f| f.clock = 1,
        (Code::InvalidArgument, "malformed", "clock: is not 0"),
    ),
    (
        "a block of another server",
        |f| f.block = 0,
        (
            Code::NotFound,
            "unknown-block",
            "block 0 is not in this shard",
        ),
    ),
    (
        "a value too few",
        |f| *f = create((YOUNG, 0, 1), 1, &[1.0; 2]),
        (
            Code::InvalidArgument,
            "wrong-length",
            "block 1 has 3 values, the frame brought 2",
        ),
    ),
    (
        "NaN",
        |f| *f = create((YOUNG, 0, 1), 1, &[1.0, 1.0, f32::NAN]),
        (
            Code::InvalidArgument,
            "not-finite",
            "value 2 for block 1 is NaN",
        ),
    ),
    (
        "an unknown type",
        |f| {
            if let Some(push_frame::Action::Create(create)) = &mut f.action {
                create.dtype = 2;
            }
        },
        (Code::InvalidArgument, "malformed", "dtype: 2 is not a type"),
    ),
    (
        "a pull",
        pull,
        (
            Code::FailedPrecondition,
            "not-ready",
            "initial values are not complete",
        ),
    ),
    (
        "a bare pull",
        |f| {
            pull(f);
            f.incarnation = 0;
        },
        (
            Code::FailedPrecondition,
            "not-ready",
            "initial values are not complete",
        ),
    ),
    (
        "a gradient",
        |f| *f = push((YOUNG, 0, 1), (0, 1), 0, &[1.0; 3]),
        (
            Code::FailedPrecondition,
            "not-ready",
            "initial values are not complete",
        ),
    ),
    (
        "a skip",
        |f| f.action = Some(push_frame::Action::Skip(Skip {})),
        (
            Code::FailedPrecondition,
            "not-ready",
            "initial values are not complete",
        ),
    ),
];

fn gradient(frame: &mut PushFrame) -> &mut Gradient {
    match &mut frame.action {
        Some(push_frame::Action::Gradient(gradient)) => gradient,
        other => panic!("{other:?} is no gradient"),
    }
}

fn pull(frame: &mut PushFrame) {
    frame.action = Some(push_frame::Action::Pull(Default::default()));
    frame.clock = 0;
}

/// Sends each row's frame on a stream of its own and looks at everything that must not change.
async fn check(stage: &Stage, rows: &[(&str, Change, Expected)], good: &PushFrame) {
    let mut before = stage.snapshot().await;
    for (name, change, want) in rows {
        let mut bad = good.clone();
        change(&mut bad);
        let known = bad.run == good.run && want.1 != "frame-too-large";
        assert_refused(name, stage.client.push(1, bad).await, *want);
        // Of the run's shard on server 1; a frame that names no run belongs to no shard.
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
        let faults: [(&str, Change, Expected); 2] = [
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
