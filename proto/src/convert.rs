//! Wire ↔ common, once, at the edge: inside, types are strict.

use std::iter::repeat_n;
use std::sync::Arc;

use bytes::Bytes;
use tradewind_common::batch::BatchStep;
use tradewind_common::choice::Settings;
use tradewind_common::compress::Compression;
use tradewind_common::data::DataSets;
use tradewind_common::layout::{TensorKind, TensorSpec};
use tradewind_common::loss::Loss;
use tradewind_common::spec::{FaultSpec, Frozen, GROUPS_MAX, RunSpec};
use tradewind_common::{Clock, RunId};

use crate::limits::COUNT_MAX;
pub use crate::malformed::Malformed;
use crate::malformed::{malformed, required};
use crate::refusal::Reason;
use crate::{choice, v1};

#[cfg(target_endian = "big")]
compile_error!("bulk values travel little-endian; a big-endian host needs a swap in convert.rs");

/// The name of a run.
pub fn run_id(name: &str) -> Result<RunId, Malformed> {
    RunId::new(name).map_err(|bad| malformed("run", bad.to_string()))
}

/// A clock that somebody speaks of. Where it counts on, it does not wrap.
pub fn clock(field: &'static str, clock: u64) -> Result<Clock, Malformed> {
    count(field, clock).map(Clock)
}

/// A count of updates, samples or records that somebody speaks of.
pub fn count(field: &'static str, count: u64) -> Result<u64, Malformed> {
    match count <= COUNT_MAX {
        true => Ok(count),
        false => Err(malformed(
            field,
            format!("{count} is above {COUNT_MAX}, which nothing that counts has reached"),
        )),
    }
}

/// Longest host:port: a name of DNS has at most 253 characters.
const ADDRESS_BYTES_MAX: usize = 260;

/// Checks that `address` has the form host:port.
pub fn host_port(field: &'static str, address: &str) -> Result<(), Malformed> {
    let good = address.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    if address.len() > ADDRESS_BYTES_MAX {
        Err(malformed(
            field,
            format!("has more than {ADDRESS_BYTES_MAX} bytes"),
        ))
    } else if good {
        Ok(())
    } else {
        Err(malformed(field, format!("{address:?} is not host:port")))
    }
}

/// Bulk values for a frame; the bytes share their memory.
pub fn bulk(values: Arc<Vec<f32>>) -> Bytes {
    struct Owner(Arc<Vec<f32>>);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            bytemuck::cast_slice(&self.0)
        }
    }
    Bytes::from_owner(Owner(values))
}

/// Bulk values appended to others, from a piece of their bytes. `cut` keeps the beginning of a value
/// that the piece cuts, for the next one.
pub fn append_bulk(mut piece: &[u8], values: &mut Vec<f32>, cut: &mut Vec<u8>) {
    if !cut.is_empty() {
        let missing = piece.len().min(4 - cut.len());
        cut.extend_from_slice(&piece[..missing]);
        piece = &piece[missing..];
        let Ok(whole) = <[u8; 4]>::try_from(&cut[..]) else {
            return;
        };
        values.push(f32::from_le_bytes(whole));
        cut.clear();
    }
    let (whole, rest) = piece.as_chunks::<4>();
    values.extend(whole.iter().map(|bytes| f32::from_le_bytes(*bytes)));
    cut.extend_from_slice(rest);
}

impl From<&TensorSpec> for v1::Tensor {
    fn from(tensor: &TensorSpec) -> Self {
        let kind = match tensor.kind {
            TensorKind::Parameter => v1::TensorKind::Parameter,
            TensorKind::Buffer => v1::TensorKind::Buffer,
        };
        Self {
            name: tensor.name.clone(),
            shape: tensor.shape.clone(),
            kind: kind.into(),
        }
    }
}

impl TryFrom<v1::Tensor> for TensorSpec {
    type Error = Malformed;
    fn try_from(tensor: v1::Tensor) -> Result<Self, Malformed> {
        let kind = match tensor.kind() {
            v1::TensorKind::Parameter => TensorKind::Parameter,
            v1::TensorKind::Buffer => TensorKind::Buffer,
            v1::TensorKind::Unspecified => {
                return Err(malformed(
                    "tensors.kind",
                    format!("{:?} has none", tensor.name),
                ));
            }
        };
        Ok(Self {
            name: tensor.name,
            shape: tensor.shape,
            kind,
        })
    }
}

impl From<BatchStep> for v1::BatchStep {
    fn from(BatchStep { samples, batch }: BatchStep) -> Self {
        Self { samples, batch }
    }
}

impl From<v1::BatchStep> for BatchStep {
    fn from(v1::BatchStep { samples, batch }: v1::BatchStep) -> Self {
        Self { samples, batch }
    }
}

impl From<Frozen> for v1::FrozenTensor {
    fn from(Frozen { name, digest }: Frozen) -> Self {
        Self { name, digest }
    }
}

impl From<v1::FrozenTensor> for Frozen {
    fn from(v1::FrozenTensor { name, digest }: v1::FrozenTensor) -> Self {
        Self { name, digest }
    }
}

/// Group sizes as groups that follow each other and are alike.
fn alike(sizes: &[u32]) -> Vec<v1::GroupsAlike> {
    let alike = sizes.chunk_by(|one, next| one == next);
    let counted = alike.map(|alike| v1::GroupsAlike {
        groups: alike.len() as u32,
        ranks: alike[0],
    });
    counted.collect()
}

/// The way back, within the room for as many groups as there may be.
fn each(alike: Vec<v1::GroupsAlike>) -> Result<Vec<u32>, Malformed> {
    let groups: u64 = alike.iter().map(|alike| u64::from(alike.groups)).sum();
    if groups > GROUPS_MAX as u64 {
        let problem = format!("there are {groups}, of at most {GROUPS_MAX}");
        return Err(malformed("groups", problem));
    }
    let sizes = alike.into_iter();
    let sizes = sizes.flat_map(|alike| repeat_n(alike.ranks, alike.groups as usize));
    Ok(sizes.collect())
}

impl From<&RunSpec> for v1::RunSpec {
    fn from(spec: &RunSpec) -> Self {
        Self {
            seed: spec.seed,
            groups: alike(&spec.group_sizes),
            group_sizes: Vec::new(),
            tensors: spec.tensors.iter().map(Into::into).collect(),
            bucket_bytes: spec.bucket_bytes.map(|size| size as u64),
            block_bytes: spec.block_bytes as u64,
            consistency: Some(choice::to_wire(&spec.consistency)),
            policies: Some(v1::Policies::from(&spec.policies)),
            optimizer: Some(choice::to_wire(&spec.optimizer)),
            decay_exempt: Some(choice::to_wire(&spec.decay_exempt)),
            schedule: Some(v1::Schedule::from(&spec.schedule)),
            samples: spec.samples,
            epoch_samples: spec.epoch_samples,
            batch: spec.batch,
            batch_ramp: spec.batch_ramp.iter().copied().map(Into::into).collect(),
            local: spec.local,
            local_steps: spec.local_steps,
            chunk_samples: spec.chunk_samples,
            sets: choice::settings_to_wire(DataSets::FIELDS, spec.sets.settings()).collect(),
            lease_ms: spec.lease_ms,
            start_grace_ms: spec.start_grace_ms,
            milestone_samples: spec.milestone_samples,
            up: Some(choice::to_wire(&spec.up)),
            down: Some(choice::to_wire(&spec.down)),
            frozen: spec.frozen.iter().cloned().map(Into::into).collect(),
            faults: choice::settings_to_wire(FaultSpec::FIELDS, spec.faults.settings()).collect(),
        }
    }
}

/// More than there is memory for is refused like any that is too large.
fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

impl TryFrom<v1::RunSpec> for RunSpec {
    type Error = Malformed;
    fn try_from(spec: v1::RunSpec) -> Result<Self, Malformed> {
        let consistency = required("consistency", spec.consistency)?;
        let tensors = spec.tensors.into_iter().map(TryInto::try_into);
        Ok(Self {
            seed: spec.seed,
            group_sizes: [each(spec.groups)?, spec.group_sizes].concat(),
            tensors: tensors.collect::<Result<_, _>>()?,
            bucket_bytes: spec.bucket_bytes.map(size),
            block_bytes: size(spec.block_bytes),
            consistency: choice::from_wire("consistency", consistency)?,
            policies: spec.policies.unwrap_or_default().try_into()?,
            decay_exempt: choice::or_default("decay_exempt", spec.decay_exempt)?,
            optimizer: choice::from_wire("optimizer", required("optimizer", spec.optimizer)?)?,
            schedule: required("schedule", spec.schedule)?.try_into()?,
            samples: spec.samples,
            epoch_samples: spec.epoch_samples,
            batch: spec.batch,
            batch_ramp: spec.batch_ramp.into_iter().map(Into::into).collect(),
            local: spec.local,
            local_steps: spec.local_steps.max(1),
            chunk_samples: spec.chunk_samples,
            sets: choice::together("sets", spec.sets)?,
            lease_ms: spec.lease_ms,
            start_grace_ms: spec.start_grace_ms,
            milestone_samples: spec.milestone_samples,
            up: choice::or_default("up", spec.up)?,
            down: choice::or_default("down", spec.down)?,
            frozen: spec.frozen.into_iter().map(Into::into).collect(),
            faults: choice::together("faults", spec.faults)?,
        })
    }
}

impl v1::StatusReply {
    /// What restored shards have lost.
    pub fn lost(&self) -> Loss {
        Loss {
            updates: self.lost_updates,
            samples: self.lost_samples,
        }
    }

    /// Whether the run has stopped because of that.
    pub fn stopped_at_loss(&self) -> bool {
        self.failure_reason == Reason::Lost.word()
    }
}

/// The type in which a form of values travels.
pub fn dtype(compression: Compression) -> v1::DType {
    match compression {
        Compression::None => v1::DType::DtypeF32,
        Compression::Bf16 => v1::DType::DtypeBf16,
        Compression::Int8 => v1::DType::DtypeInt8,
        Compression::TopK { .. } => v1::DType::DtypeTopK,
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    fn wire(sizes: &[u32]) -> v1::RunSpec {
        (&RunSpec::plain(sizes.to_vec(), Vec::new(), 64)).into()
    }

    #[test]
    fn groups_are_said_in_short_and_come_back() {
        let many = wire(&[1; 10_000]);
        assert_eq!(many.groups.len(), 1);
        let longer = many.encoded_len() - wire(&[1]).encoded_len();
        assert!(longer <= 4, "{longer} bytes more for 10,000 groups");

        for sizes in [vec![4, 4, 2, 4], vec![3], vec![1; 10_000], Vec::new()] {
            let back = RunSpec::try_from(wire(&sizes)).unwrap();
            assert_eq!(back.group_sizes, sizes);
        }
    }

    #[test]
    fn groups_that_are_not_counted_come_after_those_that_are() {
        let said = v1::RunSpec {
            group_sizes: vec![4, 2],
            ..wire(&[3, 3])
        };
        assert_eq!(RunSpec::try_from(said).unwrap().group_sizes, [3, 3, 4, 2]);
    }

    #[test]
    fn more_groups_than_there_may_be_take_no_memory() {
        let many = |groups| v1::GroupsAlike { groups, ranks: 1 };
        let spec = v1::RunSpec {
            groups: vec![many(65_536), many(u32::MAX), many(u32::MAX)],
            ..wire(&[1])
        };
        let error = RunSpec::try_from(spec).unwrap_err().to_string();
        assert!(
            error.contains("groups: there are 8590000126, of at most 65536"),
            "{error}"
        );
    }
}
