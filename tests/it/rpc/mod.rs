//! Every malformed request to every call is refused with a reason and changes nothing; a client
//! written from the `.proto` alone can train.

mod bytes;
mod compress;
mod coordinator;
mod encoded;
mod exchange;
mod foreign;
mod frames;
mod joins;
mod people;
mod pressure;
mod python;
mod repeats;
mod replicate;
mod revoked;
mod roles;
mod serve;
mod settings;
mod snapshots;
mod specification;
mod stage;
mod token;
mod unrenewed;
mod words;

use std::collections::HashMap;

use ::bytes::Bytes;
use tonic::{Code, Status};
use tradewind_proto::refusal;
use tradewind_proto::v1::{
    Choice, Create, DType, Gradient, PushFrame, RunSpec, Schedule, Setting, Tensor, TensorKind,
    push_frame, setting,
};

/// The token of the fleets in these tests.
const TOKEN: &str = "of-the-fleet";

/// What a refusal must be: its status, its word, and what its message must contain.
type Expected = (Code, &'static str, &'static str);

/// A fault with its name, and what it is answered.
type Row<T> = (&'static str, T, Expected);

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(name: &str, got: Result<T, Status>, want: Expected) {
    let (code, word, text) = want;
    let status = got.expect_err(name);
    let got = (status.code(), refusal::reason(&status));
    assert_eq!(got, (code, Some(word)), "{name}: {status}");
    let message = status.message();
    assert!(
        message.contains(text),
        "{name}: {text:?} is not in {message:?}"
    );
}

fn tensor(name: &str, elements: u64) -> Tensor {
    Tensor {
        name: name.into(),
        shape: vec![elements],
        kind: TensorKind::Parameter.into(),
    }
}

/// Three blocks of 4, 3 and 3 values, as a run of an earlier version has them: `b` fills a bucket, `a` is
/// cut in two. On two servers the first block lies on server 0, the others on server 1. Plain SGD at rate
/// 0.5; leases outlast any test.
fn spec(group_sizes: &[u32]) -> RunSpec {
    // A group does not form before the start grace is over or all its ranks are there.
    let alone = group_sizes.iter().all(|size| *size == 1);
    RunSpec {
        seed: 1,
        groups: Vec::new(),
        group_sizes: group_sizes.to_vec(),
        tensors: vec![tensor("a", 6), tensor("b", 4)],
        bucket_bytes: Some(16),
        block_bytes: 16,
        consistency: Some(choice(
            "bounded",
            &[("train.staleness_bound", setting::Value::Count(100))],
        )),
        optimizer: Some(choice("sgd", &[])),
        schedule: Some(Schedule {
            learning_rate: 0.5,
            warmup: 0,
            decay: Some(choice("constant", &[])),
            ..Schedule::default()
        }),
        samples: 1_000,
        epoch_samples: 40,
        batch: 4,
        batch_ramp: Vec::new(),
        local: false,
        local_steps: 1,
        chunk_samples: 8,
        sets: Default::default(),
        lease_ms: 600_000,
        milestone_samples: 0,
        frozen: Vec::new(),
        start_grace_ms: if alone { 0 } else { 600_000 },
        up: None,
        down: None,
        faults: by_key(&[
            ("liveness.reform_grace_ms", setting::Value::Count(0)),
            ("liveness.snapshot_ms", setting::Value::Count(0)),
            ("snapshots.kept", setting::Value::Count(1)),
            ("liveness.patience_ms", setting::Value::Count(1_200_000)),
        ]),
        ..RunSpec::default()
    }
}

/// One of several, such as an optimizer, with some of its fields; the others have their defaults.
fn choice(name: &str, settings: &[(&str, setting::Value)]) -> Choice {
    Choice {
        name: name.to_owned(),
        settings: by_key(settings),
    }
}

/// Sets one of the settings for faults.
fn faults(spec: &mut RunSpec, key: &str, value: setting::Value) {
    let value = Some(value);
    spec.faults.insert(key.to_owned(), Setting { value });
}

fn sets(spec: &mut RunSpec, key: &str, value: setting::Value) {
    let value = Some(value);
    spec.sets.insert(key.to_owned(), Setting { value });
}

/// Settings by their keys.
fn by_key(settings: &[(&str, setting::Value)]) -> HashMap<String, Setting> {
    let settings = settings.iter().map(|(key, value)| {
        let value = Some(value.clone());
        ((*key).to_owned(), Setting { value })
    });
    settings.collect()
}

/// Which server owns each block of [`spec`], and how many values it has.
const BLOCKS: [(usize, usize); 3] = [(0, 4), (1, 3), (1, 3)];

fn bytes(values: &[f32]) -> Bytes {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn floats(bytes: &Bytes) -> Vec<f32> {
    let value = |four: &[u8]| f32::from_le_bytes(four.try_into().expect("four bytes"));
    bytes.chunks(4).map(value).collect()
}

/// Who sends a frame: run, group, incarnation.
type Sender<'a> = (&'a str, u32, u64);

fn frame((run, group, incarnation): Sender, block: u32, action: push_frame::Action) -> PushFrame {
    PushFrame {
        run: run.into(),
        group,
        incarnation,
        clock: 0,
        block,
        without_values: false,
        holds: None,
        action: Some(action),
    }
}

fn create(sender: Sender, block: u32, values: &[f32]) -> PushFrame {
    let action = push_frame::Action::Create(Create {
        dtype: DType::DtypeF32.into(),
        values: bytes(values),
    });
    frame(sender, block, action)
}

/// A gradient of 4 samples.
fn push(sender: Sender, (clock, block): (u64, u32), version: u64, values: &[f32]) -> PushFrame {
    let action = push_frame::Action::Gradient(Gradient {
        dtype: DType::DtypeF32.into(),
        values: bytes(values),
        samples: 4,
        pulled_version: version,
        samples_seen: 0,
        updates_seen: 0,
        norms: Vec::new(),
        lineage: 0,
    });
    PushFrame {
        clock,
        ..frame(sender, block, action)
    }
}
