//! The reader of frames against prost, which reads the same messages whole.

use std::fmt::Debug;

use bytes::{Buf, Bytes};
use prost::Message;
use tradewind_fuzz::{Turn, target};
use tradewind_proto::frame::{Bulk, Part, Reader};
use tradewind_proto::v1::{
    Confirm, Create, Gradient, Place, Probe, Pull, PullFrame, PushFrame, Record, Skip, State,
    Update, push_frame, record,
};

const PREFIX_BYTES: usize = 5;

/// Messages above this are refused.
const MAX: usize = 1 << 16;

#[test]
fn are_as_prost_reads_them_wherever_they_are_cut() {
    target!(examples()).each(|bytes, mut turn| match turn.below(4) {
        0 => like_prost::<PushFrame>(bytes, turn),
        1 => like_prost::<PullFrame>(bytes, turn),
        2 => like_prost::<Record>(bytes, turn),
        _ => like_prost::<Confirm>(bytes, turn),
    });
}

/// How the bytes of a stream end.
#[derive(Debug, PartialEq)]
enum End {
    BetweenMessages,
    InsideMessage,
    Refused,
}

fn like_prost<M: Bulk + PartialEq + Debug>(bytes: &[u8], cuts: Turn) {
    let (messages, end) = by_prost::<M>(bytes);
    let (read, read_end) = by_reader::<M>(bytes, cuts);
    if read != messages {
        // A rate may be NaN, which is not even the same as itself.
        assert_eq!(format!("{read:?}"), format!("{messages:?}"));
    }
    match end {
        // A reader may find out before the message is whole.
        End::InsideMessage => assert_ne!(read_end, End::BetweenMessages),
        end => assert_eq!(read_end, end),
    }
}

/// Messages without their bulk bytes, and these.
type Whole<M> = Vec<(M, Vec<u8>)>;

fn by_prost<M: Bulk>(mut bytes: &[u8]) -> (Whole<M>, End) {
    let mut messages = Vec::new();
    loop {
        let Some(([flag, length @ ..], rest)) = bytes.split_first_chunk::<PREFIX_BYTES>() else {
            let end = if bytes.is_empty() {
                End::BetweenMessages
            } else {
                End::InsideMessage
            };
            return (messages, end);
        };
        let length = u32::from_be_bytes(*length) as usize;
        if *flag != 0 || length > MAX {
            return (messages, End::Refused);
        }
        let Some((message, rest)) = rest.split_at_checked(length) else {
            return (messages, End::InsideMessage);
        };
        let Ok(mut message) = M::decode(Bytes::copy_from_slice(message)) else {
            return (messages, End::Refused);
        };
        let bulk = message.take_bulk();
        messages.push((message, bulk.to_vec()));
        bytes = rest;
    }
}

fn by_reader<M: Bulk>(bytes: &[u8], cuts: Turn) -> (Whole<M>, End) {
    let mut reader = Reader::<M>::new(MAX);
    let mut messages = Vec::new();
    let mut arriving: Option<(M, Vec<u8>, usize)> = None;
    for mut piece in pieces(bytes, cuts) {
        loop {
            let part = match reader.next(&mut piece) {
                Err(_) => return (messages, End::Refused),
                Ok(None) => break,
                Ok(Some(part)) => part,
            };
            let (message, bulk, left) = match part {
                Part::Head(message, left) => (message, Vec::new(), left),
                Part::Bulk(piece) => {
                    assert!(!piece.is_empty());
                    let (message, mut bulk, left) = arriving.take().expect("after a head");
                    bulk.extend_from_slice(&piece);
                    (message, bulk, left - piece.len())
                }
            };
            match left {
                0 => messages.push((message, bulk)),
                left => arriving = Some((message, bulk, left)),
            }
        }
        assert!(!piece.has_remaining(), "all of it has been taken");
        reader.beginning();
    }
    let end = match arriving.is_none() && reader.between_messages() {
        true => End::BetweenMessages,
        false => End::InsideMessage,
    };
    (messages, end)
}

/// The bytes in pieces: bit by bit `cuts` says whether one ends, at lengths that grow.
fn pieces(bytes: &[u8], cuts: Turn) -> Vec<Bytes> {
    let (mut bytes, mut pieces) = (Bytes::copy_from_slice(bytes), Vec::new());
    let mut cuts = cuts.rest();
    while !bytes.is_empty() {
        let length = match cuts & 3 {
            0 => 1,
            1 => 5,
            2 => 97,
            _ => bytes.len(),
        };
        cuts = cuts.rotate_right(2);
        pieces.push(bytes.split_to(length.min(bytes.len())));
    }
    pieces
}

/// Messages as they are sent.
pub(crate) fn framed(messages: &[impl Message]) -> Vec<u8> {
    let mut out = Vec::new();
    for message in messages {
        out.push(0);
        out.extend((message.encoded_len() as u32).to_be_bytes());
        message.encode(&mut out).expect("a vector takes all");
    }
    out
}

fn examples() -> Vec<Vec<u8>> {
    let push = |action| PushFrame {
        run: "climate".into(),
        group: 3,
        incarnation: 1 << 40,
        clock: 12,
        block: 300,
        without_values: true,
        holds: Some(0),
        action: Some(action),
    };
    let values = |length: usize| -> Bytes { (0..length).map(|at| at as u8).collect() };
    let gradient = |length| {
        push(push_frame::Action::Gradient(Gradient {
            samples: 8,
            pulled_version: 7,
            samples_seen: 640,
            updates_seen: 80,
            norms: Vec::new(),
            dtype: 1,
            lineage: 6,
            values: values(length),
        }))
    };
    let create = push(push_frame::Action::Create(Create {
        dtype: 1,
        values: values(12),
    }));
    let skip = push(push_frame::Action::Skip(Skip {}));
    let pull = push(push_frame::Action::Pull(Pull {}));
    let pulled = PullFrame {
        values: values(40),
        ..PullFrame::default()
    };
    let confirm = Confirm::default();
    vec![
        framed(&[gradient(24), skip, pull, create]),
        framed(&[gradient(1_500), gradient(0)]),
        framed(&[pulled.clone(), PullFrame::default(), pulled]),
        framed(&records()),
        framed(&[confirm, confirm]),
    ]
}

/// All kinds; one whose head is longer than a head may be.
pub(crate) fn records() -> Vec<Record> {
    let record = |entry| Record {
        run: "climate".into(),
        shard: 2,
        log: 7,
        fill: 9,
        previous: 0,
        seq: 1,
        entry: Some(entry),
    };
    let place = |group| Place {
        group,
        incarnation: 5,
        clock: 12,
        verdict: 1,
        delay: 3,
    };
    let state = |groups| {
        record(record::Entry::State(State {
            block: 0,
            version: 40,
            samples_applied: 640,
            places: (0..groups).map(place).collect(),
            slots: 1,
            values: vec![7; 24].into(),
        }))
    };
    let update = record(record::Entry::Update(Update {
        momentum: Some(0.9),
        scales: vec![0.5],
        block: 0,
        decided: vec![place(1)],
        applied: true,
        rate: 0.1,
        samples: 8,
        weight: 0.5,
        values: vec![9; 12].into(),
    }));
    vec![
        record(record::Entry::Probe(Probe {})),
        state(2),
        update,
        state(100),
    ]
}
