//! Several steps of a group between two exchanges, besides the steps: DiLoCo and elastic averaging, as the
//! worker's `exchanging/local` describes them.
//!
//! What the ranks of a group agree on is the same wherever the model lies. [`Kept`] is for a model in main
//! memory.

use std::ops::Range;

use tradewind_common::finite::all_finite;

use crate::heartbeat::HeartbeatState;
use crate::ranks::{Broken, Ranks};
use crate::step::Step;

/// The steps until the next exchange: as many as the group's first rank has `found`.
///
/// # Errors
/// If the group breaks.
pub fn agreed_steps(found: u32, ranks: &dyn Ranks) -> Result<u32, Broken> {
    let mut steps = [i64::from(found)];
    ranks.broadcast(&mut steps)?;
    Ok(steps[0] as u32)
}

/// Heartbeats tell how fast the group takes its steps, of which `steps` are those since the last exchange.
pub fn tell_speed(steps: &Step, heartbeat: &HeartbeatState) {
    let took = (steps.compute + steps.reduce).as_secs_f64();
    if took > 0.0 {
        heartbeat.set_speed(f64::from(steps.local_steps) / took);
    }
}

/// The ranks agree that what `steps` came to is finite, before the first block leaves (rule 7): without that
/// they are skipped, with all `buckets`. Returns whether it is.
///
/// # Errors
/// If the group breaks.
pub fn agree_to_push(
    steps: &mut Step,
    finite: bool,
    buckets: usize,
    ranks: &dyn Ranks,
) -> Result<bool, Broken> {
    let mut not_finite = [f64::from(u8::from(!finite))];
    ranks.all_reduce_sum(&mut not_finite)?;
    let finite = not_finite[0] == 0.0;
    if !finite {
        let clock = steps.clock;
        tracing::warn!(%clock, "steps came to values that are not finite: the group skips");
        steps.pushed = None;
        steps.buckets_skipped = buckets;
    }
    Ok(finite)
}

/// How far a group's own values x move towards the centre c that its exchange has brought, at the moving rate
/// α; `applied` says whether its contribution is in c.
///
/// With x̃ the centre before the update and c = x̃ + α(x − x̃) after it, x − α(x − x̃) is
/// x − α(x − c)/(1 − α).
pub fn drawn(rate: f64, applied: bool) -> f64 {
    match applied {
        true => rate / (1.0 - rate),
        false => rate,
    }
}

/// The values of a model in main memory that its steps between two exchanges began with, or led to.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Groups push values, not differences.
    elastic: bool,
    /// The parameters that this rank has, in the flat vector.
    parameters: Vec<Range<usize>>,
    /// What the rank pushes beside them.
    buffers: Range<usize>,
    /// Of each of the parameters' ranges. DiLoCo: as pulled; elastic averaging: during an exchange, the group's own.
    values: Vec<Vec<f32>>,
    /// The steps have come to values that are not finite.
    lost: bool,
}

impl Kept {
    /// The group has just pulled the flat vector `values`, of which this rank has the ranges `parameters`, and
    /// `buffers`.
    pub fn new(
        elastic: bool,
        parameters: Vec<Range<usize>>,
        buffers: Range<usize>,
        values: &[f32],
    ) -> Self {
        let kept = parameters.iter().map(|part| values[part.clone()].to_vec());
        Self {
            elastic,
            values: kept.collect(),
            parameters,
            buffers,
            lost: false,
        }
    }

    /// After the steps: what the group exchanges takes the place of its gradient, and the model has what its
    /// exchange has pulled last. Returns whether all that is pushed is finite, buffers too.
    pub fn push(&mut self, values: &mut [f32], gradient: &mut [f32]) -> bool {
        let mut finite = all_finite(&gradient[self.buffers.clone()]);
        for (part, kept) in self.parameters.iter().zip(&mut self.values) {
            let values = &mut values[part.clone()];
            let pushed = &mut gradient[part.clone()];
            if self.elastic {
                pushed.copy_from_slice(values);
                kept.copy_from_slice(values);
            } else {
                for ((pushed, kept), value) in pushed.iter_mut().zip(&*kept).zip(&*values) {
                    *pushed = kept - value;
                }
                values.copy_from_slice(kept);
            }
            finite &= all_finite(pushed);
        }
        finite
    }

    /// What was pushed is not finite on some rank: nothing of it is kept.
    pub fn give_up(&mut self) {
        self.lost = true;
    }

    /// The model has what an exchange has brought; `applied` says whether the group's contribution is in it.
    /// `rate` is that of the servers' updates.
    pub fn pulled(&mut self, values: &mut [f32], rate: f64, applied: bool) {
        let draws = self.elastic && !std::mem::take(&mut self.lost);
        let by = drawn(rate, applied) as f32;
        for (part, kept) in self.parameters.iter().zip(&mut self.values) {
            let values = &mut values[part.clone()];
            if draws {
                for (own, centre) in kept.iter().zip(values) {
                    *centre = own + by * (*centre - own);
                }
            } else {
                kept.copy_from_slice(values);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a flat vector whose first values are the parameters, this rank has these; the rest are buffers.
    fn kept(elastic: bool, parameters: &[Range<usize>], values: &[f32]) -> Kept {
        let end = parameters.iter().map(|part| part.end).max().unwrap_or(0);
        Kept::new(elastic, parameters.to_vec(), end..values.len(), values)
    }

    #[test]
    fn diloco_pushes_how_far_the_steps_went_and_goes_on_with_what_comes() {
        let mut values = [1.0, 2.0, 7.0];
        let mut kept = kept(false, &[0..1, 1..2], &values);
        values = [0.5, 3.0, 9.0];
        let mut gradient = [0.0, 0.0, 9.0];
        assert!(kept.push(&mut values, &mut gradient));
        assert_eq!(gradient, [0.5, -1.0, 9.0]);
        assert_eq!(values, [1.0, 2.0, 9.0], "as pulled, for differences to it");
        values = [4.0, 5.0, 6.0];
        kept.pulled(&mut values, 0.7, true);
        assert_eq!(values, [4.0, 5.0, 6.0]);
        values = [3.0, 5.0, 6.0];
        kept.push(&mut values, &mut gradient);
        assert_eq!(gradient[..2], [1.0, 0.0]);
    }

    #[test]
    fn elastic_values_are_drawn_as_far_as_they_drew_the_centre() {
        let check = |applied: bool, rate: f64, centre: f32, want: f32| {
            let mut values = [8.0, 8.0];
            let mut kept = kept(true, &[0..1, 1..2], &values);
            let mut gradient = [0.0; 2];
            assert!(kept.push(&mut values, &mut gradient));
            assert_eq!(gradient, [8.0; 2]);
            values = [centre; 2];
            kept.pulled(&mut values, rate, applied);
            assert_eq!(values, [want; 2], "{applied}");
        };
        // The centre was 4, and has come a quarter of the way: so does the group.
        check(true, 0.25, 5.0, 7.0);
        check(false, 0.25, 4.0, 7.0);
    }

    #[test]
    fn what_is_not_finite_is_given_up() {
        let mut values = [1.0, 1.0];
        let mut kept = kept(true, &[0..1, 1..2], &values);
        values = [f32::NAN, 2.0];
        assert!(!kept.push(&mut values, &mut [0.0; 2]));
        kept.give_up();
        values = [5.0, 5.0];
        kept.pulled(&mut values, 0.5, false);
        assert_eq!(values, [5.0, 5.0]);
        // From then on as ever.
        kept.push(&mut values, &mut [0.0; 2]);
        values = [3.0, 3.0];
        kept.pulled(&mut values, 0.5, false);
        assert_eq!(values, [4.0, 4.0]);
    }

    #[test]
    fn of_values_that_others_have_nothing_is_read_or_written() {
        let others = f32::NAN;
        let mut values = [others, 2.0, others, 4.0];
        let mut kept = kept(false, &[1..2, 3..4], &values);
        values = [others, 1.0, others, 2.0];
        let mut gradient = [others; 4];
        assert!(kept.push(&mut values, &mut gradient));
        assert_eq!((gradient[1], gradient[3]), (1.0, 2.0));
        assert!(gradient[0].is_nan() && gradient[2].is_nan());
        values = [others, 7.0, others, 8.0];
        kept.pulled(&mut values, 1.0, true);
        values = [others, 7.0, others, f32::INFINITY];
        assert!(!kept.push(&mut values, &mut gradient));
    }
}
