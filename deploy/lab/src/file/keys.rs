//! The keys of an experiment's own sections; those of a configuration are in `set`, `axes` and `grid`.

use tradewind_config::Kind::{Ints, Path, Text, TextsOrNone};
use tradewind_config::key::{Key, MANY, float, int, key};

const SEEDS: tradewind_config::Kind = Ints {
    min: 0,
    max: i64::MAX,
    length: None,
};

pub(super) const EXPERIMENT: &[Key] = &[
    key("experiment.name", Text, None, "Name of the experiment."),
    key(
        "experiment.about",
        Text,
        Some("\"\""),
        "The question, in a sentence.",
    ),
    key(
        "experiment.base",
        Path,
        None,
        "The configuration that every cell starts from.",
    ),
    key(
        "experiment.seeds",
        SEEDS,
        Some("[1]"),
        "Seeds with which every setting is run.",
    ),
    key(
        "experiment.panels",
        TextsOrNone,
        Some("[]"),
        "Axes across whose values nothing is compared.",
    ),
    key(
        "experiment.cells_at_once",
        int(0, MANY),
        Some("0"),
        "Cells that run together at most; 0: as many as the machine holds.",
    ),
];

pub(super) const TARGET: &[Key] = &[
    key(
        "target.metric",
        Text,
        None,
        "The name of the task's metric on the validation split.",
    ),
    key(
        "target.at_most",
        float(-1e300, 1e300),
        Some("0.0"),
        "What the metric has to come down to.",
    ),
    key(
        "target.at_least",
        float(-1e300, 1e300),
        Some("0.0"),
        "What the metric has to come up to.",
    ),
    key(
        "target.every_samples",
        int(1, MANY),
        None,
        "Applied samples between two evaluations, 1 or more.",
    ),
];

pub(super) const TUNING: &[Key] = &[
    key(
        "tuning.seed",
        int(0, i64::MAX),
        None,
        "A whole number that is none of experiment.seeds.",
    ),
    key(
        "tuning.part",
        float(0.001, 1.0),
        Some("0.3333333333333333"),
        "Part of train.samples that a trial has.",
    ),
    key(
        "tuning.at_once",
        int(0, MANY),
        Some("0"),
        "Trials that run together at most; 0: as many as fit.",
    ),
];

pub(super) const QUICK: &[Key] = &[key(
    "quick.seeds",
    SEEDS,
    Some("[1]"),
    "Seeds in the place of experiment.seeds.",
)];
