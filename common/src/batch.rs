//! How many samples a rank takes a step: the same all the time, or more and more (Smith, Kindermans,
//! Ying, Le 2018, "Don't Decay the Learning Rate, Increase the Batch Size", section 3).
//!
//! The size of a step follows from where its data begin, not from what has been applied by then: so
//! all ranks, whoever keeps the ledger, and a run that is resumed come to the same one with nobody
//! asked, and a sample is taken in a batch of the same size whoever takes it.

use serde::{Deserialize, Serialize};

/// From some place in the data on, batches have another size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchStep {
    /// Samples before that place, all epochs counted whole.
    pub samples: u64,
    /// Samples per rank and step from there on.
    pub batch: u32,
}

/// Most steps of a ramp.
pub const RAMP_MAX: usize = 64;

/// The sizes of a run's batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batches<'a> {
    /// The first one, more than 0.
    pub first: u32,
    /// The others, in order.
    pub ramp: &'a [BatchStep],
}

/// A ramp that no run can follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RampError {
    /// Too long for a table.
    #[error("has {0} steps, more than {RAMP_MAX}")]
    Long(usize),
    /// Places that are not in order.
    #[error("has a step at {0} samples that is not behind the one before it")]
    Order(u64),
    /// A size that is not the former one some times: chunks of data would leave rests.
    #[error("goes from batches of {from} to {to}, which is not twice as many or another multiple")]
    Multiple {
        /// The former size.
        from: u32,
        /// The size.
        to: u32,
    },
}

impl Batches<'_> {
    /// Samples per rank in a step whose data begin behind so many samples, all epochs counted
    /// whole.
    pub fn at(self, samples: u64) -> u32 {
        let passed = self.ramp.iter().take_while(|step| step.samples <= samples);
        passed.last().map_or(self.first, |step| step.batch)
    }

    /// The last and largest one.
    pub fn largest(self) -> u32 {
        self.ramp.last().map_or(self.first, |step| step.batch)
    }

    /// Whether a run can follow it.
    ///
    /// # Errors
    /// Names the first step that cannot be made.
    pub fn check(self) -> Result<(), RampError> {
        if self.ramp.len() > RAMP_MAX {
            return Err(RampError::Long(self.ramp.len()));
        }
        let (mut at, mut from) = (0, self.first);
        for step in self.ramp {
            if step.samples <= at {
                return Err(RampError::Order(step.samples));
            }
            let to = step.batch;
            if to <= from || !to.is_multiple_of(from) {
                return Err(RampError::Multiple { from, to });
            }
            (at, from) = (step.samples, to);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAMP: [BatchStep; 2] = [
        BatchStep {
            samples: 10,
            batch: 4,
        },
        BatchStep {
            samples: 20,
            batch: 12,
        },
    ];

    #[test]
    fn sizes_follow_from_where_the_data_begin() {
        let batches = Batches {
            first: 2,
            ramp: &RAMP,
        };
        let at = [0, 9, 10, 19, 20, 1 << 40].map(|samples| batches.at(samples));
        assert_eq!(at, [2, 2, 4, 4, 12, 12]);
        assert_eq!(batches.largest(), 12);
        let constant = Batches {
            first: 2,
            ramp: &[],
        };
        assert_eq!((constant.at(1 << 40), constant.largest()), (2, 2));
    }

    #[test]
    fn refused() {
        let check = |first, ramp: &[(u64, u32)], want: Result<(), &str>| {
            let step = |(samples, batch): &(u64, u32)| BatchStep {
                samples: *samples,
                batch: *batch,
            };
            let ramp: Vec<_> = ramp.iter().map(step).collect();
            let got = Batches { first, ramp: &ramp }.check();
            let got = got.map_err(|error| error.to_string());
            match (&got, want) {
                (Ok(()), Ok(())) => (),
                (Err(got), Err(want)) => assert!(got.contains(want), "{got}"),
                _ => panic!("{got:?}, not {want:?}"),
            }
        };
        check(2, &[], Ok(()));
        check(2, &[(10, 4), (20, 12)], Ok(()));
        check(2, &[(0, 4)], Err("a step at 0 samples that is not behind"));
        check(2, &[(10, 4), (10, 8)], Err("a step at 10 samples"));
        check(4, &[(10, 6)], Err("from batches of 4 to 6"));
        check(2, &[(10, 4), (20, 4)], Err("from batches of 4 to 4"));
        check(4, &[(10, 2)], Err("from batches of 4 to 2"));
        let long: Vec<_> = (1..=65).map(|n| (n, 2)).collect();
        check(1, &long, Err("has 65 steps, more than 64"));
    }
}
