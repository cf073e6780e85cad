//! Where and how precisely ranks compute: section `compute`.

use std::fmt::{self, Display, Formatter};

use super::{Values, choice};
use tradewind_common::choice::{Field, Kind};
use tradewind_common::choices;

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
    /// Whether the algorithm of a convolution on a GPU is chosen by trial.
    pub autotune: bool,
    /// Whether maps are stored with their channels last.
    pub channels_last: bool,
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

/// As it stands in a configuration.
impl Display for DeviceChoice {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda => f.write_str("cuda"),
            Self::CudaAt(number) => write!(f, "cuda:{number}"),
        }
    }
}

choices! {
    /// What forward computes in. Parameters, gradients and what shards hold are f32 in all of them.
    #[derive(Clone, Copy, Debug, PartialEq)]
    "precision" is Precision {
        /// f32.
        "f32" ("no autocast") is F32,
        /// bf16 where libtorch's autocast thinks it safe.
        "bf16" ("libtorch's autocast to bf16, on GPUs and CPUs") is Bf16,
        /// f16 where libtorch's autocast thinks it safe, with the loss scaled, so that small gradients do
        /// not vanish (Micikevicius et al. 2018, "Mixed Precision Training", section 3.2).
        "fp16" ("autocast to f16 with a scaled loss, on GPUs only and not with `exchange.per_bucket`") is Fp16 {
            /// The first scale, a power of two.
            initial: f64 = LOSS_SCALE,
            /// Steps without an overflow after which the scale is doubled.
            growth_steps: u32 = LOSS_SCALE_STEPS,
        },
    }
}

const LOSS_SCALE: Field = Field {
    key: "compute.loss_scale",
    kind: Kind::Number {
        min: 1.0,
        max: 16_777_216.0,
    },
    default: "65536.0",
    meaning: "First factor that the loss is multiplied by, a power of two. It is halved when gradients overflow.",
};

const LOSS_SCALE_STEPS: Field = Field {
    key: "compute.loss_scale_steps",
    kind: Kind::Count {
        min: 1,
        max: 1_000_000,
    },
    default: "2000",
    meaning: "Number of steps without overflow after which the factor of the loss is doubled.",
};

impl Precision {
    /// Whether the loss is scaled, so that a step whose gradients overflow is skipped as a whole.
    pub fn scales_loss(self) -> bool {
        match self {
            Self::F32 | Self::Bf16 => false,
            Self::Fp16 { .. } => true,
        }
    }
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
    let initial = values.float(LOSS_SCALE.key);
    if initial.log2().fract() != 0.0 {
        wrong(
            LOSS_SCALE.key,
            "is no power of two: scaling would round gradients".into(),
        );
    }
    let precision: Precision = choice::read(values, "compute.precision");
    if precision.scales_loss() && device == Some(DeviceChoice::Cpu) {
        wrong(
            "compute.precision",
            "needs a GPU; on the CPU take \"bf16\"".into(),
        );
    }
    let (deterministic, autotune) = (
        values.flag("compute.deterministic"),
        values.flag("compute.autotune"),
    );
    if deterministic && autotune {
        wrong(
            "compute.autotune",
            "may choose another algorithm each time, and compute.deterministic forbids that".into(),
        );
    }
    Compute {
        device: device.unwrap_or(DeviceChoice::Auto),
        precision,
        tf32: values.flag("compute.tf32"),
        deterministic,
        autotune,
        channels_last: values.flag("compute.channels_last"),
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
