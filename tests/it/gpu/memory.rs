use tch::{Device, Kind, Tensor};
use tradewind_config::{Compute, DeviceChoice, Precision};
use tradewind_worker::device;

use super::played::{Call, played};

/// The device of the rank that is `local_rank` on its node.
pub fn device_of(local_rank: u32) -> Device {
    let compute = Compute {
        device: DeviceChoice::Auto,
        precision: Precision::F32,
        tf32: false,
        deterministic: false,
    };
    device::open(&compute, local_rank).unwrap()
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
        assert_eq!(gpus.contexts(), [1]);
        let launched = |call: &Call| call.function.contains("FillFunctor") && call.about == Some(1);
        assert!(gpus.calls().iter().any(launched), "{:#?}", gpus.calls());
    });
}
