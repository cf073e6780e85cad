//! Data that can be made: simulations for tasks whose real data are too large to fetch. What is made follows from the
//! seed alone. A folder is made file by file, so that who is interrupted goes on where it was.
//!
//! A simulation is one file here, and a line in [`RECIPES`].

pub mod climate;
pub mod cosmology;
mod fft;
mod folder;
mod generator;
mod growth;
pub mod hep;
mod matter;
mod picture;
mod spectrum;

use std::path::Path;

use tradewind_data::DataError;

/// How samples are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// Packed files, which are read fastest.
    Packed,
    /// A file for each sample, in the layout of the public data of the task.
    Hdf5,
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// The folder, which may be there half-made.
    pub folder: &'a Path,
    /// Least number of samples of all splits together.
    pub samples: usize,
    /// What all random numbers follow from.
    pub seed: u64,
    /// How they are stored.
    pub form: Form,
    /// Simulations that are computed at a time.
    pub threads: usize,
    /// The interpreter of a generator in Python; without it the recipe's own default is taken.
    pub python: Option<&'a Path>,
}

/// What there is in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// Samples of all splits.
    pub samples: usize,
    /// Those of them that were there before.
    pub found: usize,
    /// Bytes of their files.
    pub bytes: u64,
}

/// Told how many samples there are, and how many there will be.
pub type Progress<'a> = &'a mut dyn FnMut(usize, usize);

/// Something that can be made.
#[derive(Clone, Copy)]
pub struct Recipe {
    /// What it is asked for by; its default folder is `.deps/data/` and this.
    pub name: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// Samples if none are asked for.
    pub samples: usize,
    /// Where the interpreter of its generator is by default, if that is in Python.
    pub python: Option<&'static str>,
    /// Makes them.
    pub make: fn(&Order<'_>, Progress<'_>) -> Result<Made, DataError>,
}

/// All that can be made, a line each.
pub const RECIPES: &[Recipe] = &[climate::RECIPE, cosmology::RECIPE, hep::RECIPE];

/// The recipe of this name.
pub fn named(name: &str) -> Option<&'static Recipe> {
    RECIPES.iter().find(|recipe| recipe.name == name)
}
