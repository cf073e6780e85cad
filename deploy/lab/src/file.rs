//! An experiment's file: what it says, with the lines on which it says it.

mod reader;
mod tuning;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use toml_edit::{Document, Item};

use reader::{Reader, line_of};
pub use tuning::Tuning;

/// What a file asks for.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What messages call the file.
    pub file: String,
    /// What it says.
    pub text: String,
    pub name: String,
    /// The question, in a sentence.
    pub about: String,
    /// The configuration that every cell starts from.
    pub base: PathBuf,
    pub seeds: Vec<u64>,
    /// Axes across whose values nothing is compared.
    pub panels: Vec<String>,
    /// For every cell.
    pub set: Vec<Assign>,
    pub axes: Vec<Axis>,
    pub target: Option<Target>,
    pub tuning: Option<Tuning>,
    /// Cells at a time; 0 for as many as the machine holds.
    pub cells_at_once: u64,
}

/// A key and its value as TOML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assign {
    pub key: String,
    pub value: String,
    pub line: usize,
}

/// What is varied.
#[derive(Clone, Debug)]
pub struct Axis {
    pub name: String,
    pub choices: Vec<Choice>,
}

/// One of the values of an axis.
#[derive(Clone, Debug)]
pub struct Choice {
    pub label: String,
    pub set: Vec<Assign>,
}

/// What a cell is to reach, and how often that is looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    pub metric: String,
    pub goal: Goal,
    /// Applied samples between two evaluations.
    pub every_samples: u64,
}

/// On which side of a value the target lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

impl Goal {
    /// Whether a value is good enough; what is not a number never is.
    pub fn met(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
        }
    }

    pub fn limit(self) -> f64 {
        match self {
            Self::AtMost(limit) | Self::AtLeast(limit) => limit,
        }
    }

    /// The same with another value.
    pub fn at(self, limit: f64) -> Self {
        match self {
            Self::AtMost(_) => Self::AtMost(limit),
            Self::AtLeast(_) => Self::AtLeast(limit),
        }
    }
}

impl Target {
    /// What is wrong if the task measures something else on its validation split.
    pub fn is_not(&self, measured: &str) -> Option<String> {
        (self.metric != measured).then(|| {
            format!(
                "target.metric = {:?} is not what the task measures on its validation split, which is {measured:?}",
                self.metric
            )
        })
    }
}

impl Plan {
    /// Cells that run together at most, or trials.
    pub fn at_once(&self, trials: bool) -> usize {
        let own = self.tuning.as_ref().filter(|_| trials);
        match own.and_then(|t| t.at_once).unwrap_or(self.cells_at_once) {
            0 => usize::MAX,
            count => usize::try_from(count).unwrap_or(usize::MAX),
        }
    }

    /// Reads the file. With `quick` what `[quick]` says takes the place of the rest.
    ///
    /// # Errors
    /// Everything that is wrong with it, at once.
    pub fn read(path: &Path, quick: bool) -> anyhow::Result<Self> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the experiment {name}"))?;
        let absolute = std::fs::canonicalize(path)?;
        let folder = absolute.parent().unwrap_or(Path::new("/"));
        Self::parse(&text, &name, folder, quick)
    }

    pub fn parse(text: &str, file: &str, folder: &Path, quick: bool) -> anyhow::Result<Self> {
        let document = Document::parse(text).map_err(|error| {
            let line = error.span().map_or(1, |span| line_of(text, span.start));
            anyhow::anyhow!("{file}, line {line}: {}", error.message())
        })?;
        let mut reader = Reader::new(text, file);
        let mut plan = Self {
            file: file.to_owned(),
            text: text.to_owned(),
            name: String::new(),
            about: String::new(),
            base: PathBuf::new(),
            seeds: vec![1],
            panels: Vec::new(),
            set: Vec::new(),
            axes: Vec::new(),
            target: None,
            tuning: None,
            cells_at_once: 0,
        };
        for (section, item) in document.as_table().iter() {
            if section == "command" {
                plan.set.extend(reader.command(document.as_table(), item));
                continue;
            }
            let Some(table) = item.as_table_like() else {
                reader.problem(item, format!("{section} is no section"));
                continue;
            };
            match section {
                "experiment" => reader.experiment(table, folder, &mut plan),
                "set" => plan.set.extend(reader.assigns("", table)),
                "axes" => plan.axes = reader.axes(table),
                "target" => plan.target = reader.target(table),
                "tuning" => plan.tuning = reader.tuning(table),
                "quick" => {}
                other => reader.problem(
                    item,
                    format!("[{other}] is no section of an experiment; there are [experiment], [set], [axes], [tuning], [target] and [quick]"),
                ),
            }
        }
        if quick {
            match document.get("quick").and_then(Item::as_table_like) {
                Some(table) => reader.quick(table, &mut plan),
                None => bail!("{file}: --quick needs a section [quick] that says what is smaller"),
            }
        }
        reader.require(!plan.name.is_empty(), "experiment.name is missing");
        reader.require(
            plan.base != PathBuf::new(),
            "experiment.base is missing (the configuration that every cell starts from)",
        );
        for panel in &plan.panels {
            if !plan.axes.iter().any(|axis| axis.name == *panel) {
                let axes: Vec<_> = plan.axes.iter().map(|axis| axis.name.as_str()).collect();
                let axes = axes.join(", ");
                let text = format!(
                    "experiment.panels names {panel:?}, which is no axis; there are: {axes}"
                );
                reader.problems.push((0, text));
            }
        }
        reader.check_tuning(&plan);
        reader.finish()?;
        Ok(plan)
    }
}
