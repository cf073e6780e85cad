//! What files say, and what is wrong with them.

use std::path::Path;

use super::{HEAD, keys, matrix};
use crate::earlier::Earlier;
use crate::file::Plan;
use crate::matrix::Matrix;
use crate::tuning::Searches;
use crate::{Arguments, command};

#[test]
fn cells_are_all_combinations_with_all_seeds() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "{HEAD}seeds = [3, 4]\npanels = [\"profile\"]\n[set]\ntrain.batch = 2\n\
        [axes]\n\"train.staleness_bound\" = [0, 10]\n\
        [axes.profile]\nquiet = {{}}\nbusy = {{ \"pace.step_seconds\" = 0.5, train.batch = 3 }}\n"
    );
    let (_, matrix) = matrix(folder.path(), &text, false).unwrap();
    let settings: Vec<_> = matrix
        .settings
        .iter()
        .map(|s| (&*s.label, &*s.panel))
        .collect();
    let want = [
        ("staleness_bound 0", "quiet"),
        ("staleness_bound 0", "busy"),
        ("staleness_bound 10", "quiet"),
        ("staleness_bound 10", "busy"),
    ];
    assert_eq!(settings, want);
    assert_eq!(matrix.cells.len(), 8);
    let keys = keys(&matrix, "staleness-bound-10-busy-seed-4");
    let of = |key: &str| keys[key].as_str();
    assert_eq!(of("train.staleness_bound"), "10");
    assert_eq!(of("pace.step_seconds"), "0.5");
    assert_eq!(
        (of("train.batch"), of("run.seed")),
        ("3", "4"),
        "an axis wins over [set]"
    );
}

#[test]
fn no_two_cells_share_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "{HEAD}[axes.kind]\n\"top-k\" = {{}}\n\"top k\" = {{ train.batch = 2 }}\n\"top k 2\" = {{ train.batch = 3 }}\n"
    );
    let (_, matrix) = matrix(folder.path(), &text, false).unwrap();
    let ids = matrix.cells.iter().map(|cell| cell.id.as_str());
    assert_eq!(
        ids.collect::<Vec<_>>(),
        ["top-k-seed-1", "top-k-2-seed-1", "top-k-2-2-seed-1"]
    );
}

#[test]
fn quick_takes_the_place_of_what_it_names() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "{HEAD}seeds = [1, 2, 3]\n[set]\ntrain.samples = 800\n[axes]\ntrain.batch = [1, 2, 4]\n\
        [quick]\nseeds = [9]\n[quick.set]\ntrain.samples = 40\n[quick.axes]\ntrain.batch = [4]\n"
    );
    let (_, whole) = matrix(folder.path(), &text, false).unwrap();
    assert_eq!(whole.cells.len(), 9);
    let (_, quick) = matrix(folder.path(), &text, true).unwrap();
    let ids: Vec<_> = quick.cells.iter().map(|cell| cell.id.as_str()).collect();
    assert_eq!(ids, ["batch-4-seed-9"]);
    assert_eq!(keys(&quick, "batch-4-seed-9")["train.samples"], "40");
    let error = matrix(folder.path(), HEAD, true).unwrap_err().to_string();
    assert_eq!(
        error,
        "e.toml: --quick needs a section [quick] that says what is smaller"
    );
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let check = |text: &str, wanted: &str| {
        let text = format!("{HEAD}{text}");
        let error = matrix(folder.path(), &text, false).map(|_| ()).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains(wanted), "{text}\n{error}");
    };
    check(
        "[axes]\ntrain.sampels = [8, 16]",
        "e.toml, line 5: train.sampels is no key; did you mean \"train.samples\"?",
    );
    check(
        "[set]\ntrain.batch = 0\n[axes]\ntrain.consistency = [\"sync\"]",
        "e.toml, line 5: train.batch = 0; it takes an integer from 1 to 1000000 (in the setting sync)",
    );
    check(
        "[set]\noptimizer.momentum = 1.5\n[target]\nmetric = \"validation RMSE\"\nat_most = 0.5\nevery_samples = 8\n\
        [tuning]\nseed = 9\n[tuning.grid]\noptimizer.momentum = [0.0, 0.9]",
        "e.toml, line 5: optimizer.momentum = 1.5; it takes a number",
    );
    check(
        "seeds = [1, 1]",
        "seeds is no list of different whole numbers",
    );
    check(
        "panels = [\"profile\"]",
        "names \"profile\", which is no axis",
    );
    check(
        "[set]\nrun.seed = 3",
        "e.toml, line 5: run.seed follows from experiment.seeds",
    );
    check(
        "[axes]\ntrain.batch = [2, 2]",
        "the axis train.batch needs values, each once",
    );
    check(
        "[axes]\ntrain.batch = [1]\n[axes.size]\nbig = { train.batch = 9 }",
        "train.batch is set by two axes, train.batch and size",
    );
    check(
        "[target]\nmetric = \"validation RMSE\"\nevery_samples = 8",
        "at_most or target.at_least",
    );
    check(
        "[target]\nmetric = \"validation accuracy\"\nat_most = 0.5\nevery_samples = 8",
        "e.toml: target.metric = \"validation accuracy\" is not what the task measures on its validation split, which is \"validation RMSE\"",
    );
    check(
        "[targte]\nmetric = \"validation RMSE\"",
        "[targte] is no section of an experiment",
    );
    check("surprise = 1", "experiment.surprise is no key");
    let target = "[target]\nmetric = \"validation RMSE\"\nat_most = 0.5\nevery_samples = 2";
    check(
        &format!("[set]\ntrain.batch = 33\n{target}"),
        "e.toml: target.every_samples = 2 is passed more than 16 times by an update of 33 samples, and not all of them are evaluated; at least 3 are needed",
    );
}

/// What an update brings is that of all groups where they are merged.
#[test]
fn evaluations_may_be_as_close_as_servers_keep_them() {
    let folder = tempfile::tempdir().unwrap();
    let check = |set: &str, right: bool| {
        let text = format!(
            "{HEAD}[set]\ntrain.batch = 16\ncluster.groups = [1, 1]\n{set}\n\
            [target]\nmetric = \"validation RMSE\"\nat_most = 0.5\nevery_samples = 1\n"
        );
        assert_eq!(matrix(folder.path(), &text, false).is_ok(), right, "{set}");
    };
    check("train.consistency = \"async\"", true);
    check("train.consistency = \"sync\"", false);
    check("train.consistency = \"async\"\nmerge.min_groups = 2", false);
}

#[test]
fn a_command_names_what_results_depend_on() {
    let folder = tempfile::tempdir().unwrap();
    let (plan, _) = matrix(folder.path(), HEAD, false).unwrap();
    let mut arguments = Arguments {
        file: "e.toml".into(),
        quick: true,
        out: None,
        report_only: false,
        trials: Some("t.csv".into()),
        slurm: false,
        at_once: 8,
    };
    let want = "tradewind experiment e.toml --quick --trials t.csv";
    assert_eq!(command(&plan, &arguments), want);
    (arguments.quick, arguments.trials, arguments.slurm) = (false, None, true);
    let want = "tradewind experiment e.toml --slurm --at-once 8";
    assert_eq!(command(&plan, &arguments), want);
}

#[test]
fn only_training_in_which_all_groups_count_is_synchronous() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{HEAD}[axes]\ntrain.consistency = [\"sync\", \"bounded\", \"async\"]\n");
    let (_, matrix) = matrix(folder.path(), &text, false).unwrap();
    let synchronous: Vec<bool> = matrix.settings.iter().map(|s| s.synchronous).collect();
    assert_eq!(synchronous, [true, false, false]);
}

#[test]
fn shipped_experiments_are_right_in_full_and_quick() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../experiments");
    let mut cells = std::collections::BTreeMap::new();
    let files = |folder: &Path| {
        let entries = std::fs::read_dir(folder).unwrap();
        entries
            .map(|entry| entry.unwrap().path())
            .collect::<Vec<_>>()
    };
    let (trials, experiments): (Vec<_>, Vec<_>) =
        files(&folder).into_iter().partition(|path| path.is_dir());
    for path in experiments {
        for quick in [false, true] {
            let plan = Plan::read(&path, quick).unwrap();
            let matrix = Matrix::new(&plan).unwrap();
            Searches::new(&plan, &matrix).unwrap();
            for cell in &matrix.cells {
                let ranks = (cell.config.world_size(), cell.config.step_seconds > 0.0);
                assert_eq!(ranks, (8, true), "{}", cell.id);
            }
            let name = path.file_stem().unwrap().to_str().unwrap();
            assert_eq!(plan.name, name);
            cells.insert((name.to_owned(), quick), matrix.cells.len());
        }
    }
    assert_eq!(trials, [folder.join("trials")]);
    for path in files(&trials[0]) {
        let of = path.file_stem().unwrap().to_str().unwrap();
        assert!(cells.contains_key(&(of.to_owned(), false)), "{of}");
        Earlier::read(&path).unwrap();
    }
    for (name, full) in [
        // Settings, profiles, seeds.
        ("hybrid-vs-sync", 6 * 3 * 5),
        ("staleness", 6 * 3 * 5),
        ("delay-policies", 8 * 5),
        // Algorithms, numbers of steps, profiles, seeds.
        ("local-steps", 3 * 4 * 2 * 3),
    ] {
        assert_eq!(cells[&(name.to_owned(), false)], full, "{name}");
        assert!(cells[&(name.to_owned(), true)] <= 12, "{name}");
    }
}

#[test]
fn cells_of_a_script_differ_in_settings_that_only_it_reads() {
    let folder = tempfile::tempdir().unwrap();
    let text =
        format!("command = [\"python\", \"train.py\"]\n{HEAD}[axes]\nscript.width = [16, 32]\n");
    let (_, found) = matrix(folder.path(), &text, false).unwrap();
    for (cell, width) in found.cells.iter().zip([16, 32]) {
        assert_eq!(cell.id, format!("width-{width}-seed-1"));
        assert_eq!(cell.config.command, ["python", "train.py"]);
        assert_eq!(cell.config.script["width"], width);
    }
    assert_eq!(found.cells.len(), 2);
    let wrong = text.replace("[\"python\", \"train.py\"]", "\"python train.py\"");
    let error = matrix(folder.path(), &wrong, false)
        .unwrap_err()
        .to_string();
    let want = "e.toml, line 1: command is no list of words, such as [\"python\", \"train.py\"]";
    assert_eq!(error, want);
}
