//! What can be wrong with a frame of an exchange, as rows.

use ::bytes::Bytes;
use tonic::Code;
use tradewind_proto::limits::FRAME_BYTES_MAX;
use tradewind_proto::v1::{Gradient, PushFrame, Skip, push_frame};

use super::stage::{READY, YOUNG};
use super::{Row, bytes, create, push};

/// Makes a good frame bad.
pub(super) type Change = fn(&mut PushFrame);

/// What is wrong with a frame that would be applied otherwise: the gradient of group 0 for block 1
/// at clock 3.
pub(super) const GRADIENTS: &[Row<Change>] = &[
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
            Code::Unavailable,
            "not-primary",
            "does not answer for shard 0",
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
            Code::Unavailable,
            "not-primary",
            "does not answer for shard 0",
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
pub(super) const CREATIONS: &[Row<Change>] = &[
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
            Code::Unavailable,
            "not-primary",
            "does not answer for shard 0",
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

pub(super) fn gradient(frame: &mut PushFrame) -> &mut Gradient {
    match &mut frame.action {
        Some(push_frame::Action::Gradient(gradient)) => gradient,
        other => panic!("{other:?} is no gradient"),
    }
}

fn pull(frame: &mut PushFrame) {
    frame.action = Some(push_frame::Action::Pull(Default::default()));
    frame.clock = 0;
}
