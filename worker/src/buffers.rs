//! Floating-point buffers, such as BatchNorm's statistics: the group pushes how each step has
//! changed them, averaged over its ranks.
//!
//! Every change is pushed once and is in the model from then on. Without overlap the values that a
//! step's exchange brings hold its change. With overlap they come from the exchange before: the
//! change that this step has made is on its way, so it is added to them, and the next change counts
//! from the sum.

use std::ops::Range;

use tch::{Device, Kind, Tensor};
use tradewind_common::finite::all_finite;
use tradewind_common::{Layout, TensorKind};

use crate::c10d;
use crate::group::{Group, GroupError};

/// The buffers of the flat vector as a step found them, and how it changed them.
#[derive(Debug)]
pub struct Buffers {
    ranges: Vec<Range<usize>>,
    before: Vec<Vec<f32>>,
    /// In main memory, like the vector.
    changes: Vec<Tensor>,
}

impl Buffers {
    /// The buffers of `layout`; often there are none.
    pub fn new(layout: &Layout) -> Self {
        let buffers = layout
            .buckets
            .iter()
            .filter(|b| b.kind == TensorKind::Buffer);
        let ranges: Vec<_> = buffers.map(|b| b.elements.clone()).collect();
        let before = ranges.iter().map(|range| vec![0.0; range.len()]).collect();
        let zeros =
            |range: &Range<usize>| Tensor::zeros([range.len() as i64], (Kind::Float, Device::Cpu));
        Self {
            changes: ranges.iter().map(zeros).collect(),
            ranges,
            before,
        }
    }

    /// Takes note of the values that the next step begins with.
    pub fn pulled(&mut self, flat: &[f32]) {
        for (range, before) in self.ranges.iter().zip(&mut self.before) {
            before.copy_from_slice(&flat[range.clone()]);
        }
    }

    /// The same when the changes that were [taken](Self::changed) last are on their way and not in
    /// the values that were pulled: adds them.
    pub fn pulled_without_changes(&mut self, flat: &mut [f32]) {
        for (range, changes) in self.ranges.iter().zip(&self.changes) {
            for (value, change) in flat[range.clone()].iter_mut().zip(plain(changes)) {
                *value += change;
            }
        }
        self.pulled(flat);
    }

    /// Takes the changes that the step has made, averaged over the group. Whether all are finite.
    pub fn changed(&mut self, flat: &[f32], group: &dyn Group) -> Result<bool, GroupError> {
        let mut finite = true;
        for ((range, before), changes) in
            self.ranges.iter().zip(&self.before).zip(&mut self.changes)
        {
            let made = c10d::values_mut(changes).expect(PLAIN);
            for ((change, now), before) in made.iter_mut().zip(&flat[range.clone()]).zip(before) {
                *change = now - before;
            }
            group.all_reduce_mean(changes)?;
            finite &= all_finite(plain(changes));
        }
        Ok(finite)
    }

    /// The changes of a range of the flat vector that lies in one bucket of buffers.
    pub fn changes(&self, elements: &Range<usize>) -> &[f32] {
        let holds =
            |range: &&Range<usize>| range.start <= elements.start && elements.end <= range.end;
        let at = self
            .ranges
            .iter()
            .position(|range| holds(&range))
            .expect("a range of buffers");
        let start = self.ranges[at].start;
        &plain(&self.changes[at])[elements.start - start..elements.end - start]
    }
}

const PLAIN: &str = "made in main memory and not empty";

fn plain(changes: &Tensor) -> &[f32] {
    c10d::values(changes).expect(PLAIN)
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
    fn run(overlap: bool) -> (Vec<f32>, f32) {
        let (layout, tensors) = (layout(), {
            let tensor = || tch::Tensor::zeros([2], (tch::Kind::Float, tch::Device::Cpu));
            let weight = tensor().set_requires_grad(true);
            vec![("weight".to_owned(), weight), ("mean".to_owned(), tensor())]
        });
        let group = Solo::new(&layout, &tensors).unwrap();
        let mut buffers = Buffers::new(&layout);
        let range = layout.tensors[0].elements.clone();
        assert_eq!(layout.tensors[0].spec.kind, TensorKind::Buffer);
        let (mut server, mut answered) = (7.0, 7.0);
        let mut flat = vec![7.0; layout.elements()];
        buffers.pulled(&flat);
        let mut found = Vec::new();
        for step in 0..8 {
            found.push(flat[range.start]);
            let skip = step == 3;
            let statistic = &mut flat[range.clone()];
            let made = 2f32.powi(step);
            statistic.iter_mut().for_each(|x| *x += made);
            if skip {
                statistic[1] = f32::NAN;
            }
            assert_eq!(buffers.changed(&flat, &group).unwrap(), !skip);
            let pushed = if skip {
                0.0
            } else {
                buffers.changes(&range)[0]
            };
            server += pushed + 0.5;
            let before = std::mem::replace(&mut answered, server);
            flat[range.clone()].fill(if overlap { before } else { answered });
            match (overlap, skip) {
                (true, false) => buffers.pulled_without_changes(&mut flat),
                _ => buffers.pulled(&flat),
            }
        }
        (found, server)
    }

    #[test]
    fn every_change_is_pushed_once_and_is_in_the_model_from_then_on() {
        for overlap in [false, true] {
            let (found, server) = run(overlap);
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
