//! One variable of a NetCDF-4 or HDF5 file: a series of maps, `[time, y, x]`.
//!
//! NetCDF-4 files are HDF5 files with conventions. The ones understood here: `_FillValue` and
//! `missing_value`, `scale_factor` and `add_offset`, `units`, and coordinate variables.

use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use hdf5_metno::types::TypeDescriptor as Type;
use hdf5_metno::{Dataset, File, Group};
use ndarray::{Ix3, s};
use tradewind_data::hdf5::{HEAD_BYTES, NETCDF_FILL, datasets_of, not_hdf5};
use tradewind_data::nearest;

use super::{DataError, netcdf};

/// An open variable of three extents.
pub struct Variable {
    file: PathBuf,
    name: String,
    dataset: Dataset,
    /// Extents: time steps, rows, columns.
    pub shape: [usize; 3],
    /// The file's own unit, such as `K`; empty if it has none.
    pub unit: String,
    /// Coordinate of each row, degrees north; the row numbers if the file has none.
    pub latitude: Vec<f32>,
    /// Coordinate of each column, degrees east; the column numbers if the file has none.
    pub longitude: Vec<f32>,
    /// Stored values that stand for a missing one.
    missing: Vec<f32>,
    /// Value = stored value × scale + offset.
    scale: f32,
    offset: f32,
}

impl Variable {
    /// Opens the variable `name` of `file`; `name` may be a path through groups, such as `a/b`.
    /// No values are read but coordinates.
    ///
    /// # Errors
    /// A file that is missing, of another format, damaged; no such variable; one that does not
    /// hold numbers or has not three extents.
    pub fn open(file: &Path, name: &str) -> Result<Self, DataError> {
        check_signature(file)?;
        let damaged = |e: hdf5_metno::Error| DataError::Damaged {
            file: file.into(),
            reason: e.to_string(),
        };
        let root = File::open(file).map_err(|e| not_opened(file, e.to_string()))?;
        let Ok(dataset) = root.dataset(name) else {
            return Err(no_variable(file, name, &root));
        };
        let extents = dataset.get_shape().map_err(damaged)?;
        let Ok(shape @ [_, rows, columns]) = <[usize; 3]>::try_from(extents.clone()) else {
            return Err(DataError::Rank {
                file: file.into(),
                variable: name.into(),
                shape: extents,
            });
        };
        if shape.contains(&0) {
            return Err(DataError::Rank {
                file: file.into(),
                variable: name.into(),
                shape: extents,
            });
        }
        let number = |attribute| netcdf::numbers(&dataset, attribute).first().copied();
        let missing = ["_FillValue", "missing_value"]
            .map(|attribute| netcdf::numbers(&dataset, attribute))
            .concat();
        let descriptor = dataset.dtype().and_then(|stored| stored.to_descriptor());
        if !matches!(
            descriptor,
            Ok(Type::Float(_) | Type::Integer(_) | Type::Unsigned(_))
        ) {
            return Err(DataError::NotNumbers {
                file: file.into(),
                variable: name.into(),
            });
        }
        Ok(Self {
            file: file.into(),
            name: name.into(),
            shape,
            unit: netcdf::text(&dataset, "units").unwrap_or_default(),
            latitude: netcdf::coordinate(&root, name, rows, "north", &["latitude", "lat", "y"]),
            longitude: netcdf::coordinate(&root, name, columns, "east", &["longitude", "lon", "x"]),
            missing,
            scale: number("scale_factor").unwrap_or(1.0),
            offset: number("add_offset").unwrap_or(0.0),
            dataset,
        })
    }

    /// Number of values in one map.
    pub fn cells(&self) -> usize {
        self.shape[1] * self.shape[2]
    }

    /// The maps of these time steps, one after the other, row by row, in the variable's unit.
    ///
    /// # Errors
    /// A damaged file; a value that is not finite or stands for a missing one.
    ///
    /// # Panics
    /// If `steps` is not inside the series.
    pub fn read(&self, steps: Range<usize>) -> Result<Vec<f32>, DataError> {
        assert!(
            steps.start <= steps.end && steps.end <= self.shape[0],
            "steps {steps:?} of {:?}",
            self.shape
        );
        let maps = self
            .dataset
            .read_slice::<f32, _, Ix3>(s![steps.clone(), .., ..])
            .map_err(|e| DataError::Damaged {
                file: self.file.clone(),
                reason: e.to_string(),
            })?;
        let mut values = maps.into_raw_vec_and_offset().0;
        for (at, value) in values.iter_mut().enumerate() {
            let stored = *value;
            *value = stored * self.scale + self.offset;
            if stored == NETCDF_FILL || self.missing.contains(&stored) || !value.is_finite() {
                return Err(self.bad_value(steps.start, at, stored));
            }
        }
        Ok(values)
    }

    fn bad_value(&self, first_step: usize, at: usize, stored: f32) -> DataError {
        let (columns, cells) = (self.shape[2], self.cells());
        let what = if stored.is_finite() {
            format!("the fill value {stored:e}")
        } else {
            format!("the value {stored}")
        };
        DataError::BadValue {
            file: self.file.clone(),
            variable: self.name.clone(),
            index: [first_step + at / cells, at % cells / columns, at % columns],
            what,
        }
    }
}

fn not_opened(file: &Path, reason: String) -> DataError {
    let file = file.into();
    match reason.contains("unable to lock file") {
        true => DataError::Locked { file, reason },
        false => DataError::Damaged { file, reason },
    }
}

/// Tells a file that is not HDF5 from a damaged one, before the library sees it.
fn check_signature(file: &Path) -> Result<(), DataError> {
    let mut opened = std::fs::File::open(file).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => DataError::Missing { file: file.into() },
        _ => DataError::Unreadable {
            file: file.into(),
            reason: e.to_string(),
        },
    })?;
    let mut head = Vec::new();
    let read = opened.by_ref().take(HEAD_BYTES).read_to_end(&mut head);
    read.map_err(|e| DataError::Unreadable {
        file: file.into(),
        reason: e.to_string(),
    })?;
    match not_hdf5(&head) {
        None => Ok(()),
        Some(hint) => Err(DataError::NotHdf5 {
            file: file.into(),
            hint,
        }),
    }
}

fn no_variable(file: &Path, name: &str, root: &Group) -> DataError {
    let available = datasets_of(root);
    DataError::NoVariable {
        file: file.into(),
        variable: name.into(),
        nearest: nearest(name, available.iter().map(String::as_str)).map(Into::into),
        available,
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{attribute, value, write};
    use super::*;

    fn file(folder: &tempfile::TempDir) -> PathBuf {
        let path = folder.path().join("a.nc");
        write(&path, [6, 3, 4], |t, y, x| value(0, t, y, x));
        path
    }

    fn refused(file: &Path, variable: &str) -> DataError {
        match Variable::open(file, variable) {
            Ok(_) => panic!("{} was opened", file.display()),
            Err(error) => error,
        }
    }

    #[test]
    fn reads_any_steps_with_unit_and_coordinates() {
        let folder = tempfile::tempdir().unwrap();
        let variable = Variable::open(&file(&folder), "t2m").unwrap();
        assert_eq!((variable.shape, variable.cells()), ([6, 3, 4], 12));
        assert_eq!(variable.unit, "K");
        assert_eq!(variable.latitude, [15.0, 16.25, 17.5], "known by its unit");
        assert_eq!(
            variable.longitude,
            [225.0, 226.25, 227.5, 228.75],
            "known by its name"
        );
        let maps = variable.read(4..6).unwrap();
        assert_eq!(maps.len(), 24);
        assert_eq!(
            (maps[0], maps[12 + 4 + 3]),
            (value(0, 4, 0, 0), value(0, 5, 1, 3))
        );
    }

    #[test]
    fn other_number_types_packing_and_groups() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("packed.h5");
        let stored =
            ndarray::Array3::from_shape_fn((2, 2, 2), |(t, y, x)| (4 * t + 2 * y + x) as i16);
        let group = File::create(&path).unwrap().create_group("model").unwrap();
        group
            .new_dataset_builder()
            .with_data(&stored)
            .create("t")
            .unwrap();
        drop(group);
        attribute(&path, "model/t", "scale_factor", 0.5);
        attribute(&path, "model/t", "add_offset", 270.0);
        let variable = Variable::open(&path, "model/t").unwrap();
        assert_eq!(variable.read(1..2).unwrap(), [272.0, 272.5, 273.0, 273.5]);
        assert_eq!(
            (variable.unit.as_str(), variable.latitude),
            ("", vec![0.0, 1.0])
        );
        let error = refused(&path, "t").to_string();
        assert!(error.contains("it has: model/t"), "{error}");
    }

    #[test]
    fn files_that_cannot_be_used() {
        let folder = tempfile::tempdir().unwrap();
        let good = file(&folder);
        let bytes = std::fs::read(&good).unwrap();
        let check = |content: Option<&[u8]>, want: &str| {
            let path = folder.path().join("bad.nc");
            let _ = std::fs::remove_file(&path);
            if let Some(content) = content {
                std::fs::write(&path, content).unwrap();
            }
            let error = refused(&path, "t2m").to_string();
            assert!(error.contains("bad.nc") && error.contains(want), "{error}");
        };
        check(None, "does not exist");
        check(Some(b""), "it is empty");
        check(Some(b"CDF\x01 and so on"), "nccopy");
        check(Some(b"<html>"), "no HDF5 or NetCDF-4 file");
        check(Some(&bytes[..bytes.len() / 2]), "damaged or truncated");
        check(Some(&bytes[..100]), "damaged or truncated");
        let mut holed = bytes.clone();
        holed[40..400].fill(0xAA);
        check(Some(&holed), "damaged or truncated");
        assert!(
            refused(folder.path(), "t2m")
                .to_string()
                .contains("cannot be read")
        );
    }

    #[test]
    fn variables_that_cannot_be_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = file(&folder);
        let check = |variable: &str, want: &[&str]| {
            let error = refused(&path, variable).to_string();
            assert!(want.iter().all(|want| error.contains(want)), "{error}");
        };
        check(
            "t3m",
            &[
                "a.nc",
                "no variable \"t3m\"",
                "perhaps \"t2m\"",
                "label, lon, rows, t2m",
            ],
        );
        check("precipitation", &["no variable \"precipitation\"; it has"]);
        check("", &["no variable"]);
        check("rows", &["\"rows\" has shape [3]", "[time, y, x]"]);
        check("label", &["\"label\" does not hold numbers"]);
    }

    #[test]
    fn values_that_are_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gaps.nc");
        let check = |hole: f32, fill: Option<f32>, want: &str| {
            let at = (3, 2, 1);
            write(
                &path,
                [6, 3, 4],
                |t, y, x| if (t, y, x) == at { hole } else { 1.0 },
            );
            if let Some(fill) = fill {
                attribute(&path, "t2m", "_FillValue", fill);
            }
            let variable = Variable::open(&path, "t2m").unwrap();
            assert!(variable.read(0..3).is_ok());
            let error = variable.read(2..5).unwrap_err();
            assert!(
                matches!(
                    &error,
                    DataError::BadValue {
                        index: [3, 2, 1],
                        ..
                    }
                ),
                "{error:?}"
            );
            assert!(error.to_string().contains(want), "{error}");
        };
        check(f32::NAN, None, "the value NaN at [time, y, x] = [3, 2, 1]");
        check(f32::INFINITY, None, "the value inf");
        check(-999.0, Some(-999.0), "the fill value -9.99e2");
        check(f32::NAN, Some(f32::NAN), "the value NaN");
        check(NETCDF_FILL, None, "the fill value 9.96921e36");
    }
}
