//! Many seeds, one after the other; a failure prints the seed that replays it.

use std::fmt;
use std::ops::Range;

use super::{Report, Scenario, World};
use crate::checker::Violation;

/// The variable that replays one seed.
pub const SEED_VARIABLE: &str = "TRADEWIND_SEED";

/// The variable that has tests try all their seeds, if it is `all`.
pub const SEEDS_VARIABLE: &str = "TRADEWIND_SEEDS";

/// The variable that has worlds tell on standard error what happens in them.
pub const TRACE_VARIABLE: &str = "TRADEWIND_TRACE";

/// The variable that names a file for the history of a world whose values are vector clocks;
/// `tradewind-history FILE` judges it.
pub const HISTORY_VARIABLE: &str = "TRADEWIND_HISTORY";

/// A run that broke a rule.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Replays it.
    pub seed: u64,
    /// When it was found, in virtual microseconds.
    pub at_us: u64,
    /// What was found.
    pub violation: Violation,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seed, at_us) = (self.seed, self.at_us);
        let test = std::thread::current();
        let test = test.name().unwrap_or_default();
        write!(f, "seed {seed}: after {at_us} µs: {}; ", self.violation)?;
        let package = "cargo test -p tradewind-sim";
        write!(f, "replay with {SEED_VARIABLE}={seed} {package} {test}")
    }
}

/// How many of `all` seeds a test tries: a fifth, unless the environment asks for all of them.
///
/// # Panics
/// If the environment asks for something else.
pub fn tried(all: u64) -> u64 {
    match std::env::var(SEEDS_VARIABLE).as_deref() {
        Err(_) => all / 5,
        Ok("all") => all,
        Ok(other) => panic!("{SEEDS_VARIABLE}={other}: it can be all"),
    }
}

/// The one seed to replay, if the environment names it; otherwise all of `seeds`.
fn chosen(seeds: Range<u64>) -> Range<u64> {
    let text = std::env::var(SEED_VARIABLE).ok();
    let seed = text.map(|s| s.parse().unwrap_or_else(|_| panic!("{SEED_VARIABLE}={s}")));
    seed.map_or(seeds, |seed: u64| seed..seed + 1)
}

/// Runs the scenario of every seed and hands its report on.
///
/// # Panics
/// After all runs, naming the seed of each that breaks a rule.
pub fn all_hold(
    seeds: Range<u64>,
    scenario: impl Fn(u64) -> Scenario,
    mut report: impl FnMut(&Report),
) {
    let mut broken = Vec::new();
    for seed in chosen(seeds) {
        match World::new(scenario(seed)).run() {
            Ok(done) => report(&done),
            Err(failure) => broken.push(failure.to_string()),
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// The first of the seeds whose run breaks a rule, and how many seeds it took.
pub fn first_failure(
    seeds: Range<u64>,
    scenario: impl Fn(u64) -> Scenario,
) -> Option<(u64, Failure)> {
    let failure = |seed: u64| World::new(scenario(seed)).run().err();
    let start = seeds.start;
    seeds
        .into_iter()
        .find_map(|seed| Some((seed - start + 1, failure(seed)?)))
}
