//! Each way of exchanging alone, between a group of one rank and a shard that is a fake.

use std::path::Path;
use std::sync::Arc;

use tch::{Device, Kind};
use tradewind_client::core::session::{Identity, Session};
use tradewind_client::directory::{Directory, testing::holding};
use tradewind_client::exchange::Exchange;
use tradewind_client::heartbeat::HeartbeatState;
use tradewind_client::network::{Reach, wire};
use tradewind_client::streams::Streams;
use tradewind_client::testing::{Does, FakeShard};
use tradewind_common::{BlockId, GroupId, Incarnation, RunId, ShardId, TensorKind, TensorSpec};
use tradewind_config::Config;
use tradewind_proto::auth::Credentials;
use tradewind_proto::v1::{DType, PullFrame, PushFrame, Verdict, push_frame};

use super::*;
use crate::group::Solo;
use crate::host::HostSide;

const CONFIG: &str = r#"
[run]
name = "r"
[data]
files = ["none.nc"]
variable = "t"
validation = [10, 20]
held_out = [20, 30]
[train]
samples = 1000
[optimizer]
learning_rate = 1
"#;

/// The keys of each way.
const WAYS: [&[&str]; 4] = [
    &["train.overlap=0"],
    &["train.overlap=1"],
    &["exchange.per_bucket=true"],
    &[
        "local.algorithm=\"diloco\"",
        "local.steps=2",
        "local.inner=\"sgd\"",
        "local.momentum=0",
        "local.learning_rate=1",
    ],
];

/// A step whose gradient has this value everywhere.
const GRADIENT: f64 = 2.0;

/// What a shard has heard at a clock.
#[derive(Debug, PartialEq)]
enum Heard {
    Pull,
    Gradient(u64, Vec<f32>),
    Skip(u64),
}

/// A pull brings 10; the answer at clock c is c + 1.
fn answer(frame: &PushFrame) -> Does<PullFrame> {
    let (verdict, value) = match &frame.action {
        Some(push_frame::Action::Pull(_)) => (Verdict::Read, 10.0),
        _ => (Verdict::Applied, frame.clock as f32 + 1.0),
    };
    Does::Answers(PullFrame {
        block: frame.block,
        clock: frame.clock,
        verdict: verdict.into(),
        version: frame.clock + 1,
        dtype: DType::DtypeF32.into(),
        values: [value; 4].map(f32::to_le_bytes).concat().into(),
        ..PullFrame::default()
    })
}

fn heard(frame: &PushFrame) -> Heard {
    match &frame.action {
        Some(push_frame::Action::Gradient(gradient)) => {
            let values = gradient.values.chunks_exact(4);
            let values = values.map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
            Heard::Gradient(frame.clock, values.collect())
        }
        Some(push_frame::Action::Skip(_)) => Heard::Skip(frame.clock),
        Some(push_frame::Action::Pull(_)) => Heard::Pull,
        other => panic!("{other:?}"),
    }
}

/// A weight of four values, its group of one rank, and a way of exchanging it.
struct OneRank {
    tensors: Vec<(String, Tensor)>,
    flat: Flat,
    group: Solo,
    exchanging: Box<dyn Exchanging>,
}

impl OneRank {
    fn new(overrides: &[&str], staged: bool, shard: &str) -> Self {
        let spec = TensorSpec {
            name: "weight".into(),
            shape: vec![4],
            kind: TensorKind::Parameter,
        };
        let overrides: Vec<_> = overrides.iter().map(|text| text.to_string()).collect();
        let config = Config::parse(CONFIG, "c.toml", Path::new("/"), &overrides).unwrap();
        let spec = config.spec(vec![spec], 1000);
        let layout = Arc::new(spec.check().unwrap());
        let weight = Tensor::ones([4], (Kind::Float, Device::Cpu)).set_requires_grad(true);
        let tensors = vec![("weight".to_owned(), weight)];
        let flat = Flat::new(&layout, &tensors, Device::Cpu).unwrap();
        let buckets: Arc<[_]> = layout.buckets(config.exchange.bucket_bytes).into();
        let mut group = Solo::new(&layout, &buckets, &tensors).unwrap();
        let identity = Identity {
            run: RunId::new("r").unwrap(),
            group: GroupId(0),
            incarnation: Incarnation(1),
        };
        let session = Session::new(identity, Clock(5), [(BlockId(0), ShardId(0))]);
        let session = session.with_overlap(config.train.overlap);
        let reach = Reach {
            credentials: Credentials::default(),
            retry: std::time::Duration::ZERO,
            connections: 1,
        };
        let directory = Directory::fixed(holding(1, Some((0, shard))));
        let exchange = Exchange::new(layout.clone(), session, &directory, &reach);
        let setup = Setup {
            config: &config,
            spec: &spec,
            host: &HostSide::new(&layout, &buckets, vec![BlockId(0)], staged, spec.up),
            tensors: &tensors,
            flat: &flat,
            group: &mut group,
            heartbeat: &Arc::<HeartbeatState>::default(),
        };
        let wire = wire().unwrap();
        let exchanging = build(setup, Streams { exchange, wire }).unwrap();
        Self {
            tensors,
            flat,
            group,
            exchanging,
        }
    }

    fn pull(&mut self) {
        let mut replica = Replica {
            group: &mut self.group,
            flat: &mut self.flat,
            leave: &|| false,
        };
        self.exchanging.pull(&mut replica).unwrap();
    }

    /// The steps until the next exchange, with this gradient, and what ends with it.
    fn contribute(&mut self, gradient: f64) -> Option<Ended> {
        let seen = Seen::default();
        let count = self.exchanging.steps(&self.group).unwrap();
        let steps = (0..count).map(|_| self.step(gradient, seen));
        let mut steps = steps.reduce(Step::and).unwrap();
        let exchanging = &mut self.exchanging;
        exchanging.finish_steps(&mut steps, &self.group).unwrap();
        let mut replica = Replica {
            group: &mut self.group,
            flat: &mut self.flat,
            leave: &|| false,
        };
        exchanging.exchange(steps, seen, &mut replica).unwrap()
    }

    fn step(&mut self, gradient: f64, seen: Seen) -> Step {
        let exchanging = &mut self.exchanging;
        exchanging.begin_step().unwrap();
        let loss = self.tensors[0].1.sum(Kind::Float) * gradient;
        exchanging.begin_backward(3, seen).unwrap();
        self.group.backward(&loss).unwrap();
        let computed = exchanging.computed(&loss, &self.group).unwrap();
        let skips = if computed.finite { 0 } else { computed.skips };
        let pushed = (skips < computed.buckets).then_some(3);
        let step = Step {
            clock: exchanging.clock(),
            pushed,
            buckets_skipped: skips,
            overflowed: false,
            loss_scale: exchanging.loss_scale(),
            loss: computed.loss,
            samples: 3,
            local_steps: 1,
            local_skipped: u32::from(pushed.is_none()),
            copied: Default::default(),
            data: Default::default(),
            compute: Default::default(),
            reduce: Default::default(),
            missed_pace: 0,
            reduce_bytes_per_second: None,
        };
        exchanging.agreed(&step, &self.group, &self.flat).unwrap();
        exchanging.stepped(&step, seen).unwrap();
        step
    }
}

/// Runs `body` with a rank of each way, in main memory and staged, and tells it whether exchanges run behind
/// the next step. `want` is what the shard should have heard by then, given what is pushed of the steps before
/// an exchange.
fn each(body: impl Fn(&mut OneRank, bool), want: impl Fn(Vec<f32>) -> Vec<Heard>) {
    for (way, staged) in WAYS.into_iter().flat_map(|way| [(way, false), (way, true)]) {
        let shard = FakeShard::new(answer);
        let runs = shard.run();
        let mut rank = OneRank::new(way, staged, &runs.address);
        rank.pull();
        assert_eq!(rank.flat.read(), [10.0; 4], "{way:?} {staged}");
        let is_behind = way == WAYS[1];
        body(&mut rank, is_behind);
        drop(rank);
        let steps = if way == WAYS[3] { 2.0 } else { 1.0 };
        let want = want(vec![(steps * GRADIENT) as f32; 4]);
        let mut got: Vec<_> = shard.heard().iter().map(heard).collect();
        if is_behind {
            // One more may be under way.
            got.truncate(want.len());
        }
        assert_eq!(got, want, "{way:?} {staged}");
    }
}

#[test]
fn what_steps_came_to_is_pushed_and_the_answer_is_in_the_model() {
    let body = |rank: &mut OneRank, behind: bool| {
        assert_eq!(rank.exchanging.next_clock(), Clock(5));
        for clock in 5..8 {
            let ended = rank.contribute(GRADIENT);
            let expected = if behind { clock - 1 } else { clock };
            let told = ended.map(|ended| ended.step.clock.0);
            assert_eq!(told, (expected >= 5).then_some(expected));
            let value = if expected < 5 {
                10.0
            } else {
                expected as f32 + 1.0
            };
            assert_eq!(rank.flat.read(), [value; 4]);
            let next = rank.exchanging.go_on_at(Clock(0));
            assert_eq!(next, Clock(clock + 1));
        }
        if behind {
            // What it said last has been heard when the next one may begin.
            rank.contribute(GRADIENT);
        }
    };
    let want = |pushed: Vec<f32>| {
        let pushes = (5..8).map(|clock| Heard::Gradient(clock, pushed.clone()));
        std::iter::once(Heard::Pull).chain(pushes).collect()
    };
    each(body, want);
}

#[test]
fn what_is_not_finite_is_skipped_and_the_answer_is_in_the_model() {
    let body = |rank: &mut OneRank, behind: bool| {
        rank.contribute(f64::NAN);
        let value = if behind { 10.0 } else { 6.0 };
        assert_eq!(rank.flat.read(), [value; 4]);
        rank.contribute(GRADIENT);
        let value = if behind { 6.0 } else { 7.0 };
        assert_eq!(rank.flat.read(), [value; 4]);
        if behind {
            let ended = rank.contribute(f64::NAN).unwrap();
            assert!(!ended.step.is_skipped());
        }
    };
    let want = |pushed| vec![Heard::Pull, Heard::Skip(5), Heard::Gradient(6, pushed)];
    each(body, want);
}

#[test]
fn a_group_that_is_left_behind_goes_on_further() {
    let body = |rank: &mut OneRank, behind: bool| {
        rank.contribute(GRADIENT);
        // Behind the next step it goes on where the answers say, not where it is told.
        let want = if behind { Clock(6) } else { Clock(9) };
        assert_eq!(rank.exchanging.go_on_at(Clock(9)), want);
        assert_eq!(rank.exchanging.next_clock(), want);
        if behind {
            rank.contribute(f64::NAN);
        }
    };
    let want = |pushed| vec![Heard::Pull, Heard::Gradient(5, pushed)];
    each(body, want);
}

#[test]
fn a_gradient_that_is_too_long_is_shortened_and_no_other() {
    for (way, staged) in WAYS[..2].iter().flat_map(|way| [(way, false), (way, true)]) {
        let shard = FakeShard::new(answer);
        let runs = shard.run();
        let overrides = [way, &["optimizer.clip_norm=2"][..]].concat();
        let mut rank = OneRank::new(&overrides, staged, &runs.address);
        rank.pull();
        // Of lengths 4, 2, 1 and 6.
        for gradient in [2.0, 1.0, 0.5, -3.0] {
            rank.contribute(gradient);
        }
        if *way == WAYS[1] {
            rank.contribute(f64::NAN);
        }
        drop(rank);
        let pushed = [1.0, 1.0, 0.5, -1.0];
        let pushes = (5..).zip(pushed);
        let pushes = pushes.map(|(clock, value)| Heard::Gradient(clock, vec![value; 4]));
        let want: Vec<_> = std::iter::once(Heard::Pull).chain(pushes).collect();
        let mut got: Vec<_> = shard.heard().iter().map(heard).collect();
        got.truncate(want.len());
        assert_eq!(got, want, "{way:?} {staged}");
    }
}
