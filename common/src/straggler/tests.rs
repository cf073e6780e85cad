//! What [`super`] says, by what comes of it.

use super::*;

const STEPS: u64 = 20_000;

fn stragglers(seed: u64) -> Stragglers {
    Stragglers::none(seed, vec![2, 1, 5])
}

fn factors(of: &Stragglers, group: u32, rank: u32) -> Vec<f64> {
    let factor = |step| of.factor(GroupId(group), Rank(rank), step);
    (0..STEPS).map(factor).collect()
}

#[test]
fn constant_factors_are_of_groups_and_of_ranks_over_all_groups() {
    let slow = Stragglers {
        slow: vec![
            (Who::Group(GroupId(2)), 1.5),
            (Who::Rank(2), 2.0),
            (Who::Rank(7), 4.0),
        ],
        ..stragglers(1)
    };
    let cases = [
        ((0, 0), 1.0),
        ((0, 1), 1.0),
        ((1, 0), 2.0),
        ((2, 0), 1.5),
        ((2, 4), 6.0),
    ];
    for ((group, rank), want) in cases {
        assert_eq!(
            slow.factor(GroupId(group), Rank(rank), 17),
            want,
            "{group}/{rank}"
        );
    }
}

#[test]
fn jitter_is_log_normal() {
    let jitter = Stragglers {
        dials: Dials {
            jitter: 0.1,
            ..Dials::default()
        },
        ..stragglers(3)
    };
    let logarithms: Vec<f64> = factors(&jitter, 2, 1).iter().map(|f| f.ln()).collect();
    let n = STEPS as f64;
    let moment = |power: i32| {
        logarithms
            .iter()
            .map(|x| (x / 0.1).powi(power))
            .sum::<f64>()
            / n
    };
    // Of a standard normal 0, 1, 0 and 3; the bounds are five standard errors.
    for (power, want, error) in [
        (1, 0.0, 1.0),
        (2, 1.0, 2.0_f64.sqrt()),
        (3, 0.0, 15.0_f64.sqrt()),
        (4, 3.0, 96.0_f64.sqrt()),
    ] {
        let found = moment(power);
        assert!(
            (found - want).abs() < 5.0 * error / n.sqrt(),
            "moment {power}: {found}"
        );
    }
}

#[test]
fn pauses_come_at_their_rate_and_to_each_rank_by_itself() {
    let pauses = Stragglers {
        dials: Dials {
            pause_rate: 0.01,
            pause_factor: 10.0,
            ..Dials::default()
        },
        ..stragglers(5)
    };
    let (one, other) = (factors(&pauses, 0, 0), factors(&pauses, 0, 1));
    let paused = |factors: &[f64]| factors.iter().filter(|f| **f == 10.0).count() as f64;
    let (mean, deviation) = (0.01 * STEPS as f64, (0.0099 * STEPS as f64).sqrt());
    for factors in [&one, &other] {
        assert!((paused(factors) - mean).abs() < 5.0 * deviation);
        assert!(factors.iter().all(|f| [1.0, 10.0].contains(f)));
    }
    let both = one
        .iter()
        .zip(&other)
        .filter(|(a, b)| **a == 10.0 && **b == 10.0);
    assert!(both.count() < 15, "of {STEPS} steps 2 are expected");
}

#[test]
fn spells_last_and_come_again() {
    let spells = Stragglers {
        dials: Dials {
            spell_every: 100,
            spell_steps: 30,
            spell_factor: 3.0,
            ..Dials::default()
        },
        ..stragglers(7)
    };
    let (one, other) = (factors(&spells, 2, 0), factors(&spells, 2, 3));
    for factors in [&one, &other] {
        assert_eq!(
            factors.iter().filter(|f| **f == 3.0).count() as u64,
            STEPS * 30 / 100
        );
        let begins = factors.windows(2).filter(|pair| pair[0] < pair[1]).count() as u64;
        assert!(begins.abs_diff(STEPS / 100) <= 1);
    }
    assert_ne!(one, other, "they begin at other times");
}

#[test]
fn what_is_random_happens_to_those_that_are_named() {
    let everyone = Stragglers {
        dials: Dials {
            jitter: 0.1,
            pause_rate: 0.2,
            pause_factor: 4.0,
            spell_every: 10,
            spell_steps: 5,
            spell_factor: 3.0,
        },
        slow: vec![(Who::Rank(0), 2.0)],
        ..stragglers(9)
    };
    let named = Stragglers {
        among: vec![Who::Group(GroupId(2)), Who::Rank(1)],
        ..everyone.clone()
    };
    for (group, rank) in [(0, 1), (2, 0), (2, 4)] {
        assert_eq!(
            factors(&named, group, rank),
            factors(&everyone, group, rank),
            "{group}/{rank} is named"
        );
    }
    assert!(factors(&named, 0, 0).iter().all(|factor| *factor == 2.0));
    assert!(factors(&named, 1, 0).iter().all(|factor| *factor == 1.0));
}

#[test]
fn the_seed_decides_and_the_grouping_does_not() {
    let make = |seed, group_sizes: &[u32]| Stragglers {
        dials: Dials {
            jitter: 0.2,
            pause_rate: 0.1,
            pause_factor: 4.0,
            ..Dials::default()
        },
        ..Stragglers::none(seed, group_sizes.to_vec())
    };
    let together = factors(&make(1, &[4]), 0, 3);
    assert_eq!(together, factors(&make(1, &[2, 2]), 1, 1));
    assert_ne!(together, factors(&make(2, &[4]), 0, 3));
}

#[test]
fn a_dying_group_stays_dead() {
    let dying = Stragglers {
        dying: Some(Dying {
            group: GroupId(1),
            at_samples: 50,
        }),
        ..stragglers(1)
    };
    let cases = [(1, 49, false), (1, 50, true), (1, 90, true), (0, 90, false)];
    for (group, samples, dead) in cases {
        assert_eq!(
            dying.dead(GroupId(group), samples),
            dead,
            "{group} at {samples}"
        );
    }
}
