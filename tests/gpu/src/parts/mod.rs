//! The parts of the check, one file each.

mod agreement;
mod bandwidth;
mod collectives;
mod curves;
mod faults;
pub(crate) mod gradients;
mod run;
mod steps;

use std::time::Duration;

use crate::options::Options;
use crate::report::Teller;

/// A part of the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Which {
    /// [`collectives`].
    Collectives,
    /// [`agreement`].
    Agreement,
    /// [`faults`].
    Faults,
    /// [`steps`].
    Steps,
    /// [`bandwidth`].
    Bandwidth,
    /// [`run`].
    Run,
}

impl Which {
    pub(crate) const ALL: [Self; 6] = [
        Self::Collectives,
        Self::Agreement,
        Self::Faults,
        Self::Steps,
        Self::Bandwidth,
        Self::Run,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Collectives => "collectives",
            Self::Agreement => "agreement",
            Self::Faults => "faults",
            Self::Steps => "steps",
            Self::Bandwidth => "bandwidth",
            Self::Run => "run",
        }
    }

    pub(crate) fn about(self) -> &'static str {
        match self {
            Self::Collectives => "groups of 1, 2 and 4 ranks reduce to the CPU's sums",
            Self::Agreement => {
                "gradients and losses are as near to f64 as the CPU's; two groups are one"
            }
            Self::Faults => "a group goes on when ranks are killed or stopped",
            Self::Steps => "step time beside the plain loop and PyTorch's DDP",
            Self::Bandwidth => "exchanges from the device to servers and back",
            Self::Run => "tradewind run with the shipped ResNet-50, in f32 and bf16",
        }
    }

    /// How long it may take on a GPU, each less than four minutes.
    pub(crate) fn limit(self) -> Duration {
        Duration::from_secs(match self {
            Self::Collectives => 60,
            Self::Agreement => 120,
            Self::Faults => 200,
            Self::Steps => 200,
            Self::Bandwidth => 75,
            Self::Run => 100,
        })
    }

    pub(crate) fn run(self, options: &Options, teller: &Teller) -> anyhow::Result<()> {
        match self {
            Self::Collectives => collectives::run(options, teller),
            Self::Agreement => agreement::run(options, teller),
            Self::Faults => faults::run(options, teller),
            Self::Steps => steps::run(options, teller),
            Self::Bandwidth => bandwidth::run(options, teller),
            Self::Run => run::run(options, teller),
        }
    }
}

/// The middle one of some numbers; not a number if there are none.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[count / 2],
        count => (values[count / 2 - 1] + values[count / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_ends_within_four_minutes() {
        for which in Which::ALL {
            assert!(which.limit() < Duration::from_secs(240), "{which:?}");
        }
    }

    #[test]
    fn medians() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(Vec::new()).is_nan());
    }
}
