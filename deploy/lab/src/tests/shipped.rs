//! The experiments that are shipped compare what they say they do.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use tradewind_common::spec::ConsistencySpec;

use crate::earlier::{Earlier, MEASURE};
use crate::file::ExperimentPlan;
use crate::grid::Score;
use crate::keys::keys_of;
use crate::matrix::{Cell, Matrix};
use crate::tuning::Searches;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments")
}

fn read(name: &str, quick: bool) -> (ExperimentPlan, Matrix) {
    let plan = ExperimentPlan::read(&folder().join(format!("{name}.toml")), quick).unwrap();
    let matrix = Matrix::new(&plan).unwrap();
    (plan, matrix)
}

/// The names of an experiment on MNIST and on the climate forecaster.
fn both(name: &str) -> [String; 2] {
    [name.to_owned(), format!("climate-{name}")]
}

/// And on collisions and on maps of the weather.
fn all_four(name: &str) -> Vec<String> {
    let of_tasks = ["hep", "deepcam"].map(|task| format!("{task}-{name}"));
    both(name).into_iter().chain(of_tasks).collect()
}

/// Each setting as its label, its panel and the first of its cells, which differ in their seeds only.
fn settings(matrix: &Matrix) -> Vec<(&str, &str, &Cell)> {
    let settings = matrix.settings.iter().enumerate();
    let of = |index| matrix.of(index).next().unwrap();
    settings
        .map(|(index, setting)| (&*setting.label, &*setting.panel, of(index)))
        .collect()
}

fn text_of(cell: &Cell, key: &str) -> String {
    let keys = keys_of(cell.config.resolved());
    keys[key].trim_matches('"').to_owned()
}

#[test]
fn all_cells_of_an_experiment_train_alike_and_are_looked_at_alike() {
    let mut seen = 0;
    for entry in std::fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap();
        for quick in [false, true] {
            let (plan, matrix) = read(name, quick);
            let all = matrix.cells.iter().map(|Cell { config, .. }| {
                let train = &config.train;
                assert!(train.batch_ramp.is_empty(), "{name}");
                (train.batch, train.samples, config.evaluation_samples)
            });
            let all: BTreeSet<_> = all.collect();
            assert_eq!(all.len(), 1, "{name}: {all:?}");
            let every = plan.target.unwrap().every_samples;
            assert!(all.iter().all(|own| own.2 == every), "{name}");
        }
        seen += 1;
    }
    assert_eq!(seen, 2 * 4 + 2 * 2 + 1);
}

#[test]
fn panels_are_the_profiles_that_they_are_called_by() {
    let all = &["none", "pauses", "one-slow"][..];
    let few = &["none", "one-slow"][..];
    for (name, profiles) in [
        ("hybrid-vs-sync", all),
        ("climate-hybrid-vs-sync", all),
        ("hep-hybrid-vs-sync", few),
        ("deepcam-hybrid-vs-sync", all),
        ("staleness", all),
        ("climate-staleness", all),
        ("deepcam-staleness", few),
        ("local-steps", few),
    ] {
        let (_, matrix) = read(name, false);
        let own = settings(&matrix);
        let panels: BTreeSet<&str> = own.iter().map(|(_, panel, _)| *panel).collect();
        let wanted: BTreeSet<&str> = profiles.iter().copied().collect();
        assert_eq!(panels, wanted, "{name}");
        for (_, panel, cell) in own {
            assert_eq!(text_of(cell, "stragglers.profile"), panel, "{}", cell.id);
        }
    }
}

#[test]
fn hybrid_vs_sync_has_each_number_of_groups_and_five_seeds() {
    for name in all_four("hybrid-vs-sync") {
        let (plan, matrix) = read(&name, false);
        let seeds: BTreeSet<u64> = plan.seeds.iter().copied().collect();
        assert_eq!((seeds.len(), plan.seeds.len()), (5, 5));
        let own = settings(&matrix);
        let profiles: BTreeSet<&str> = own.iter().map(|(_, panel, _)| *panel).collect();
        assert_eq!(own.len(), 6 * profiles.len());
        let (sync, without) = (ConsistencySpec::Sync, ConsistencySpec::Async);
        for (label, groups, consistency, backups) in [
            ("sync, 1 group", vec![8], sync, 0),
            ("sync, 8 groups", vec![1; 8], sync, 0),
            ("sync, 1 backup", vec![1; 8], sync, 1),
            ("async, 2 groups", vec![4, 4], without, 0),
            ("async, 4 groups", vec![2; 4], without, 0),
            ("async, 8 groups", vec![1; 8], without, 0),
        ] {
            let mut count = 0;
            for (_, _, cell) in own.iter().filter(|(own, ..)| *own == label) {
                let config = &cell.config;
                assert_eq!(config.cluster.groups, groups, "{label}");
                assert_eq!(config.train.consistency, consistency, "{label}");
                assert_eq!(config.policies.backup_groups, backups, "{label}");
                count += 1;
            }
            assert_eq!(count, profiles.len(), "{label}");
        }
    }
}

#[test]
fn hybrid_vs_sync_gives_every_setting_the_same_trials() {
    for (name, other, samples_third, points_each) in [
        ("hybrid-vs-sync", "optimizer.momentum", 13_333, 12),
        ("climate-hybrid-vs-sync", "optimizer.beta1", 2_293, 12),
        ("hep-hybrid-vs-sync", "optimizer.beta1", 1_280, 6),
        ("deepcam-hybrid-vs-sync", "optimizer.beta1", 800, 8),
    ] {
        let (plan, mut matrix) = read(name, false);
        let tuning = plan.tuning.clone().unwrap();
        assert!((tuning.part - 1.0 / 3.0).abs() < 1e-12, "{}", tuning.part);
        assert!(!plan.seeds.contains(&tuning.seed), "{}", tuning.seed);
        let mut searches = Searches::new(&plan, &matrix).unwrap();
        let trials = searches.next(&plan, &mut matrix, |_| None).unwrap();
        let settings = matrix.settings.len();
        assert_eq!(trials.len(), points_each * settings);
        for setting in 0..settings {
            let own = trials.iter().filter(|trial| trial.setting == setting);
            let own = own.map(|trial| {
                let samples = trial.config.train.samples;
                assert_eq!((samples, trial.config.seed), (samples_third, tuning.seed));
                ["optimizer.learning_rate", other].map(|key| text_of(trial, key))
            });
            let points: BTreeSet<_> = own.collect();
            assert_eq!(points.len(), points_each, "{name}: {points:?}");
        }
    }
}

#[test]
fn staleness_has_each_bound_between_sync_and_none() {
    for name in all_four("staleness") {
        let (_, matrix) = read(&name, false);
        let bound = |staleness_bound| ConsistencySpec::Bounded { staleness_bound };
        let wanted = [
            ("sync", ConsistencySpec::Sync),
            ("s = 0", bound(0)),
            ("s = 1", bound(1)),
            ("s = 3", bound(3)),
            ("s = 10", bound(10)),
            ("no bound", ConsistencySpec::Async),
        ];
        let own = settings(&matrix);
        let profiles: BTreeSet<&str> = own.iter().map(|(_, panel, _)| *panel).collect();
        for profile in profiles {
            let own = own.iter().filter(|(_, panel, _)| *panel == profile);
            let found = own.map(|(label, _, cell)| (*label, cell.config.train.consistency));
            let found: Vec<(&str, ConsistencySpec)> = found.collect();
            assert_eq!(found, wanted, "{profile}");
        }
    }
}

#[test]
fn local_steps_has_each_number_of_steps_with_each_algorithm() {
    for (name, profiles) in [
        ("local-steps", &["none", "one-slow"][..]),
        ("climate-local-steps", &["one-slow"]),
    ] {
        let (_, matrix) = read(name, false);
        let found = matrix.cells.iter().map(|cell| {
            let setting = &matrix.settings[cell.setting];
            let algorithm = setting.values.iter().find(|(axis, _)| axis == "algorithm");
            let steps = cell.config.local.as_ref().unwrap().steps;
            let consistency = text_of(cell, "train.consistency");
            let profile = text_of(cell, "stragglers.profile");
            (algorithm.unwrap().1.clone(), consistency, steps, profile)
        });
        let found: BTreeSet<(String, String, u32, String)> = found.collect();
        let mut wanted = BTreeSet::new();
        for (algorithm, consistency) in [
            ("DiLoCo, sync", "sync"),
            ("DiLoCo, async", "async"),
            ("EASGD", "async"),
        ] {
            for steps in [1, 5, 20, 100] {
                for profile in profiles {
                    let [algorithm, consistency, profile] =
                        [algorithm, consistency, profile].map(str::to_owned);
                    wanted.insert((algorithm, consistency, steps, profile));
                }
            }
        }
        assert_eq!(found, wanted);
    }
}

/// Who takes the trials that are shipped runs only those that have failed, and comes to the values that
/// they came to.
#[test]
fn trials_that_are_shipped_are_those_of_the_experiment() {
    let mut seen = 0;
    for entry in std::fs::read_dir(folder().join("trials")).unwrap() {
        let table = entry.unwrap().path();
        let (plan, mut matrix) = read(table.file_stem().unwrap().to_str().unwrap(), false);
        let mut searches = Searches::new(&plan, &matrix).unwrap();
        let earlier = Earlier::read(&table).unwrap();
        let mut rows = csv::Reader::from_path(&table).unwrap();
        let measured = rows
            .headers()
            .unwrap()
            .iter()
            .position(|name| name == MEASURE);
        let rows = rows.records().map(Result::unwrap);
        let failed = rows.filter(|row| row[measured.unwrap()].is_empty());
        let failed: BTreeSet<String> = failed.map(|row| row[0].to_owned()).collect();
        let measure = |trial: &Cell| {
            let known = earlier.measure(trial).map(Score::Of);
            known.or(failed.contains(&trial.id).then_some(Score::None))
        };
        let left = searches.next(&plan, &mut matrix, measure).unwrap();
        let left: Vec<&str> = left.iter().map(|trial| trial.id.as_str()).collect();
        assert!(left.is_empty(), "{}: {left:?}", table.display());
        let tuned = matrix
            .settings
            .iter()
            .all(|setting| setting.tuned.is_some());
        assert!(tuned, "{}", table.display());
        seen += 1;
    }
    assert!(seen > 0);
}

#[test]
fn delay_policies_has_each_policy_beside_a_slow_group() {
    for name in both("delay-policies") {
        let (_, matrix) = read(&name, false);
        let own = settings(&matrix);
        let found = own.iter().map(|(label, _, cell)| {
            assert_eq!(text_of(cell, "stragglers.slow"), "group 7: 10", "{label}");
            let keys = ["train.consistency", "staleness.policy", "momentum.policy"];
            keys.map(|key| text_of(cell, key))
        });
        let found: Vec<[String; 3]> = found.collect();
        let wanted = [
            ["sync", "none", "fixed"],
            ["async", "none", "fixed"],
            ["async", "scale", "fixed"],
            ["async", "drop", "fixed"],
            ["async", "compensate", "fixed"],
            ["async", "compensate-adaptive", "fixed"],
            ["async", "none", "lowered"],
            ["async", "none", "closed-loop"],
        ];
        assert_eq!(found, wanted);
    }
}
