//! The client's background exchange against real servers.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use tradewind_common::optimizer::Sgd;

use tokio::runtime::{Builder, Runtime};
use tradewind_client::background::Background;
use tradewind_client::coordinator::{Coordinator, RankId, Start};
use tradewind_client::core::session::{Identity, Purpose, Session};
use tradewind_client::directory::Directory;
use tradewind_client::exchange::{Exchange, placed};
use tradewind_client::network::{Reach, wire};
use tradewind_common::compress::Compression;
use tradewind_common::policy::Policies;
use tradewind_common::schedule::{Schedule, Seen};
use tradewind_common::spec::{ConsistencySpec, DecayExempt, FaultSpec, OptimizerSpec, RunSpec};
use tradewind_common::{
    BlockId, Clock, GroupId, Incarnation, Layout, Rank, RunId, TensorKind, TensorSpec,
};
use tradewind_proto::auth::Credentials;
use tradewind_tests::cluster::fleet::Fleet;

/// For a slow and noisy machine; a hang fails the test.
const PATIENCE: Duration = Duration::from_secs(60);

/// Of every value at its creation.
const INITIAL: f32 = 2.0;

const RATE: f32 = 0.5;

/// Blocks of 3, 3 and 4 values; plain SGD; leases outlast any test.
pub(super) fn spec(group_sizes: &[u32], consistency: ConsistencySpec) -> RunSpec {
    let tensor = |name: &str, elements| TensorSpec {
        name: name.into(),
        shape: vec![elements],
        kind: TensorKind::Parameter,
    };
    RunSpec {
        seed: 1,
        group_sizes: group_sizes.to_vec(),
        tensors: vec![tensor("a", 6), tensor("b", 4)],
        bucket_bytes: None,
        block_bytes: 16,
        consistency,
        policies: Policies::default(),
        optimizer: OptimizerSpec::Sgd(Sgd {
            momentum: 0.0,
            nesterov: false,
            weight_decay: 0.0,
        }),
        decay_exempt: DecayExempt::None,
        schedule: Schedule::constant(RATE.into()),
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
        start_grace_ms: 600_000,
        up: Compression::None,
        down: Compression::None,
        faults: FaultSpec {
            patience_ms: 1_200_000,
            ..FaultSpec::default()
        },
    }
}

/// One rank of a run, ready to push.
pub(super) struct Ready {
    pub(super) background: Background,
    pub(super) layout: Arc<Layout>,
    pub(super) slice: Vec<BlockId>,
}

/// Joins, and creates if it is told to. Returns when all ranks of all groups are there.
pub(super) fn enter(
    fleet: &Fleet,
    spec: &RunSpec,
    group: u32,
    rank: u32,
    runtime: &Runtime,
) -> Ready {
    let reach = Reach {
        credentials: Credentials::default(),
        retry: PATIENCE,
        connections: 1,
    };
    let id = RankId {
        run: RunId::new("behind").unwrap(),
        group: GroupId(group),
        rank: Rank(rank),
    };
    let layout = Arc::new(spec.check().unwrap());
    let slice = layout.slice(id.rank, spec.group_sizes[group as usize]);
    let mut coordinator = Coordinator::new(fleet.coordinator(), reach.clone());
    let joined = runtime
        .block_on(coordinator.join(&id, 1, spec, "", Incarnation(0)))
        .unwrap();
    let directory = Directory::fixed(joined.holding.clone());
    let exchange = |start| {
        let identity = Identity {
            run: id.run.clone(),
            group: id.group,
            incarnation: joined.incarnation,
        };
        let blocks = placed(&slice, &joined.placement).unwrap();
        let session = Session::new(identity, start, blocks);
        let session = session.with_overlap(true);
        Exchange::new(layout.clone(), session, &directory, &reach)
    };
    let initial = vec![INITIAL; layout.elements()];
    let initial = |id| initial[layout.block(id).unwrap().elements.clone()].into();
    let mut created = false;
    let start = loop {
        let ready = coordinator.await_ready(&id, joined.incarnation, created);
        match runtime.block_on(ready).unwrap() {
            Start::At(clock) => break clock,
            Start::Create => {
                let mut exchange = exchange(Clock(0));
                let create = exchange.push(Purpose::Create, Seen::default(), &initial);
                runtime.block_on(create).unwrap();
                created = true;
            }
        }
    };
    let background = Background::new(exchange(start), layout.clone(), wire().unwrap());
    Ready {
        background,
        layout,
        slice,
    }
}

pub(super) fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

/// Two ranks; what lies outside of a rank's slice is neither read nor written.
fn trains(ready: Ready) {
    let Ready {
        mut background,
        layout,
        slice,
    } = ready;
    let own = |index: usize| {
        let holds = |id: &BlockId| layout.block(*id).unwrap().elements.contains(&index);
        slice.iter().any(holds)
    };
    let elements = 0..layout.elements();
    assert!(elements.clone().any(own) && !elements.clone().all(own));
    let of_slice = |x: f32| -> Vec<f32> {
        let value = |index| if own(index) { x } else { f32::NAN };
        elements.clone().map(value).collect()
    };
    let bits = |values: &[f32]| -> Vec<u32> { values.iter().map(|x| x.to_bits()).collect() };

    background.start(Purpose::Pull, Seen::default(), Vec::new(), of_slice(0.0));
    let mut values = background.wait().unwrap().values;
    assert_eq!(bits(&values), bits(&of_slice(INITIAL)));
    assert_eq!(background.clock(), Clock(0), "a pull is no contribution");

    let mut gradient = of_slice(1.0);
    let places = (gradient.as_ptr(), values.as_ptr());
    let mut seen = Seen::default();
    for clock in 0..6 {
        let skip = clock == 4;
        let purpose = match skip {
            true => Purpose::Skip,
            false => Purpose::Gradient { samples: 8 },
        };
        background.start(purpose, seen, gradient, values);
        assert_eq!(background.clock(), Clock(clock + 1));
        let ended = background.wait().unwrap();
        (gradient, values) = (ended.gradient, ended.values);
        assert_eq!((gradient.as_ptr(), values.as_ptr()), places, "no copies");
        seen = ended.summary.seen();

        // Of the updates before it, a gradient knows all but the last; a skip is none.
        let updates = if clock >= 4 { clock } else { clock + 1 };
        let delay = match clock {
            0 | 5 => 0,
            _ => 1,
        };
        assert_eq!(
            ended.summary.delay,
            (!skip).then_some(delay),
            "clock {clock}"
        );
        let samples = 8 * updates;
        assert_eq!(seen, Seen { samples, updates });
        let want = INITIAL - RATE * updates as f32;
        assert_eq!(bits(&values), bits(&of_slice(want)), "clock {clock}");
    }
}

#[test]
fn vectors_move_there_and_back_and_gradients_are_one_update_late() {
    let spec = spec(&[2], ConsistencySpec::Async);
    let (fleet, runtime) = (Fleet::start(2, ""), runtime());
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let (fleet, spec, runtime) = (&fleet, &spec, &runtime);
            scope.spawn(move || trains(enter(fleet, spec, 0, rank, runtime)));
        }
    });
}

#[test]
fn an_exchange_that_is_held_back_can_be_given_up() {
    let spec = spec(&[1, 1], ConsistencySpec::Sync);
    let (fleet, runtime) = (Fleet::start(2, ""), runtime());
    let (done, ended) = sync_channel(1);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| enter(&fleet, &spec, 1, 0, &runtime));
        let mut ready = enter(&fleet, &spec, 0, 0, &runtime);
        let _other = other.join().unwrap();
        let length = ready.layout.elements();
        let purpose = Purpose::Gradient { samples: 4 };
        // The other group never comes.
        ready.background.start(
            purpose,
            Seen::default(),
            vec![1.0; length],
            vec![0.0; length],
        );
        std::thread::spawn(move || {
            drop(ready.background);
            done.send(()).unwrap();
        });
        ended.recv_timeout(PATIENCE).expect("it ends");
    });
}
