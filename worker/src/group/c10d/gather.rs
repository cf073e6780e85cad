//! Slices packed, gathered, unpacked. Not an all-reduce of vectors that are zero elsewhere: that
//! would turn −0.0 into 0.0. The buffers are made once.

use std::ops::Range;

use tch::{Device, Kind, Tensor};
use tradewind_common::BlockId;
use tradewind_common::ids::Rank;
use tradewind_common::layout::{Layout, Memory};

use super::broken;
use crate::c10d::{C10dError, ProcessGroup, values_mut};
use crate::flat::{Flat, FlatError};
use crate::group::GroupError;
use crate::stream::copy_each;

/// What a gather needs, for one group.
#[derive(Debug)]
pub(super) struct Gather {
    rank: usize,
    /// Length of the vector in memory.
    memory: usize,
    /// Where each rank's slice is there.
    slices: Vec<Vec<Range<usize>>>,
    /// Room for the longest slice.
    own: Tensor,
    /// Room for the longest slice from every rank.
    all: Tensor,
    /// On a GPU, the vector's views and their places, made when they are needed first.
    views: Option<Views>,
}

/// Where slices are in the vector, and where in what is sent and received. Copied all at once, in
/// few launches.
#[derive(Debug)]
struct Views {
    /// The address of the vector.
    vector: usize,
    own: [Vec<Tensor>; 2],
    others: [Vec<Tensor>; 2],
}

impl Gather {
    pub(super) fn new(
        layout: &Layout,
        rank: Rank,
        size: u32,
        device: Device,
    ) -> Result<Self, GroupError> {
        let memory = Memory::of(layout);
        let slices = layout.slices(size).into_iter();
        let slices = slices.map(|slice| memory_of(layout, &memory, &slice));
        let slices: Vec<Vec<_>> = slices.collect();
        let length = |slice: &Vec<Range<usize>>| slice.iter().map(Range::len).sum();
        let longest: usize = slices.iter().map(length).max().unwrap_or(0);
        let room = |length: usize| {
            let room = Tensor::f_zeros([length as i64], (Kind::Float, device));
            room.map_err(FlatError::Torch)
        };
        Ok(Self {
            rank: rank.0 as usize,
            memory: memory.len(),
            slices,
            own: room(longest)?,
            all: room(longest * size as usize)?,
            views: None,
        })
    }

    pub(super) fn run(&mut self, group: &ProcessGroup, flat: &mut Flat) -> Result<(), GroupError> {
        let (got, want) = (flat.storage().numel(), self.memory);
        if got != want {
            return Err(GroupError::Length { got, want });
        }
        if self.own.numel() == 0 {
            return Ok(());
        }
        match flat.device() {
            Device::Cpu => self.in_main_memory(group, flat),
            _ => self.by_views(group, flat),
        }
    }

    fn in_main_memory(&mut self, group: &ProcessGroup, flat: &mut Flat) -> Result<(), GroupError> {
        const PLAIN: &str = "made in main memory and not empty";
        // SAFETY: `own` and `all` are this gather's alone, which is borrowed exclusively. Views of them are its own, too,
        // and nothing uses those here; a collective has ended when it returns.
        let own = unsafe { values_mut(&mut self.own) }.expect(PLAIN);
        let mut rest = &mut *own;
        for range in &self.slices[self.rank] {
            let (place, after) = rest.split_at_mut(range.len());
            flat.get(range.start, place);
            rest = after;
        }
        // SAFETY: as of `own`.
        let all = unsafe { values_mut(&mut self.all) }.expect(PLAIN);
        group.all_gather(all, own).map_err(broken)?;
        let (all, length) = (&*all, own.len());
        for (rank, part) in all.chunks_exact(length).enumerate() {
            if rank == self.rank {
                continue;
            }
            let mut rest = part;
            for range in &self.slices[rank] {
                let (fresh, after) = rest.split_at(range.len());
                flat.put(range.start, fresh);
                rest = after;
            }
        }
        Ok(())
    }

    /// On any device; on return its current stream waits for the end.
    pub(super) fn by_views(
        &mut self,
        group: &ProcessGroup,
        flat: &mut Flat,
    ) -> Result<(), GroupError> {
        let vector = flat.storage().data_ptr() as usize;
        let views = match self.views.take() {
            Some(views) if views.vector == vector => views,
            _ => self.views_of(flat)?,
        };
        let failed = |error: C10dError| GroupError::Backward(error.to_string());
        let [own, packed] = &views.own;
        copy_each(packed, own).map_err(failed)?;
        let gathered = group.all_gather_tensor(&mut self.all, &self.own);
        gathered.map_err(broken)?;
        let [others, received] = &views.others;
        copy_each(others, received).map_err(failed)?;
        self.views = Some(views);
        Ok(())
    }

    fn views_of(&self, flat: &Flat) -> Result<Views, FlatError> {
        let of_rank = |rank: usize, room: &Tensor, mut at: i64| {
            let blocks = flat.ranges(&self.slices[rank])?;
            let mut place = |block: &Tensor| {
                let length = block.numel() as i64;
                at += length;
                Ok(room.f_narrow(0, at - length, length)?)
            };
            let places = blocks.iter().map(&mut place);
            let places = places.collect::<Result<Vec<_>, FlatError>>()?;
            Ok::<_, FlatError>([blocks, places])
        };
        let longest = self.own.numel() as i64;
        let mut others = [Vec::new(), Vec::new()];
        for rank in (0..self.slices.len()).filter(|rank| *rank != self.rank) {
            let [blocks, places] = of_rank(rank, &self.all, rank as i64 * longest)?;
            others[0].extend(blocks);
            others[1].extend(places);
        }
        Ok(Views {
            vector: flat.storage().data_ptr() as usize,
            own: of_rank(self.rank, &self.own, 0)?,
            others,
        })
    }
}

/// Where the blocks of a slice are in memory; neighbours are one.
fn memory_of(layout: &Layout, memory: &Memory, slice: &[BlockId]) -> Vec<Range<usize>> {
    let runs = layout.runs(slice).into_iter();
    let stretches = runs.flat_map(|run| memory.stretches(&run).collect::<Vec<_>>());
    stretches.map(|stretch| stretch.memory).collect()
}

#[cfg(test)]
mod tests {
    use tradewind_common::layout::{TensorKind, TensorSpec};

    use super::*;

    /// A 64th of a model of 302 MiB, of its buckets and of its blocks.
    #[test]
    fn a_large_group_has_room_for_hardly_more_than_the_model() {
        let specs = (0..302).map(|index| TensorSpec {
            name: index.to_string(),
            shape: vec![4096],
            kind: TensorKind::Parameter,
        });
        let layout = Layout::new(&specs.collect::<Vec<_>>(), 4 << 10).unwrap();
        let gather = Gather::new(&layout, Rank(0), 1066, Device::Cpu).unwrap();
        // 1,208 blocks, so 2 for some ranks.
        assert_eq!(gather.own.numel(), 2 * 1024);
        assert_eq!(gather.all.numel(), 1066 * 2 * 1024);
    }
}
