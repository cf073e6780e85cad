//! All cells of an experiment: every combination of the axes' values with every seed.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, bail};
use toml_edit::Document;
use tradewind_common::config::{Config, ConfigError};

use super::file::{Assign, Choice, Plan};

/// Most cells of an experiment.
const CELLS_MAX: usize = 10_000;

/// Longest part of a cell's name that comes from its setting, characters.
const NAME_MAX: usize = 48;

/// Settings and cells.
#[derive(Clone, Debug)]
pub(crate) struct Matrix {
    pub(crate) settings: Vec<Setting>,
    /// By setting, then by seed.
    pub(crate) cells: Vec<Cell>,
}

/// A combination of the axes' values; its cells differ in their seeds only.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// What it is called among those that it is compared with.
    pub(crate) label: String,
    /// Within what it is compared; empty if there is one comparison only.
    pub(crate) panel: String,
    /// Name and value on each axis.
    pub(crate) values: Vec<(String, String)>,
    /// Whether all groups go on together, and none is left out: what others are measured against.
    pub(crate) synchronous: bool,
}

/// A run of the experiment.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    /// Name of the run and of its folder.
    pub(crate) id: String,
    /// Index of its setting.
    pub(crate) setting: usize,
    pub(crate) seed: u64,
    pub(crate) config: Config,
}

impl Matrix {
    /// Reads the base configuration once for each cell.
    ///
    /// # Errors
    /// Settings that no run can have, with the keys and the lines that set them.
    pub(crate) fn new(plan: &Plan) -> anyhow::Result<Self> {
        let count = plan.axes.iter().map(|axis| axis.choices.len());
        let count = count.fold(plan.seeds.len(), usize::saturating_mul);
        if count > CELLS_MAX {
            bail!("{}: {count} cells are more than {CELLS_MAX}", plan.file);
        }
        let base = &plan.base;
        let text = std::fs::read_to_string(base).with_context(|| {
            let file = &plan.file;
            format!("{file}: cannot read experiment.base {}", base.display())
        })?;
        let mut matrix = Self {
            settings: Vec::new(),
            cells: Vec::new(),
        };
        let mut problems = Vec::new();
        let mut told = BTreeSet::new();
        let mut ids = BTreeMap::new();
        for choices in combinations(plan) {
            let label = |wanted: bool| {
                let axes = plan.axes.iter().zip(&choices);
                let own = axes.filter(|(axis, _)| plan.panels.contains(&axis.name) == wanted);
                let labels = own.map(|(_, choice)| choice.label.as_str());
                labels.collect::<Vec<_>>().join(", ")
            };
            let set = match together(plan, &choices) {
                Ok(set) => set,
                Err(problem) => {
                    problems.push(problem);
                    continue;
                }
            };
            let (label, panel) = (label(false), label(true));
            let id = unique(&mut ids, &label, &panel);
            for seed in &plan.seeds {
                let id = format!("{id}-seed-{seed}");
                let read = read(plan, &text, &set, &id, *seed);
                let config = match read {
                    Ok(config) => config,
                    Err(error) => {
                        for problem in explain(plan, &set, &error) {
                            // Told of the first setting that has it.
                            if told.insert(problem.clone()) {
                                problems.push(problem + &setting_name(&label, &panel));
                            }
                        }
                        break;
                    }
                };
                matrix.cells.push(Cell {
                    id,
                    setting: matrix.settings.len(),
                    seed: *seed,
                    config,
                });
            }
            let synchronous = matrix.cells.last().is_some_and(|cell| {
                let keys = keys_of(cell.config.resolved());
                is_synchronous(&keys)
            });
            let axes = plan.axes.iter().zip(&choices);
            matrix.settings.push(Setting {
                label: if label.is_empty() {
                    plan.name.clone()
                } else {
                    label
                },
                panel,
                values: axes
                    .map(|(axis, choice)| (axis.name.clone(), choice.label.clone()))
                    .collect(),
                synchronous,
            });
        }
        problems.dedup();
        if !problems.is_empty() {
            bail!("{}", problems.join("\n"));
        }
        Ok(matrix)
    }

    /// The cells of one setting.
    pub(crate) fn of(&self, setting: usize) -> impl Iterator<Item = &Cell> {
        self.cells
            .iter()
            .filter(move |cell| cell.setting == setting)
    }
}

/// Every combination of the axes' values; the first axis changes last.
fn combinations(plan: &Plan) -> Vec<Vec<&Choice>> {
    let mut all = vec![Vec::new()];
    for axis in &plan.axes {
        let longer = all.iter().flat_map(|known: &Vec<&Choice>| {
            axis.choices.iter().map(move |choice| {
                let mut longer = known.clone();
                longer.push(choice);
                longer
            })
        });
        all = longer.collect();
    }
    all
}

/// What is set over the base; axes win over `[set]`, but not over each other.
fn together(plan: &Plan, choices: &[&Choice]) -> Result<Vec<Assign>, String> {
    let mut by_axis: BTreeMap<&str, &str> = BTreeMap::new();
    let mut set = plan.set.clone();
    for (axis, choice) in plan.axes.iter().zip(choices) {
        for assign in &choice.set {
            if let Some(other) = by_axis.insert(&assign.key, &axis.name)
                && other != axis.name
            {
                return Err(format!(
                    "{}, line {}: {} is set by two axes, {other} and {}",
                    plan.file, assign.line, assign.key, axis.name
                ));
            }
            set.retain(|known| known.key != assign.key);
            set.push(assign.clone());
        }
    }
    Ok(set)
}

fn read(
    plan: &Plan,
    base: &str,
    set: &[Assign],
    id: &str,
    seed: u64,
) -> Result<Config, ConfigError> {
    let mut overrides: Vec<String> = set
        .iter()
        .map(|assign| format!("{}={}", assign.key, assign.value))
        .collect();
    if let Some(target) = &plan.target {
        overrides.push(format!("evaluation.every_samples={}", target.every_samples));
    }
    overrides.push(format!("run.name={id}"));
    overrides.push(format!("run.seed={seed}"));
    let folder = plan.base.parent().unwrap_or(std::path::Path::new("/"));
    Config::parse(base, &plan.base.display().to_string(), folder, &overrides)
}

/// What is wrong with a setting, as the experiment's file says it.
fn explain(plan: &Plan, set: &[Assign], error: &ConfigError) -> Vec<String> {
    let explained = error.0.iter().map(|problem| {
        let by = set.iter().find(|assign| assign.key == problem.key);
        match (by, problem.text.strip_prefix("--set: ")) {
            (Some(assign), Some(text)) => {
                format!("{}, line {}: {text}", plan.file, assign.line)
            }
            _ => problem.text.clone(),
        }
    });
    explained.collect()
}

fn setting_name(label: &str, panel: &str) -> String {
    let both = [label, panel].into_iter().filter(|text| !text.is_empty());
    let both: Vec<_> = both.collect();
    if both.is_empty() {
        String::new()
    } else {
        format!(" (in the setting {})", both.join(", "))
    }
}

/// A name for the folders of a setting's cells: letters, digits and dashes, of no other setting.
fn unique(taken: &mut BTreeMap<String, usize>, label: &str, panel: &str) -> String {
    let all = format!("{label} {panel}");
    let mut name = String::new();
    for c in all.chars() {
        if c.is_ascii_alphanumeric() || c == '.' {
            name.push(c.to_ascii_lowercase());
        } else if !name.ends_with('-') && !name.is_empty() {
            name.push('-');
        }
    }
    let name: String = name.chars().take(NAME_MAX).collect();
    let name = match name.trim_end_matches(['-', '.']) {
        "" => "cell".to_owned(),
        name if name.starts_with(|c: char| c.is_ascii_alphanumeric()) => name.to_owned(),
        name => format!("cell-{}", name.trim_start_matches(['.', '-'])),
    };
    let count = taken.entry(name.clone()).or_default();
    *count += 1;
    match *count {
        1 => name,
        again => format!("{name}-{again}"),
    }
}

/// Every key of a resolved configuration with its value as TOML.
pub(crate) fn keys_of(resolved: &str) -> BTreeMap<String, String> {
    let document = Document::parse(resolved).expect("a resolved configuration is TOML");
    let mut keys = BTreeMap::new();
    for (section, item) in document.as_table().iter() {
        for (name, value) in item.as_table_like().into_iter().flat_map(|t| t.iter()) {
            let value = value.as_value().map(|v| v.clone().decorated("", ""));
            let value = value.map_or(String::new(), |v| v.to_string());
            keys.insert(format!("{section}.{name}"), value);
        }
    }
    keys
}

/// Whether a configuration is synchronous training in which every group counts.
pub(crate) fn is_synchronous(keys: &BTreeMap<String, String>) -> bool {
    let backups = keys.get("train.backup_groups");
    let sync = keys
        .get("train.consistency")
        .is_some_and(|v| v == "\"sync\"");
    sync && backups.is_none_or(|n| n == "0")
}
