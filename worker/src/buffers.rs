//! Floating-point buffers, such as BatchNorm's statistics: the group pushes how each step has
//! changed them, averaged over its ranks.
//!
//! Every change is pushed once and is in the model from then on. Without overlap the values that a
//! step's exchange brings hold its change. With overlap they come from the exchange before: the
//! change that this step has made is on its way, so it is added to them, and the next change counts
//! from the sum.

use std::ops::Range;

use tch::{Kind, Tensor};
use tradewind_common::finite::all_finite;
use tradewind_common::{Layout, TensorKind};

use crate::c10d;
use crate::flat::Flat;
use crate::group::Group;
use crate::host::HostError;
use crate::stream::{PageLocked, add_each, copy, copy_each, torch};

/// The buffers of the flat vector as a step found them, and how it changed them. All of it is where
/// the vector is, one after the other.
pub struct Buffers {
    /// Ranges of the flat vector, and views of it.
    ranges: Vec<Range<usize>>,
    flat: Vec<Tensor>,
    before: Packed,
    changes: Packed,
    /// The changes in main memory, where the vector is elsewhere.
    copied: Option<PageLocked>,
}

/// A vector for all buffers, and a view for each.
struct Packed {
    all: Tensor,
    each: Vec<Tensor>,
}

impl Buffers {
    /// The buffers of `layout`; often there are none. Where they are `staged`, changes are copied
    /// to main memory before they are read.
    pub fn new(layout: &Layout, flat: &Flat, staged: bool) -> Result<Self, HostError> {
        let buffers = layout
            .buckets
            .iter()
            .filter(|b| b.kind == TensorKind::Buffer);
        let ranges: Vec<_> = buffers.map(|b| b.elements.clone()).collect();
        let length = ranges.iter().map(Range::len).sum();
        let copied = || PageLocked::new(length, Kind::Float, flat.device());
        let mut own = Self {
            flat: flat.ranges(&ranges)?,
            before: Packed::new(&ranges, flat)?,
            changes: Packed::new(&ranges, flat)?,
            copied: (staged && length > 0).then(copied).transpose()?,
            ranges,
        };
        own.pulled()?;
        Ok(own)
    }

    /// Takes note of the values that the next step begins with.
    pub fn pulled(&mut self) -> Result<(), HostError> {
        Ok(copy_each(&self.before.each, &self.flat)?)
    }

    /// The same when the changes that were [taken](Self::take) last are on their way and not in the
    /// values that were pulled: adds them.
    pub fn pulled_without_changes(&mut self) -> Result<(), HostError> {
        add_each(&self.flat, &self.changes.each)?;
        self.pulled()
    }

    /// Takes the changes that the step has made, averaged over the group. On a device this is only
    /// enqueued; the changes are here when what the current stream has been told by now is done.
    pub fn take(&mut self, group: &dyn Group) -> Result<(), HostError> {
        if self.ranges.is_empty() {
            return Ok(());
        }
        let all = &mut self.changes.all;
        copy_each(&self.changes.each, &self.flat)?;
        let subtracted = tch::no_grad(|| all.f_sub_(&self.before.all));
        let _ = subtracted.map_err(torch("taking the changes of buffers"))?;
        group.all_reduce_mean(all)?;
        if let Some(copied) = &mut self.copied {
            copy(copied.tensor(), all)?;
        }
        Ok(())
    }

    /// Whether no change is NaN or infinite.
    pub fn finite(&self) -> bool {
        self.ranges.is_empty() || all_finite(self.all())
    }

    /// The changes of a range of the flat vector that lies in one bucket of buffers.
    ///
    /// # Panics
    /// If it does not.
    pub fn changes(&self, elements: &Range<usize>) -> &[f32] {
        let mut start = 0;
        for range in &self.ranges {
            if range.start <= elements.start && elements.end <= range.end {
                let first = start + elements.start - range.start;
                return &self.all()[first..first + elements.len()];
            }
            start += range.len();
        }
        panic!("{elements:?} are no buffers");
    }

    fn all(&self) -> &[f32] {
        match &self.copied {
            Some(copied) => copied.f32(),
            None => c10d::values(&self.changes.all).expect("in main memory, f32 and not empty"),
        }
    }
}

impl Packed {
    fn new(ranges: &[Range<usize>], flat: &Flat) -> Result<Self, HostError> {
        let length: usize = ranges.iter().map(Range::len).sum();
        let failed = torch("making room for buffers");
        let all =
            Tensor::f_zeros([length as i64], (Kind::Float, flat.device())).map_err(&failed)?;
        let mut start = 0;
        let mut each = Vec::with_capacity(ranges.len());
        for range in ranges {
            let length = range.len() as i64;
            each.push(all.f_narrow(0, start, length).map_err(&failed)?);
            start += length;
        }
        Ok(Self { all, each })
    }
}

#[cfg(test)]
mod tests {
    use tradewind_common::layout::TensorSpec;

    use super::*;
    use crate::group::Solo;

    /// A parameter, and a statistic of two values.
    fn layout() -> Layout {
        let spec = |name: &str, kind| TensorSpec {
            name: name.into(),
            shape: vec![2],
            kind,
        };
        let specs = [
            spec("weight", TensorKind::Parameter),
            spec("mean", TensorKind::Buffer),
        ];
        Layout::new(&specs, 64, 64).unwrap()
    }

    /// What a model's statistic and the server's come to in eight steps, when every step adds a
    /// power of two of its own, step 3 is skipped, and another group adds 0.5 at every clock. The
    /// model's as each step found it.
    fn run(overlap: bool, staged: bool) -> (Vec<f32>, f32) {
        let (layout, tensors) = (layout(), {
            let tensor = || tch::Tensor::zeros([2], (tch::Kind::Float, tch::Device::Cpu));
            let weight = tensor().set_requires_grad(true);
            vec![("weight".to_owned(), weight), ("mean".to_owned(), tensor())]
        });
        let mut flat = Flat::new(&layout, &tensors, tch::Device::Cpu).unwrap();
        let group = Solo::new(&layout, &tensors).unwrap();
        let range = layout.tensors[0].elements.clone();
        assert_eq!(layout.tensors[0].spec.kind, TensorKind::Buffer);
        let (mut server, mut answered) = (7.0, 7.0);
        flat.values_mut().fill(7.0);
        let mut buffers = Buffers::new(&layout, &flat, staged).unwrap();
        let mut found = Vec::new();
        for step in 0..8 {
            found.push(flat.values()[range.start]);
            let skip = step == 3;
            let statistic = &mut flat.values_mut()[range.clone()];
            let made = 2f32.powi(step);
            statistic.iter_mut().for_each(|x| *x += made);
            if skip {
                statistic[1] = f32::NAN;
            }
            buffers.take(&group).unwrap();
            assert_eq!(buffers.finite(), !skip);
            let pushed = if skip {
                0.0
            } else {
                buffers.changes(&range)[0]
            };
            server += pushed + 0.5;
            let before = std::mem::replace(&mut answered, server);
            flat.values_mut()[range.clone()].fill(if overlap { before } else { answered });
            let pulled = match (overlap, skip) {
                (true, false) => buffers.pulled_without_changes(),
                _ => buffers.pulled(),
            };
            pulled.unwrap();
        }
        (found, server)
    }

    #[test]
    fn every_change_is_pushed_once_and_is_in_the_model_from_then_on() {
        for (overlap, staged) in [(false, false), (true, false), (false, true), (true, true)] {
            let (found, server) = run(overlap, staged);
            let mut own = 0.0;
            for (step, found) in found.into_iter().enumerate() {
                // The other group's come one step later with overlap.
                let others = if overlap {
                    step.saturating_sub(1)
                } else {
                    step
                };
                assert_eq!(found, 7.0 + own + 0.5 * others as f32, "step {step}");
                if step != 3 {
                    own += 2f32.powi(step as i32);
                }
            }
            assert_eq!(server, 7.0 + own + 4.0);
        }
    }
}
