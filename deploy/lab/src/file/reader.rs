//! Reads the sections of an experiment's file, and collects what is wrong with them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use toml_edit::{Item, TableLike, Value};
use tradewind_config::sheet::{Given, Sheet};

use super::keys::{EXPERIMENT, QUICK, TARGET};
use super::{Assign, Axis, Choice, ExperimentPlan, Goal, Target};

/// Reads the sections, and collects what is wrong.
pub(super) struct Reader<'a> {
    pub(super) sheet: Sheet<'a>,
}

impl Reader<'_> {
    pub(super) fn experiment(
        &mut self,
        table: &dyn TableLike,
        folder: &Path,
        plan: &mut ExperimentPlan,
    ) {
        let given = self.sheet.section("experiment", EXPERIMENT, table, &[]);
        plan.name = given.get("experiment.name").unwrap_or_default();
        plan.about = given.get("experiment.about").unwrap_or_default();
        plan.base = folder.join(given.get::<PathBuf>("experiment.base").unwrap_or_default());
        plan.panels = given.get("experiment.panels").unwrap_or_default();
        plan.cells_at_once = given.get("experiment.cells_at_once").unwrap_or_default();
        self.seeds(&given, "experiment.seeds", table, plan);
    }

    /// The command of the script that every cell runs.
    pub(super) fn command(&mut self, table: &dyn TableLike, item: &Item) -> Option<Assign> {
        let line = self.sheet.line(table, "command");
        let list = item.as_array().filter(|list| !list.is_empty());
        let Some(list) = list.filter(|list| list.iter().all(Value::is_str)) else {
            let text = "command is no list of words, such as [\"python\", \"train.py\"]";
            self.sheet.problem(line, text.to_owned());
            return None;
        };
        let value = plain(&Value::Array(list.clone()));
        let key = "model.command".to_owned();
        Some(Assign { key, value, line })
    }

    fn seeds(
        &mut self,
        given: &Given,
        key: &str,
        table: &dyn TableLike,
        plan: &mut ExperimentPlan,
    ) {
        let Some(seeds) = given.get::<Vec<i64>>(key) else {
            return;
        };
        let distinct: BTreeSet<i64> = seeds.iter().copied().collect();
        if distinct.len() < seeds.len() {
            let line = self.sheet.line(table, "seeds");
            self.sheet
                .problem(line, format!("{key} names a seed twice"));
        }
        plan.seeds = seeds.into_iter().map(i64::unsigned_abs).collect();
    }

    /// Keys of the configuration with their values: `"train.samples" = 8` or `train.samples = 8`.
    pub(super) fn assigns(&mut self, prefix: &str, table: &dyn TableLike) -> Vec<Assign> {
        let mut found = Vec::new();
        for (name, item) in table.iter() {
            let key = format!("{prefix}{name}");
            let line = self.sheet.line(table, name);
            match (item.as_value(), item.as_table_like()) {
                (_, Some(inner)) => found.extend(self.assigns(&format!("{key}."), inner)),
                (Some(value), None) => found.push(Assign {
                    key,
                    value: plain(value),
                    line,
                }),
                (None, None) => self.sheet.problem(line, format!("{key} has no value")),
            }
        }
        self.refuse_own(&found);
        found
    }

    /// Keys that the experiment sets itself.
    fn refuse_own(&mut self, set: &[Assign]) {
        for assign in set {
            let instead = match assign.key.as_str() {
                "run.seed" => "experiment.seeds",
                "run.name" => "experiment.name",
                "evaluation.every_samples" => "target.every_samples",
                _ => continue,
            };
            let text = format!("{} follows from {instead}", assign.key);
            self.sheet.problem(assign.line, text);
        }
    }

    pub(super) fn axes(&mut self, table: &dyn TableLike) -> Vec<Axis> {
        self.axes_below("", table)
    }

    fn axes_below(&mut self, prefix: &str, table: &dyn TableLike) -> Vec<Axis> {
        let mut axes = Vec::new();
        for (name, item) in table.iter() {
            let name_in_full = format!("{prefix}{name}");
            let line = self.sheet.line(table, name);
            let bundles = |inner: &dyn TableLike| {
                !inner.is_empty() && inner.iter().all(|(_, item)| item.is_table_like())
            };
            let choices = match (item.as_array(), item.as_table_like()) {
                (Some(list), _) => {
                    let choice = |value| key_choice(&name_in_full, value, line);
                    let choices: Vec<Choice> = list.iter().map(choice).collect();
                    let set: Vec<Assign> = choices.iter().flat_map(|c| c.set.clone()).collect();
                    self.refuse_own(&set[..set.len().min(1)]);
                    choices
                }
                // `[axes.train]` is the section of a key, `[axes.setting.sync]` a bundle.
                (None, Some(inner)) if prefix.is_empty() && !bundles(inner) => {
                    axes.extend(self.axes_below(&format!("{name_in_full}."), inner));
                    continue;
                }
                (None, Some(inner)) if prefix.is_empty() => self.bundles(inner),
                _ => {
                    let text = format!(
                        "the axis {name_in_full} is neither a list of values nor a table of bundles"
                    );
                    self.sheet.problem(line, text);
                    continue;
                }
            };
            let mut labels: Vec<&str> = choices.iter().map(|c| c.label.as_str()).collect();
            labels.sort_unstable();
            if choices.is_empty() || labels.windows(2).any(|pair| pair[0] == pair[1]) {
                let text = format!("the axis {name_in_full} needs values, each once");
                self.sheet.problem(line, text);
            }
            axes.push(Axis {
                name: name_in_full,
                choices,
            });
        }
        axes
    }

    fn bundles(&mut self, table: &dyn TableLike) -> Vec<Choice> {
        let mut choices = Vec::new();
        for (label, item) in table.iter() {
            let inner = item.as_table_like().expect("checked by the caller");
            let set = self.assigns("", inner);
            let label = label.to_owned();
            choices.push(Choice { label, set });
        }
        choices
    }

    pub(super) fn target(&mut self, table: &dyn TableLike) -> Option<Target> {
        let given = self.sheet.section("target", TARGET, table, &[]);
        let limit = |name: &str| {
            let there = table.contains_key(name);
            there
                .then(|| given.get(&format!("target.{name}")))
                .flatten()
        };
        let goal = match (limit("at_most"), limit("at_least")) {
            (Some(limit), None) => Some(Goal::AtMost(limit)),
            (None, Some(limit)) => Some(Goal::AtLeast(limit)),
            (Some(_), Some(_)) | (None, None) => None,
        };
        self.sheet.require(
            goal.is_some(),
            "the target needs one number: target.at_most or target.at_least",
        );
        Some(Target {
            metric: given.get("target.metric")?,
            goal: goal?,
            every_samples: given.get("target.every_samples")?,
        })
    }

    /// What is smaller: seeds, further settings, axes and a target in the place of others.
    pub(super) fn quick(&mut self, table: &dyn TableLike, plan: &mut ExperimentPlan) {
        const BESIDES: &[&str] = &["set", "axes", "target", "tuning"];
        let given = self.sheet.section("quick", QUICK, table, BESIDES);
        if table.contains_key("seeds") {
            self.seeds(&given, "quick.seeds", table, plan);
        }
        for (key, item) in table.iter().filter(|(key, _)| BESIDES.contains(key)) {
            match (key, item.as_table_like()) {
                ("set", Some(inner)) => {
                    let set = self.assigns("", inner);
                    plan.set.retain(|a| !set.iter().any(|b| a.key == b.key));
                    plan.set.extend(set);
                }
                ("target", Some(inner)) => plan.target = self.target(inner),
                ("tuning", Some(inner)) => plan.tuning = self.tuning(inner),
                ("tuning", None) if item.as_bool() == Some(false) => plan.tuning = None,
                ("axes", Some(inner)) => {
                    for axis in self.axes(inner) {
                        match plan.axes.iter_mut().find(|a| a.name == axis.name) {
                            Some(place) => *place = axis,
                            None => plan.axes.push(axis),
                        }
                    }
                }
                _ => {
                    let line = self.sheet.line(table, key);
                    let text = format!("quick.{key} is no section (tuning may be false, too)");
                    self.sheet.problem(line, text);
                }
            }
        }
    }
}

fn key_choice(key: &str, value: &Value, line: usize) -> Choice {
    let text = plain(value);
    let label = match value.as_str() {
        Some(word) => word.to_owned(),
        None => format!("{} {text}", key.rsplit('.').next().unwrap_or(key)),
    };
    Choice {
        label,
        set: vec![Assign {
            key: key.to_owned(),
            value: text,
            line,
        }],
    }
}

fn plain(value: &Value) -> String {
    value.clone().decorated("", "").to_string()
}
