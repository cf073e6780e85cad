//! What is computed on, and how: section `compute`.

use super::{Key, float, int, key};
use crate::value::Kind::{Bool, Choice, Text};

pub(super) const KEYS: &[Key] = &[
    key(
        "compute.device",
        Text,
        Some("\"auto\""),
        "`auto`, `cpu`, `cuda` or `cuda:N`: what ranks compute on; `auto` takes GPUs where a node has any, and `cuda` takes for each rank the GPU of its number on the node",
    ),
    key(
        "compute.precision",
        Choice(&["f32", "bf16", "fp16"]),
        Some("\"f32\""),
        "what forward and backward compute in where it is safe (autocast); parameters and gradients stay f32. `fp16` needs a GPU and scales the loss",
    ),
    key(
        "compute.tf32",
        Bool,
        Some("false"),
        "f32 products may round their factors to TF32 on a GPU",
    ),
    key(
        "compute.deterministic",
        Bool,
        Some("false"),
        "only algorithms whose bits repeat; an operation that has none ends the run",
    ),
    key(
        "compute.loss_scale",
        float(1.0, 16_777_216.0),
        Some("65536.0"),
        "first loss scale of `fp16`, a power of two; halved when gradients overflow",
    ),
    key(
        "compute.loss_scale_steps",
        int(1, 1_000_000),
        Some("2000"),
        "steps without overflow after which the loss scale is doubled",
    ),
];
