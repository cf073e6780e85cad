use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tch::{Kind, Tensor};
use tokio::runtime::Builder;
use tradewind_client::membership::End;
use tradewind_common::{GroupId, Rank, TensorKind};
use tradewind_proto::auth::Credentials;
use tradewind_tests::cluster::fleet::Fleet;
use tradewind_tests::cluster::rank::member;
use tradewind_tests::cluster::training::{self, Training};
use tradewind_worker::data::{Asked, Batch, DataError, Dataset, Field, Kind as Number, Split};
use tradewind_worker::lives::live;
use tradewind_worker::member::Entry;

use super::contexts::check;
use super::group::over_nccl;
use super::memory::device_of;
use super::played::{Call, Gpus, played};

const STEPS: usize = 6;

const LATE: Duration = Duration::from_millis(10);

/// Every sample is the same. They come late to one of two ranks: at which step a rank asks for data, which the ranks
/// lease together, must not depend on how fast it reads.
struct Ones {
    late: bool,
}

impl Dataset for Ones {
    fn fields(&self) -> Vec<Field> {
        [Field::new("input", Number::F32, &[64])].into()
    }

    fn len(&self, _split: Split) -> usize {
        1_000
    }

    fn batch(&self, asked: Asked<'_>) -> Result<Batch, DataError> {
        if self.late {
            thread::sleep(LATE);
        }
        let input = Tensor::from_slice(&[1f32; 64]).repeat([asked.samples.len() as i64, 1]);
        Ok(Batch::of(asked.samples).with("input", input))
    }
}

/// Of operations whose kernels need no library of NVIDIA's. What is computed is not looked at.
struct Product<F> {
    weights: [Tensor; 2],
    steps: AtomicUsize,
    late: bool,
    /// Told of the number of each step.
    told: F,
}

impl<F: Fn(usize)> Product<F> {
    fn new(late: bool, told: F) -> Self {
        let weights = || Tensor::from_slice(&[1f32; 64]).set_requires_grad(true);
        Self {
            weights: [weights(), weights()],
            steps: AtomicUsize::new(0),
            late,
            told,
        }
    }
}

impl<F: Fn(usize) + Send + 'static> Training for Product<F> {
    fn tensors(&self) -> Vec<(String, Tensor, TensorKind)> {
        let named = ["a", "b"].iter().zip(&self.weights);
        let tensor = |(name, tensor): (&&str, &Tensor)| {
            let name = (*name).to_owned();
            (name, tensor.shallow_clone(), TensorKind::Parameter)
        };
        named.map(tensor).collect()
    }

    fn dataset(&self) -> Arc<dyn Dataset> {
        Arc::new(Ones { late: self.late })
    }

    fn loss(&self, batch: &Batch) -> Tensor {
        (self.told)(self.steps.fetch_add(1, Ordering::Relaxed));
        let [a, b] = &self.weights;
        (&batch["input"] * a * b).sum(Kind::Float)
    }
}

/// The ranks of one group, on these GPUs, through all its incarnations. `told` hears of each step of the first.
fn train(gpus: &[u32], settings: &[&str], told: impl Fn(usize) + Clone + Send + 'static) {
    let ranks = gpus.len();
    let text = format!(
        r#"
        run.name = "played"
        cluster.groups = [{ranks}]
        train.batch = 2
        train.samples = {}
        optimizer.learning_rate = 0.0625
        exchange.block_bytes = 64
        exchange.bucket_bytes = 256
        "#,
        STEPS * ranks * 2,
    );
    let config = training::configured(&text, settings);
    let fleet = Fleet::start(2, "");
    let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
    let (fleet, config, runtime) = (&fleet, &config, &runtime);
    thread::scope(|scope| {
        for (rank, gpu) in (0..).zip(gpus) {
            let told = told.clone();
            scope.spawn(move || {
                let entry = Entry {
                    config: config.clone(),
                    group: GroupId(0),
                    rank: Rank(rank),
                    life: 1,
                    device: device_of(*gpu),
                    coordinator: fleet.coordinator(),
                    credentials: Credentials::default(),
                };
                let told = move |step| {
                    if rank == 0 {
                        told(step);
                    }
                };
                let mut member = member(entry, Product::new(rank == 1, told), runtime.handle());
                let end = live(&mut member).unwrap_or_else(|error| panic!("{error}"));
                assert_eq!(end, End::Applied);
            });
        }
    });
}

/// The ways of exchanging.
const MODES: [&str; 3] = [
    "train.overlap = 0",
    "train.overlap = 1",
    "exchange.per_bucket = true",
];

/// From the reading of data to the last exchange, whatever threads libtorch and the worker start.
#[test]
fn a_rank_uses_its_own_gpu_alone() {
    played("gpu::training::a_rank_uses_its_own_gpu_alone", |gpus| {
        for mode in MODES {
            train(&[1], &[mode], |_| ());
            check(gpus, 1);
        }
        assert!(called(gpus, "cudaMemcpyAsync", 1));
    });
}

fn called(gpus: &Gpus, function: &str, device: usize) -> bool {
    let is = |call: &Call| call.function == function && call.about == Some(device);
    gpus.calls().iter().any(is)
}

/// Waits are for events, so that what others have enqueued is not waited for, and they sleep.
#[test]
fn no_step_waits_for_a_whole_gpu() {
    over_nccl("gpu::training::no_step_waits_for_a_whole_gpu", |gpus, _| {
        for mode in MODES {
            train(&[0, 1], &[mode], |_| ());
        }
        for device in 0..2 {
            assert!(called(gpus, "ncclAllReduce", device));
            assert!(!called(gpus, "cudaDeviceSynchronize", device));
            assert!(!called(gpus, "a wait that spins", device));
        }
    });
}

/// Whoever of c10d and the worker asks NCCL first breaks the group off; the ranks then meet again.
#[test]
fn a_group_that_loses_a_peer_is_formed_again() {
    let test = "gpu::training::a_group_that_loses_a_peer_is_formed_again";
    over_nccl(test, |gpus, _| {
        let gpus = *gpus;
        for mode in MODES {
            let told = move |step| {
                if step == STEPS / 2 {
                    gpus.nccl_peer_dies();
                }
            };
            train(&[0, 1], &[mode], told);
        }
        let calls = gpus.calls();
        for device in 0..2 {
            let formed = |call: &&Call| {
                call.function == "ncclCommInitRankConfig" && call.about == Some(device)
            };
            assert_eq!(calls.iter().filter(formed).count(), 2 * MODES.len());
        }
    });
}
