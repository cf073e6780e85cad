//! The section `[tuning]`: what is tried for every setting before its cells are run.

use toml_edit::{Item, TableLike, Value};

use super::ExperimentPlan;
use super::reader::{Reader, number};
use crate::grid::Knob;

/// Part of the samples that a trial has where the file does not say.
const PART: f64 = 1.0 / 3.0;

/// Trials that every setting gets before any cell of it is run.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// Of no cell: what was chosen for a seed would do well with it.
    pub seed: u64,
    /// Part of `train.samples` that a trial has.
    pub part: f64,
    /// Trials that run together at most: it is their measure that counts, and not their time.
    /// Otherwise as many as cells.
    pub at_once: Option<u64>,
    /// What is tuned; trials are all combinations.
    pub knobs: Vec<Knob>,
}

impl Reader<'_> {
    pub(super) fn tuning(&mut self, table: &dyn TableLike) -> Option<Tuning> {
        let mut tuning = Tuning {
            seed: 0,
            part: PART,
            at_once: None,
            knobs: Vec::new(),
        };
        let seed = table.get("seed").and_then(Item::as_integer);
        let seed = seed.and_then(|n| u64::try_from(n).ok());
        self.require(
            seed.is_some(),
            "tuning.seed is missing (a whole number that is none of experiment.seeds)",
        );
        for (key, item) in table.iter() {
            match (key, item.as_table_like()) {
                ("seed", _) => {}
                ("part", _) => match number(item).filter(|part| *part > 0.0 && *part <= 1.0) {
                    Some(part) => tuning.part = part,
                    None => self.problem(
                        item,
                        "tuning.part is no number above 0, at most 1 (part of train.samples)"
                            .to_owned(),
                    ),
                },
                ("at_once", _) => {
                    let count = item.as_integer().and_then(|n| u64::try_from(n).ok());
                    match count {
                        Some(_) => tuning.at_once = count,
                        None => self.problem(
                            item,
                            "tuning.at_once is no whole number (trials that run together at most; 0: as many as fit)"
                                .to_owned(),
                        ),
                    }
                }
                ("grid", Some(inner)) => tuning.knobs = self.knobs("", inner),
                _ => self.problem(
                    item,
                    format!("tuning.{key} is no key; there are seed, part, at_once and grid"),
                ),
            }
        }
        self.require(
            !tuning.knobs.is_empty(),
            "tuning.grid is missing (keys, each with a list of the numbers that are tried)",
        );
        tuning.seed = seed?;
        Some(tuning)
    }

    fn knobs(&mut self, prefix: &str, table: &dyn TableLike) -> Vec<Knob> {
        let mut knobs = Vec::new();
        for (name, item) in table.iter() {
            let key = format!("{prefix}{name}");
            if let Some(inner) = item.as_table_like() {
                knobs.extend(self.knobs(&format!("{key}."), inner));
                continue;
            }
            let line = self.line_of_key(table, name);
            let number = |v: &Value| v.as_float().or(v.as_integer().map(|n| n as f64));
            let list = item.as_array();
            let values: Option<Vec<f64>> = list.and_then(|l| l.iter().map(number).collect());
            match values.and_then(|values| Knob::new(&key, values, line)) {
                Some(knob) => knobs.push(knob),
                None => {
                    let text = format!("tuning.grid.{key} is no list of different numbers");
                    self.problems.push((line, text));
                }
            }
        }
        knobs
    }

    /// What only the whole file shows.
    pub(super) fn check_tuning(&mut self, plan: &ExperimentPlan) {
        let Some(tuning) = &plan.tuning else { return };
        if plan.seeds.contains(&tuning.seed) {
            let text = format!(
                "tuning.seed = {} is one of experiment.seeds; what is chosen for a seed does well with it",
                tuning.seed
            );
            self.problems.push((0, text));
        }
        self.require(
            plan.target.is_some(),
            "[tuning] needs a [target], which says what is better",
        );
        for knob in &tuning.knobs {
            let sets = |axis: &&super::Axis| {
                let mut set = axis.choices.iter().flat_map(|choice| &choice.set);
                set.any(|assign| assign.key == knob.key)
            };
            if let Some(axis) = plan.axes.iter().find(sets) {
                let text = format!("{} is tuned, and set by the axis {}", knob.key, axis.name);
                self.problems.push((knob.line, text));
            }
        }
    }
}
