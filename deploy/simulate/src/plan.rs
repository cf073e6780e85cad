//! A plan: a run's file with three sections more, which say how much of it is simulated, on which machine, and
//! what fails there. `[sweep]` names keys with the values that they take in turn, `[[known]]` has points that
//! the picture shows beside its curves.

use std::path::{Path, PathBuf};

use anyhow::Context;
use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, TableLike, Value};
use tradewind_config::sheet::{self, Sheet};
use tradewind_config::{Config, ConfigError, Replay};

use crate::machine::{Extent, Failures, Machine};

/// Sections that a run's file does not have.
const OWN: &[&str] = &["simulate", "machine", "failures", "sweep", "known"];

/// What has to be given for a run, and says nothing about its time.
const IMMATERIAL: &[(&str, &str)] = &[
    ("run.name", "plan"),
    ("model.name", "replay"),
    ("data.folder", "."),
    ("optimizer.learning_rate", "0.01"),
];

/// Most points of a sweep.
const POINTS_MAX: usize = 10_000;

/// What a file asks for.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) config: Config,
    pub(crate) extent: Extent,
    pub(crate) machine: Machine,
    pub(crate) failures: Failures,
    /// What is varied; the first one is drawn from left to right.
    pub(crate) axes: Vec<Axis>,
    /// What others have measured.
    pub(crate) known: Vec<Known>,
    source: Source,
}

/// A key with the values that it takes in turn.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    pub(crate) key: String,
    pub(crate) values: Vec<Value>,
}

/// Points that others have measured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    pub(crate) label: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// A file, to be read again with other values.
#[derive(Clone, Debug)]
struct Source {
    text: String,
    file: String,
    folder: PathBuf,
    set: Vec<String>,
}

impl Plan {
    /// Reads a plan; `set` are further `key=value`.
    ///
    /// # Errors
    /// Everything that is wrong with it, at once.
    pub(crate) fn read(path: &Path, set: &[String]) -> anyhow::Result<Self> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path);
        let text = text.with_context(|| format!("cannot read the plan {file}"))?;
        let absolute = std::fs::canonicalize(path)?;
        let folder = absolute.parent().unwrap_or(Path::new("/")).to_owned();
        Ok(Self::parse(Source {
            text,
            file,
            folder,
            set: set.to_vec(),
        })?)
    }

    /// The plan of each point of its sweep, with the values of its axes; of a plan without one itself.
    ///
    /// # Errors
    /// Points that cannot be simulated.
    pub(crate) fn points(&self) -> anyhow::Result<Vec<(Vec<Value>, Self)>> {
        let mut points = vec![Vec::new()];
        for axis in &self.axes {
            let with = |point: Vec<Value>| {
                let more = move |value: &Value| [point.clone(), vec![value.clone()]].concat();
                axis.values.iter().map(more).collect::<Vec<_>>()
            };
            points = points.into_iter().flat_map(with).collect();
            anyhow::ensure!(
                points.len() <= POINTS_MAX,
                "{}: a sweep of more than {POINTS_MAX} points",
                self.source.file
            );
        }
        let plan = |point: Vec<Value>| {
            let mut source = self.source.clone();
            for (axis, value) in self.axes.iter().zip(&point) {
                let value = value.clone().decorated("", "");
                source.set.push(format!("{}={value}", axis.key));
            }
            let named = || format!("sweep at {}", source.set.join(", "));
            let plan = Self::parse(source.clone()).with_context(named)?;
            Ok((point, plan))
        };
        points.into_iter().map(plan).collect()
    }

    fn parse(source: Source) -> Result<Self, ConfigError> {
        let Source {
            text,
            file,
            folder,
            set,
        } = &source;
        let (own, mut set): (Vec<_>, Vec<_>) = set.iter().cloned().partition(|set| is_own(set));
        let changed;
        let text = match own.as_slice() {
            [] => text,
            own => {
                changed = with(text, file, own)?;
                &changed
            }
        };
        let document = sheet::document(text, file)?;
        let table = document.as_table();
        let mut sheet = Sheet::new(text, file);
        let section = |name: &str| table.get(name).and_then(Item::as_table_like);
        let none = Table::new();
        let extent: Extent = sheet.settings("simulate", section("simulate").unwrap_or(&none));
        let machine: Machine = sheet.settings("machine", section("machine").unwrap_or(&none));
        let failures: Failures = sheet.settings("failures", section("failures").unwrap_or(&none));
        let axes = section("sweep").map(|table| axes(&mut sheet, "", table));
        let known = known(&mut sheet, table.get("known"));
        set.extend(immaterial(table, &set));
        set.extend(in_short(&extent, &set));
        let read = Config::parse_beside(OWN, text, file, folder, &set);
        let config = match (read, sheet.finish()) {
            (Ok(config), Ok(())) => config,
            (read, finished) => {
                let problems = read.err().into_iter().chain(finished.err());
                let problems = problems.flat_map(|error| error.0).collect();
                return Err(ConfigError(problems));
            }
        };
        let plan = Self {
            config,
            extent,
            machine,
            failures,
            axes: axes.unwrap_or_default(),
            known,
            source: source.clone(),
        };
        plan.check(text, file)?;
        Ok(plan)
    }

    /// What does not fit together.
    fn check(&self, text: &str, file: &str) -> Result<(), ConfigError> {
        let mut sheet = Sheet::new(text, file);
        let batch = self.batch(0);
        let step = self.config.step_seconds + self.machine.computes(batch);
        sheet.require(
            step > 0.0,
            "a step takes no time; give pace.step_seconds, machine.step_seconds or machine.sample_seconds",
        );
        sheet.require(
            self.parameters() > 0,
            "the model has no size; give simulate.parameters, or model.parameters",
        );
        sheet.require(
            self.extent.ranks == 0 || self.extent.ranks >= self.extent.groups.max(1),
            "simulate.ranks are fewer than simulate.groups",
        );
        let restarts = self.failures.restart && self.failures.node_years > 0.0;
        sheet.require(
            !restarts || self.failures.snapshot_every_seconds > 0.0,
            "failures.restart goes on from snapshots; give failures.snapshot_every_seconds",
        );
        sheet.finish()
    }

    /// Parameters of the model.
    pub(crate) fn parameters(&self) -> u64 {
        match self.extent.parameters {
            0 => {
                let replay: Option<Replay> = self.config.task.settings();
                replay.map_or(0, |replay| replay.parameters)
            }
            given => given,
        }
    }

    /// Samples of a rank's step.
    pub(crate) fn batch(&self, group: usize) -> f64 {
        match self.extent.group_batch {
            0.0 => {
                f64::from(self.config.train.batch) * f64::from(self.config.train.batches_per_step)
            }
            samples => samples / f64::from(self.config.cluster.groups[group]),
        }
    }

    /// The same machine, and another run on it.
    pub(crate) fn of_run(&self, config: Config) -> Self {
        let mut plan = self.clone();
        plan.extent = Extent {
            parameters: self.extent.parameters,
            buffers: self.extent.buffers,
            ..Extent::default()
        };
        plan.config = config;
        plan
    }
}

/// Whether `key=value` is of a section of plans.
fn is_own(set: &str) -> bool {
    let section = set.split('.').next().unwrap_or_default();
    OWN.contains(&section.trim())
}

/// The text with these `section.key=value` in its own sections.
fn with(text: &str, file: &str, own: &[String]) -> Result<String, ConfigError> {
    sheet::document(text, file)?;
    let mut document: DocumentMut = text.parse().expect("it was read above");
    let mut sheet = Sheet::new(text, file);
    for set in own {
        let parts = set
            .split_once('=')
            .map(|(key, value)| (key.trim(), value.trim()));
        let Some((key, value)) = parts else {
            sheet.problem(0, format!("--set {set}: give it as key=value"));
            continue;
        };
        let (section, name) = key.split_once('.').unwrap_or((key, ""));
        let value: Value = value.parse().unwrap_or_else(|_| value.into());
        let table = document.entry(section).or_insert(Item::Table(Table::new()));
        match table.as_table_like_mut() {
            Some(table) => drop(table.insert(name, Item::Value(value))),
            None => sheet.problem(0, format!("{section} is no section")),
        }
    }
    sheet.finish()?;
    Ok(document.to_string())
}

/// What a run needs and a plan does not say.
fn immaterial(table: &Table, set: &[String]) -> Vec<String> {
    let given = |key: &str| {
        let (section, name) = key.split_once('.').expect("a key");
        let in_file = table.get(section).and_then(Item::as_table_like);
        let prefix = format!("{key}=");
        in_file.is_some_and(|table| table.contains_key(name))
            || set
                .iter()
                .any(|set| set.replace(' ', "").starts_with(&prefix))
    };
    let another = given("model.name");
    let missing = IMMATERIAL.iter().filter(|(key, _)| !given(key));
    let missing = missing.filter(|(key, _)| !(another && *key == "data.folder"));
    missing
        .map(|(key, value)| format!("{key}={value}"))
        .collect()
}

/// The run's keys that a plan says in short.
fn in_short(extent: &Extent, set: &[String]) -> Vec<String> {
    let mut short = Vec::new();
    if extent.groups > 0 {
        let ranks = extent.ranks.max(extent.groups);
        let (each, more) = (ranks / extent.groups, ranks % extent.groups);
        let sizes = (0..extent.groups).map(|group| each + u64::from(group < more));
        let sizes: Array = sizes.map(|size| size as i64).collect();
        short.push(format!("cluster.groups={sizes}"));
        if extent.group_batch > 0.0 {
            let batch = (extent.group_batch / each as f64).ceil().max(1.0);
            short.push(format!("train.batch={batch}"));
        }
    }
    let budget = set.iter().any(|set| set.starts_with("train.samples="));
    if extent.clocks > 0 && !budget {
        short.push(format!("train.samples={}", tradewind_config::key::MANY));
    }
    short
}

fn axes(sheet: &mut Sheet<'_>, prefix: &str, table: &dyn TableLike) -> Vec<Axis> {
    let mut found = Vec::new();
    for (name, item) in table.iter() {
        let key = format!("{prefix}{name}");
        match (item.as_array(), item.as_table_like()) {
            (Some(list), _) if !list.is_empty() => found.push(Axis {
                key,
                values: list.iter().cloned().collect(),
            }),
            (None, Some(inner)) => found.extend(axes(sheet, &format!("{key}."), inner)),
            _ => {
                let line = sheet.line(table, name);
                sheet.problem(line, format!("sweep.{key} is no list of values"));
            }
        }
    }
    found
}

fn known(sheet: &mut Sheet<'_>, item: Option<&Item>) -> Vec<Known> {
    let Some(item) = item else {
        return Vec::new();
    };
    let empty = ArrayOfTables::new();
    let tables = item.as_array_of_tables().unwrap_or(&empty);
    if tables.is_empty() {
        sheet.problem(0, "known is no list of tables: write [[known]]");
    }
    let mut found = Vec::new();
    for table in tables.iter() {
        let label = table
            .get("label")
            .and_then(Item::as_str)
            .unwrap_or_default();
        let number = |value: &Value| value.as_float().or(value.as_integer().map(|n| n as f64));
        let pair = |value: &Value| {
            let pair = value.as_array().filter(|pair| pair.len() == 2)?;
            Some((number(pair.get(0)?)?, number(pair.get(1)?)?))
        };
        let points = table.get("points").and_then(Item::as_array);
        let points: Option<Vec<_>> = points.and_then(|points| points.iter().map(pair).collect());
        let known = points.filter(|_| !label.is_empty()).map(|points| Known {
            label: label.to_owned(),
            points,
        });
        match known {
            Some(known) => found.push(known),
            None => sheet.problem(
                0,
                "a [[known]] needs a label, and points as a list of pairs of numbers",
            ),
        }
    }
    found
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Eight groups of one rank on a machine of two cores.
    pub(crate) const BASE: &str = "[cluster]\nservers = 1\ngroups = [1, 1, 1, 1, 1, 1, 1, 1]\n\n\
        [train]\nsamples = 40000\nbatch = 4\nconsistency = \"sync\"\n\n[pace]\nstep_seconds = 0.06\n\n\
        [simulate]\nparameters = 20522\n\n[machine]\nlink_gbit = 10\n";

    pub(crate) fn plan(set: &[&str]) -> Result<Plan, String> {
        let source = Source {
            text: BASE.into(),
            file: "p.toml".into(),
            folder: "/".into(),
            set: set.iter().map(|set| (*set).to_owned()).collect(),
        };
        Plan::parse(source).map_err(|error| error.to_string())
    }

    #[test]
    fn a_plan_is_a_runs_file_and_a_machine() {
        let read = plan(&[]).unwrap();
        assert_eq!(read.config.cluster.groups, [1; 8]);
        assert_eq!(read.machine.link_gbit, 10.0);
        let short = plan(&[
            "simulate.groups=3",
            "simulate.ranks=10",
            "simulate.group_batch=12",
        ]);
        let short = short.unwrap();
        assert_eq!(short.config.cluster.groups, [4, 3, 3]);
        assert_eq!((short.batch(0), short.batch(1)), (3.0, 4.0));
        let bounded = plan(&["train.consistency=bounded", "train.staleness_bound=2"]).unwrap();
        let bound = bounded.config.train.consistency;
        assert!(format!("{bound:?}").contains('2'), "{bound:?}");
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once_with_the_nearest_name() {
        let text = "[train]\nsamples = 40000\nbatches = 4\n[machine]\nlink_gbits = 10\n\
            [failures]\nnode_years = -1\n[machines]\nlink_gbit = 1\n";
        let source = Source {
            text: text.into(),
            file: "p.toml".into(),
            folder: "/".into(),
            set: Vec::new(),
        };
        let error = Plan::parse(source).unwrap_err().to_string();
        for wanted in [
            "p.toml, line 3: train.batches is no key; did you mean \"train.batch\"?",
            "p.toml, line 5: machine.link_gbits is no key; did you mean \"machine.link_gbit\"?",
            "p.toml, line 7: failures.node_years = -1; it takes a number from 0 to 1000000",
            "p.toml, line 9: machines.link_gbit is no key",
        ] {
            assert!(error.contains(wanted), "{wanted}\n{error}");
        }
        let check = |set: &[&str], wanted: &str| {
            let error = plan(set).unwrap_err();
            assert!(error.contains(wanted), "{error}");
        };
        check(&["pace.step_seconds=0"], "a step takes no time");
        check(&["simulate.parameters=0"], "the model has no size");
        check(
            &["failures.restart=true", "failures.node_years=1"],
            "give failures.snapshot_every_seconds",
        );
        check(&["machine.jitter=4"], "machine.jitter = 4");
    }

    #[test]
    fn plans_that_are_shipped_are_right() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plans");
        let mut seen = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            // An experiment, whose runs are to be compared with what is predicted of them.
            if !text.contains("[experiment]") {
                let points = Plan::read(&path, &[]).unwrap().points();
                assert!(!points.unwrap().is_empty(), "{}", path.display());
                seen += 1;
            }
        }
        assert!(seen > 0);
    }

    #[test]
    fn a_sweep_is_every_combination() {
        let text = format!(
            "{BASE}\n[sweep]\nsimulate.groups = [1, 2]\ntrain.consistency = [\"sync\", \"async\"]\n\
             [[known]]\nlabel = \"theirs\"\npoints = [[1, 2.5]]\n"
        );
        let source = Source {
            text,
            file: "p.toml".into(),
            folder: "/".into(),
            set: Vec::new(),
        };
        let swept = Plan::parse(source).unwrap();
        assert_eq!(swept.known[0].points, [(1.0, 2.5)]);
        let points = swept.points().unwrap();
        let groups = points
            .iter()
            .map(|(_, plan)| plan.config.cluster.groups.len());
        assert_eq!(groups.collect::<Vec<_>>(), [1, 1, 2, 2]);
        let last = &points[3];
        assert_eq!(last.0[1].as_str(), Some("async"));
        assert!(!last.1.config.train.consistency.waits_for_all());
    }
}
