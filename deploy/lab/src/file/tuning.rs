//! The section `[tuning]`: what is tried for every setting before its cells are run.

use toml_edit::{Item, TableLike, Value};

use super::ExperimentPlan;
use super::keys::TUNING;
use super::reader::Reader;
use crate::grid::Knob;

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
        let given = self.sheet.section("tuning", TUNING, table, &["grid"]);
        let grid = table.get("grid").and_then(Item::as_table_like);
        let knobs = grid.map_or_else(Vec::new, |grid| self.knobs("", grid));
        self.sheet.require(
            !knobs.is_empty(),
            "tuning.grid is missing (keys, each with a list of the numbers that are tried)",
        );
        let at_once = given.get("tuning.at_once");
        Some(Tuning {
            seed: given.get("tuning.seed")?,
            part: given.get("tuning.part")?,
            at_once: at_once.filter(|_| table.contains_key("at_once")),
            knobs,
        })
    }

    fn knobs(&mut self, prefix: &str, table: &dyn TableLike) -> Vec<Knob> {
        let mut knobs = Vec::new();
        for (name, item) in table.iter() {
            let key = format!("{prefix}{name}");
            if let Some(inner) = item.as_table_like() {
                knobs.extend(self.knobs(&format!("{key}."), inner));
                continue;
            }
            let line = self.sheet.line(table, name);
            let number = |v: &Value| v.as_float().or(v.as_integer().map(|n| n as f64));
            let list = item.as_array();
            let values: Option<Vec<f64>> = list.and_then(|l| l.iter().map(number).collect());
            match values.and_then(|values| Knob::new(&key, values, line)) {
                Some(knob) => knobs.push(knob),
                None => {
                    let text = format!("tuning.grid.{key} is no list of different numbers");
                    self.sheet.problem(line, text);
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
            self.sheet.problem(0, text);
        }
        self.sheet.require(
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
                self.sheet.problem(knob.line, text);
            }
        }
    }
}
