//! The conventions that NetCDF-4 lays over HDF5, as far as they are understood here: attributes,
//! coordinate variables, what stands where nothing was written.

use hdf5_metno::types::{FixedAscii, FixedUnicode, VarLenAscii, VarLenUnicode};
use hdf5_metno::{Group, Location};

/// Upper limit on the variable names that are gathered for a message.
pub const NAMES_MAX: usize = 64;

/// How deep variables are looked for; links may make a group its own descendant.
const GROUPS_DEEP_MAX: usize = 8;

/// What the NetCDF library leaves in f32 values that were never written.
pub(super) const FILL: f32 = 9.969_21e36;

/// Names of the variables in a group and the groups within, in order.
pub(super) fn variables(root: &Group) -> Vec<String> {
    let mut names = Vec::new();
    gather(root, GROUPS_DEEP_MAX, &mut names);
    names.sort_unstable();
    names
}

fn gather(group: &Group, deep: usize, names: &mut Vec<String>) {
    for dataset in group.datasets().unwrap_or_default() {
        if names.len() < NAMES_MAX {
            names.push(dataset.name().trim_start_matches('/').into());
        }
    }
    for inner in group.groups().unwrap_or_default() {
        if deep > 0 && names.len() < NAMES_MAX {
            gather(&inner, deep - 1, names);
        }
    }
}

/// The name that `name` was probably meant to be: the nearest, if no more than a third of it differs.
pub(super) fn nearest(name: &str, names: &[String]) -> Option<String> {
    names
        .iter()
        .map(|other| (distance(name, other), other))
        .filter(|(distance, _)| *distance <= name.chars().count() / 3)
        .min()
        .map(|(_, other)| other.clone())
}

/// Edits of one character that turn `a` into `b` (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits() {
        for (a, b, want) in [
            ("", "", 0),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
            ("t2m", "t2m", 0),
        ] {
            assert_eq!((distance(a, b), distance(b, a)), (want, want));
        }
    }
}
