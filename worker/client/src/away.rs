//! How long somebody has been out of reach, and after which pauses it is tried again.

use std::time::Duration;

use tradewind_common::mix::mixed;

use crate::network::PAUSE;
use crate::stopwatch::Stopwatch;

/// Pauses grow up to this.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Time without a connection. What one waits for on a connection is no failure, however long that
/// takes.
#[derive(Debug)]
pub struct Away {
    before: Duration,
    since: Option<Stopwatch>,
    /// Who tries: pauses of others are others.
    seed: u64,
    tries: u32,
}

impl Away {
    /// Nothing was tried yet.
    pub fn new(seed: u64) -> Self {
        Self {
            before: Duration::ZERO,
            since: None,
            seed,
            tries: 0,
        }
    }

    /// There is none from now on, if there was one.
    pub fn begin(&mut self) {
        self.since.get_or_insert_with(Stopwatch::start);
    }

    /// There is one now.
    pub fn end(&mut self) {
        self.before = self.so_far();
        self.since = None;
    }

    /// Something has been answered: what was before does not count any more.
    pub fn over(&mut self) {
        *self = Self::new(self.seed);
    }

    /// All the time without one.
    pub fn so_far(&self) -> Duration {
        let now = self.since.as_ref().map(Stopwatch::elapsed);
        self.before + now.unwrap_or_default()
    }

    /// After another try that has failed: the pause before the next one.
    pub fn pause(&mut self) -> Duration {
        let pause = pause(self.seed, self.tries);
        self.tries = self.tries.saturating_add(1);
        pause
    }
}

/// The pause after so many failures before this one: [`PAUSE`], twice as long each time up to a second, and of that
/// between a half and one and a half. When a server is lost all its ranks find out at once; so they do not all come
/// back at once, nor again and again while there is none.
fn pause(seed: u64, failures: u32) -> Duration {
    let longest = PAUSE.saturating_mul(1 << failures.min(16)).min(PAUSE_MAX);
    // 53 bits, as many as an f64 has.
    let drawn = (mixed(seed, [u64::from(failures)]) >> 11) as f64 / (1_u64 << 53) as f64;
    longest.mul_f64(0.5 + drawn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_second_and_differ_by_half_of_themselves() {
        for (failures, usual_ms) in [(0, 100), (1, 200), (3, 800), (4, 1000), (u32::MAX, 1000)] {
            let all: Vec<_> = (0..1000).map(|seed| pause(seed, failures)).collect();
            let usual = Duration::from_millis(usual_ms);
            assert!(
                all.iter()
                    .all(|own| (usual / 2..usual * 3 / 2).contains(own))
            );
            // A tenth of the whole width has about a tenth of all: no two ranks in step.
            for tenth in 0..10 {
                let begin = usual / 2 + usual * tenth / 10;
                let within = all
                    .iter()
                    .filter(|own| (begin..begin + usual / 10).contains(*own));
                let within = within.count();
                assert!((60..140).contains(&within), "{failures}, {tenth}: {within}");
            }
            let again: Vec<_> = (0..1000).map(|seed| pause(seed, failures)).collect();
            assert_eq!(all, again, "the same ranks pause for the same time");
        }
    }

    #[test]
    fn an_answer_makes_pauses_short_again() {
        let mut away = Away::new(7);
        let first = away.pause();
        for _ in 0..5 {
            away.pause();
        }
        assert!(away.pause() >= PAUSE_MAX / 2);
        away.over();
        assert_eq!(away.pause(), first);
    }
}
