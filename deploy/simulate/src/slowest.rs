//! How many times as long a step takes the slowest rank of a group.
//!
//! Of a small group every rank's factor is computed, as the ranks themselves do in a real run, so that the same
//! ranks are slow in the same steps. Of a large one a single number is drawn, from the distribution of the
//! largest of many: the maximum of k independent draws with distribution F has the distribution F^k, so it is
//! F⁻¹(u^(1/k)) with u uniform (inverse transform sampling; Devroye 1986, "Non-Uniform Random Variate
//! Generation", chapters II.2 and V.3).

use statrs::function::erf::erfc;
use tradewind_common::mix::mixed;
use tradewind_common::straggler::{Dials, Stragglers, Who};
use tradewind_common::{GroupId, Rank};

/// Groups of up to so many ranks are computed rank by rank.
const EACH_MAX: u32 = 64;

/// Names the draws of this module among all that follow from a run's seed.
const STREAM: u64 = 0x51_0e57;

/// The largest factor of the ranks of a group at a step.
pub(crate) fn slowest(stragglers: &Stragglers, group: GroupId, step: u64) -> f64 {
    if !stragglers.dials.act() && stragglers.slow.is_empty() {
        return 1.0;
    }
    let size = stragglers.group_sizes[group.0 as usize];
    let of = |rank: u32| stragglers.factor(group, Rank(rank), step);
    if size <= EACH_MAX {
        return (0..size).map(of).fold(1.0, f64::max);
    }
    // Ranks that have a name are computed, the others drawn together.
    let first = stragglers.rank(group, Rank(0));
    let here = |who: &Who| match who {
        Who::Rank(number) => number.checked_sub(first).filter(|rank| *rank < size),
        Who::Group(_) => None,
    };
    let slow = stragglers.slow.iter().filter_map(|(who, _)| here(who));
    let named: Vec<u32> = slow
        .chain(stragglers.among.iter().filter_map(here))
        .collect();
    let of_named = named.iter().copied().map(of).fold(1.0, f64::max);
    let whole = |who: &Who| *who == Who::Group(group);
    let constant = stragglers.slow.iter().filter(|(who, _)| whole(who));
    let constant: f64 = constant.map(|(_, factor)| factor).product();
    let touched = stragglers.among.is_empty() || stragglers.among.iter().any(whole);
    let others = match touched {
        true => {
            let bits = mixed(stragglers.seed, [u64::from(group.0), step, STREAM]);
            // Never 0 and never 1.
            let uniform = ((bits >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
            largest(&stragglers.dials, size - named.len() as u32, uniform)
        }
        false => 1.0,
    };
    (constant * others).max(of_named)
}

/// The `uniform` quantile of the largest of `count` factors.
fn largest(dials: &Dials, count: u32, uniform: f64) -> f64 {
    if count == 0 {
        return 1.0;
    }
    // What a single factor exceeds with the probability 1 − u^(1/k).
    let tail = -(uniform.ln() / f64::from(count)).exp_m1();
    let kinds = kinds(dials);
    let sigma = dials.jitter;
    if sigma == 0.0 {
        return discrete(&kinds, tail);
    }
    let exceeds = |x: f64| -> f64 {
        let normal = |mean: f64| 0.5 * erfc((x - mean) / (sigma * std::f64::consts::SQRT_2));
        kinds.iter().map(|(part, mean)| part * normal(*mean)).sum()
    };
    let spread = 40.0 * sigma;
    let most = kinds.iter().map(|(_, mean)| *mean).fold(0.0, f64::max);
    let (mut low, mut high) = (-spread, most + spread);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        match exceeds(middle) > tail {
            true => low = middle,
            false => high = middle,
        }
    }
    (0.5 * (low + high)).exp()
}

/// The factors without jitter: how often each happens, and its logarithm.
fn kinds(dials: &Dials) -> Vec<(f64, f64)> {
    let paused = dials.pause_rate;
    let spelled = match dials.spell_every {
        0 => 0.0,
        every => dials.spell_steps as f64 / every as f64,
    };
    let (pause, spell) = (dials.pause_factor.ln(), dials.spell_factor.ln());
    let mut kinds = Vec::new();
    for (happens, mean) in [(1.0 - paused, 0.0), (paused, pause)] {
        for (also, more) in [(1.0 - spelled, 0.0), (spelled, spell)] {
            if happens * also > 0.0 {
                kinds.push((happens * also, mean + more));
            }
        }
    }
    kinds
}

/// The largest factor that is reached with a probability above `tail`.
fn discrete(kinds: &[(f64, f64)], tail: f64) -> f64 {
    let mut sorted = kinds.to_vec();
    sorted.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut reached = 0.0;
    for (part, mean) in &sorted {
        reached += part;
        if reached > tail {
            return mean.exp();
        }
    }
    1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(size: u32, dials: Dials) -> Stragglers {
        Stragglers {
            dials,
            ..Stragglers::none(7, vec![size])
        }
    }

    /// The mean over steps of what is drawn for a group is that of the largest of its ranks.
    fn compare(dials: Dials) {
        const RANKS: u32 = 500;
        const STEPS: u64 = 400;
        let large = with(RANKS, dials);
        let all = |step| (0..RANKS).map(move |rank| (step, rank));
        let (mut each, mut drawn) = (0.0, 0.0);
        for step in 0..STEPS {
            let of = |(step, rank)| large.factor(GroupId(0), Rank(rank), step);
            each += all(step).map(of).fold(0.0, f64::max) / STEPS as f64;
            drawn += slowest(&large, GroupId(0), step) / STEPS as f64;
        }
        assert!((drawn / each - 1.0).abs() < 0.03, "{drawn} for {each}");
    }

    #[test]
    fn one_draw_is_distributed_as_the_largest_of_many() {
        let jitter = Dials {
            jitter: 0.1,
            ..Dials::default()
        };
        compare(jitter);
        compare(Dials {
            pause_rate: 0.001,
            pause_factor: 5.0,
            ..Dials::default()
        });
        compare(Dials {
            pause_rate: 0.003,
            pause_factor: 3.0,
            ..jitter
        });
    }

    #[test]
    fn small_groups_are_those_of_a_real_run() {
        let mut small = with(3, Dials::default());
        small.slow = vec![(Who::Rank(2), 2.0)];
        assert_eq!(slowest(&small, GroupId(0), 0), 2.0);
        small.group_sizes = vec![300];
        small.slow = vec![(Who::Rank(299), 4.0), (Who::Group(GroupId(0)), 1.5)];
        assert_eq!(slowest(&small, GroupId(0), 0), 6.0, "both are its");
        assert_eq!(
            slowest(&with(1_000_000, Dials::default()), GroupId(0), 3),
            1.0
        );
    }
}
