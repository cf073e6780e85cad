//! The conventions that NetCDF-4 lays over HDF5, as far as they are understood here: attributes,
//! coordinate variables.

use hdf5_metno::types::{FixedAscii, FixedUnicode, VarLenAscii, VarLenUnicode};
use hdf5_metno::{Group, Location};

/// The coordinate of a dimension: a variable of one extent of this length, in the same group,
/// known by its unit (`degrees_north`) or by its name. Without one, 0, 1, 2, …
pub(super) fn coordinate(
    root: &Group,
    variable: &str,
    length: usize,
    toward: &str,
    names: &[&str],
) -> Vec<f32> {
    let group = variable
        .rsplit_once('/')
        .and_then(|(path, _)| root.group(path).ok());
    let found = group
        .as_ref()
        .unwrap_or(root)
        .datasets()
        .unwrap_or_default()
        .into_iter()
        .find(|candidate| {
            let path = candidate.name();
            let name = path.rsplit('/').next().unwrap_or_default();
            let unit = text(candidate, "units").unwrap_or_default();
            let fits = candidate.shape() == [length];
            fits && (names.contains(&name)
                || (unit.starts_with("degree") && unit.ends_with(toward)))
        });
    found
        .and_then(|dataset| dataset.read_raw::<f32>().ok())
        .unwrap_or_else(|| (0..length).map(|i| i as f32).collect())
}

/// The numbers of an attribute; none if it does not exist or is text.
pub(super) fn numbers(of: &Location, attribute: &str) -> Vec<f32> {
    of.attr(attribute)
        .and_then(|a| a.read_raw())
        .unwrap_or_default()
}

/// The text of an attribute, in any of the four ways in which files hold one.
pub(super) fn text(of: &Location, attribute: &str) -> Option<String> {
    let held = of.attr(attribute).ok()?;
    let fixed = |t: String| t.trim_end_matches('\0').trim().to_owned();
    None.or_else(|| {
        held.read_scalar::<VarLenUnicode>()
            .ok()
            .map(|t| t.to_string())
    })
    .or_else(|| {
        held.read_scalar::<VarLenAscii>()
            .ok()
            .map(|t| t.to_string())
    })
    .or_else(|| {
        held.read_scalar::<FixedAscii<64>>()
            .ok()
            .map(|t| t.to_string())
    })
    .or_else(|| {
        held.read_scalar::<FixedUnicode<64>>()
            .ok()
            .map(|t| t.to_string())
    })
    .map(fixed)
}
