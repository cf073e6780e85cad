//! Records that a server cannot take. The test plays primaries.

use tonic::{Code, Request};
use tradewind_proto::v1::setting::Value;
use tradewind_proto::v1::{JoinRequest, Probe, Record, State, record};
use tradewind_tests::cluster::client::{Client, answer, collect};
use tradewind_tests::cluster::fleet::Fleet;

use super::stage::{await_ready, join_as, status};
use super::{BLOCKS, Expected, TOKEN, assert_refused, create, faults, spec};

const RUN: &str = "copied";

/// A fault, the server that it goes to, what it makes of a good record, and how it is refused.
type Fault = (&'static str, usize, fn(&mut Record), Expected);

/// What is wrong with a record that would be confirmed otherwise: a probe of shard 0, which server
/// 0 answers for and server 1 keeps a copy of. To whom it goes.
pub(super) const RECORDS: &[Fault] = &[
    (
        "a run name that is none",
        1,
        |r| r.run = "a b".into(),
        (Code::InvalidArgument, "malformed", "run name \"a b\""),
    ),
    (
        "an unknown run",
        1,
        |r| r.run = "other".into(),
        (Code::NotFound, "unknown-run", "run other is not known"),
    ),
    (
        "no entry",
        1,
        |r| r.entry = None,
        (Code::InvalidArgument, "malformed", "entry: is missing"),
    ),
    (
        "a record after one that did not come",
        1,
        |r| (r.previous, r.seq) = (1_000_000, 1_000_001),
        (Code::OutOfRange, "gap", "1000000"),
    ),
    (
        "a number that no log has reached",
        1,
        |r| r.seq = u64::MAX,
        (
            Code::InvalidArgument,
            "malformed",
            "seq: 18446744073709551615",
        ),
    ),
    (
        "a version that no block has reached",
        1,
        |r| r.entry = Some(state(0, u64::MAX, 4)),
        (Code::InvalidArgument, "malformed", "version: "),
    ),
    (
        "more values than the block has",
        1,
        |r| r.entry = Some(state(0, 1, 5)),
        (
            Code::InvalidArgument,
            "wrong-length",
            "block 0 has 4 values, the frame brought 5",
        ),
    ),
    (
        "a block that there is not",
        1,
        |r| r.entry = Some(state(99, 1, 4)),
        (Code::NotFound, "unknown-block", "block 99"),
    ),
    (
        "a record for the primary itself",
        0,
        |_| {},
        (Code::PermissionDenied, "stale-log", "log 0"),
    ),
    (
        "a record of a log to come, for the primary",
        0,
        |r| r.log = 1_000,
        (Code::Unavailable, "not-copy", "shard 0"),
    ),
    (
        "a shard that is held elsewhere",
        2,
        |_| {},
        (Code::Unavailable, "not-primary", "shard 0"),
    ),
];

/// A block, whole.
fn state(block: u32, version: u64, values: usize) -> record::Entry {
    record::Entry::State(State {
        block,
        version,
        values: vec![0; 4 * values].into(),
        ..State::default()
    })
}

fn probe() -> Record {
    Record {
        run: RUN.into(),
        entry: Some(record::Entry::Probe(Probe {})),
        ..Record::default()
    }
}

async fn ready(client: &Client) {
    let mut given = spec(&[1]);
    faults(&mut given, "servers.replication", Value::Count(2));
    let request = JoinRequest {
        run: RUN.into(),
        life: 1,
        spec: Some(given),
        ..JoinRequest::default()
    };
    join_as(client, request).await.unwrap();
    let told = await_ready(client, (RUN, 0, 1), false).await.unwrap();
    assert!(told.create);
    // On three servers every block is a shard of its own.
    for (block, (_, length)) in BLOCKS.iter().enumerate() {
        let zeros = create((RUN, 0, 1), block as u32, &vec![0.0; *length]);
        client.push(block, zeros).await.unwrap();
    }
    await_ready(client, (RUN, 0, 1), true).await.unwrap();
}

#[test]
fn a_bad_record_is_refused_and_changes_nothing() {
    let fleet = Fleet::start(3, TOKEN);
    fleet.block_on(async {
        let client = fleet.client().await;
        ready(&client).await;
        let held = || async {
            let mut held = Vec::new();
            for server in 0..2 {
                held.push(client.status_of(server, RUN, 0).await.unwrap());
            }
            (held, status(&client, RUN).await.unwrap().placement)
        };
        // The copy hears a moment later than who is asked for the placement.
        let before = loop {
            let (shards, placement) = held().await;
            let newest = placement
                .as_ref()
                .and_then(|placement| placement.holding.as_ref());
            let newest = newest.map(|holding| holding.generation);
            if shards.iter().all(|shard| Some(shard.generation) == newest) {
                break (shards, placement);
            }
            tokio::task::yield_now().await;
        };
        for (name, server, change, want) in RECORDS {
            let mut record = probe();
            change(&mut record);
            let mut shard = client.shards[*server].clone();
            let records = Request::new(tokio_stream::iter([record]));
            let told = match answer(shard.replicate(records)).await {
                Ok(confirms) => collect(confirms.into_inner()).await.1,
                Err(status) => Err(status),
            };
            assert_refused(name, told, *want);
            assert_eq!(held().await, before, "{name}");
        }
    });
}
