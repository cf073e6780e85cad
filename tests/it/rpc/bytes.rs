//! Bytes that are no message, on every call: garbage, a length above the limit, half a message,
//! a call taken back and a connection that breaks in the middle.

use prost::Message;
use tonic::Code;
use tradewind_proto::limits::{COORDINATOR_MESSAGE_BYTES_MAX, FRAME_BYTES_MAX, RECORD_BYTES_MAX};
use tradewind_proto::v1::Verdict;
use tradewind_tests::cluster::raw::{self, End, framed, prefix};

use super::stage::{READY, Stage};
use super::{TOKEN, push};

/// What gRPC allows where nobody says otherwise.
const GRPC_MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Method, whether it is a stream, limit of a message.
const CALLS: &[(&str, bool, usize)] = &[
    ("Coordinator/Join", false, COORDINATOR_MESSAGE_BYTES_MAX),
    (
        "Coordinator/AwaitReady",
        false,
        COORDINATOR_MESSAGE_BYTES_MAX,
    ),
    ("Coordinator/KeepLease", true, COORDINATOR_MESSAGE_BYTES_MAX),
    (
        "Coordinator/LeaseChunk",
        false,
        COORDINATOR_MESSAGE_BYTES_MAX,
    ),
    ("Coordinator/Leave", false, COORDINATOR_MESSAGE_BYTES_MAX),
    ("Coordinator/Snapshot", false, COORDINATOR_MESSAGE_BYTES_MAX),
    ("Coordinator/Status", false, COORDINATOR_MESSAGE_BYTES_MAX),
    ("Coordinator/Serve", true, COORDINATOR_MESSAGE_BYTES_MAX),
    ("Host/Coordinate", false, GRPC_MESSAGE_BYTES_MAX),
    ("Host/Ping", false, GRPC_MESSAGE_BYTES_MAX),
    ("Shard/Exchange", true, FRAME_BYTES_MAX),
    ("Shard/Replicate", true, RECORD_BYTES_MAX),
    ("Shard/ShardStatus", false, FRAME_BYTES_MAX),
];

/// What is sent (for a limit), how it ends, and status and word on a stream and on another call.
type Fault = (
    &'static str,
    fn(usize) -> Vec<u8>,
    End,
    (Code, Option<&'static str>),
    Code,
);

const FAULTS: &[Fault] = &[
    (
        "garbage",
        |_| framed(&[0xff; 16]),
        End::Closed,
        (Code::InvalidArgument, Some("unreadable")),
        Code::Internal,
    ),
    (
        "a message above the limit",
        |limit| prefix(limit as u32 + 1),
        End::Closed,
        (Code::ResourceExhausted, Some("frame-too-large")),
        Code::OutOfRange,
    ),
    (
        "half a message",
        |_| framed(&[10, 100, b'x', b'y']),
        End::Closed,
        (Code::InvalidArgument, Some("unreadable")),
        Code::Internal,
    ),
    (
        "half a frame",
        |_| [prefix(100), vec![10, 4, b'r']].concat(),
        End::Closed,
        (Code::InvalidArgument, Some("unreadable")),
        Code::Internal,
    ),
];

#[test]
fn bytes_that_are_no_message_are_refused_and_change_nothing() {
    let stage = Stage::new();
    let addresses = stage.fleet.addresses();
    stage.fleet.block_on(async {
        let before = stage.snapshot().await;
        for (call, is_stream, limit) in CALLS {
            let path = format!("/tradewind.v1.{call}");
            for (fault, body, end, (code, word), unary) in FAULTS {
                let sent = (body(*limit), 0, *end);
                let outcome = raw::call(&addresses[0], TOKEN, &path, sent).await;
                let (code, word) = if *is_stream {
                    (*code, *word)
                } else {
                    (*unary, None)
                };
                let got = (outcome.code, outcome.reason.as_deref());
                assert_eq!(
                    got,
                    (Some(code as i32), word),
                    "{call}: {fault}: {outcome:?}"
                );
                assert!(
                    !outcome.message.is_empty(),
                    "{call}: {fault} has no message"
                );
            }
            for end in [End::Reset, End::Cut] {
                let half = [prefix(100), vec![10, 5, b'r']].concat();
                raw::call(&addresses[0], TOKEN, &path, (half, 0, end)).await;
            }
            assert_eq!(stage.snapshot().await, before, "{call}");
        }
    });
}

/// A message whose values are not its last field has to be gathered. It is refused as soon as its first bytes are here,
/// long before the rest is: what is declared would be 64 or 256 MiB.
#[test]
fn nothing_is_gathered_for_a_run_that_is_not_known() {
    let stage = Stage::new();
    let address = &stage.fleet.addresses()[0];
    let mut first = Vec::new();
    prost::encoding::string::encode(1, &"other".to_owned(), &mut first);
    // 14 is a gradient, or a state.
    prost::encoding::bytes::encode(14, &vec![0; 8192], &mut first);
    stage.fleet.block_on(async {
        let calls = [
            ("Exchange", FRAME_BYTES_MAX),
            ("Replicate", RECORD_BYTES_MAX),
        ];
        for (call, most) in calls {
            let path = format!("/tradewind.v1.Shard/{call}");
            let body = [prefix(most as u32), first.clone()].concat();
            let outcome = raw::call(address, TOKEN, &path, (body, 0, End::Closed)).await;
            let got = (outcome.code, outcome.reason.as_deref());
            let want = (Some(Code::NotFound as i32), Some("unknown-run"));
            assert_eq!(got, want, "{call}: {outcome:?}");
        }
    });
}

/// A frame that is longer than any for its block is refused by its head: its values need not come.
#[test]
fn a_frame_that_is_too_long_is_refused_before_it_has_come() {
    let stage = Stage::new();
    let address = &stage.fleet.addresses()[1];
    stage.fleet.block_on(async {
        let before = stage.snapshot().await;
        let long = framed(&push((READY, 0, 2), (3, 1), 3, &vec![1.0; 100_000]).encode_to_vec());
        // One of which the head alone comes; one that has to be gathered, of which the beginning does.
        let head = long[..long.len() - 399_000].to_vec();
        let mut inner = Vec::new();
        prost::encoding::string::encode(1, &READY.to_owned(), &mut inner);
        prost::encoding::uint32::encode(5, &1, &mut inner);
        prost::encoding::bytes::encode(14, &vec![0; 8192], &mut inner);
        let gathered = [prefix(FRAME_BYTES_MAX as u32), inner].concat();
        for body in [head, gathered] {
            let path = "/tradewind.v1.Shard/Exchange";
            let outcome = raw::call(address, TOKEN, path, (body, 0, End::Closed)).await;
            let got = (outcome.code, outcome.reason.as_deref());
            let want = (Some(Code::InvalidArgument as i32), Some("wrong-length"));
            assert_eq!(got, want, "{outcome:?}");
        }
        let mut after = stage.snapshot().await;
        after.refused.clone_from(&before.refused);
        assert_eq!(after, before);
    });
}

#[test]
fn a_stream_that_breaks_in_a_frame_keeps_the_frames_before() {
    let stage = Stage::new();
    let address = &stage.fleet.addresses()[1];
    stage.fleet.block_on(async {
        let ends = [End::Closed, End::Reset, End::Cut];
        for (clock, end) in (3..).zip(ends) {
            let gradient = |block| push((READY, 0, 2), (clock, block), clock, &[1.0; 3]);
            let whole = framed(&gradient(1).encode_to_vec());
            let mut half = framed(&gradient(2).encode_to_vec());
            half.truncate(half.len() - 6);
            let body = [whole, half].concat();
            // The first frame is answered before the stream breaks.
            let sent = (body, 16, end);
            let outcome = raw::call(address, TOKEN, "/tradewind.v1.Shard/Exchange", sent).await;
            assert!(outcome.received >= 16, "{end:?}: {outcome:?}");
            let shard = stage.client.shard_status(1, READY).await.unwrap();
            let versions = (shard.version_min, shard.version_max);
            assert_eq!(versions, (clock, clock + 1), "{end:?}");

            let repeated = stage.client.push(1, gradient(1)).await.unwrap();
            let fact = (repeated.verdict(), repeated.repeated_verdict);
            assert_eq!(fact, (Verdict::Applied, true), "{end:?}");
            let applied = stage.client.push(1, gradient(2)).await.unwrap();
            let fact = (applied.verdict(), applied.repeated_verdict);
            assert_eq!(fact, (Verdict::Applied, false), "{end:?}");
            stage
                .client
                .push(0, push((READY, 0, 2), (clock, 0), clock, &[1.0; 4]))
                .await
                .unwrap();
        }
    });
}
