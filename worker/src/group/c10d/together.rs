//! Whether the ranks of a group can work together, with their devices and their buckets: told when the group
//! meets.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use tch::Device;
use tradewind_common::ids::Rank;
use tradewind_common::layout::Bucket;

use crate::c10d::{Nccl, ProcessGroup};
use crate::group::GroupError;

/// How long NCCL may take at least to connect the ranks: with hundreds of them, or a GPU that many
/// share, it takes longer than a lease. Whose peer is gone meanwhile breaks the group.
const NCCL_CONNECTS: Duration = Duration::from_secs(60);

/// What a rank tells, for others to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Told {
    on: On,
    /// A number that differs where buckets do.
    buckets: i64,
}

/// What a rank computes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    /// Main memory.
    Cpu,
    /// A GPU, as a number that differs between any two.
    Gpu(i64),
}

impl Told {
    /// Of a rank whose model is on `device`.
    pub(super) fn new(device: Device, buckets: &[Bucket]) -> Result<Self, GroupError> {
        let on = match device {
            Device::Cuda(device) => {
                let nccl = Nccl::load()?;
                let address = nccl.address(device).map_err(GroupError::Form)?;
                On::Gpu(number(&(host(), address)))
            }
            _ => On::Cpu,
        };
        let ends: Vec<_> = buckets.iter().map(|bucket| bucket.elements.end).collect();
        Ok(Self {
            on,
            buckets: number(&ends),
        })
    }
}

/// Every rank tells its own; an error names those that cannot be in one group.
pub(super) fn meet(
    group: &mut ProcessGroup,
    rank: Rank,
    size: u32,
    device: Device,
    own: Told,
    timeout: Duration,
) -> Result<(), GroupError> {
    let (gpu, address) = match own.on {
        On::Cpu => (0, 0),
        On::Gpu(address) => (1, address),
    };
    let mut slots = vec![0i64; 3 * size as usize];
    slots[3 * rank.0 as usize..][..3].copy_from_slice(&[gpu, address, own.buckets]);
    group.all_reduce_sum(&mut slots).map_err(GroupError::Form)?;
    let told = slots.chunks_exact(3).map(|slot| Told {
        on: match slot[0] {
            0 => On::Cpu,
            _ => On::Gpu(slot[1]),
        },
        buckets: slot[2],
    });
    fit(&told.collect::<Vec<_>>())?;
    if let Device::Cuda(device) = device {
        let connected = group.add_nccl(&Nccl::load()?, device, timeout.max(NCCL_CONNECTS));
        connected.map_err(GroupError::Form)?;
    }
    Ok(())
}

fn fit(told: &[Told]) -> Result<(), GroupError> {
    let ranks = |which: &dyn Fn(&Told) -> bool| -> Vec<u32> {
        let of = (0..).zip(told).filter(|(_, told)| which(told));
        of.map(|(rank, _)| rank).collect()
    };
    let (cpu, gpu) = (
        ranks(&|told| told.on == On::Cpu),
        ranks(&|told| told.on != On::Cpu),
    );
    if !cpu.is_empty() && !gpu.is_empty() {
        return Err(GroupError::Mixed { cpu, gpu });
    }
    for told in told.iter().filter(|told| told.on != On::Cpu) {
        let shared = ranks(&|other| other.on == told.on);
        if shared.len() > 1 {
            return Err(GroupError::Shared { ranks: shared });
        }
    }
    let others = ranks(&|other| other.buckets != told[0].buckets);
    if !others.is_empty() {
        return Err(GroupError::Buckets { ranks: others });
    }
    Ok(())
}

/// The host as NCCL sees it.
fn host() -> String {
    let named = std::env::var("NCCL_HOSTID").ok();
    let boot = || std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    named.unwrap_or_else(boot)
}

fn number(of: &impl Hash) -> i64 {
    // Its keys are constant, and all ranks run one program.
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish().cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_cannot_be_in_one_group_are_named() {
        use On::{Cpu, Gpu};
        let told = |on: &[On]| {
            let told = on.iter().map(|on| Told {
                on: *on,
                buckets: 7,
            });
            told.collect::<Vec<_>>()
        };
        let check = |on: &[On], want: &str| {
            let error = fit(&told(on)).unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
        };
        check(
            &[Gpu(1), Gpu(2), Gpu(1)],
            "ranks 0, 2 of the group share one GPU",
        );
        check(
            &[Gpu(1), Cpu, Gpu(2), Cpu],
            "ranks 1, 3 of the group compute on CPUs and ranks 0, 2 on GPUs",
        );
        for fits in [&[Cpu, Cpu][..], &[Gpu(1), Gpu(2), Gpu(-1)], &[Gpu(0)]] {
            fit(&told(fits)).unwrap();
        }
        let mut others = told(&[Cpu; 3]);
        others[1].buckets = 8;
        let error = fit(&others).unwrap_err().to_string();
        assert!(
            error.contains("ranks 1 of the group have other buckets"),
            "{error}"
        );
        assert_ne!(
            number(&("a", "0000:01:00.0")),
            number(&("b", "0000:01:00.0"))
        );
        assert_ne!(
            number(&("a", "0000:01:00.0")),
            number(&("a", "0000:02:00.0"))
        );
    }
}
