//! How gradients travel to the servers and fresh parameters come back: section `exchange`.

use tradewind_common::compress::Compression;

use super::defined::{chooser, fields};
use super::key::Section;
use super::section::section;
use super::{Typed, Value};

section! {
    /// How blocks travel, but for their form.
    Exchange {
        /// Size of a bucket in bytes: neighbouring parameters are collected until they have this size, and their
        /// gradients are averaged over the group together, as with `bucket_cap_mb` of DDP. The ranks of a group have
        /// the same; it may differ between groups, and when a run is resumed.
        bucket_bytes: usize = "exchange.bucket_bytes", int(4, 1 << 32), default "1048576";
        /// Largest size of a block in bytes. A block is a contiguous range of the parameters; parameters are placed on
        /// servers, sent and updated block by block. Where a block ends does not depend on buckets.
        block_bytes: usize = "exchange.block_bytes", int(4, 64 << 20), default "262144";
        /// Number of network connections from a rank to each server. More help only where one core of a server cannot
        /// fill the link.
        connections: u32 = "exchange.connections", int(1, 64), default "1";
        /// `true`: a rank sends each block as soon as the buckets that it has part of are averaged, while backward goes
        /// on, and of a gradient that is not finite only the blocks concerned are skipped. It cannot go with
        /// `train.overlap = 1`, `pace.step_seconds`, `local.algorithm` or `compute.precision = "fp16"`, nor with the
        /// optimizers `lars` and `larc`, which need the whole gradient first.
        per_bucket: bool = "exchange.per_bucket", Bool, default "false";
        /// How the ranks of a group average a gradient. `all-reduce`: every rank has the mean of all of it. `scatter`:
        /// each rank has the mean of the part that it exchanges, for about half of the traffic and of the time; on the
        /// others a gradient means nothing, so nobody may read or clip it. `scatter` is for [scripts](pytorch.md), and
        /// cannot go with `exchange.per_bucket`, `local.algorithm` or the optimizers `lars` and `larc`.
        reduce: Reduce = "exchange.reduce", Choice(&["all-reduce", "scatter"]), default "\"all-reduce\"";
    }
}

/// How the ranks of a group average a gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// Every rank has all of the mean.
    All,
    /// A rank has the mean of the part that it exchanges.
    Scatter,
}

impl Typed for Reduce {
    fn typed(value: &Value) -> Option<Self> {
        match String::typed(value)?.as_str() {
            "all-reduce" => Some(Self::All),
            "scatter" => Some(Self::Scatter),
            _ => None,
        }
    }
}

/// The section.
pub(super) fn section() -> Section {
    let forms = [
        chooser::<Compression>(
            "exchange.up",
            "\"none\"",
            (
                "Form in which gradients travel to the servers; what a form leaves out is added to the next gradient (error feedback).",
                " [Compression](compression.md) describes them.",
            ),
            &[],
        ),
        chooser::<Compression>(
            "exchange.down",
            "\"none\"",
            (
                "Form in which fresh parameters travel to the groups: with `none` the parameters themselves, with the others their differences to what the group has.",
                " [Compression](compression.md) describes them.",
            ),
            &[],
        ),
    ];
    Section {
        name: "exchange",
        about: "Says how gradients travel to the servers and fresh parameters come back. [Performance](performance.md#settings-that-mattered) says which sizes mattered, [compression](compression.md) what the forms with fewer bytes keep.",
        example: r#"[exchange]
bucket_bytes = 4194304
up = "int8"
down = "bf16"
"#,
        keys: [Exchange::KEYS, &forms, &fields::<Compression>()].concat(),
    }
}
