//! What is computed on, and how: section `compute`.

use super::{Section, float, int, key};
use crate::value::Kind::{Bool, Choice, Text};

pub(super) fn sections() -> Vec<Section> {
    vec![compute()]
}

fn compute() -> Section {
    Section {
        name: "compute",
        about: "Says on which device ranks compute, and in which precision. [GPUs](gpu.md) says which rank takes which GPU.",
        example: r#"[compute]
device = "auto"
precision = "bf16"
"#,
        keys: vec![
            key(
                "compute.device",
                Text,
                Some("\"auto\""),
                "Device that ranks compute on. `cpu`: the CPU. `cuda`: the GPU whose number is that of the rank on its node. `cuda:N`: GPU N, for every rank. `auto`: as `cuda` on a node that has GPUs, as `cpu` on others ([GPUs](gpu.md#which-rank-takes-which-gpu)).",
            ),
            key(
                "compute.precision",
                Choice(&["f32", "bf16", "fp16"]),
                Some("\"f32\""),
                "Precision of forward and backward; parameters and gradients are always f32. `f32`: no autocast. `bf16`: libtorch's autocast to bf16, on GPUs and CPUs. `fp16`: autocast to f16 with a scaled loss, on GPUs only and not with `exchange.per_bucket` ([GPUs](gpu.md#precision)).",
            ),
            key(
                "compute.tf32",
                Bool,
                Some("false"),
                "`true`: products of f32 numbers on a GPU may round their factors to TF32, which is faster and less precise. On a CPU it has no effect.",
            ),
            key(
                "compute.deterministic",
                Bool,
                Some("false"),
                "`true`: ranks use only algorithms whose results are the same bits each time. An operation that has no such algorithm ends the run.",
            ),
            key(
                "compute.loss_scale",
                float(1.0, 16_777_216.0),
                Some("65536.0"),
                "First factor that the loss is multiplied by, a power of two. It is halved when gradients overflow.",
            ),
            key(
                "compute.loss_scale_steps",
                int(1, 1_000_000),
                Some("2000"),
                "Number of steps without overflow after which the factor of the loss is doubled.",
            ),
        ],
    }
}
