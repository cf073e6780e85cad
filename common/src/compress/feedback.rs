//! What a sender left out, and its sum with what it sends next.

use std::ops::Range;

/// Limit of the sum of a value and its residual, ± 2¹²⁷. Rounded to bf16, or multiplied by 128/127,
/// it is still finite.
pub const SUM_MAX: f32 = f32::from_bits(0x7F00_0000);

/// The residuals of a sender: one f32 for every value of the flat vector, 0 at first. They take
/// memory, 4 bytes a value, from the first call of [`Feedback::block`].
#[derive(Clone, Debug, Default)]
pub struct Feedback {
    elements: usize,
    residuals: Vec<f32>,
}

impl Feedback {
    /// For a flat vector of so many values.
    pub fn new(elements: usize) -> Self {
        Self {
            elements,
            residuals: Vec::new(),
        }
    }

    /// The residuals of the block that has this range of the flat vector.
    ///
    /// # Panics
    ///
    /// When the range reaches past the end of the flat vector.
    pub fn block(&mut self, elements: Range<usize>) -> &mut [f32] {
        if self.residuals.is_empty() {
            self.residuals = vec![0.0; self.elements];
        }
        &mut self.residuals[elements]
    }
}

/// Adds values to residuals, within the limit.
pub(super) fn add(residual: &mut [f32], values: &[f32]) {
    for (sum, value) in residual.iter_mut().zip(values) {
        *sum = (*sum + value).clamp(-SUM_MAX, SUM_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn residuals_are_made_at_first_use_and_kept_by_range() {
        let mut feedback = Feedback::new(10);
        assert_eq!(feedback.residuals.capacity(), 0);
        feedback.block(4..7).copy_from_slice(&[1.0, 2.0, 3.0]);
        assert_eq!(feedback.block(0..10)[3..8], [0.0, 1.0, 2.0, 3.0, 0.0]);
        assert_eq!(feedback.residuals.len(), 10);
    }

    #[test]
    fn a_sum_that_overflows_is_the_limit() {
        let mut sums = [f32::MAX, f32::MIN, 1.0, -0.0, SUM_MAX];
        add(&mut sums, &[f32::MAX, f32::MIN, 2.0, -0.0, -1.0]);
        assert_eq!(sums, [SUM_MAX, -SUM_MAX, 3.0, 0.0, SUM_MAX]);
        assert_eq!(SUM_MAX, 2f32.powi(127));
    }
}
