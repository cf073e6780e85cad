//! Frames against prost, which encodes and decodes the same messages whole.

use bytes::{Buf, BufMut, Bytes};
use http_body::Body;
use prost::Message;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use tonic::Status;

use super::*;
use crate::v1::{
    Confirm, Create, Gradient, Place, Probe, Pull, PullFrame, PushFrame, Record, Skip, State,
    Update, push_frame, record,
};

const MAX: usize = 1 << 20;

fn push(action: push_frame::Action) -> PushFrame {
    PushFrame {
        run: "climate".into(),
        group: 3,
        incarnation: 1 << 40,
        clock: 12,
        block: 300,
        without_values: true,
        holds: Some(0),
        action: Some(action),
    }
}

fn gradient(values: usize) -> PushFrame {
    push(push_frame::Action::Gradient(Gradient {
        samples: 8,
        pulled_version: 7,
        samples_seen: 640,
        updates_seen: 80,
        norms: Vec::new(),
        dtype: 1,
        lineage: 6,
        values: (0..values).map(|i| i as u8).collect(),
    }))
}

/// All kinds of records; one whose head alone is longer than others with their values.
fn records() -> Vec<Record> {
    let record = |entry| Record {
        run: "climate".into(),
        shard: 2,
        log: 7,
        fill: 9,
        previous: 299,
        seq: 300,
        entry: Some(entry),
    };
    let place = |group| Place {
        group,
        incarnation: 1 << 40,
        clock: 12,
        verdict: 1,
        delay: 3,
    };
    let state = |groups, values: usize| {
        record(record::Entry::State(State {
            block: 5,
            version: 40,
            samples_applied: 640,
            places: (0..groups).map(place).collect(),
            slots: 1,
            values: vec![7; values].into(),
        }))
    };
    let update = |values: usize| {
        record(record::Entry::Update(Update {
            momentum: None,
            scales: Vec::new(),
            block: 5,
            decided: vec![place(1)],
            applied: true,
            rate: 0.1,
            samples: 8,
            weight: 0.5,
            values: vec![9; values].into(),
        }))
    };
    let probe = record(record::Entry::Probe(Probe {}));
    let states = [state(2, 20_000), state(300, 20_000), state(2, 0)];
    let updates = [update(0), update(127), update(16_385), update(100_000)];
    [probe].into_iter().chain(states).chain(updates).collect()
}

/// All kinds of frames; sizes around what a length takes in bytes, and around what is sent together.
fn pushes() -> Vec<PushFrame> {
    let mut all = vec![
        push(push_frame::Action::Skip(Skip {})),
        push(push_frame::Action::Pull(Pull {})),
        PushFrame::default(),
        push(push_frame::Action::Create(Create {
            dtype: 1,
            values: Bytes::from_static(b"abc"),
        })),
    ];
    let sizes = [0, 1, 127, 128, 16_383, 16_384, 16_385, 100_000];
    all.extend(sizes.map(gradient));
    all
}

fn framed(message: &impl Message) -> Vec<u8> {
    let mut out = vec![0];
    out.put_u32(message.encoded_len() as u32);
    message.encode(&mut out).unwrap();
    out
}

/// What the body of these messages puts on the wire.
fn sent<M: Bulk + Clone>(messages: &[M]) -> Vec<u8> {
    let framed = messages.iter().cloned().map(|mut message| {
        let bulk = message.take_bulk();
        Ok::<_, Status>(Framed::new(&message, bulk))
    });
    let mut body = pin!(Outgoing::request(tokio_stream::iter(
        framed.collect::<Vec<_>>()
    )));
    let mut context = Context::from_waker(Waker::noop());
    let mut out = Vec::new();
    while let Poll::Ready(Some(frame)) = body.as_mut().poll_frame(&mut context) {
        out.extend(frame.unwrap().into_data().unwrap());
    }
    out
}

/// What a reader makes of bytes that come in pieces of `piece`.
fn read<M: Bulk + Clone>(bytes: &[u8], piece: usize) -> Result<Vec<(M, Vec<u8>)>, FrameError> {
    let mut reader = Reader::new(MAX);
    let mut read: Vec<(M, Vec<u8>)> = Vec::new();
    for piece in bytes.chunks(piece) {
        let mut piece = Bytes::copy_from_slice(piece);
        while let Some(part) = reader.next(&mut piece)? {
            match part {
                Part::Head(message, _) => read.push((message, Vec::new())),
                Part::Bulk(bytes) => read.last_mut().unwrap().1.extend(bytes),
            }
        }
        assert!(!piece.has_remaining());
    }
    assert!(reader.between_messages());
    Ok(read)
}

#[test]
fn what_is_sent_is_what_prost_would_send() {
    for message in pushes() {
        assert_eq!(
            sent(std::slice::from_ref(&message)),
            framed(&message),
            "{message:?}"
        );
    }
    for record in records() {
        let one = std::slice::from_ref(&record);
        assert_eq!(sent(one), framed(&record), "{record:?}");
    }
    let confirm = Confirm {
        log: 7,
        fill: 9,
        seq: 300,
    };
    assert_eq!(sent(&[confirm]), framed(&confirm));
    let answer = PullFrame {
        block: 5,
        version: 9,
        dtype: 1,
        difference: true,
        values: vec![1; 20_000].into(),
        ..Default::default()
    };
    assert_eq!(sent(std::slice::from_ref(&answer)), framed(&answer));
    assert_eq!(sent(&[PullFrame::default()]), framed(&PullFrame::default()));
}

#[test]
fn what_comes_in_pieces_is_what_was_sent() {
    in_pieces(&pushes());
    in_pieces(&records());
    in_pieces(&[
        Confirm::default(),
        Confirm {
            seq: 1,
            ..Default::default()
        },
    ]);
}

fn in_pieces<M: Bulk + Clone + PartialEq + std::fmt::Debug>(messages: &[M]) {
    let bytes = sent(messages);
    for piece in [1, 2, 3, 7, 64, 1000, 1024, 4096, bytes.len()] {
        let read = read::<M>(&bytes, piece).unwrap();
        assert_eq!(read.len(), messages.len());
        for ((mut head, bulk), want) in read.into_iter().zip(messages) {
            assert!(head.take_bulk().is_empty());
            let mut want = want.clone();
            let values = want.take_bulk();
            assert_eq!((head, &bulk[..]), (want, &values[..]), "in {piece}");
        }
    }
}

#[test]
fn values_that_are_not_last_are_read_as_well() {
    let Some(push_frame::Action::Gradient(inner)) = gradient(5_000).action else {
        unreachable!()
    };
    // Values first, then the rest; and the group after the action.
    let mut nested = Vec::new();
    prost::encoding::bytes::encode(15, &inner.values, &mut nested);
    let rest = Gradient {
        values: Bytes::new(),
        ..inner.clone()
    };
    rest.encode(&mut nested).unwrap();
    let mut message = Vec::new();
    prost::encoding::bytes::encode(14, &nested, &mut message);
    prost::encoding::uint32::encode(2, &6, &mut message);
    let mut bytes = vec![0];
    bytes.put_u32(message.len() as u32);
    bytes.extend(message);
    for piece in [1, 100, bytes.len()] {
        let read = read::<PushFrame>(&[&bytes[..], &sent(&pushes())].concat(), piece).unwrap();
        let (head, bulk) = &read[0];
        assert_eq!((head.group, &bulk[..]), (6, &inner.values[..]));
        assert_eq!(
            head.action,
            Some(push_frame::Action::Gradient(rest.clone()))
        );
        assert_eq!(read.len(), 1 + pushes().len());
    }
}

#[test]
fn what_is_no_frame_is_refused() {
    let refused = |bytes: &[u8], want: &str| {
        for piece in [1, bytes.len()] {
            let error = read::<PushFrame>(bytes, piece).unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        }
    };
    refused(&[1, 0, 0, 0, 1, 0], "flag 1");
    refused(&[0, 0, 16, 0, 1, 0], "the limit is 1048576");
    refused(&[0, 0, 0, 0, 4, 10, 100, b'x', b'y'], "");
    refused(&[0, 0, 0, 0, 3, 0xff, 0xff, 0xff], "");
    // A nested length that ends inside its own values.
    let mut cut = framed(&gradient(300));
    let at = cut.len() - 301;
    cut[at] ^= 1;
    refused(&cut, "");
    // A field whose number is that of the values in its lower 32 bits.
    let mut message = Vec::new();
    encode_varint((((1 << 32) | u64::from(VALUES)) << 3) | 2, &mut message);
    message.extend([2, 7, 7]);
    let beyond = [&[0, 0, 0, 0, message.len() as u8], &message[..]].concat();
    for piece in [1, beyond.len()] {
        let error = read::<PullFrame>(&beyond, piece).unwrap_err().to_string();
        assert!(error.contains("key"), "{error}");
    }
}

/// Who a message is for is known before more of it is kept than its first bytes.
#[test]
fn a_message_that_is_gathered_whole_says_first_whom_it_is_for() {
    // A long head, and values that are not last.
    let record = records().into_iter().find(|record| match &record.entry {
        Some(record::Entry::State(state)) => state.places.len() == 300,
        _ => false,
    });
    let bytes = framed(&record.unwrap());
    for first in [PREFIX_BYTES + HEAD_BYTES_MAX, bytes.len() - 1] {
        let mut reader = Reader::<Record>::new(MAX);
        let mut begun = Bytes::copy_from_slice(&bytes[..first]);
        assert_eq!(reader.next(&mut begun).unwrap(), None);
        let (head, length) = reader.beginning().unwrap();
        assert_eq!((&*head.run, head.shard, head.seq), ("climate", 2, 300));
        assert_eq!((head.entry, length), (None, bytes.len() - PREFIX_BYTES));
        assert_eq!(reader.beginning(), None);
        let mut rest = Bytes::copy_from_slice(&bytes[first..]);
        assert!(matches!(reader.next(&mut rest), Ok(Some(Part::Head(..)))));
        assert_eq!(reader.beginning(), None);
    }
    // Of others nothing is kept.
    let mut reader = Reader::<PushFrame>::new(MAX);
    let mut begun = Bytes::from(framed(&gradient(5_000))).slice(..300);
    assert!(matches!(reader.next(&mut begun), Ok(Some(Part::Head(..)))));
    assert!(matches!(reader.next(&mut begun), Ok(Some(Part::Bulk(..)))));
    assert_eq!(reader.next(&mut begun).unwrap(), None);
    assert_eq!(reader.beginning(), None);
}
