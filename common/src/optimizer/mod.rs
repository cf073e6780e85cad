//! What a shard does with a gradient, as all processes of a run must agree on it: one file an
//! optimizer. The rule of each is in `server/core/src/optimizer/`.

mod adam;
mod adamw;
mod delayed_nesterov;
mod elastic;
pub mod fields;
mod lamb;
mod larc;
mod lars;
mod lion;
mod sgd;

use serde::{Deserialize, Serialize};

pub use adam::Adam;
pub use adamw::AdamW;
pub use delayed_nesterov::DelayedNesterov;
pub use elastic::Elastic;
pub use lamb::Lamb;
pub use larc::Larc;
pub use lars::Lars;
pub use lion::Lion;
pub use sgd::Sgd;

use crate::choice::{Choices, Unfit};
use crate::choices;
use crate::layout::TensorSpec;
use crate::schedule::Schedule;

choices! {
    /// What a shard does with a gradient.
    "optimizer" is OptimizerSpec, of which one may ask Ask {
        Sgd,
        Adam,
        AdamW,
        Lion,
        Lamb,
        Lars,
        Larc,
        DelayedNesterov,
        Elastic,
    }
}

/// What other settings may ask of an optimizer, so that none of them needs to know its name.
pub trait Ask {
    /// What its fields have to do with each other; each is in its range.
    ///
    /// # Errors
    /// Names the field that is wrong.
    fn check(&self) -> Result<(), Unfit> {
        Ok(())
    }

    /// Whether `schedule` gives rates that it can follow.
    ///
    /// # Errors
    /// It does not.
    fn check_rate(&self, _schedule: &Schedule) -> Result<(), Unfit> {
        Ok(())
    }

    /// Whether the step of a tensor follows from the lengths of all of it and of its gradient.
    fn layerwise(&self) -> bool {
        false
    }

    /// Whether each tensor is treated by itself, or each part of one that lies in a block.
    fn by_part(&self) -> bool {
        self.layerwise()
    }

    /// Momentum μ of updates Δ ← μ Δ + what the gradient adds, as long as the rate is the same; `None`
    /// without, and in other forms.
    fn momentum(&self) -> Option<f64> {
        None
    }

    /// L2 penalty λ where what the gradient adds is −η (g + λθ); 0 in other forms.
    fn momentum_decay(&self) -> f64 {
        0.0
    }

    /// Whether it is for the differences that groups have made in several steps, and for nothing else.
    fn takes_pseudo_gradients(&self) -> bool {
        false
    }

    /// Whether it is pushed the groups' own values.
    fn takes_values(&self) -> bool {
        false
    }
}

choices! {
    /// Which tensors weight decay spares.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    "exemption from weight decay" is DecayExempt {
        /// None.
        #[default]
        "none" ("all tensors have it") is None,
        /// Tensors of at most one dimension: biases, and the scales and shifts of normalisations.
        "vectors" ("tensors of at most one dimension do not have it, that is biases and the scales and shifts of normalisations; `lars` and `larc` then do not scale their steps, either") is Vectors,
    }
}

impl DecayExempt {
    /// Whether weight decay applies to a tensor.
    pub fn decays(self, tensor: &TensorSpec) -> bool {
        match self {
            Self::None => true,
            Self::Vectors => tensor.shape.len() > 1,
        }
    }
}

impl OptimizerSpec {
    /// DiLoCo's outer optimizer (Douillard et al. 2023, algorithm 1), where gradients are
    /// pseudo-gradients.
    pub fn outer_nesterov(momentum: f64) -> Self {
        Self::Sgd(Sgd {
            momentum,
            nesterov: true,
            weight_decay: 0.0,
        })
    }

    /// Checks every field against its range and against the others, and that `schedule` gives rates
    /// that it can follow.
    ///
    /// # Errors
    /// Names the first that is wrong.
    pub fn check(&self, schedule: &Schedule) -> Result<(), Unfit> {
        self.in_range()?;
        self.capabilities().check()?;
        self.capabilities().check_rate(schedule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As records have it since the first version.
    #[test]
    fn records_keep_their_form() {
        let adam = OptimizerSpec::Adam(Adam {
            beta1: 0.5,
            beta2: 0.75,
            epsilon: 1.0,
            weight_decay: 0.0,
        });
        let check = |spec: OptimizerSpec, text: &str| {
            assert_eq!(serde_json::to_string(&spec).unwrap(), text);
            assert_eq!(serde_json::from_str::<OptimizerSpec>(text).unwrap(), spec);
        };
        check(
            adam,
            r#"{"Adam":{"beta1":0.5,"beta2":0.75,"epsilon":1.0,"weight_decay":0.0}}"#,
        );
        check(OptimizerSpec::Elastic(Elastic {}), r#""Elastic""#);
        let delayed = DelayedNesterov {
            momentum: 0.5,
            every: 4,
            activation: 0.25,
        };
        check(
            delayed.into(),
            r#"{"DelayedNesterov":{"momentum":0.5,"every":4,"activation":0.25}}"#,
        );
        for (text, wrong) in [
            (r#""Sgdd""#, r#""Sgdd" is no optimizer"#),
            (
                r#"{"Lars":{"momentum":0.5,"trust":1.0}}"#,
                "Lars has other fields than momentum, trust",
            ),
            (
                r#"{"Sgd":{"momentum":0.5,"nesterov":1,"weight_decay":0.0}}"#,
                "a field of Sgd has another type",
            ),
        ] {
            let error = serde_json::from_str::<OptimizerSpec>(text).unwrap_err();
            assert!(error.to_string().starts_with(wrong), "{error}");
        }
    }

    #[test]
    fn a_field_that_cannot_be_is_named() {
        let rate = Schedule::constant(0.1);
        let check = |spec: OptimizerSpec, wrong: &str| {
            assert_eq!(spec.check(&rate).unwrap_err().to_string(), wrong);
        };
        let sgd = Sgd {
            momentum: 0.9,
            nesterov: false,
            weight_decay: 0.0,
        };
        assert_eq!(OptimizerSpec::Sgd(sgd).check(&rate), Ok(()));
        check(
            Sgd {
                momentum: 1.0,
                ..sgd
            }
            .into(),
            "optimizer.momentum is 1, which is not 0 to 0.999999",
        );
        check(
            Sgd {
                weight_decay: f64::NAN,
                ..sgd
            }
            .into(),
            "optimizer.weight_decay is NaN, which is not 0 to 1000",
        );
        let nesterov = Sgd {
            momentum: 0.0,
            nesterov: true,
            ..sgd
        };
        check(
            nesterov.into(),
            "optimizer.nesterov needs optimizer.momentum",
        );
        let delayed = DelayedNesterov {
            momentum: 0.9,
            every: 4,
            activation: 0.3,
        };
        check(
            delayed.into(),
            "optimizer.activation is more than 1 / optimizer.momentum_updates",
        );
        let elastic = OptimizerSpec::Elastic(Elastic {});
        assert!(elastic.check(&Schedule::constant(1.5)).is_err());
        assert_eq!(elastic.check(&rate), Ok(()));
    }
}
