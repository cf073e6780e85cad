//! What is computed on, and how: section `compute`.

use super::{Section, chooser, fields, key};
use crate::compute::Precision;
use crate::value::Kind::{Bool, Text};

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
        keys: [vec![
            key(
                "compute.device",
                Text,
                Some("\"auto\""),
                "Device that ranks compute on. `cpu`: the CPU. `cuda`: the GPU whose number is that of the rank on its node. `cuda:N`: GPU N, for every rank. `auto`: as `cuda` on a node that has GPUs, as `cpu` on others ([GPUs](gpu.md#which-rank-takes-which-gpu)).",
            ),
            chooser::<Precision>(
                "compute.precision",
                "\"f32\"",
                ("Precision of forward and backward; parameters and gradients are always f32.", " [GPUs](gpu.md#precision) compares them."),
                &[],
            ),
            key(
                "compute.tf32",
                Bool,
                Some("false"),
                "`true`: products of f32 numbers on a GPU may round their factors to TF32, which is faster and less precise. On a CPU it has no effect.",
            ),
            key(
                "compute.autotune",
                Bool,
                Some("false"),
                "`true`: at the first batch of each shape cuDNN tries the algorithms of a convolution on the GPU and takes the fastest. On a CPU it has no effect; a script of your own sets `torch.backends.cudnn.benchmark`.",
            ),
            key(
                "compute.channels_last",
                Bool,
                Some("false"),
                "`true`: batches of maps are stored with the channels of a cell beside each other (NHWC), which convolutions in bf16 and fp16 on GPUs are made for. Shapes do not change; a script of your own does it by `memory_format`.",
            ),
            key(
                "compute.deterministic",
                Bool,
                Some("false"),
                "`true`: ranks use only algorithms whose results are the same bits each time. An operation that has no such algorithm ends the run.",
            ),
        ], fields::<Precision>()].concat(),
    }
}
