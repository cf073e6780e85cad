//! Floating-point buffers, such as BatchNorm's statistics: the group pushes what each step has made
//! of them, averaged over its ranks, and shards move theirs towards that.
//!
//! Every step is in the model from then on. Without overlap it is in the values that its exchange
//! brings. With overlap those come from the exchange before and do not know of it: the group goes on
//! with what it has pushed.

use std::ops::Range;

use tch::{Kind, Tensor};
use tradewind_common::finite::all_finite;
use tradewind_common::{Layout, TensorKind};

use crate::c10d;
use crate::flat::Flat;
use crate::group::Group;
use crate::host::HostError;
use crate::stream::{PageLocked, copy, copy_each, torch};

/// The buffers of the flat vector, and what a step has made of them. All of it is where the vector
/// is, one after the other.
pub struct Buffers {
    /// Their range of the flat vector, and views of it.
    elements: Range<usize>,
    flat: Vec<Tensor>,
    /// Taken, or kept.
    made: Packed,
    /// The same in main memory, where the vector is elsewhere.
    copied: Option<PageLocked>,
}

/// A vector for all buffers, and a view for each stretch of them.
struct Packed {
    all: Tensor,
    each: Vec<Tensor>,
}

impl Buffers {
    /// The buffers of `layout`; often there are none. Where they are `staged`, they are copied to
    /// main memory before they are read.
    pub fn new(layout: &Layout, flat: &Flat, staged: bool) -> Result<Self, HostError> {
        let elements = layout.of_kind(TensorKind::Buffer);
        let length = elements.len();
        let copied = || PageLocked::new(length, Kind::Float, flat.device());
        let views = flat.views(&elements)?;
        Ok(Self {
            made: Packed::new(length, &views, flat)?,
            flat: views,
            copied: (staged && length > 0).then(copied).transpose()?,
            elements,
        })
    }

    /// Notes what they are, for [`Self::put_back`], until [`Self::take`].
    pub fn keep(&mut self) -> Result<(), HostError> {
        Ok(copy_each(&self.made.each, &self.flat)?)
    }

    /// Makes them what they were when they were [kept](Self::keep): the step since is left out.
    pub fn put_back(&mut self) -> Result<(), HostError> {
        Ok(copy_each(&self.flat, &self.made.each)?)
    }

    /// Takes what the step has made of the buffers, averaged over the group. On a device this is only
    /// enqueued; it is here when what the current stream has been told by now is done.
    ///
    /// # Safety
    /// Nobody reads what was taken before that is done: [`GradientPath::check`](super::GradientPath::check) and
    /// [`BucketPath::check`](super::BucketPath::check) wait for it. In main memory it is when this returns.
    pub unsafe fn take(&mut self, group: &dyn Group) -> Result<(), HostError> {
        if self.elements.is_empty() {
            return Ok(());
        }
        self.keep()?;
        let all = &mut self.made.all;
        group.all_reduce_mean(all)?;
        if let Some(copied) = &mut self.copied {
            // SAFETY: nobody reads it before the copy is done: the caller's.
            copy(unsafe { copied.tensor() }, all)?;
        }
        Ok(())
    }

    /// What was [taken](Self::take) last is on its way and not in the values that were pulled: the
    /// next step begins with it.
    pub fn go_on_with_own(&mut self) -> Result<(), HostError> {
        self.put_back()
    }

    /// Whether no value is NaN or infinite.
    pub fn finite(&self) -> bool {
        all_finite(self.all())
    }

    /// What was taken of a range of the flat vector.
    ///
    /// # Panics
    /// If it is not of buffers.
    pub fn values(&self, elements: &Range<usize>) -> &[f32] {
        let first = self.elements.start;
        &self.all()[elements.start - first..elements.end - first]
    }

    /// All that was taken.
    pub fn all(&self) -> &[f32] {
        match &self.copied {
            _ if self.elements.is_empty() => &[],
            Some(copied) => copied.f32(),
            None => {
                // SAFETY: nobody else has this tensor, or a view of it; here it is written through exclusive borrows.
                let all = unsafe { c10d::values(&self.made.all) };
                all.expect("in main memory, f32 and not empty")
            }
        }
    }
}

impl Packed {
    /// For buffers of so many values, with these views.
    fn new(length: usize, views: &[Tensor], flat: &Flat) -> Result<Self, HostError> {
        let failed = torch("making room for buffers");
        let all =
            Tensor::f_zeros([length as i64], (Kind::Float, flat.device())).map_err(&failed)?;
        let mut start = 0;
        let mut each = Vec::with_capacity(views.len());
        for view in views {
            let length = view.numel() as i64;
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
        Layout::new(&specs, 64).unwrap()
    }

    /// What a model's statistic and the server's come to in eight steps, when every step adds a power
    /// of two of its own, step 3 is skipped, and the server goes half of the way to what is pushed.
    /// The model's as each step found it.
    fn run(overlap: bool, staged: bool) -> (Vec<f32>, f32) {
        let (layout, tensors) = (layout(), {
            let tensor = || tch::Tensor::zeros([2], (tch::Kind::Float, tch::Device::Cpu));
            let weight = tensor().set_requires_grad(true);
            vec![("weight".to_owned(), weight), ("mean".to_owned(), tensor())]
        });
        let mut flat = Flat::new(&layout, &tensors, tch::Device::Cpu).unwrap();
        let group = Solo::new(&layout, &layout.buckets(64), &tensors).unwrap();
        let elements = layout.of_kind(TensorKind::Buffer);
        let range = flat.memory().stretches(&elements).next().unwrap().memory;
        let (mut server, mut answered) = (7.0, 7.0);
        flat.put(0, &vec![7.0; flat.memory().len()]);
        let mut buffers = Buffers::new(&layout, &flat, staged).unwrap();
        let mut found = Vec::new();
        for step in 0..8 {
            let mut statistic = [0.0; 2];
            flat.get(range.start, &mut statistic);
            found.push(statistic[0]);
            let skip = step == 3;
            let made = 2f32.powi(step);
            statistic.iter_mut().for_each(|x| *x += made);
            if skip {
                statistic[1] = f32::NAN;
            }
            flat.put(range.start, &statistic);
            // SAFETY: all of this is in main memory.
            unsafe { buffers.take(&group) }.unwrap();
            assert_eq!(buffers.finite(), !skip);
            if !skip {
                server += 0.5 * (buffers.values(&elements)[0] - server);
            }
            let before = std::mem::replace(&mut answered, server);
            let pulled = if overlap { before } else { answered };
            flat.put(range.start, &[pulled; 2]);
            if overlap && !skip {
                buffers.go_on_with_own().unwrap();
            }
        }
        (found, server)
    }

    #[test]
    fn a_step_begins_with_all_that_the_group_has_made() {
        for (overlap, staged) in [(false, false), (true, false), (false, true), (true, true)] {
            let (found, got) = run(overlap, staged);
            let (mut server, mut own) = (7.0, 7.0);
            for (step, found) in found.into_iter().enumerate() {
                assert_eq!(found, own, "step {step}");
                let (made, before) = (own + 2f32.powi(step as i32), server);
                let skip = step == 3;
                if !skip {
                    server = (server + made) / 2.0;
                }
                own = match (overlap, skip) {
                    (false, _) => server,
                    (true, false) => made,
                    // What is not finite leaves nothing.
                    (true, true) => before,
                };
            }
            assert_eq!(got, server);
        }
    }
}
