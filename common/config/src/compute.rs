//! Where and how precisely ranks compute: section `compute`.

use super::Values;

/// Where and how precisely ranks compute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compute {
    /// What ranks compute on.
    pub device: DeviceChoice,
    /// What forward computes in.
    pub precision: Precision,
    /// Whether f32 products may round their factors to TF32 on a GPU.
    pub tf32: bool,
    /// Whether only algorithms are used whose bits repeat.
    pub deterministic: bool,
}

/// What ranks compute on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// A GPU where the node has any, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// The GPU of the rank's number on its node.
    Cuda,
    /// The GPU of this number.
    CudaAt(u32),
}

/// What forward computes in. Parameters, gradients and what shards hold are f32 in all of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Precision {
    /// f32.
    F32,
    /// bf16 where libtorch's autocast thinks it safe.
    Bf16,
    /// f16 where libtorch's autocast thinks it safe, with the loss scaled.
    Fp16(LossScaling),
}

impl Precision {
    /// Whether the loss is scaled, so that a step whose gradients overflow is skipped as a whole.
    pub fn scales_loss(self) -> bool {
        match self {
            Self::F32 | Self::Bf16 => false,
            Self::Fp16(_) => true,
        }
    }
}

/// How the loss is scaled, so that small gradients do not vanish in f16 (Micikevicius et al. 2018,
/// "Mixed Precision Training", section 3.2).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossScaling {
    /// The first scale, a power of two.
    pub initial: f64,
    /// Steps without an overflow after which the scale is doubled.
    pub growth_steps: u32,
}

/// What the configuration says of it; `wrong` hears what does not fit together.
pub(super) fn read(values: &Values<'_>, wrong: &mut dyn FnMut(&str, String)) -> Compute {
    let device = device(values.text("compute.device"));
    if device.is_none() {
        wrong(
            "compute.device",
            "is none of \"auto\", \"cpu\", \"cuda\" and \"cuda:N\", such as \"cuda:0\"".into(),
        );
    }
    let initial = values.float("compute.loss_scale");
    if initial.log2().fract() != 0.0 {
        wrong(
            "compute.loss_scale",
            "is no power of two: scaling would round gradients".into(),
        );
    }
    let precision = match values.text("compute.precision") {
        "bf16" => Precision::Bf16,
        "fp16" => Precision::Fp16(LossScaling {
            initial,
            growth_steps: values.int("compute.loss_scale_steps") as u32,
        }),
        "f32" => Precision::F32,
        other => unreachable!("compute.precision has no choice {other}"),
    };
    if precision.scales_loss() && device == Some(DeviceChoice::Cpu) {
        wrong(
            "compute.precision",
            "needs a GPU; on the CPU take \"bf16\"".into(),
        );
    }
    Compute {
        device: device.unwrap_or(DeviceChoice::Auto),
        precision,
        tf32: values.flag("compute.tf32"),
        deterministic: values.flag("compute.deterministic"),
    }
}

fn device(text: &str) -> Option<DeviceChoice> {
    match text {
        "auto" => Some(DeviceChoice::Auto),
        "cpu" => Some(DeviceChoice::Cpu),
        "cuda" => Some(DeviceChoice::Cuda),
        _ => {
            let number = text.strip_prefix("cuda:")?.parse().ok()?;
            Some(DeviceChoice::CudaAt(number))
        }
    }
}
