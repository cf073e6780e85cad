use tch::{Device, Kind, Tensor};
use tradewind_common::layout::{Layout, TensorKind, TensorSpec};
use tradewind_tests::cluster::training;
use tradewind_worker::data::Batch;
use tradewind_worker::device;
use tradewind_worker::flat::Flat;
use tradewind_worker::on_device::OnDevice;

use super::played::{Call, played};

/// The device of the rank that is `local_rank` on its node.
pub fn device_of(local_rank: u32) -> Device {
    let text = "run.name = \"played\"\ntrain.samples = 1\noptimizer.learning_rate = 1.0";
    // The default is a GPU where there is one.
    let config = training::configured(text, &[]);
    device::open(&config.compute, local_rank).unwrap()
}

/// A few parameters on a GPU.
pub struct Model {
    /// Views of one vector.
    pub tensors: [(String, Tensor); 2],
    /// Of them.
    pub layout: Layout,
}

impl Model {
    /// Of ones.
    pub fn new(device: Device) -> Self {
        let names = ["a", "b"];
        let specs = names.map(|name| TensorSpec {
            name: name.into(),
            shape: vec![64],
            kind: TensorKind::Parameter,
        });
        let tensors = names.map(|name| {
            let values = Tensor::from_slice(&[1f32; 64]);
            (name.to_owned(), values.set_requires_grad(true))
        });
        let layout = Layout::new(&specs, 64).unwrap();
        Flat::new(&layout, &tensors, device).unwrap();
        Self { tensors, layout }
    }
}

#[test]
fn tensors_are_made_and_copied() {
    played("gpu::memory::tensors_are_made_and_copied", |gpus| {
        let device = device_of(1);
        assert_eq!(device, Device::Cuda(1));
        let zeros = Tensor::zeros([4], (Kind::Float, device));
        assert_eq!(Vec::<f32>::try_from(zeros).unwrap(), [0.0; 4]);
        let own = Tensor::from_slice(&[1f32, 2.0, 3.0]);
        let back = own.to_device(device).to_device(Device::Cpu);
        assert_eq!(own, back);
        assert_eq!(gpus.contexts().len(), 1);
        let calls = gpus.calls();
        let about = calls.iter().filter(|call| call.about == Some(1));
        let first = about.map(|call| call.function.as_str()).next();
        assert_eq!(first, Some("cuDevicePrimaryCtxSetFlags_v2"), "{calls:#?}");
        let launched = |call: &Call| call.function.contains("FillFunctor") && call.about == Some(1);
        assert!(calls.iter().any(launched), "{calls:#?}");
    });
}

/// The computation's stream has nothing of the copy but that it waits for it when the batch is taken.
#[test]
fn the_next_batch_is_copied_beside_the_computation() {
    played(
        "gpu::memory::the_next_batch_is_copied_beside_the_computation",
        |gpus| {
            let device = device_of(1);
            let mut to = OnDevice::new(device, false).unwrap();
            assert!(to.has_room());
            let before = gpus.calls().len();
            let values = Tensor::from_slice(&[1f32, 2.0, 3.0]);
            to.begin(Ok(Batch::of(&[0]).with("input", values.shallow_clone())));
            assert!(!to.has_room());
            let begun = gpus.calls().split_off(before);
            let copies: Vec<_> = begun
                .iter()
                .filter(|call| call.function == "cudaMemcpyAsync")
                .collect();
            assert!(!copies.is_empty(), "{begun:#?}");
            assert!(copies.iter().all(|copy| copy.stream != 0), "{copies:#?}");
            let waits = |calls: &[Call]| {
                let wait = |call: &&Call| call.function == "cudaStreamWaitEvent";
                calls.iter().filter(wait).any(|call| call.stream == 0)
            };
            assert!(!waits(&begun), "{begun:#?}");

            let batch = to.take().unwrap().unwrap();
            assert!(waits(&gpus.calls()), "{:#?}", gpus.calls());
            assert_eq!(batch["input"].to_device(Device::Cpu), values);
            assert!(to.has_room() && to.take().is_none());
        },
    );
}
