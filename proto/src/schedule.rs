//! Schedules: for the wire and from it.

use tradewind_common::schedule::{Decay, Scaling, Schedule, Unit};

use crate::malformed::{Malformed, malformed, required};
use crate::v1;

impl From<&Schedule> for v1::Schedule {
    fn from(schedule: &Schedule) -> Self {
        let (unit, end_updates) = match schedule.unit {
            Unit::Samples => (v1::ScheduleUnit::Samples, 0),
            Unit::Updates { end } => (v1::ScheduleUnit::Updates, end),
        };
        let (scaling, reference_batch) = match schedule.scaling {
            Scaling::None => (v1::RateScaling::None, 0),
            Scaling::Linear { reference } => (v1::RateScaling::Linear, reference),
            Scaling::Sqrt { reference } => (v1::RateScaling::Sqrt, reference),
        };
        let decay = match &schedule.decay {
            Decay::Constant => v1::schedule::Decay::Constant(true),
            Decay::Cosine { floor } => v1::schedule::Decay::CosineFloor(*floor),
            Decay::Step { milestones, gamma } => v1::schedule::Decay::Step(v1::StepDecay {
                milestones: milestones.clone(),
                gamma: *gamma,
            }),
            Decay::Polynomial { power, floor } => {
                v1::schedule::Decay::Polynomial(v1::PolynomialDecay {
                    power: *power,
                    floor: *floor,
                })
            }
        };
        Self {
            learning_rate: schedule.learning_rate,
            warmup: schedule.warmup,
            decay: Some(decay),
            unit: unit.into(),
            end_updates,
            scaling: scaling.into(),
            reference_batch,
        }
    }
}

impl TryFrom<v1::Schedule> for Schedule {
    type Error = Malformed;
    fn try_from(wire: v1::Schedule) -> Result<Self, Malformed> {
        let reference = wire.reference_batch;
        let scaling = match v1::RateScaling::try_from(wire.scaling) {
            Ok(v1::RateScaling::None) => Scaling::None,
            Ok(v1::RateScaling::Linear) => Scaling::Linear { reference },
            Ok(v1::RateScaling::Sqrt) => Scaling::Sqrt { reference },
            Err(_) => return Err(unknown("schedule.scaling", wire.scaling)),
        };
        let unit = match v1::ScheduleUnit::try_from(wire.unit) {
            Ok(v1::ScheduleUnit::Samples) => Unit::Samples,
            Ok(v1::ScheduleUnit::Updates) => Unit::Updates {
                end: wire.end_updates,
            },
            Err(_) => return Err(unknown("schedule.unit", wire.unit)),
        };
        Ok(Self {
            learning_rate: wire.learning_rate,
            unit,
            warmup: wire.warmup,
            decay: match required("schedule.decay", wire.decay)? {
                v1::schedule::Decay::Constant(_) => Decay::Constant,
                v1::schedule::Decay::CosineFloor(floor) => Decay::Cosine { floor },
                v1::schedule::Decay::Step(v1::StepDecay { milestones, gamma }) => {
                    Decay::Step { milestones, gamma }
                }
                v1::schedule::Decay::Polynomial(v1::PolynomialDecay { power, floor }) => {
                    Decay::Polynomial { power, floor }
                }
            },
            scaling,
        })
    }
}

fn unknown(field: &'static str, given: i32) -> Malformed {
    malformed(field, format!("{given} is none that is known"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_travels_comes_back() {
        let decays = [
            Decay::Constant,
            Decay::Cosine { floor: 0.25 },
            Decay::Step {
                milestones: vec![3, 9],
                gamma: 0.5,
            },
            Decay::Polynomial {
                power: 2.0,
                floor: 0.125,
            },
        ];
        let units = [Unit::Samples, Unit::Updates { end: 9 }];
        let reference = 64;
        let scalings = [
            Scaling::None,
            Scaling::Linear { reference },
            Scaling::Sqrt { reference },
        ];
        for decay in decays {
            for unit in units {
                for scaling in scalings {
                    let schedule = Schedule {
                        learning_rate: 0.5,
                        unit,
                        warmup: 3,
                        decay: decay.clone(),
                        scaling,
                    };
                    let wire = v1::Schedule::from(&schedule);
                    assert_eq!(Schedule::try_from(wire).unwrap(), schedule);
                }
            }
        }
    }

    #[test]
    fn what_is_not_known_is_named() {
        let check = |change: fn(&mut v1::Schedule), field| {
            let mut wire = v1::Schedule::from(&Schedule::constant(1.0));
            change(&mut wire);
            assert_eq!(Schedule::try_from(wire).unwrap_err().field, field);
        };
        check(|s| s.unit = 7, "schedule.unit");
        check(|s| s.scaling = -1, "schedule.scaling");
        check(|s| s.decay = None, "schedule.decay");
    }
}
