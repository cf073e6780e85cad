use super::Ask;
use crate::choice;
use crate::choice::{Unfit, fit};
use crate::schedule::Schedule;

choice! {
    /// The centre of elastic averaging (Zhang, Choromanska and LeCun 2015, algorithm 1), which is
    /// pushed the groups' own values; the rate is α, in `0..1` without its ends.
    "elastic" ("the centre of `local.algorithm = \"easgd\"`") is Elastic {}
}

impl Ask for Elastic {
    fn check_rate(&self, schedule: &Schedule) -> Result<(), Unfit> {
        let rate = schedule.learning_rate;
        let good = rate > 0.0 && rate < 1.0 && *schedule == Schedule::constant(rate);
        let problem = "is not more than 0, less than 1 and constant, as elastic averaging needs it";
        fit(good, "optimizer.learning_rate", problem)
    }

    fn takes_values(&self) -> bool {
        true
    }
}
