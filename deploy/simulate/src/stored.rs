//! Which configuration each row of an experiment's results had: that of the experiment's file, with the values of
//! its axes that the row names. `deploy/lab` reads the same file to run it.

use std::path::Path;

use anyhow::{Context, bail};
use toml_edit::{Document, Item, TableLike};
use tradewind_config::Config;

/// An experiment, as far as its configurations follow from it.
pub(crate) struct Experiment {
    base: String,
    base_file: String,
    folder: std::path::PathBuf,
    set: Vec<String>,
    seeds: Vec<u64>,
    /// By axis and label: what is set there.
    axes: Vec<((String, String), Vec<String>)>,
}

impl Experiment {
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let named = || format!("cannot read the experiment {}", path.display());
        let text = std::fs::read_to_string(path).with_context(named)?;
        let document = Document::parse(text.as_str()).with_context(named)?;
        let table = |name: &str| document.get(name).and_then(Item::as_table_like);
        let base = table("experiment").and_then(|table| table.get("base")?.as_str());
        let base =
            base.with_context(|| format!("{}: experiment.base is missing", path.display()))?;
        let base = path.parent().unwrap_or(Path::new(".")).join(base);
        let mut axes = Vec::new();
        if let Some(table) = table("axes") {
            read_axes("", table, &mut axes);
        }
        let seeds = table("experiment").and_then(|table| table.get("seeds")?.as_array());
        let seeds = seeds.into_iter().flatten();
        let seeds = seeds.filter_map(|seed| Some(seed.as_integer()?.unsigned_abs()));
        Ok(Self {
            seeds: seeds.collect(),
            base: std::fs::read_to_string(&base)
                .with_context(|| format!("cannot read {}", base.display()))?,
            base_file: base.display().to_string(),
            folder: base.parent().unwrap_or(Path::new(".")).to_owned(),
            set: table("set").map_or(Vec::new(), |table| assigns("", table)),
            axes,
        })
    }

    /// Every combination of its axes' values, with every seed.
    pub(crate) fn cells(&self) -> Vec<(Vec<(String, String)>, u64)> {
        let mut points: Vec<Vec<(String, String)>> = vec![Vec::new()];
        let mut names: Vec<&str> = self
            .axes
            .iter()
            .map(|((axis, _), _)| axis.as_str())
            .collect();
        names.dedup();
        for name in names {
            let of_axis = || self.axes.iter().filter(|((axis, _), _)| axis == name);
            let more = |point: Vec<(String, String)>| {
                let with =
                    move |choice: &(String, String)| [point.clone(), vec![choice.clone()]].concat();
                of_axis()
                    .map(|(choice, _)| with(choice))
                    .collect::<Vec<_>>()
            };
            points = points.into_iter().flat_map(more).collect();
        }
        let with_seeds = |point: Vec<(String, String)>| {
            let seeds = self.seeds.iter();
            seeds.map(|seed| (point.clone(), *seed)).collect::<Vec<_>>()
        };
        points.into_iter().flat_map(with_seeds).collect()
    }

    /// The configuration of a row that is at these values of axes.
    pub(crate) fn config(&self, point: &[(String, String)], seed: u64) -> anyhow::Result<Config> {
        let mut set = self.set.clone();
        for choice in point {
            match self.axes.iter().find(|(of, _)| of == choice) {
                Some((_, more)) => set.extend(more.iter().cloned()),
                None => bail!("the axis {} has no value {:?}", choice.0, choice.1),
            }
        }
        set.push(format!("run.seed={seed}"));
        let config = Config::parse(&self.base, &self.base_file, &self.folder, &set);
        config.with_context(|| format!("{point:?}"))
    }
}

fn read_axes(prefix: &str, table: &dyn TableLike, axes: &mut Vec<((String, String), Vec<String>)>) {
    for (name, item) in table.iter() {
        let key = format!("{prefix}{name}");
        if let Some(list) = item.as_array() {
            for value in list.iter() {
                let text = value.clone().decorated("", "").to_string();
                let label = value
                    .as_str()
                    .map_or(format!("{name} {text}"), str::to_owned);
                axes.push(((key.clone(), label), vec![format!("{key}={text}")]));
            }
        } else if let Some(inner) = item.as_table_like() {
            let bundles = inner.iter().all(|(_, item)| item.is_table_like());
            match bundles {
                true => {
                    for (label, bundle) in inner.iter() {
                        let bundle = bundle.as_table_like().expect("looked at above");
                        axes.push(((key.clone(), label.to_owned()), assigns("", bundle)));
                    }
                }
                false => read_axes(&format!("{key}."), inner, axes),
            }
        }
    }
}

/// `key=value` of every value below a table.
fn assigns(prefix: &str, table: &dyn TableLike) -> Vec<String> {
    let mut found = Vec::new();
    for (name, item) in table.iter() {
        let key = format!("{prefix}{name}");
        match (item.as_table_like(), item.as_value()) {
            (Some(inner), _) => found.extend(assigns(&format!("{key}."), inner)),
            (None, Some(value)) => {
                let value = value.clone().decorated("", "");
                found.push(format!("{key}={value}"));
            }
            (None, None) => {}
        }
    }
    found
}
