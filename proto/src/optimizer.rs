//! What is done with a gradient: for the wire and from it.

use tradewind_common::pieces::Norms;
use tradewind_common::spec::{DecayExempt, OptimizerSpec};

use crate::malformed::{Malformed, malformed};
use crate::v1;

impl From<OptimizerSpec> for v1::run_spec::Optimizer {
    fn from(spec: OptimizerSpec) -> Self {
        match spec {
            OptimizerSpec::Sgd {
                momentum,
                nesterov,
                weight_decay,
            } => Self::Sgd(v1::Sgd {
                momentum,
                nesterov,
                weight_decay,
            }),
            OptimizerSpec::Adam {
                beta1,
                beta2,
                epsilon,
                weight_decay,
            } => Self::Adam(v1::Adam {
                beta1,
                beta2,
                epsilon,
                weight_decay,
            }),
            OptimizerSpec::AdamW {
                beta1,
                beta2,
                epsilon,
                weight_decay,
            } => Self::Adamw(v1::AdamW {
                beta1,
                beta2,
                epsilon,
                weight_decay,
            }),
            OptimizerSpec::Lars {
                momentum,
                weight_decay,
                trust,
            } => Self::Lars(v1::Lars {
                momentum,
                weight_decay,
                trust,
            }),
            OptimizerSpec::Larc {
                momentum,
                weight_decay,
                trust,
            } => Self::Larc(v1::Lars {
                momentum,
                weight_decay,
                trust,
            }),
            OptimizerSpec::DelayedNesterov {
                momentum,
                every,
                activation,
            } => Self::DelayedNesterov(v1::DelayedNesterov {
                momentum,
                every,
                activation,
            }),
            OptimizerSpec::Elastic => Self::Elastic(v1::Elastic {}),
        }
    }
}

impl From<v1::run_spec::Optimizer> for OptimizerSpec {
    fn from(wire: v1::run_spec::Optimizer) -> Self {
        use v1::run_spec::Optimizer;
        match wire {
            Optimizer::Sgd(v1::Sgd {
                momentum,
                nesterov,
                weight_decay,
            }) => Self::Sgd {
                momentum,
                nesterov,
                weight_decay,
            },
            Optimizer::Adam(v1::Adam {
                beta1,
                beta2,
                epsilon,
                weight_decay,
            }) => Self::Adam {
                beta1,
                beta2,
                epsilon,
                weight_decay,
            },
            Optimizer::Adamw(v1::AdamW {
                beta1,
                beta2,
                epsilon,
                weight_decay,
            }) => Self::AdamW {
                beta1,
                beta2,
                epsilon,
                weight_decay,
            },
            Optimizer::Lars(v1::Lars {
                momentum,
                weight_decay,
                trust,
            }) => Self::Lars {
                momentum,
                weight_decay,
                trust,
            },
            Optimizer::Larc(v1::Lars {
                momentum,
                weight_decay,
                trust,
            }) => Self::Larc {
                momentum,
                weight_decay,
                trust,
            },
            Optimizer::DelayedNesterov(v1::DelayedNesterov {
                momentum,
                every,
                activation,
            }) => Self::DelayedNesterov {
                momentum,
                every,
                activation,
            },
            Optimizer::Elastic(v1::Elastic {}) => Self::Elastic,
        }
    }
}

impl From<Norms> for v1::Norms {
    fn from(Norms { values, gradient }: Norms) -> Self {
        Self { values, gradient }
    }
}

impl From<v1::Norms> for Norms {
    fn from(v1::Norms { values, gradient }: v1::Norms) -> Self {
        Self { values, gradient }
    }
}

impl From<DecayExempt> for v1::DecayExempt {
    fn from(exempt: DecayExempt) -> Self {
        match exempt {
            DecayExempt::None => Self::None,
            DecayExempt::Vectors => Self::Vectors,
        }
    }
}

pub(crate) fn decay_exempt(wire: i32) -> Result<DecayExempt, Malformed> {
    match v1::DecayExempt::try_from(wire) {
        Ok(v1::DecayExempt::None) => Ok(DecayExempt::None),
        Ok(v1::DecayExempt::Vectors) => Ok(DecayExempt::Vectors),
        Err(_) => Err(malformed(
            "decay_exempt",
            format!("{wire} is none that is known"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_travels_comes_back() {
        let (beta1, beta2, epsilon, weight_decay) = (0.1, 0.2, 0.3, 0.4);
        let optimizers = [
            OptimizerSpec::Sgd {
                momentum: 0.5,
                nesterov: true,
                weight_decay,
            },
            OptimizerSpec::Adam {
                beta1,
                beta2,
                epsilon,
                weight_decay,
            },
            OptimizerSpec::AdamW {
                beta1,
                beta2,
                epsilon,
                weight_decay,
            },
            OptimizerSpec::Lars {
                momentum: 0.5,
                weight_decay,
                trust: 0.01,
            },
            OptimizerSpec::Larc {
                momentum: 0.6,
                weight_decay,
                trust: 0.02,
            },
            OptimizerSpec::DelayedNesterov {
                momentum: 0.7,
                every: 4,
                activation: 0.125,
            },
            OptimizerSpec::Elastic,
        ];
        for spec in optimizers {
            let wire = v1::run_spec::Optimizer::from(spec);
            assert_eq!(OptimizerSpec::from(wire), spec);
        }
        for exempt in [DecayExempt::None, DecayExempt::Vectors] {
            let wire = v1::DecayExempt::from(exempt).into();
            assert_eq!(decay_exempt(wire), Ok(exempt));
        }
        let unknown = decay_exempt(7).unwrap_err();
        assert_eq!(unknown.field, "decay_exempt");
    }
}
