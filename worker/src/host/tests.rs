use tch::{Device, Kind, Tensor};
use tradewind_common::{Rank, TensorKind, TensorSpec};

use super::*;
use crate::flat::Flat;
use crate::group::Solo;

/// A model of one tensor, its group and its staged side.
struct Model {
    tensors: Vec<(String, Tensor)>,
    group: Solo,
    host: Box<dyn GradientPath>,
    buffers: Buffers,
    _flat: Flat,
}

fn model(overlap: bool) -> Model {
    let spec = TensorSpec {
        name: "weight".into(),
        shape: vec![4],
        kind: TensorKind::Parameter,
    };
    let layout = Arc::new(Layout::new(&[spec], 8).unwrap());
    let weight = Tensor::ones([4], (Kind::Float, Device::Cpu)).set_requires_grad(true);
    let tensors = vec![("weight".to_owned(), weight)];
    let flat = Flat::new(&layout, &tensors, Device::Cpu).unwrap();
    let buckets: Arc<[_]> = layout.buckets(64).into();
    let mut group = Solo::new(&layout, &buckets, &tensors).unwrap();
    let slice = layout.slice(Rank(0), 1);
    let side = HostSide::new(&layout, &buckets, slice, true, Compression::None);
    let leaves = match overlap {
        true => Leaves::IN_TURNS,
        false => Leaves::REDUCED,
    };
    let host = side.gradient_path(&mut group, leaves).unwrap();
    let buffers = side.buffers(&flat).unwrap();
    Model {
        tensors,
        group,
        host,
        buffers,
        _flat: flat,
    }
}

impl Model {
    /// A step whose gradients are all `scale`, times that of the loss.
    fn step(&mut self, scale: f64, factor: f64) -> Result<Checked, HostError> {
        let loss = self.tensors[0].1.sum(Kind::Float) * scale;
        self.host.begin(factor)?;
        self.group.backward(&loss)?;
        self.host.check(&loss, &self.group)
    }

    fn push(&mut self) -> Arc<Parts> {
        // SAFETY: it is a copy.
        let pushed = unsafe { self.host.push(&self.group, &self.buffers) };
        let Pushed::Parts(parts) = pushed else {
            panic!("it is staged");
        };
        parts
    }
}

/// What an exchange would send, once it is there.
fn sent(parts: &Parts) -> Vec<f32> {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.build().unwrap();
    runtime.block_on(parts.whole())
}

#[test]
fn gradients_take_turns_while_exchanges_read_them() {
    let mut model = model(true);
    let checked = model.step(2.0, 1.0).unwrap();
    assert_eq!((checked.loss, checked.bad), (8.0, 0));
    let first = model.push();
    assert_eq!(sent(&first), [2.0; 4]);
    model.step(3.0, 1.0).unwrap();
    assert_eq!(sent(&first), [2.0; 4], "it is in flight");
    drop(first);
    let second = model.push();
    // The scale of a loss is taken back.
    model.step(64.0, 1.0 / 16.0).unwrap();
    assert_eq!(sent(&second), [3.0; 4]);
    assert_eq!(sent(&model.push()), [4.0; 4]);
}

#[test]
fn memory_that_an_exchange_reads_is_not_overwritten() {
    let mut model = model(false);
    model.step(2.0, 1.0).unwrap();
    let held = model.push();
    assert_eq!(sent(&held), [2.0; 4]);
    let error = model.step(3.0, 1.0).unwrap_err().to_string();
    assert!(error.contains("an exchange still reads"), "{error}");
    assert_eq!(sent(&held), [2.0; 4]);
}

#[test]
fn what_is_not_finite_is_counted() {
    let mut model = model(true);
    assert_eq!(model.step(f64::NAN, 1.0).unwrap().bad, 1);
    assert_eq!(model.step(1.0, 1.0).unwrap().bad, 0);
    assert_eq!(sent(&model.push()), [1.0; 4]);
}
