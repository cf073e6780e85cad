//! Whether the files of a series fit together, and its ranges fit them.

use std::ops::Range;
use std::path::Path;

use super::super::DataError;
use super::super::hdf5::Variable;
use super::SeriesSpec;

pub(super) fn check_grid(
    spec: &SeriesSpec,
    file: &Path,
    this: &Variable,
    first: &Variable,
) -> Result<(), DataError> {
    // Coordinates are stored with the rounding of whatever wrote them.
    let same = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-3);
    let difference = if this.shape[1..] != first.shape[1..] {
        format!(
            "{} × {} instead of {} × {}",
            this.shape[1], this.shape[2], first.shape[1], first.shape[2]
        )
    } else if !same(&this.latitude, &first.latitude) {
        "other latitudes".into()
    } else if !same(&this.longitude, &first.longitude) {
        "other longitudes".into()
    } else {
        return Ok(());
    };
    Err(DataError::Grid {
        file: file.into(),
        variable: spec.variable.clone(),
        first: spec.files[0].clone(),
        difference,
    })
}

pub(super) fn check_ranges(spec: &SeriesSpec, steps: usize) -> Result<(), DataError> {
    let SeriesSpec {
        history,
        validation,
        held_out,
        ..
    } = spec;
    let refuse = |which, range: &Range<usize>, reason| {
        Err(DataError::Range {
            which,
            range: range.clone(),
            reason,
        })
    };
    if *history == 0 {
        return refuse(
            "train",
            &(0..validation.start),
            "history must be at least 1".into(),
        );
    }
    if *history >= validation.start {
        let reason = format!(
            "with a history of {history} the first target is step {history}; let validation start later"
        );
        return refuse("train", &(0..validation.start), reason);
    }
    for (which, range) in [("validation", validation), ("held_out", held_out)] {
        if range.is_empty() {
            return refuse(which, range, "it is empty".into());
        }
        if range.end > steps {
            return refuse(
                which,
                range,
                format!("the shortest file has the time steps 0..{steps}"),
            );
        }
    }
    if held_out.start < validation.end {
        let reason = format!(
            "it must start at {} or later, where validation ends",
            validation.end
        );
        return refuse("held_out", held_out, reason);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::super::fixture::{spec, write};
    use super::super::Series;
    use super::*;

    fn refused(spec: SeriesSpec) -> String {
        match Series::open(spec) {
            Ok(_) => panic!("was opened"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn ranges_that_do_not_fit() {
        let folder = tempfile::tempdir().unwrap();
        let good = spec(folder.path());
        let check = |change: &dyn Fn(&mut SeriesSpec), want: &str| {
            let mut spec = good.clone();
            change(&mut spec);
            let error = refused(spec);
            assert!(error.contains(want), "{error}");
        };
        check(&|s| s.files.clear(), "no data files");
        check(&|s| s.history = 0, "history must be at least 1");
        check(
            &|s| s.history = 20,
            "train 0..20 does not fit: with a history of 20",
        );
        check(
            &|s| s.validation = 20..20,
            "validation 20..20 does not fit: it is empty",
        );
        check(
            &|s| s.held_out = 30..41,
            "held_out 30..41 does not fit: the shortest file has the time steps 0..40",
        );
        check(&|s| s.held_out = 27..40, "must start at 28 or later");
        check(&|s| s.held_out = 0..10, "must start at 28 or later");
    }

    #[test]
    fn files_that_do_not_fit_together() {
        let folder = tempfile::tempdir().unwrap();
        let good = spec(folder.path());
        let other = |shape| {
            let path = folder.path().join("other.nc");
            write(&path, shape, |_, _, _| 1.0);
            SeriesSpec {
                files: vec![good.files[0].clone(), path],
                ..good.clone()
            }
        };
        let error = refused(other([40, 3, 5]));
        assert!(
            error.contains("other.nc") && error.contains("3 × 5 instead of 3 × 4"),
            "{error}"
        );
        assert!(refused(other([39, 3, 4])).contains("0..39"));
        assert!(Series::open(other([50, 3, 4])).is_ok());
    }
}
