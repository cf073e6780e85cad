//! All cells of an experiment: every combination of the axes' values with every seed.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::path::Path;

use anyhow::{Context, bail};
use tradewind_common::milestone::PASSED_MAX;
use tradewind_config::{Config, ConfigError};

use super::file::{Assign, Choice, ExperimentPlan};
use super::grid;
use super::keys::{is_synchronous, keys_of};

/// Most cells of an experiment.
const CELLS_MAX: usize = 10_000;

/// Longest part of a cell's name that comes from its setting, characters: with seed or trial it is
/// the name of a run.
const NAME_MAX: usize = 36;

/// Settings and cells.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// The base configuration.
    base: String,
    pub settings: Vec<Setting>,
    /// By setting, then by seed.
    pub cells: Vec<Cell>,
}

/// A combination of the axes' values; its cells differ in their seeds only.
#[derive(Clone, Debug)]
pub struct Setting {
    /// What it is called among those that it is compared with.
    pub label: String,
    /// Within what it is compared; empty if there is one comparison only.
    pub panel: String,
    /// Name and value on each axis.
    pub values: Vec<(String, String)>,
    /// Whether all groups go on together, and none is left out: what others are measured against.
    pub synchronous: bool,
    /// What the names of its folders begin with.
    pub stem: String,
    /// Over the base configuration.
    set: Vec<Assign>,
    /// What its tuning came to, once that is known: keys with their values. `None` without one, and
    /// where no trial came to an end.
    pub tuned: Option<Vec<(String, f64)>>,
}

/// A run of the experiment.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Name of the run and of its folder.
    pub id: String,
    /// Index of its setting.
    pub setting: usize,
    pub seed: u64,
    pub config: Config,
}

impl Matrix {
    /// Reads the base configuration once for each cell.
    ///
    /// # Errors
    /// Settings that no run can have, with the keys and the lines that set them.
    pub fn new(plan: &ExperimentPlan) -> anyhow::Result<Self> {
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
            base: text,
            settings: Vec::new(),
            cells: Vec::new(),
        };
        let mut problems = Vec::new();
        let mut told = BTreeSet::new();
        let mut ids = BTreeSet::new();
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
            let stem = unique(&mut ids, &label, &panel);
            let axes = plan.axes.iter().zip(&choices);
            let mut setting = Setting {
                label: if label.is_empty() {
                    plan.name.clone()
                } else {
                    label.clone()
                },
                values: axes
                    .map(|(axis, choice)| (axis.name.clone(), choice.label.clone()))
                    .collect(),
                synchronous: false,
                panel,
                stem,
                set,
                tuned: None,
            };
            match matrix.cells_of(plan, &setting, matrix.settings.len()) {
                Ok(cells) => {
                    let first = &cells.first().expect("there are seeds").config;
                    setting.synchronous = is_synchronous(&keys_of(first.resolved()));
                    matrix.cells.extend(cells);
                }
                Err(found) => {
                    for problem in found {
                        // Told of the first setting that has it.
                        if told.insert(problem.clone()) {
                            problems.push(problem + &setting_name(&label, &setting.panel));
                        }
                    }
                }
            }
            matrix.settings.push(setting);
        }
        if let Some(target) = &plan.target {
            let configs = matrix.cells.iter().map(|cell| &cell.config);
            // What a script measures is known when it has.
            let tasks = configs.filter(|config| !config.is_script());
            let tasks = tasks.map(|config| config.task.validation_metric());
            let measured: BTreeSet<_> = tasks.collect();
            let wrong = measured.into_iter().filter_map(|name| target.is_not(name));
            problems.extend(wrong.map(|wrong| format!("{}: {wrong}", plan.file)));
        }
        let budgets = matrix.cells.iter().map(|cell| cell.config.train.samples);
        if let (Some(target), Some(samples)) = (&plan.target, budgets.min())
            && 2 * target.every_samples > samples
        {
            problems.push(format!(
                "{}: target.every_samples = {} leaves no two evaluations in train.samples = {samples}",
                plan.file, target.every_samples
            ));
        }
        let updates = matrix.cells.iter().map(|cell| update_samples(&cell.config));
        if let (Some(target), Some(samples)) = (&plan.target, updates.max())
            && PASSED_MAX * target.every_samples < samples
        {
            problems.push(format!(
                "{}: target.every_samples = {} is passed more than {PASSED_MAX} times by an update of {samples} samples, and not all of them are evaluated; at least {} are needed",
                plan.file,
                target.every_samples,
                samples.div_ceil(PASSED_MAX)
            ));
        }
        problems.dedup();
        if !problems.is_empty() {
            bail!("{}", problems.join("\n"));
        }
        Ok(matrix)
    }

    /// A cell for each seed.
    fn cells_of(
        &self,
        plan: &ExperimentPlan,
        setting: &Setting,
        index: usize,
    ) -> Result<Vec<Cell>, Vec<String>> {
        let every = plan.target.as_ref().map(|target| target.every_samples);
        let evaluated = every.map(|n| ("evaluation.every_samples", n.to_string()));
        let tuned = setting.tuned.iter().flatten();
        let tuned = tuned.map(|(key, value)| (key.as_str(), grid::toml(key, *value)));
        let more: Vec<_> = evaluated.into_iter().chain(tuned).collect();
        let cell = |seed: &u64| {
            let id = format!("{}-seed-{seed}", setting.stem);
            let config = self.read(plan, setting, (&id, *seed), &more)?;
            Ok(Cell {
                id,
                setting: index,
                seed: *seed,
                config,
            })
        };
        plan.seeds.iter().map(cell).collect()
    }

    /// A run of a setting by hand: with these keys, and without evaluations along the way.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn trial(
        &self,
        plan: &ExperimentPlan,
        setting: usize,
        (id, seed): (String, u64),
        set: &[(&str, String)],
    ) -> Result<Cell, Vec<String>> {
        let config = self.read(plan, &self.settings[setting], (&id, seed), set)?;
        Ok(Cell {
            id,
            setting,
            seed,
            config,
        })
    }

    /// Fixes what the tuning of a setting came to; its cells are of that.
    ///
    /// # Errors
    /// Values with which its cells cannot be run.
    pub fn fix(
        &mut self,
        plan: &ExperimentPlan,
        index: usize,
        tuned: Option<Vec<(String, f64)>>,
    ) -> anyhow::Result<()> {
        self.settings[index].tuned = tuned;
        let cells = self.cells_of(plan, &self.settings[index], index);
        let cells = cells.map_err(|problems| anyhow::anyhow!(problems.join("\n")))?;
        let own = self.cells.iter_mut().filter(|cell| cell.setting == index);
        own.zip(cells).for_each(|(place, cell)| *place = cell);
        Ok(())
    }

    /// The configuration of a run of a setting, with further keys.
    fn read(
        &self,
        plan: &ExperimentPlan,
        setting: &Setting,
        (id, seed): (&str, u64),
        more: &[(&str, String)],
    ) -> Result<Config, Vec<String>> {
        let set = setting.set.iter();
        let mut overrides: Vec<String> = set
            .map(|assign| format!("{}={}", assign.key, assign.value))
            .collect();
        overrides.extend(more.iter().map(|(key, value)| format!("{key}={value}")));
        overrides.push(format!("run.name={id}"));
        overrides.push(format!("run.seed={seed}"));
        let folder = plan.base.parent().unwrap_or(Path::new("/"));
        tradewind_folder::config::parse(
            &self.base,
            &plan.base.display().to_string(),
            folder,
            &overrides,
        )
        .map_err(|error| explain(plan, &setting.set, more, &error))
    }

    /// The cells of one setting.
    pub fn of(&self, setting: usize) -> impl Iterator<Item = &Cell> {
        self.cells
            .iter()
            .filter(move |cell| cell.setting == setting)
    }
}

/// The most samples that an update brings: of all groups where they are merged, else of the largest.
fn update_samples(config: &Config) -> u64 {
    let groups = &config.cluster.groups;
    let merged = config.train.consistency.waits_for_all();
    let ranks = match merged || config.policies.merge.is_some() {
        true => config.world_size(),
        false => groups.iter().copied().max().unwrap_or(1),
    };
    let steps = config.local.as_ref().map_or(1, |local| local.steps);
    u64::from(ranks) * u64::from(config.train.largest_batch()) * u64::from(steps)
}

/// Every combination of the axes' values; the first axis changes last.
fn combinations(plan: &ExperimentPlan) -> Vec<Vec<&Choice>> {
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
fn together(plan: &ExperimentPlan, choices: &[&Choice]) -> Result<Vec<Assign>, String> {
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

/// What is wrong with a setting, as the experiment's file says it. `more` keys were set beside its own.
fn explain(
    plan: &ExperimentPlan,
    set: &[Assign],
    more: &[(&str, String)],
    error: &ConfigError,
) -> Vec<String> {
    let tuned = plan.tuning.iter().flat_map(|tuning| &tuning.knobs);
    let tuned = tuned.filter(|knob| more.iter().any(|(key, _)| *key == knob.key));
    let explained = error.0.iter().map(|problem| {
        let knob = tuned.clone().find(|knob| knob.key == problem.key);
        if let (Some(knob), Some(text)) = (knob, problem.text.strip_prefix("--set: ")) {
            return format!("{}, line {}: {text}", plan.file, knob.line);
        }
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
fn unique(taken: &mut BTreeSet<String>, label: &str, panel: &str) -> String {
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
    let others = (2..).map(|n| format!("{name}-{n}"));
    let mut free = iter::once(name.clone()).chain(others);
    free.find(|name| taken.insert(name.clone()))
        .expect("there is no end of them")
}
