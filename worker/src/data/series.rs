//! Forecasting one variable: from a few maps in a row, the next one.
//!
//! Each file is one series, such as a scenario. A sample is (file, t): its input are the `history`
//! maps before time step `t`, its target is the map of step `t`. Which split a sample belongs to
//! follows from `t` alone, so that no target of one split is a target of another.

mod fit;

use std::borrow::Cow;
use std::ops::Range;
use std::path::PathBuf;

use tch::Tensor;

use self::fit::{check_grid, check_ranges};
use super::hdf5::Variable;
use super::{Asked, Batch, DataError, Dataset, Field, Kind, Split};

/// What to read, and which time steps are for what. Ranges are half-open ranges of the index of
/// the target's time step, from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesSpec {
    /// One series each, all on one grid.
    pub files: Vec<PathBuf>,
    /// Name of the variable, `[time, y, x]`, in every file.
    pub variable: String,
    /// Number of maps that a forecast is made from, at least 1.
    pub history: usize,
    /// Targets for choosing settings; all targets before them are for training.
    pub validation: Range<usize>,
    /// Targets that only the reported metric uses; not before the end of `validation`.
    pub held_out: Range<usize>,
    /// Label of time step 0, such as the year 1860.
    pub time_origin: i64,
    /// The series are held in memory if all of them together take at most this many bytes as f32;
    /// otherwise each batch is read from the files.
    pub memory_bytes: u64,
}

/// The series of a [`SeriesSpec`], opened and checked.
pub struct Series {
    spec: SeriesSpec,
    names: Vec<String>,
    variables: Vec<Variable>,
    /// The steps `0..held_out.end` of each file; `None` if batches are read from the files.
    held: Option<Vec<Vec<f32>>>,
}

impl Series {
    /// Opens all files, checks that they fit together and that the ranges fit them, and reads what
    /// is to be held in memory. Values read later are checked when they are read.
    ///
    /// # Errors
    /// Any [`DataError`] but those of a batch.
    pub fn open(spec: SeriesSpec) -> Result<Self, DataError> {
        let open = |file: &PathBuf| Variable::open(file, &spec.variable);
        let variables = spec.files.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let Some(steps) = variables.iter().map(|v| v.shape[0]).min() else {
            return Err(DataError::NoFiles);
        };
        for (file, variable) in spec.files.iter().zip(&variables) {
            check_grid(&spec, file, variable, &variables[0])?;
        }
        check_ranges(&spec, steps)?;
        let end = spec.held_out.end;
        let bytes = (variables.len() * end * variables[0].cells() * 4) as u64;
        let held = (bytes <= spec.memory_bytes)
            .then(|| variables.iter().map(|v| v.read(0..end)).collect())
            .transpose()?;
        Ok(Self {
            names: short_names(&spec.files),
            spec,
            variables,
            held,
        })
    }

    /// What it was opened with.
    pub fn spec(&self) -> &SeriesSpec {
        &self.spec
    }

    /// Rows and columns of a map.
    pub fn grid(&self) -> [usize; 2] {
        let [_, rows, columns] = self.variables[0].shape;
        [rows, columns]
    }

    /// Number of values in one map.
    pub fn cells(&self) -> usize {
        self.variables[0].cells()
    }

    /// Unit of the values, such as `K`; empty if the first file does not tell.
    pub fn unit(&self) -> &str {
        &self.variables[0].unit
    }

    /// Coordinate of each row: degrees north, or row numbers if the first file does not tell.
    pub fn latitude(&self) -> &[f32] {
        &self.variables[0].latitude
    }

    /// Coordinate of each column: degrees east, or column numbers if the first file does not tell.
    pub fn longitude(&self) -> &[f32] {
        &self.variables[0].longitude
    }

    /// Short names of the files: their stems without the ending that all share, such as `A1B` and
    /// `E1` for `A1B_north_america.nc` and `E1_north_america.nc`.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// What a map is called, such as `A1B 2099`.
    pub fn label(&self, file: usize, step: usize) -> String {
        format!(
            "{} {}",
            self.names[file],
            self.spec.time_origin + step as i64
        )
    }

    /// The targets of a split: the same time steps in every file.
    pub fn targets(&self, split: Split) -> Range<usize> {
        match split {
            Split::Train => self.spec.history..self.spec.validation.start,
            Split::Validation => self.spec.validation.clone(),
            Split::HeldOut => self.spec.held_out.clone(),
        }
    }

    /// File and target step of a sample. Samples go through the targets of the first file, then
    /// through those of the second, and so on.
    ///
    /// # Errors
    /// A number outside the split.
    pub fn locate(&self, split: Split, sample: usize) -> Result<(usize, usize), DataError> {
        let (targets, len) = (self.targets(split), self.len(split));
        if sample >= len {
            return Err(DataError::Sample { split, sample, len });
        }
        Ok((
            sample / targets.len(),
            targets.start + sample % targets.len(),
        ))
    }

    /// The maps of some time steps of a file, one after the other, row by row.
    ///
    /// # Errors
    /// If they must be read: a damaged file, or a value that is missing or not finite.
    ///
    /// # Panics
    /// If `steps` is not within `0..held_out.end`.
    pub fn maps(&self, file: usize, steps: Range<usize>) -> Result<Cow<'_, [f32]>, DataError> {
        match &self.held {
            Some(held) => {
                Ok((&held[file][steps.start * self.cells()..steps.end * self.cells()]).into())
            }
            None => Ok(self.variables[file].read(steps)?.into()),
        }
    }
}

impl Dataset for Series {
    /// `before`: the maps of some steps, the oldest first; `after`: that of the step after them. In the data's
    /// own unit.
    fn fields(&self) -> Vec<Field> {
        let [rows, columns] = self.grid();
        vec![
            Field::new("before", Kind::F32, &[self.spec.history, rows, columns]),
            Field::new("after", Kind::F32, &[1, rows, columns]),
        ]
    }

    fn len(&self, split: Split) -> usize {
        self.variables.len() * self.targets(split).len()
    }

    fn batch(&self, asked: Asked<'_>) -> Result<Batch, DataError> {
        let Asked { split, samples, .. } = asked;
        let (history, cells) = (self.spec.history, self.cells());
        let mut input = Vec::with_capacity(samples.len() * history * cells);
        let mut target = Vec::with_capacity(samples.len() * cells);
        for sample in samples {
            let (file, step) = self.locate(split, *sample)?;
            let maps = self.maps(file, step - history..step + 1)?;
            let (before, after) = maps.split_at(history * cells);
            input.extend_from_slice(before);
            target.extend_from_slice(after);
        }
        let [rows, columns] = self.grid().map(|extent| extent as i64);
        let count = samples.len() as i64;
        Ok(Batch::of(samples)
            .with(
                "before",
                Tensor::from_slice(&input).view([count, history as i64, rows, columns]),
            )
            .with(
                "after",
                Tensor::from_slice(&target).view([count, 1, rows, columns]),
            ))
    }
}

/// Stems of the files, without the parts (between underscores) at the end that all share.
fn short_names(files: &[PathBuf]) -> Vec<String> {
    let stem = |file: &PathBuf| {
        file.file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    };
    let mut names: Vec<String> = files.iter().map(stem).collect();
    while let Some((_, ending)) = names[0].rsplit_once('_') {
        let ending = format!("_{ending}");
        let shared = |name: &String| name.len() > ending.len() && name.ends_with(&ending);
        if names.len() < 2 || !names.iter().all(shared) {
            break;
        }
        names
            .iter_mut()
            .for_each(|name| name.truncate(name.len() - ending.len()));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{spec, value};
    use super::*;

    #[test]
    fn samples_are_the_maps_before_the_target() {
        let folder = tempfile::tempdir().unwrap();
        let series = Series::open(spec(folder.path())).unwrap();
        assert_eq!(
            [Split::Train, Split::Validation, Split::HeldOut].map(|s| series.len(s)),
            [36, 16, 20]
        );
        let batch = series.batch(Asked::of(Split::Train, &[35, 0])).unwrap();
        assert_eq!(batch["before"].size(), [2, 2, 3, 4]);
        assert_eq!(batch["after"].size(), [2, 1, 3, 4]);
        let at = |tensor: &Tensor, index: [i64; 4]| tensor.double_value(&index) as f32;
        assert_eq!(at(&batch["after"], [0, 0, 2, 3]), value(1, 19, 2, 3));
        assert_eq!(at(&batch["before"], [0, 0, 0, 0]), value(1, 17, 0, 0));
        assert_eq!(at(&batch["before"], [0, 1, 1, 0]), value(1, 18, 1, 0));
        assert_eq!(at(&batch["after"], [1, 0, 0, 0]), value(0, 2, 0, 0));
        assert_eq!(series.locate(Split::HeldOut, 19), Ok((1, 39)));
        assert_eq!(series.label(1, 39), "dry 1939");
        let error = series
            .batch(Asked::of(Split::Validation, &[3, 16]))
            .unwrap_err();
        assert_eq!(
            error,
            DataError::Sample {
                split: Split::Validation,
                sample: 16,
                len: 16
            }
        );
    }

    #[test]
    fn read_from_the_files_it_is_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let spec = spec(folder.path());
        let open = |memory_bytes| {
            Series::open(SeriesSpec {
                memory_bytes,
                ..spec.clone()
            })
            .unwrap()
        };
        let bytes = 2 * 40 * 12 * 4;
        let (held, exact, read) = (open(1 << 20), open(bytes), open(bytes - 1));
        assert!(held.held.is_some() && exact.held.is_some() && read.held.is_none());
        for split in [Split::Train, Split::Validation, Split::HeldOut] {
            let samples: Vec<usize> = (0..held.len(split)).rev().collect();
            let (a, b) = (
                held.batch(Asked::of(split, &samples)).unwrap(),
                read.batch(Asked::of(split, &samples)).unwrap(),
            );
            assert!(
                a["before"] == b["before"] && a["after"] == b["after"],
                "{split:?}"
            );
        }
    }

    #[test]
    fn no_target_is_in_two_splits() {
        let folder = tempfile::tempdir().unwrap();
        let series = Series::open(spec(folder.path())).unwrap();
        let [train, validation, held_out] =
            [Split::Train, Split::Validation, Split::HeldOut].map(|s| series.targets(s));
        assert!(train.end <= validation.start && validation.end <= held_out.start);
    }

    #[test]
    fn names_are_short() {
        let check = |files: &[&str], want: &[&str]| {
            let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
            assert_eq!(short_names(&files), want);
        };
        check(
            &["d/A1B_north_america.nc", "E1_north_america.nc"],
            &["A1B", "E1"],
        );
        check(&["only_one.nc"], &["only_one"]);
        check(&["a.nc", "b.nc"], &["a", "b"]);
        check(&["same_x.nc", "d/same_x.nc"], &["same", "same"]);
        check(&["_x.nc", "b_x.nc"], &["_x", "b_x"]);
    }
}
