//! What is to be run.

use super::matrix::Cell;

/// A cell that is to be run, and the part of the machine that it takes.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    pub cell: &'a Cell,
    pub part: f64,
    /// Whether it is its measure that counts, and not its time.
    pub is_trial: bool,
}

impl Job<'_> {
    /// Expected work, in steps of the pace.
    pub fn work(&self) -> f64 {
        let config = &self.cell.config;
        let steps = config.train.samples as f64
            / f64::from(config.train.batch)
            / f64::from(config.world_size());
        steps * config.step_seconds.max(0.001) * self.part.clamp(0.05, 1.0)
    }
}
