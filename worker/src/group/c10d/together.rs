//! Whether the devices of a group's ranks can work together: told when the group meets.

use std::hash::{DefaultHasher, Hash, Hasher};

use tch::Device;
use tradewind_common::ids::Rank;

use crate::c10d::{Nccl, ProcessGroup};
use crate::group::GroupError;

/// What a rank computes on, for others to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Main memory.
    Cpu,
    /// A GPU, as a number that differs between any two.
    Gpu(i64),
}

/// Every rank tells what it computes on; an error names those that cannot be in one group.
pub(super) fn meet(
    group: &mut ProcessGroup,
    rank: Rank,
    size: u32,
    device: Device,
) -> Result<(), GroupError> {
    let own = match device {
        Device::Cuda(device) => {
            let nccl = Nccl::load()?;
            let address = nccl.address(device).map_err(GroupError::Form)?;
            Told::Gpu(number(&host(), &address))
        }
        _ => Told::Cpu,
    };
    let mut slots = vec![0i64; 2 * size as usize];
    if let Told::Gpu(number) = own {
        slots[2 * rank.0 as usize..][..2].copy_from_slice(&[1, number]);
    }
    group.all_reduce_sum(&mut slots).map_err(GroupError::Form)?;
    let told = slots.chunks_exact(2).map(|slot| match slot[0] {
        0 => Told::Cpu,
        _ => Told::Gpu(slot[1]),
    });
    fit(&told.collect::<Vec<_>>())?;
    if let Device::Cuda(device) = device {
        let connected = group.add_nccl(&Nccl::load()?, device);
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
        ranks(&|told| *told == Told::Cpu),
        ranks(&|told| *told != Told::Cpu),
    );
    if !cpu.is_empty() && !gpu.is_empty() {
        return Err(GroupError::Mixed { cpu, gpu });
    }
    for told in told.iter().filter(|told| **told != Told::Cpu) {
        let shared = ranks(&|other| other == told);
        if shared.len() > 1 {
            return Err(GroupError::Shared { ranks: shared });
        }
    }
    Ok(())
}

/// The host as NCCL sees it.
fn host() -> String {
    let named = std::env::var("NCCL_HOSTID").ok();
    let boot = || std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    named.unwrap_or_else(boot)
}

fn number(host: &str, address: &str) -> i64 {
    // Its keys are constant, and all ranks run one program.
    let mut hasher = DefaultHasher::new();
    (host, address).hash(&mut hasher);
    hasher.finish().cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_cannot_be_in_one_group_are_named() {
        use Told::{Cpu, Gpu};
        let check = |told: &[Told], want: &str| {
            let error = fit(told).unwrap_err().to_string();
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
            fit(fits).unwrap();
        }
        assert_ne!(number("a", "0000:01:00.0"), number("b", "0000:01:00.0"));
        assert_ne!(number("a", "0000:01:00.0"), number("a", "0000:02:00.0"));
    }
}
