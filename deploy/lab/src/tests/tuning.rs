//! What is tried before cells are run, and what comes of it.

use super::{HEAD, keys, matrix};
use crate::grid::{self, Grid, Knob, Next, Score};
use crate::known::Known;
use crate::results::trials;
use crate::tuning::{Searches, never_warm_in};

/// Two settings, and a grid of three rates and two momenta.
const TUNED: &str = "seeds = [1, 2]\n[axes]\ntrain.consistency = [\"sync\", \"async\"]\n\
    [target]\nmetric = \"validation RMSE\"\nat_most = 0.5\nevery_samples = 10\n\
    [tuning]\nseed = 9\n[tuning.grid]\noptimizer.learning_rate = [0.1, 0.3, 1]\n\
    optimizer.momentum = [0.0, 0.9]\n";

/// Searches a grid with this cost of each point; the best point, and all that were tried.
fn search(
    keys: &[(&str, &[f64])],
    cost: impl Fn(&[f64]) -> f64,
) -> (Option<Vec<f64>>, Vec<Vec<f64>>) {
    let knob = |(key, values): &(&str, &[f64])| Knob::new(key, values.to_vec(), 1).unwrap();
    let mut grid = Grid {
        knobs: keys.iter().map(knob).collect(),
    };
    let mut tried: Vec<Vec<f64>> = Vec::new();
    loop {
        let score = |point: &[f64]| {
            let cost = cost(point);
            let known = tried.iter().any(|old| old == point);
            known.then_some(match cost.is_finite() {
                true => Score::Of(cost),
                false => Score::None,
            })
        };
        match grid.next(score) {
            Next::Try(points) => tried.extend(points),
            Next::Best(best) => return (best, tried),
        }
    }
}

#[test]
fn a_best_point_inside_the_grid_ends_the_search() {
    let keys: [(&str, &[f64]); 2] = [
        ("optimizer.learning_rate", &[0.01, 0.1, 1.0]),
        ("optimizer.momentum", &[0.0, 0.5, 0.9]),
    ];
    let (best, tried) = search(&keys, |p| (p[0] - 0.1).abs() + (p[1] - 0.5).abs());
    assert_eq!((best, tried.len()), (Some(vec![0.1, 0.5]), 9));
}

#[test]
fn an_edge_is_widened_by_a_value_at_a_time_and_twice_at_most() {
    let rate = |best: f64| {
        let far = |p: &[f64]| (p[0].ln() - best.ln()).abs();
        let (best, tried) = search(&[("optimizer.learning_rate", &[0.3, 0.1])], far);
        let tried: Vec<f64> = tried.into_iter().flatten().collect();
        (best.unwrap()[0], tried)
    };
    assert_eq!(rate(0.9), (0.9, vec![0.1, 0.3, 0.9, 2.7]));
    assert_eq!(rate(100.0), (2.7, vec![0.1, 0.3, 0.9, 2.7]));
    assert_eq!(rate(0.03), (0.0333, vec![0.1, 0.3, 0.0333, 0.0111]));
}

#[test]
fn momentum_goes_half_way_to_one_and_never_below_zero() {
    let values = |grid: &[f64], best: f64| {
        let far = |p: &[f64]| (p[0] - best).abs();
        let (_, tried) = search(&[("optimizer.momentum", grid)], far);
        tried.into_iter().flatten().collect::<Vec<f64>>()
    };
    assert_eq!(values(&[0.0, 0.9], 1.0), [0.0, 0.9, 0.95, 0.975]);
    assert_eq!(
        values(&[0.0, 0.9], -1.0),
        [0.0, 0.9],
        "0 is an end, no edge"
    );
    assert_eq!(values(&[0.6, 0.9], -1.0), [0.6, 0.9, 0.2, 0.0]);
    let (_, tried) = search(&[("optimizer.beta2", &[0.99, 0.999])], |p| {
        (p[0] - 1.0).abs()
    });
    assert_eq!(tried.concat(), [0.99, 0.999, 0.9995, 0.99975]);
    // 1 − 0.000001 is the most that the key allows.
    assert_eq!(values(&[0.9, 0.999999], 1.0), [0.9, 0.999999]);
}

#[test]
fn integers_stay_integers() {
    let (best, tried) = search(&[("local.steps", &[3.0, 10.0])], |p| -p[0]);
    assert_eq!(tried.concat(), [3.0, 10.0, 33.0, 109.0]);
    assert_eq!(best, Some(vec![109.0]));
    assert_eq!(grid::toml("local.steps", 33.0), "33");
    assert_eq!(grid::toml("optimizer.learning_rate", 1.0), "1.0");
}

#[test]
fn new_values_are_tried_with_all_others() {
    let keys: [(&str, &[f64]); 2] = [
        ("optimizer.learning_rate", &[0.1, 1.0]),
        ("optimizer.momentum", &[0.0, 0.5, 0.9]),
    ];
    let (best, tried) = search(&keys, |p| (p[0] - 10.0).abs() + (p[1] - 0.5).abs());
    assert_eq!(best, Some(vec![10.0, 0.5]));
    // 10 and then 100, with three momenta each.
    assert_eq!(tried.len(), 12);
    assert!(tried.contains(&vec![100.0, 0.9]));
}

#[test]
fn where_something_better_might_lie_beyond_is_an_edge() {
    let is_edge = |key: &str, values: &[f64], allowed: &[f64], value: f64| {
        let knob = Knob::new(key, values.to_vec(), 1).unwrap();
        knob.is_edge(value, allowed)
    };
    let rates = [0.1, 0.3, 1.0];
    let of = |value| is_edge("optimizer.learning_rate", &rates, &rates, value);
    assert_eq!(rates.map(of), [true, false, true]);
    let momenta = [0.0, 0.9];
    assert!(!is_edge("optimizer.momentum", &momenta, &momenta, 0.0));
    // Where the grid cannot grow: 0 has no ratio to anything, and the next gain would be above 1.
    let decays = [0.0, 1e-4];
    let of = |value| is_edge("optimizer.weight_decay", &decays, &decays, value);
    assert_eq!(decays.map(of), [false, true]);
    let gains = [0.1, 0.5];
    assert!(is_edge("momentum.gain", &gains, &gains, 0.5));
    assert!(
        !is_edge("momentum.gain", &[0.5], &[0.5], 0.5),
        "it was not varied"
    );
    // Below 1, which is refused, there may be something better than 0.3.
    let allowed = [0.1, 0.2, 0.3];
    let all = [0.1, 0.2, 0.3, 1.0];
    let some = |value| is_edge("optimizer.learning_rate", &all, &allowed, value);
    assert_eq!([0.2, 0.3].map(some), [false, true]);
}

#[test]
fn trials_that_fail_are_no_best_ones() {
    let keys: [(&str, &[f64]); 1] = [("optimizer.learning_rate", &[0.1, 1.0, 10.0])];
    let diverging = |p: &[f64]| if p[0] >= 1.0 { f64::NAN } else { 2.0 - p[0] };
    assert_eq!(search(&keys, diverging).0, Some(vec![0.1]));
    let (best, tried) = search(&keys, |_| f64::NAN);
    assert_eq!((best, tried.len()), (None, 3), "nothing is widened");
}

#[test]
fn every_setting_gets_the_same_trials_and_its_cells_what_was_best() {
    let folder = tempfile::tempdir().unwrap();
    let (plan, mut matrix) = matrix(folder.path(), &format!("{HEAD}{TUNED}"), false).unwrap();
    let mut searches = Searches::new(&plan, &matrix).unwrap();
    let first = searches.next(&plan, &mut matrix, |_| None).unwrap();
    assert_eq!(first.len(), 12);
    let trial = first.iter().find(|t| t.id == "async-tune-0.3-0.9").unwrap();
    let set = crate::keys::keys_of(trial.config.resolved());
    for (key, value) in [
        ("run.seed", "9"),
        ("train.samples", "26"),
        ("optimizer.learning_rate", "0.3"),
        ("optimizer.momentum", "0.9"),
        ("train.consistency", "\"async\""),
        ("evaluation.every_samples", "0"),
    ] {
        assert_eq!(set[key], value, "{key}");
    }
    // Under sync the rate 0.3 is best, under async everything diverges.
    let measure = |cell: &crate::matrix::Cell| {
        let optimizer = &cell.id["sync".len()..];
        Some(match optimizer {
            _ if cell.id.starts_with("async") => Score::None,
            "-tune-0.3-0" => Score::Of(0.25),
            _ => Score::Of(0.5),
        })
    };
    assert_eq!(searches.next(&plan, &mut matrix, measure).unwrap().len(), 0);
    let rate = |id: &str| keys(&matrix, id)["optimizer.learning_rate"].clone();
    assert_eq!(rate("sync-seed-2"), "0.3");
    let tuned: Vec<_> = matrix.settings.iter().map(|s| s.tuned.as_ref()).collect();
    let best = vec![
        ("optimizer.learning_rate".to_owned(), 0.3),
        ("optimizer.momentum".to_owned(), 0.0),
    ];
    assert_eq!(tuned, [Some(&best), None]);
    let told = searches.trials(&plan, &matrix, |cell| (measure(cell), None));
    let chosen: Vec<_> = told.iter().filter(|trial| trial.chosen).collect();
    assert_eq!(chosen.len(), 1);
    assert_eq!(
        (chosen[0].id.as_str(), chosen[0].measure),
        ("sync-tune-0.3-0", Some(0.25))
    );
    let names: Vec<_> = trials(&matrix, &told)
        .iter()
        .map(|c| c.name.clone())
        .collect();
    assert_eq!(
        names,
        [
            "trial",
            "panel",
            "setting",
            "optimizer.learning_rate",
            "optimizer.momentum",
            "metric_validation",
            "run",
            "pace_missed",
            "configuration",
            "chosen",
            "on_edge"
        ]
    );
}

#[test]
fn beyond_the_grid_a_setting_is_not_given_what_it_cannot_have() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{HEAD}{TUNED}")
        .replace("[0.0, 0.9]", "[0.3, 0.9]")
        .replace(
            "train.consistency = [\"sync\", \"async\"]",
            "momentum.policy = [\"fixed\", \"lowered\"]\n[set]\ntrain.consistency = \"async\"\noptimizer.momentum = 0.5",
        );
    let (plan, mut matrix) = matrix(folder.path(), &text, false).unwrap();
    let mut searches = Searches::new(&plan, &matrix).unwrap();
    // Less momentum is better, down to 0, which `lowered` refuses.
    let measure = |cell: &crate::matrix::Cell| {
        let keys = crate::keys::keys_of(cell.config.resolved());
        let rate = &keys["optimizer.learning_rate"];
        let inner = f64::from(u8::from(rate != "0.3"));
        let momentum: f64 = keys["optimizer.momentum"].parse().unwrap();
        Some(Score::Of(inner + momentum))
    };
    assert_eq!(searches.next(&plan, &mut matrix, measure).unwrap().len(), 0);
    let momentum = |id: &str| keys(&matrix, id)["optimizer.momentum"].clone();
    assert_eq!(momentum("fixed-seed-1"), "0.0");
    assert_eq!(momentum("lowered-seed-1"), "0.3");
    let told = searches.trials(&plan, &matrix, |cell| (measure(cell), None));
    let chosen = told.into_iter().filter(|trial| trial.chosen);
    let edges: Vec<_> = chosen.map(|trial| trial.on_edge).collect();
    // 0 is the end for the one; what lies between 0 and 0.3 the other could have.
    assert_eq!(edges, [vec![], vec!["optimizer.momentum".to_owned()]]);
}

#[test]
fn where_more_is_better_the_highest_measure_wins() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{HEAD}{TUNED}").replace("at_most", "at_least");
    let (plan, mut matrix) = matrix(folder.path(), &text, false).unwrap();
    let mut searches = Searches::new(&plan, &matrix).unwrap();
    let measure = |cell: &crate::matrix::Cell| {
        let measure = u8::from(cell.id.ends_with("-0.3-0"));
        Some(Score::Of(f64::from(measure)))
    };
    assert_eq!(searches.next(&plan, &mut matrix, measure).unwrap().len(), 0);
    assert_eq!(
        keys(&matrix, "async-seed-1")["optimizer.learning_rate"],
        "0.3"
    );
}

#[test]
fn what_is_wrong_with_a_tuning_is_told_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let check = |old: &str, new: &str, wanted: &str| {
        let text = format!("{HEAD}{TUNED}").replace(old, new);
        let read = matrix(folder.path(), &text, false);
        let error = read.and_then(|(plan, matrix)| Searches::new(&plan, &matrix).map(drop));
        let error = format!("{:#}", error.unwrap_err());
        assert!(error.contains(wanted), "{text}\n{error}");
    };
    check(
        "seed = 9",
        "seed = 2",
        "tuning.seed = 2 is one of experiment.seeds",
    );
    check("seed = 9\n", "", "tuning.seed is missing");
    check(
        "seed = 9",
        "seed = 9\npart = 1.5",
        "line 13: tuning.part = 1.5; it takes a number from 0.001 to 1",
    );
    check(
        "seed = 9",
        "seed = 9\nat_once = -1",
        "line 13: tuning.at_once = -1; it takes an integer from 0",
    );
    check(
        "seed = 9",
        "seed = 9\nsamples = 3",
        "tuning.samples is no key",
    );
    check(
        "[tuning]",
        "[set]\nschedule.warmup_samples = 26\n[tuning]",
        "schedule.warmup_samples = 26 does not fit into a trial of 26 samples",
    );
    check(
        "[0.1, 0.3, 1]",
        "[0.1, 0.1]",
        "line 14: tuning.grid.optimizer.learning_rate is no list",
    );
    check("[0.1, 0.3, 1]", "[]", "is no list of different numbers");
    check(
        "learning_rate = [",
        "learning_rat = [",
        "line 14: optimizer.learning_rat is no key; did you mean",
    );
    check(
        "[0.0, 0.9]",
        "[0.0, 1.5]",
        "line 15: optimizer.momentum = 1.5; it takes a number",
    );
    check(
        "[axes]\n",
        "[axes]\noptimizer.momentum = [0.5]\n",
        "line 16: optimizer.momentum is tuned, and set by the axis optimizer.momentum",
    );
    check(
        "[target]\nmetric = \"validation RMSE\"\nat_most = 0.5\nevery_samples = 10\n",
        "",
        "[tuning] needs a [target]",
    );
}

#[test]
fn a_warm_up_in_epochs_fits_into_a_trial() {
    let folder = tempfile::tempdir().unwrap();
    let warm = "[set]\nschedule.warmup_epochs = 0.5\n[tuning]";
    let text = format!("{HEAD}{TUNED}").replace("[tuning]", warm);
    let (plan, mut matrix) = matrix(folder.path(), &text, false).unwrap();
    let mut searches = Searches::new(&plan, &matrix).unwrap();
    let trials = searches.next(&plan, &mut matrix, |_| None).unwrap();
    assert_eq!(never_warm_in(&plan, &trials[0], 50), None);
    let told = never_warm_in(&plan, &trials[0], 52).unwrap();
    let wanted = "e.toml: schedule.warmup_epochs = 0.5, 26 samples of this data, does not fit into a trial of 26 samples";
    assert!(told.starts_with(wanted), "{told}");
}

#[test]
fn trials_run_together_as_cells_do_unless_the_tuning_says_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let check = |cells: &str, trials: &str, want: [usize; 2]| {
        let text =
            format!("{HEAD}{cells}{TUNED}").replace("seed = 9", &format!("seed = 9{trials}"));
        let (plan, _) = matrix(folder.path(), &text, false).unwrap();
        assert_eq!([plan.at_once(true), plan.at_once(false)], want, "{text}");
    };
    check("", "", [usize::MAX; 2]);
    check("cells_at_once = 2\n", "", [2, 2]);
    check("cells_at_once = 1\n", "\nat_once = 3", [3, 1]);
    check("cells_at_once = 1\n", "\nat_once = 0", [usize::MAX, 1]);
}

#[test]
fn a_trial_may_have_all_samples() {
    let folder = tempfile::tempdir().unwrap();
    for part in ["1", "1.0"] {
        let text =
            format!("{HEAD}{TUNED}").replace("seed = 9", &format!("seed = 9\npart = {part}"));
        let (plan, _) = matrix(folder.path(), &text, false).unwrap();
        assert_eq!(plan.tuning.unwrap().part, 1.0);
    }
}

/// Those that are tuned were perhaps run before, and can be told of.
#[test]
fn a_setting_is_fixed_as_soon_as_it_needs_no_trials() {
    let folder = tempfile::tempdir().unwrap();
    let (plan, mut matrix) = matrix(folder.path(), &format!("{HEAD}{TUNED}"), false).unwrap();
    let mut searches = Searches::new(&plan, &matrix).unwrap();
    let measure = |cell: &crate::matrix::Cell| {
        let keys = crate::keys::keys_of(cell.config.resolved());
        let rate: f64 = keys["optimizer.learning_rate"].parse().unwrap();
        (cell.setting == 0).then(|| Score::Of((rate - 0.3).abs()))
    };
    let missing = searches.next(&plan, &mut matrix, measure).unwrap();
    assert!(!missing.is_empty() && missing.iter().all(|trial| trial.setting == 1));
    assert!(matrix.settings[0].tuned.is_some());
    assert!(matrix.settings[1].tuned.is_none());
    let mut known = Known::default();
    known.lack_trials(&matrix, &missing);
    let lacking: Vec<_> = known.failures.keys().collect();
    assert_eq!(lacking, ["async-seed-1", "async-seed-2"]);
}

#[test]
fn quick_may_do_without() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{HEAD}{TUNED}[quick]\n");
    let (plan, _) = matrix(folder.path(), &text, true).unwrap();
    assert!(plan.tuning.is_some());
    let text = format!("{HEAD}{TUNED}[quick]\ntuning = false\n");
    let (plan, _) = matrix(folder.path(), &text, true).unwrap();
    assert!(plan.tuning.is_none());
}
