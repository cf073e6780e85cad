//! Specifications that no run can follow, and joiners that bring another one than the run's.

use tonic::Code;
use tradewind_proto::v1::setting::Value;
use tradewind_proto::v1::{
    BatchStep, Choice, Counts, GroupsAlike, JoinRequest, RunSpec, Schedule, TensorKind,
};

use super::coordinator::{Call, Who, join, lease, member};
use super::frames::gradient;
use super::stage::{Stage, await_ready, create_all, status};
use super::{Expected, assert_refused, bytes, choice, faults, push, sets, spec, tensor};

fn staleness(spec: &mut RunSpec, name: &str, settings: &[(&str, Value)]) {
    spec.policies.get_or_insert_default().staleness = Some(choice(name, settings));
}

/// An optimizer with one of its fields, of this section.
fn optimizer(spec: &mut RunSpec, name: &str, field: &str, value: Value) {
    let key = format!("optimizer.{field}");
    spec.optimizer = Some(choice(name, &[(&key, value)]));
}

fn number(spec: &mut RunSpec, name: &str, field: &str, value: f64) {
    optimizer(spec, name, field, Value::Number(value));
}

type Change = fn(&mut RunSpec);

const fn malformed(text: &'static str) -> Expected {
    (Code::InvalidArgument, "malformed", text)
}

const fn bad(text: &'static str) -> Expected {
    (Code::InvalidArgument, "bad-specification", text)
}

/// What is wrong with a specification.
pub(super) const BAD: &[(Change, Expected)] = &[
    (|s| s.optimizer = None, malformed("optimizer: is missing")),
    (|s| s.schedule = None, malformed("schedule: is missing")),
    (
        |s| rate(s).decay = None,
        malformed("schedule.decay: is missing"),
    ),
    (
        |s| s.consistency = None,
        malformed("consistency: is missing"),
    ),
    (
        |s| s.consistency = some("eventual", &[]),
        malformed("consistency: \"eventual\" is no consistency policy"),
    ),
    (
        |s| s.consistency = bounded(1_000_001),
        bad("train.staleness_bound is 1000001, which is not a whole number, 0 to 1000000"),
    ),
    (
        |s| s.tensors[0].kind = TensorKind::Unspecified.into(),
        malformed("tensors.kind: \"a\" has none"),
    ),
    (|s| s.tensors.clear(), bad("no parameters")),
    (
        |s| {
            s.tensors
                .iter_mut()
                .for_each(|t| t.kind = TensorKind::Buffer.into())
        },
        bad("no parameters"),
    ),
    (
        |s| s.tensors.push(tensor("a", 1)),
        bad("two tensors named \"a\""),
    ),
    (|s| s.tensors[1].shape = vec![0], bad("\"b\" of shape [0]")),
    (
        |s| s.tensors[1].shape = vec![u64::MAX, 2],
        bad("more than 2^40"),
    ),
    (|s| s.group_sizes.clear(), bad("number of groups is 0")),
    (
        |s| {
            s.groups = vec![GroupsAlike {
                groups: 65_537,
                ranks: 1,
            }];
        },
        malformed("groups: there are 65537, of at most 65536"),
    ),
    (
        |s| s.group_sizes = vec![1; 65_537],
        bad("number of groups is 65537"),
    ),
    (|s| s.group_sizes = vec![1, 0], bad("group size is 0")),
    (
        |s| staleness(s, "drop", &[("staleness.drop_beyond", Value::Count(0))]),
        bad("staleness.drop_beyond is 0, which is not a whole number, 1 to 1000000"),
    ),
    (
        |s| staleness(s, "forgive", &[]),
        malformed("policies.staleness: \"forgive\" is no staleness policy"),
    ),
    (
        |s| {
            staleness(s, "scale", &[]);
            s.consistency = some("sync", &[]);
        },
        bad("staleness.policy excludes train.consistency = \"sync\""),
    ),
    (
        |s| s.policies.get_or_insert_default().weights = some("steps", &[]),
        malformed("policies.weights: \"steps\" is no way to weigh"),
    ),
    (|s| s.samples = 0, bad("samples is 0")),
    (|s| s.epoch_samples = 0, bad("epoch_samples is 0")),
    (|s| s.batch = 0, bad("batch is 0")),
    (
        |s| s.batch_ramp = vec![step(10, 8), step(10, 16)],
        bad("batch_ramp has a step at 10 samples that is not behind"),
    ),
    (
        |s| s.batch_ramp = vec![step(10, 6)],
        bad("batch_ramp goes from batches of 4 to 6"),
    ),
    (|s| s.chunk_samples = 0, bad("chunk_samples is 0")),
    (
        |s| sets(s, "loader.sets", Value::Count(0)),
        malformed("sets: loader.sets is 0, which is not a whole number, 1 to 4096"),
    ),
    (
        |s| {
            s.epoch_samples = 4;
            sets(s, "loader.sets", Value::Count(5));
        },
        bad("sets is 5, which is not at most epoch_samples"),
    ),
    (
        |s| {
            sets(s, "loader.sets", Value::Count(2));
            s.consistency = some("sync", &[]);
        },
        bad("loader.sets excludes train.consistency = \"sync\""),
    ),
    (|s| s.lease_ms = 0, bad("lease_ms is 0")),
    (
        |s| faults(s, "liveness.patience_ms", Value::Count(s.lease_ms)),
        bad("patience_ms is 600000, which is not longer than lease_ms"),
    ),
    (
        |s| faults(s, "liveness.patience_ms", Value::Count(86_400_001)),
        malformed(
            "faults: liveness.patience_ms is 86400001, which is not a whole number, 0 to 86400000",
        ),
    ),
    (
        |s| faults(s, "servers.replication", Value::Count(0)),
        malformed("faults: servers.replication is 0, which is not a whole number, 1 to 16"),
    ),
    (
        |s| faults(s, "servers.replication", Value::Flag(true)),
        malformed("faults: servers.replication is true, which is not a whole number, 1 to 16"),
    ),
    (
        |s| faults(s, "servers.luck", Value::Flag(true)),
        malformed("faults: there is no servers.luck"),
    ),
    (
        |s| faults(s, "faults.on_loss", Value::Word("weep".into())),
        malformed("faults: faults.on_loss is weep, which is not one of auto, continue, stop"),
    ),
    (|s| s.bucket_bytes = Some(0), bad("bucket_bytes is 0")),
    (|s| s.block_bytes = 3, bad("block_bytes is 3")),
    (
        |s| s.block_bytes = (64 << 20) + 1,
        bad("block_bytes is 67108865"),
    ),
    (
        |s| {
            s.tensors = vec![tensor("large", 1 << 23)];
            s.block_bytes = 4;
        },
        bad("8388608 blocks, more than 1048576"),
    ),
    (
        |s| rate(s).learning_rate = f64::NAN,
        bad("learning_rate is NaN"),
    ),
    (|s| rate(s).learning_rate = -1.0, bad("learning_rate is -1")),
    (
        |s| rate(s).decay = cosine(f64::NAN),
        bad("schedule.floor is NaN"),
    ),
    (
        |s| rate(s).decay = cosine(1.5),
        bad("schedule.floor is 1.5"),
    ),
    (
        |s| rate(s).decay = some("step", &[]),
        bad("schedule.milestones is empty"),
    ),
    (
        |s| rate(s).decay = some("step", &[milestones(&[5, 5])]),
        bad("schedule.milestones do not increase"),
    ),
    (
        |s| rate(s).scaling = some("linear", &[]),
        bad("schedule.reference_batch is 0"),
    ),
    (
        |s| rate(s).unit = some("hours", &[]),
        malformed("schedule.unit: \"hours\" is no unit of a schedule"),
    ),
    (
        |s| number(s, "sgd", "momentum", 1.0),
        bad("optimizer.momentum is 1"),
    ),
    (
        |s| optimizer(s, "sgd", "nesterov", Value::Flag(true)),
        bad("optimizer.nesterov needs optimizer.momentum"),
    ),
    (
        |s| number(s, "sgd", "weight_decay", f64::INFINITY),
        bad("optimizer.weight_decay is inf"),
    ),
    (
        |s| number(s, "adam", "beta1", 1.0),
        bad("optimizer.beta1 is 1"),
    ),
    (
        |s| number(s, "adam", "beta2", f64::NAN),
        bad("optimizer.beta2 is NaN"),
    ),
    (
        |s| number(s, "adam", "epsilon", -1.0),
        bad("optimizer.epsilon is -1"),
    ),
    (
        |s| number(s, "adam", "epsilon", 1e-50),
        bad("optimizer.epsilon is 0 as a 32-bit number"),
    ),
    (
        |s| number(s, "adamw", "beta1", -0.1),
        bad("optimizer.beta1 is -0.1"),
    ),
    (
        |s| number(s, "adamw", "weight_decay", -1.0),
        bad("optimizer.weight_decay is -1"),
    ),
    (
        |s| number(s, "adamax", "beta1", 0.5),
        malformed("optimizer: \"adamax\" is no optimizer"),
    ),
    (
        |s| number(s, "sgd", "beta1", 0.5),
        malformed("optimizer: sgd has no optimizer.beta1"),
    ),
    (
        |s| optimizer(s, "sgd", "momentum", Value::Flag(true)),
        malformed("optimizer: a field of sgd has another type"),
    ),
    (
        |s| s.decay_exempt = some("matrices", &[]),
        malformed("decay_exempt: \"matrices\" is no exemption from weight decay"),
    ),
    (|s| s.up = top(0.0), bad("exchange.topk_fraction is 0")),
    (|s| s.up = top(-0.1), bad("exchange.topk_fraction is -0.1")),
    (|s| s.up = top(1.5), bad("exchange.topk_fraction is 1.5")),
    (
        |s| s.down = top(f64::NAN),
        bad("exchange.topk_fraction is NaN"),
    ),
    (
        |s| s.down = top(f64::INFINITY),
        bad("exchange.topk_fraction is inf"),
    ),
    (
        |s| s.up = some("zip", &[]),
        malformed("up: \"zip\" is no form in which values travel"),
    ),
    (
        |s| s.down = some("", &[]),
        malformed("down: \"\" is no form in which values travel"),
    ),
];

/// Fields of a run's specification, and how a joiner may differ in them.
const DIFFERENT: &[(&str, Change)] = &[
    ("seed", |s| s.seed = 2),
    ("group_sizes", |s| s.group_sizes[1] = 2),
    ("tensors", |s| s.tensors[0].shape = vec![2, 3]),
    ("block_bytes", |s| s.block_bytes = 20),
    ("consistency", |s| s.consistency = bounded(4)),
    ("policies", |s| staleness(s, "scale", &[])),
    ("optimizer", |s| number(s, "sgd", "momentum", 0.5)),
    ("decay_exempt", |s| s.decay_exempt = some("vectors", &[])),
    ("schedule", |s| rate(s).learning_rate = 0.25),
    ("samples", |s| s.samples = 2),
    ("epoch_samples", |s| s.epoch_samples = 2),
    ("batch", |s| s.batch = 2),
    ("batch_ramp", |s| s.batch_ramp = vec![step(10, 8)]),
    ("chunk_samples", |s| s.chunk_samples = 9),
    ("sets", |s| sets(s, "loader.deal_epochs", Value::Count(3))),
    ("lease_ms", |s| s.lease_ms = 2),
    ("faults", |s| {
        faults(s, "liveness.patience_ms", Value::Count(600_001))
    }),
    ("faults", |s| {
        faults(s, "faults.on_loss", Value::Word("stop".into()))
    }),
    ("start_grace_ms", |s| s.start_grace_ms = 2),
    ("up", |s| s.up = some("bf16", &[])),
    ("down", |s| s.down = top(0.1)),
];

fn step(samples: u64, batch: u32) -> BatchStep {
    BatchStep { samples, batch }
}

fn some(name: &str, settings: &[(&str, Value)]) -> Option<Choice> {
    Some(choice(name, settings))
}

fn bounded(staleness_bound: u64) -> Option<Choice> {
    let bound = Value::Count(staleness_bound);
    some("bounded", &[("train.staleness_bound", bound)])
}

fn cosine(floor: f64) -> Option<Choice> {
    some("cosine", &[("schedule.floor", Value::Number(floor))])
}

fn milestones(at: &[u64]) -> (&'static str, Value) {
    let values = at.to_vec();
    ("schedule.milestones", Value::Counts(Counts { values }))
}

fn top(fraction: f64) -> Option<Choice> {
    let fraction = Value::Number(fraction);
    some("topk", &[("exchange.topk_fraction", fraction)])
}

fn rate(spec: &mut RunSpec) -> &mut Schedule {
    spec.schedule.as_mut().expect("there is one")
}

#[test]
fn a_run_is_not_made_from_a_bad_specification() {
    let stage = Stage::new();
    stage.fleet.block_on(async {
        let before = stage.snapshot().await;
        for (change, want) in BAD {
            let mut given = spec(&[1]);
            change(&mut given);
            let call = Call::join(JoinRequest {
                run: "fresh".into(),
                group: 0,
                spec: Some(given),
                ..join()
            });
            assert_refused(want.2, call.send(&stage.client).await, *want);
            let unknown = (Code::NotFound, "unknown-run", "fresh");
            assert_refused(want.2, status(&stage.client, "fresh").await, unknown);
        }
        assert_eq!(stage.snapshot().await, before);
    });
}

#[test]
fn a_joiner_with_another_specification_is_told_the_field() {
    let stage = Stage::new();
    stage.fleet.block_on(async {
        let before = stage.snapshot().await;
        for (field, change) in DIFFERENT {
            let mut request = join();
            change(request.spec.as_mut().expect("there is one"));
            let got = Call::join(request).send(&stage.client).await;
            let want = (Code::FailedPrecondition, "specification-differs", *field);
            assert_refused(field, got, want);
            assert_eq!(stage.snapshot().await, before, "{field}");
        }
    });
}

/// Numbers at the end of their range are followed, or refused; nothing overflows.
#[test]
fn the_largest_numbers_do_no_harm() {
    let stage = Stage::new();
    stage.fleet.block_on(async {
        let mut given = spec(&[1]);
        given.samples = u64::MAX;
        given.epoch_samples = u64::MAX;
        given.chunk_samples = u64::MAX / 2 + 1;
        sets(&mut given, "loader.sets", Value::Count(4096));
        given.lease_ms = 86_399_999;
        faults(&mut given, "liveness.patience_ms", Value::Count(86_400_000));
        given.start_grace_ms = u64::MAX;
        given.consistency = bounded(1_000_000);
        rate(&mut given).warmup = u64::MAX;
        let call = Call::join(JoinRequest {
            run: "large".into(),
            group: 0,
            spec: Some(given),
            ..join()
        });
        call.send(&stage.client).await.unwrap();
        create_all(&stage.client, "large", 0, 1).await;
        let ready = await_ready(&stage.client, ("large", 0, 1), true).await;
        assert_eq!(ready.unwrap().start_clock, 0);
        let mut last = push(("large", 0, 1), (0, 1), 0, &[1.0; 3]);
        let gradient = gradient(&mut last);
        gradient.samples = u32::MAX;
        gradient.samples_seen = u64::MAX - 1;
        let applied = stage.client.push(1, last).await.unwrap();
        assert_eq!(applied.samples_applied, u64::from(u32::MAX));
        assert_eq!(applied.values, bytes(&[-0.5; 3]), "the warm-up has ended");
        let call = lease(
            Who {
                run: "large".into(),
                incarnation: 1,
                ..member()
            },
            &[],
            &[],
        );
        call.send(&stage.client).await.unwrap();
    });
}
