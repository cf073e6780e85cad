//! What trials came to in an earlier tuning, as its `tuning.csv` has it: whoever has that table need not
//! tune again.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail};

use super::cell;
use super::matrix::Cell;

/// Columns of `tuning.csv`.
pub const CONFIGURATION: &str = "configuration";
pub const MEASURE: &str = "metric_validation";

/// Measures by the digests of configurations.
#[derive(Clone, Debug, Default)]
pub struct Earlier(BTreeMap<String, f64>);

impl Earlier {
    /// Reads a `tuning.csv`. Trials without a measure have failed, or were not run: they are not in it.
    ///
    /// # Errors
    /// It cannot be read, or is no such table.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let of = || format!("the trials in {}", path.display());
        let mut reader = csv::Reader::from_path(path).with_context(of)?;
        let names = reader.headers().with_context(of)?.clone();
        let column = |name: &str| {
            let found = names.iter().position(|known| known == name);
            found
                .with_context(|| format!("it has no column {name}"))
                .with_context(of)
        };
        let (configuration, measure) = (column(CONFIGURATION)?, column(MEASURE)?);
        let mut known = BTreeMap::new();
        for row in reader.records() {
            let row = row.with_context(of)?;
            let text = &row[measure];
            if text.is_empty() {
                continue;
            }
            let value = text.parse().ok().filter(|value: &f64| value.is_finite());
            let Some(value) = value else {
                bail!("{}: {MEASURE} is {text:?}, no number", of());
            };
            known.insert(row[configuration].to_owned(), value);
        }
        Ok(Self(known))
    }

    /// What a trial came to, if it was among them with this very configuration.
    pub fn measure(&self, trial: &Cell) -> Option<f64> {
        self.0.get(&cell::digest(trial)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{HEAD, matrix};

    #[test]
    fn trials_are_known_by_their_configurations() {
        let folder = tempfile::tempdir().unwrap();
        let (_, own) = matrix(folder.path(), HEAD, false).unwrap();
        let path = folder.path().join("tuning.csv");
        let cell = &own.cells[0];
        let read = |text: String| {
            std::fs::write(&path, text).unwrap();
            Earlier::read(&path)
        };
        let digest = cell::digest(cell);
        let head = "trial,setting,configuration,metric_validation,chosen\n";
        let table = format!("{head}a,\"sync, 1\",{digest},0.25,true\nb,x,other,,false\n");
        assert_eq!(read(table).unwrap().measure(cell), Some(0.25));
        let table = format!("{head}a,\"sync, 1\",{digest},,false\n");
        assert_eq!(
            read(table).unwrap().measure(cell),
            None,
            "it failed, or was not run"
        );
        let other = format!("{HEAD}[set]\ntrain.batch = 7\n");
        let (_, other) = matrix(folder.path(), &other, false).unwrap();
        let table = format!("{head}a,x,{digest},0.25,true\n");
        assert_eq!(read(table).unwrap().measure(&other.cells[0]), None);

        let error = |text: &str| format!("{:#}", read(text.to_owned()).unwrap_err());
        assert!(error("a,b\n1,2\n").contains("it has no column configuration"));
        let bad = error("configuration,metric_validation\nx,NaN\n");
        assert!(
            bad.contains("metric_validation is \"NaN\", no number"),
            "{bad}"
        );
        let missing = folder.path().join("missing.csv");
        let error = format!("{:#}", Earlier::read(&missing).unwrap_err());
        assert!(error.contains("missing.csv"), "{error}");
    }
}
