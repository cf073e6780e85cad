//! Reads the sections of an experiment's file, and collects what is wrong with them.

use std::path::Path;

use anyhow::bail;
use toml_edit::{Item, TableLike, Value};

use super::{Assign, Axis, Choice, Goal, Plan, Target};

/// Collects what is wrong.
pub(super) struct Reader<'a> {
    text: &'a str,
    file: &'a str,
    pub(super) problems: Vec<(usize, String)>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str, file: &'a str) -> Self {
        Self {
            text,
            file,
            problems: Vec::new(),
        }
    }

    fn line(&self, item: &Item) -> usize {
        item.span().map_or(0, |span| line_of(self.text, span.start))
    }

    pub(super) fn line_of_key(&self, table: &dyn TableLike, key: &str) -> usize {
        let span = table.key(key).and_then(|key| key.span());
        let span = span.or_else(|| table.get(key).and_then(Item::span));
        span.map_or(0, |span| line_of(self.text, span.start))
    }

    pub(super) fn problem(&mut self, item: &Item, text: String) {
        let line = self.line(item);
        self.problems.push((line, text));
    }

    pub(super) fn require(&mut self, good: bool, text: &str) {
        if !good {
            self.problems.push((0, text.to_owned()));
        }
    }

    pub(super) fn finish(self) -> anyhow::Result<()> {
        let Self { file, problems, .. } = self;
        if problems.is_empty() {
            return Ok(());
        }
        let lines = problems.iter().map(|(line, text)| match line {
            0 => format!("{file}: {text}"),
            line => format!("{file}, line {line}: {text}"),
        });
        bail!("{}", lines.collect::<Vec<_>>().join("\n"))
    }

    pub(super) fn experiment(&mut self, table: &dyn TableLike, folder: &Path, plan: &mut Plan) {
        for (key, item) in table.iter() {
            let texts = || -> Option<Vec<String>> {
                let list = item.as_array()?;
                list.iter().map(|v| Some(v.as_str()?.to_owned())).collect()
            };
            let wrong = match key {
                "name" => item.as_str().map(|name| plan.name = name.to_owned()),
                "about" => item.as_str().map(|about| plan.about = about.to_owned()),
                "base" => item.as_str().map(|base| plan.base = folder.join(base)),
                "panels" => texts().map(|panels| plan.panels = panels),
                "seeds" => {
                    self.seeds(item, plan);
                    Some(())
                }
                "cells_at_once" => {
                    let count = item.as_integer().and_then(|n| u64::try_from(n).ok());
                    count.map(|count| plan.cells_at_once = count)
                }
                _ => {
                    let text = format!(
                        "experiment.{key} is no key; there are name, about, base, seeds, panels and cells_at_once"
                    );
                    self.problem(item, text);
                    Some(())
                }
            };
            if wrong.is_none() {
                let wanted = match key {
                    "panels" => "a list of names of axes",
                    "cells_at_once" => "a number, 0 or more",
                    _ => "a text",
                };
                self.problem(item, format!("experiment.{key} is not {wanted}"));
            }
        }
    }

    /// The command of the script that every cell runs.
    pub(super) fn command(&mut self, table: &dyn TableLike, item: &Item) -> Option<Assign> {
        let line = self.line_of_key(table, "command");
        let list = item.as_array().filter(|list| !list.is_empty());
        let Some(list) = list.filter(|list| list.iter().all(Value::is_str)) else {
            let text = "command is no list of words, such as [\"python\", \"train.py\"]";
            self.problems.push((line, text.to_owned()));
            return None;
        };
        let value = plain(&Value::Array(list.clone()));
        let key = "model.command".to_owned();
        Some(Assign { key, value, line })
    }

    fn seeds(&mut self, item: &Item, plan: &mut Plan) {
        let list = item.as_array();
        let seeds: Option<Vec<u64>> = list.and_then(|list| {
            let seed = |v: &Value| v.as_integer().and_then(|n| u64::try_from(n).ok());
            list.iter().map(seed).collect()
        });
        let distinct = |seeds: &Vec<u64>| {
            let mut sorted = seeds.clone();
            sorted.sort_unstable();
            sorted.dedup();
            sorted.len() == seeds.len() && !seeds.is_empty()
        };
        match seeds.filter(distinct) {
            Some(seeds) => plan.seeds = seeds,
            None => self.problem(
                item,
                "seeds is no list of different whole numbers".to_owned(),
            ),
        }
    }

    /// Keys of the configuration with their values: `"train.samples" = 8` or `train.samples = 8`.
    pub(super) fn assigns(&mut self, prefix: &str, table: &dyn TableLike) -> Vec<Assign> {
        let mut found = Vec::new();
        for (name, item) in table.iter() {
            let key = format!("{prefix}{name}");
            let line = self.line_of_key(table, name);
            match (item.as_value(), item.as_table_like()) {
                (_, Some(inner)) => found.extend(self.assigns(&format!("{key}."), inner)),
                (Some(value), None) => found.push(Assign {
                    key,
                    value: plain(value),
                    line,
                }),
                (None, None) => self.problem(item, format!("{key} has no value")),
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
            self.problems.push((assign.line, text));
        }
    }

    pub(super) fn axes(&mut self, table: &dyn TableLike) -> Vec<Axis> {
        self.axes_below("", table)
    }

    fn axes_below(&mut self, prefix: &str, table: &dyn TableLike) -> Vec<Axis> {
        let mut axes = Vec::new();
        for (name, item) in table.iter() {
            let name_in_full = format!("{prefix}{name}");
            let line = self.line_of_key(table, name);
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
                    self.problems.push((line, text));
                    continue;
                }
            };
            let mut labels: Vec<&str> = choices.iter().map(|c| c.label.as_str()).collect();
            labels.sort_unstable();
            if choices.is_empty() || labels.windows(2).any(|pair| pair[0] == pair[1]) {
                let text = format!("the axis {name_in_full} needs values, each once");
                self.problems.push((line, text));
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
        let number = |key| number(table.get(key)?);
        for (key, item) in table.iter() {
            if !["metric", "at_most", "at_least", "every_samples"].contains(&key) {
                self.problem(item, format!("target.{key} is no key; there are metric, at_most, at_least and every_samples"));
            }
        }
        let metric = table.get("metric").and_then(Item::as_str);
        let goal = match (number("at_most"), number("at_least")) {
            (Some(limit), None) => Some(Goal::AtMost(limit)),
            (None, Some(limit)) => Some(Goal::AtLeast(limit)),
            _ => None,
        };
        let every = table.get("every_samples").and_then(Item::as_integer);
        let every = every.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0);
        self.require(
            metric.is_some(),
            "target.metric is missing (the name of the task's metric on the validation split)",
        );
        self.require(
            goal.is_some(),
            "the target needs one number: target.at_most or target.at_least",
        );
        self.require(
            every.is_some(),
            "target.every_samples is missing (applied samples between two evaluations, 1 or more)",
        );
        Some(Target {
            metric: metric?.to_owned(),
            goal: goal?,
            every_samples: every?,
        })
    }

    /// What is smaller: seeds, further settings, axes and a target in the place of others.
    pub(super) fn quick(&mut self, table: &dyn TableLike, plan: &mut Plan) {
        for (key, item) in table.iter() {
            match (key, item.as_table_like()) {
                ("seeds", _) => self.seeds(item, plan),
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
                _ => self.problem(
                    item,
                    format!("quick.{key} is no key; there are seeds, set, axes, target and tuning (a section, or false)"),
                ),
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

pub(super) fn line_of(text: &str, offset: usize) -> usize {
    text[..offset.min(text.len())].matches('\n').count() + 1
}

/// A number, whether or not it is written as an integer.
pub(super) fn number(item: &Item) -> Option<f64> {
    item.as_float().or(item.as_integer().map(|n| n as f64))
}
