//! Samples are finished when the exchange of their gradient has been answered, not before: what a
//! group that fails had under way is leased again.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tch::{Device, Kind, Tensor};
use tokio::runtime::{Builder, Handle};
use tradewind_common::{GroupId, Rank, TensorKind};
use tradewind_config::Config;
use tradewind_proto::auth::Credentials;
use tradewind_tests::cluster::fleet::Fleet;
use tradewind_tests::cluster::rank::{live, member};
use tradewind_tests::cluster::training::{self, Training};
use tradewind_worker::data::{Asked, Batch, DataError, Dataset, Field, Kind as Number, Split};
use tradewind_worker::group::GroupError;
use tradewind_worker::member::Entry;
use tradewind_worker::train_error::TrainError;

const BATCH: usize = 4;

/// Batches in an epoch, and in the budget: the second epoch is not reached by who leases right.
const STEPS: usize = 10;

/// The step whose loss cannot be had in the first life.
const FAILS: usize = 5;

/// Which samples were asked for, batch by batch.
#[derive(Default)]
struct Noted(Mutex<Vec<Vec<usize>>>);

impl Dataset for Noted {
    fn fields(&self) -> Vec<Field> {
        ["input", "target"]
            .map(|name| Field::new(name, Number::F32, &[]))
            .into()
    }

    fn len(&self, _split: Split) -> usize {
        STEPS * BATCH
    }

    fn batch(&self, asked: Asked<'_>) -> Result<Batch, DataError> {
        let Asked { samples, .. } = asked;
        self.0.lock().unwrap().push(samples.to_vec());
        let numbers: Vec<f32> = samples.iter().map(|sample| *sample as f32).collect();
        let input = Tensor::from_slice(&numbers);
        Ok(Batch::of(samples)
            .with("target", input.copy())
            .with("input", input))
    }
}

/// One weight.
struct One {
    weight: Tensor,
    data: Arc<Noted>,
    steps: AtomicUsize,
    fails: Option<usize>,
}

impl Training for One {
    fn tensors(&self) -> Vec<(String, Tensor, TensorKind)> {
        let weight = self.weight.shallow_clone();
        vec![("weight".into(), weight, TensorKind::Parameter)]
    }

    fn dataset(&self) -> Arc<dyn Dataset> {
        self.data.clone()
    }

    fn loss(&self, batch: &Batch) -> Tensor {
        let step = self.steps.fetch_add(1, Ordering::Relaxed);
        match self.fails == Some(step) {
            true => Tensor::from(1f32),
            false => (&batch["input"] * &self.weight).mean(Kind::Float),
        }
    }
}

/// A chunk is one step's samples. The configuration's data are not looked at.
fn configured(consistency: &str, overlap: bool) -> Config {
    let text = format!(
        r#"
        run.name = "chunks"
        train.batch = {BATCH}
        train.chunk_samples = {BATCH}
        train.samples = {}
        train.consistency = {consistency:?}
        train.overlap = {}
        optimizer.learning_rate = 0.001
        "#,
        STEPS * BATCH,
        u8::from(overlap),
    );
    training::configured(&text, &[])
}

/// One life of the group; the batches that it asked for.
fn one_life(
    entry: Entry,
    fails: Option<usize>,
    runtime: &Handle,
) -> (Vec<Vec<usize>>, Result<(), TrainError>) {
    let data = Arc::new(Noted::default());
    let task = One {
        weight: Tensor::ones([1], (Kind::Float, Device::Cpu)).set_requires_grad(true),
        data: data.clone(),
        steps: AtomicUsize::new(0),
        fails,
    };
    let result = live(&mut member(entry, task, runtime));
    let asked = std::mem::take(&mut *data.0.lock().unwrap());
    (asked, result.map(|_| ()))
}

#[test]
fn only_answered_samples_are_finished() {
    let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
    // Without overlap the step that fails is the first without an answer; with it, the one before.
    for (overlap, first) in [(false, FAILS), (true, FAILS - 1)] {
        for consistency in ["bounded", "async"] {
            let fleet = Fleet::start(1, "");
            let entry = |life| Entry {
                config: configured(consistency, overlap),
                group: GroupId(0),
                rank: Rank(0),
                life,
                device: Device::Cpu,
                coordinator: fleet.coordinator(),
                credentials: Credentials::default(),
            };
            let (before, failed) = one_life(entry(1), Some(FAILS), runtime.handle());
            let failed = failed.unwrap_err();
            assert!(
                matches!(failed, TrainError::Group(GroupError::Loss(_))),
                "{failed}"
            );
            let (after, done) = one_life(entry(2), None, runtime.handle());
            done.unwrap();
            let what = format!("{consistency}, overlap {overlap}");
            assert_eq!(after[0], before[first], "{what}");
            let mut seen: Vec<usize> = before[..first].concat();
            seen.extend(after[..STEPS - first].iter().flatten());
            seen.sort_unstable();
            let all: Vec<usize> = (0..STEPS * BATCH).collect();
            assert_eq!(seen, all, "{what}: every sample of the epoch once");
        }
    }
}
