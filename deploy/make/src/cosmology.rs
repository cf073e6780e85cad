//! Cubes of matter at four redshifts, and parameters of the universe that they come from: the form of CosmoFlow's data.
//!
//! A box of 64³ cells is simulated for parameters of its own, and cut into eight cubes of 32³ cells. A box belongs to
//! one split as a whole.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use tradewind_data::{DataError, Field, Kind};

use crate::folder::{Card, Folder, Sample, Split, Told};
use crate::matter::{Maker, uniform};
use crate::spectrum::OMEGA_B;
pub use crate::spectrum::Universe;
use crate::{Made, Order, Progress, Recipe, picture};

/// What it is asked for by, and all that is needed to make it.
pub const RECIPE: Recipe = Recipe {
    name: "cosmology",
    about: "cubes of matter of simulated universes, for model.name = \"cosmoflow\"",
    samples: 8192,
    python: None,
    make,
};

/// Cells of a box along an edge.
const BOX: usize = 64;

/// Cells of a cube along an edge.
const CUBE: usize = 32;

/// Cubes of a box.
const CUBES: usize = (BOX / CUBE).pow(3);

/// Edge of a box in Mpc/h: cells of 2 Mpc/h. In cells of 4 Mpc/h histograms of counts alone tell nearly all that a
/// network does.
const SIDE: f64 = 128.0;

/// Redshifts of a cube's channels.
const REDSHIFTS: [f64; 4] = [0.0, 0.5, 1.0, 2.0];

/// Middle of the parameters (Planck 2015, as in the simulations of CosmoFlow).
pub(crate) const MIDDLE: Universe = Universe {
    omega_m: 0.3089,
    sigma_8: 0.8159,
    n_s: 0.9667,
    h: 0.6774,
};

/// How far parameters are from the middle at most, as a part of it.
const SPREAD: f64 = 0.3;

/// Boxes of a file.
const FILE_BOXES: usize = 8;

/// Part of the boxes that are for validation, and again for the final metric.
const TENTH: usize = 10;

/// Bytes 24 to 31 of the key: keeps these draws apart from others of the seed, and is renumbered if they change.
const DOMAIN: &[u8; 8] = b"cosmobx1";

/// Number of the way in which samples are made; those of another one differ.
const VERSION: u32 = 1;

/// The samples of one box.
pub fn of_box(maker: &mut BoxMaker, seed: u64, number: usize) -> Vec<Sample> {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&(number as u64).to_le_bytes());
    key[24..].copy_from_slice(DOMAIN);
    let mut random = ChaCha8Rng::from_seed(key);
    let scaled: [f64; 4] = std::array::from_fn(|_| 2.0 * uniform(&mut random) - 1.0);
    let value = |middle: f64, at: usize| middle * (1.0 + SPREAD * scaled[at]);
    let universe = Universe {
        omega_m: value(MIDDLE.omega_m, 0),
        sigma_8: value(MIDDLE.sigma_8, 1),
        n_s: value(MIDDLE.n_s, 2),
        h: value(MIDDLE.h, 3),
    };
    let matter = maker.0.draw(universe, &mut random);
    let counts = REDSHIFTS.map(|z| matter.counts(z, BOX));
    let target = scaled.map(|value| (value as f32).to_le_bytes()).concat();
    let cube = |cube: usize| {
        let corner = [cube / 4, cube / 2 % 2, cube % 2].map(|at| at * CUBE);
        Sample {
            name: format!("box {number:05} cube {cube}"),
            values: vec![cut(&counts, corner), target.clone()],
        }
    };
    (0..CUBES).map(cube).collect()
}

/// A cube of each redshift whose first cell is (z, y, x), as bytes.
fn cut(counts: &[Vec<i16>], [z, y, x]: [usize; 3]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(2 * counts.len() * CUBE.pow(3));
    for counts in counts {
        for row in 0..CUBE * CUBE {
            let begin = ((z + row / CUBE) * BOX + y + row % CUBE) * BOX + x;
            let cells = counts[begin..begin + CUBE].iter();
            bytes.extend(cells.flat_map(|count| count.to_le_bytes()));
        }
    }
    bytes
}

/// Makes boxes one after the other.
pub struct BoxMaker(Maker);

impl Default for BoxMaker {
    fn default() -> Self {
        Self(Maker::new(BOX, SIDE))
    }
}

/// What samples have.
fn fields() -> [Field; 2] {
    [
        Field::new("volume", Kind::I16, &[REDSHIFTS.len(), CUBE, CUBE, CUBE]),
        Field::new("target", Kind::F32, &[4]),
    ]
}

/// Which split a box belongs to.
fn split(number: usize, boxes: usize) -> Split {
    let part = boxes.div_ceil(TENTH);
    match boxes - number {
        left if left <= part => Split::HeldOut,
        left if left <= 2 * part => Split::Validation,
        _ => Split::Train,
    }
}

fn make(order: &Order<'_>, progress: Progress<'_>) -> Result<Made, DataError> {
    let boxes = order.samples.div_ceil(CUBES);
    if boxes < 3 {
        let text = format!(
            "{} samples are too few: each box gives {CUBES}, and training, validation and the final metric need a box \
             each; ask for {} or more",
            order.samples,
            2 * CUBES + 1
        );
        return Err(DataError::Asked(text));
    }
    let folder = Folder {
        order,
        name: RECIPE.name,
        version: VERSION,
        tools: "",
        fields: &fields(),
        datasets: &["x", "y"],
        units: boxes,
        unit_samples: CUBES,
        file_units: FILE_BOXES,
        split: &|number| split(number, boxes),
    };
    let seed = order.seed;
    let of_box =
        move |maker: &mut BoxMaker, number: usize, _: Told<'_>| Ok(of_box(maker, seed, number));
    folder.make(BoxMaker::default, of_box, progress, &|| Ok(card(seed)))
}

fn card(seed: u64) -> Card {
    let samples: Vec<Sample> = (0..3)
        .flat_map(|number| {
            of_box(&mut BoxMaker::default(), seed, number)
                .into_iter()
                .take(1)
        })
        .collect();
    let labels = REDSHIFTS.map(|z| format!("z = {z}"));
    let volumes: Vec<&[u8]> = samples.iter().map(|sample| &sample.values[0][..]).collect();
    let per_cell = SIDE / BOX as f64;
    let percent = 100.0 * SPREAD;
    let Universe {
        omega_m,
        sigma_8,
        n_s,
        h,
    } = MIDDLE;
    Card {
        picture: picture::volumes(&volumes, CUBE, &labels),
        text: format!(
            "# Cubes of matter\n\n\
             Counts of particles in cells of simulated universes, and the parameters of each universe: the form of the \
             data of CosmoFlow (MLPerf HPC), made small.\n\n\
             - `volume` (HDF5: `x`): int16 `[4, {CUBE}, {CUBE}, {CUBE}]`, particles in each cell of {per_cell} Mpc/h at \
             the redshifts 0, 0.5, 1 and 2; one particle a cell in the mean of a box. Extents are redshift, z, y, x.\n\
             - `target` (HDF5: `y`): float32 `[4]`, Ωm, σ8, ns, h, each scaled from its range to [-1, 1].\n\n\
             ## How it was made\n\n\
             Each box has {BOX}³ particles and cells, {SIDE} Mpc/h along an edge, and is cut into {CUBES} cubes. Its \
             parameters are drawn evenly within ±{percent} % of Ωm = {omega_m}, σ8 = {sigma_8}, ns = {n_s}, \
             h = {h}; Ωb = {OMEGA_B}; flat. Its spectrum is that of Eisenstein and Hu (1998), normalised to σ8.\n\n\
             **Approximation:** particles are moved by Lagrangian perturbation theory of the second order (2LPT: \
             Scoccimarro 1998; Crocce, Pueblas, Scoccimarro 2006), not by an N-body simulation as in CosmoFlow. Large \
             structures are right, and halos are missing: what a network reaches here says nothing about real data.\n\n\
             `samples.png` shows a slice of three training boxes.\n\n\
             ## Splits\n\n\
             `train`, `validation` and `held_out`, four fifths and a tenth each: by box, so that no two splits share a \
             universe.\n\n\
             ## Licence\n\n\
             Made from equations and random numbers alone; nobody else's data are in it. CC0 1.0.\n"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cubes_of_a_box_are_its_parts_and_follow_from_the_seed() {
        let counts = vec![(0..BOX.pow(3)).map(|cell| (cell % 32_749) as i16).collect()];
        let at =
            |bytes: &[u8], cell: usize| i16::from_le_bytes([bytes[2 * cell], bytes[2 * cell + 1]]);
        let cube = cut(&counts, [32, 0, 32]);
        let (z, y, x) = (5, 7, 9);
        let cell = ((32 + z) * BOX + y) * BOX + 32 + x;
        assert_eq!(at(&cube, (z * CUBE + y) * CUBE + x), (cell % 32_749) as i16);

        let mut maker = BoxMaker::default();
        let first = of_box(&mut maker, 1, 0);
        let other = of_box(&mut maker, 1, 1);
        // Memory that is used again leaves no trace.
        assert_eq!(first, of_box(&mut maker, 1, 0));
        assert_ne!(first[0].values, other[0].values);
        assert_ne!(first[0].values, of_box(&mut maker, 2, 0)[0].values);
        let sum: i64 = first
            .iter()
            .map(|sample| {
                let at_zero = sample.values[0][..2 * CUBE.pow(3)].chunks_exact(2);
                at_zero
                    .map(|c| i64::from(i16::from_le_bytes([c[0], c[1]])))
                    .sum::<i64>()
            })
            .sum();
        assert_eq!(sum, (BOX as i64).pow(3));
    }

    #[test]
    fn every_split_has_boxes_of_its_own() {
        for (boxes, want) in [
            (3, [1, 1, 1]),
            (10, [8, 1, 1]),
            (11, [7, 2, 2]),
            (100, [80, 10, 10]),
        ] {
            let of = |is| {
                (0..boxes)
                    .filter(|number| split(*number, boxes) == is)
                    .count()
            };
            let got = [Split::Train, Split::Validation, Split::HeldOut].map(of);
            assert_eq!(got, want, "{boxes} boxes");
        }
    }
}
