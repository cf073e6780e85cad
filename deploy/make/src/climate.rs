//! Maps of the weather of a simulated atmosphere, with masks of cyclones and atmospheric rivers: the form of DeepCAM's
//! data. jcm makes the weather, in a script apart (`deploy/data/climate/weather.py`).
//!
//! A simulation is half a year of an atmosphere that began at rest, and belongs to one split as a whole.

use std::path::Path;
use std::time::Duration;

use tradewind_data::{DataError, Field, Kind, Memory, read_batch};
use tradewind_report::picture::Picture;

use crate::folder::{Card, Folder, Sample, Split, Told};
use crate::generator::{Generator, Script};
use crate::{Form, Made, Order, Progress, Recipe, picture};

/// What it is asked for by, and all that is needed to make it.
pub const RECIPE: Recipe = Recipe {
    name: "climate",
    about: "maps of simulated weather with cyclones and rivers of vapour, for model.name = \"deepcam\"",
    samples: 2880,
    python: Some(PYTHON),
    make,
};

/// The interpreter that has the script's packages, if no other is named.
const PYTHON: &str = ".deps/climate/bin/python";

/// How long the script may be silent. The days that are thrown away take a minute.
const PATIENCE: Duration = Duration::from_secs(1800);

const SCRIPT: &str = include_str!("../../data/climate/weather.py");

/// The script's packages, a line each.
const PACKAGES: &str = include_str!("../../data/climate/requirements.txt");

/// Number of the way in which samples are made; those of another one differ.
const VERSION: u32 = 1;

/// Maps of a simulation, 12 hours apart.
const MAPS: usize = 360;

/// Days of a year.
const YEAR_DAYS: usize = 365;

/// Latitudes from south to north, and longitudes from Greenwich to the east.
const ROWS: usize = 48;
const COLUMNS: usize = 96;
const CELLS: usize = ROWS * COLUMNS;

/// Those of DeepCAM, with their units, in their order.
const CHANNELS: [(&str, &str); 16] = [
    ("TMQ", "water vapour of the whole column, kg/m²"),
    ("U850", "wind to the east at 850 hPa, m/s"),
    ("V850", "wind to the north at 850 hPa, m/s"),
    ("UBOT", "wind to the east on the lowest level, m/s"),
    ("VBOT", "wind to the north on the lowest level, m/s"),
    ("QREFHT", "specific humidity on the lowest level, kg/kg"),
    ("PS", "pressure at the surface, Pa"),
    ("PSL", "pressure reduced to sea level, Pa"),
    ("T200", "temperature at 200 hPa, K"),
    ("T500", "temperature at 500 hPa, K"),
    (
        "PRECT",
        "rain and snow of the last 40 minutes, m/s of water",
    ),
    ("TS", "temperature of the surface, K"),
    ("TREFHT", "temperature of the air at the surface, K"),
    ("Z1000", "height of 1000 hPa, m"),
    ("Z200", "height of 200 hPa, m"),
    ("ZBOT", "height of the lowest level above the surface, m"),
];

/// Bytes of the maps and of the mask of one moment.
const IMAGE_BYTES: usize = 4 * CHANNELS.len() * CELLS;
const MASK_BYTES: usize = CELLS;

/// What is shown of a map: a channel, and its values of the darkest and the brightest colour.
const SHOWN: [(usize, f64, f64); 2] = [(0, 0.0, 60.0), (7, 97_000.0, 105_000.0)];

/// How many simulations each split has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    /// Of each simulation.
    maps: usize,
    train: usize,
    /// For validation, and again held out.
    other: usize,
}

impl Plan {
    /// Of eight: four for training, two for validation, two held out.
    fn of(samples: usize, maps: usize) -> Option<Self> {
        let all = samples.div_ceil(maps);
        let other = (all / 4).max(1);
        let train = all.checked_sub(2 * other)?;
        (train > 0).then_some(Self { maps, train, other })
    }

    fn units(self) -> usize {
        self.train + 2 * self.other
    }

    fn split(self, unit: usize) -> Split {
        match unit.checked_sub(self.train) {
            None => Split::Train,
            Some(number) if number < self.other => Split::Validation,
            Some(_) => Split::HeldOut,
        }
    }

    /// Day of the year on which a simulation's first map is: evenly over the year in each split.
    fn day(self, unit: usize) -> usize {
        let (number, all) = match unit.checked_sub(self.train) {
            None => (unit, self.train),
            Some(number) => (number % self.other, self.other),
        };
        number * YEAR_DAYS / all
    }
}

/// What samples have. The layout of the public files has channels last.
fn fields(form: Form) -> [Field; 2] {
    let channels = CHANNELS.len();
    let image = match form {
        Form::Packed => [channels, ROWS, COLUMNS],
        Form::Hdf5 => [ROWS, COLUMNS, channels],
    };
    [
        Field::new("image", Kind::F32, &image),
        Field::new("mask", Kind::U8, &[ROWS, COLUMNS]).classes(3),
    ]
}

fn make(order: &Order<'_>, progress: Progress<'_>) -> Result<Made, DataError> {
    make_of(MAPS, order, progress)
}

/// Of simulations with so many maps each.
fn make_of(maps: usize, order: &Order<'_>, progress: Progress<'_>) -> Result<Made, DataError> {
    let plan = Plan::of(order.samples, maps).ok_or_else(|| {
        DataError::Asked(format!(
            "{} samples are too few: each simulation gives {maps}, and training, validation and the final metric need \
             one each; ask for {} or more",
            order.samples,
            2 * maps + 1
        ))
    })?;
    let way_out = format!(
        "`make data-climate` in a source tree of Tradewind fetches it; elsewhere: python3 -m venv .deps/climate && \
         {PYTHON} -m pip install --no-deps {}; or name an interpreter that has these with --python",
        PACKAGES.split_whitespace().collect::<Vec<_>>().join(" ")
    );
    let script = Script {
        python: order.python.unwrap_or(Path::new(PYTHON)),
        text: SCRIPT,
        way_out: &way_out,
        patience: PATIENCE,
    };
    let tools = script.versions()?;
    let folder = Folder {
        order,
        name: RECIPE.name,
        version: VERSION,
        tools: &tools,
        fields: &fields(order.form),
        datasets: &["climate/data", "climate/labels_0"],
        units: plan.units(),
        unit_samples: maps,
        file_units: 1,
        split: &|unit| plan.split(unit),
    };
    let unit = |generator: &mut Option<Generator>, unit: usize, told: Told<'_>| {
        let generator = match generator {
            Some(generator) => generator,
            none => none.insert(script.start(order.seed)?),
        };
        simulation(generator, plan, unit, order.form, told)
    };
    folder.make(|| None, unit, progress, &|| card(order, plan, &tools))
}

/// The maps of one simulation. Masks need the climate of all its maps, and come last.
fn simulation(
    generator: &mut Generator,
    plan: Plan,
    unit: usize,
    form: Form,
    told: Told<'_>,
) -> Result<Vec<Sample>, DataError> {
    let (maps, day) = (plan.maps, plan.day(unit));
    let request = format!("maps {unit} {maps} {day}");
    let images = generator.ask(&request, maps, IMAGE_BYTES, told)?;
    let request = format!("masks {unit}");
    let masks = generator.ask(&request, maps, MASK_BYTES, &mut |_| {})?;
    let sample = |(number, (image, mask)): (usize, (Vec<u8>, Vec<u8>))| {
        let hour = 24 * day + 12 * (number + 1);
        let image = match form {
            Form::Packed => image,
            Form::Hdf5 => channels_last(&image),
        };
        Sample {
            name: format!(
                "simulation {unit:03} day {} hour {}",
                hour / 24 % YEAR_DAYS + 1,
                hour % 24
            ),
            values: vec![image, mask],
        }
    };
    let both = images.into_iter().zip(masks);
    Ok(both.enumerate().map(sample).collect())
}

/// `[ROWS, COLUMNS, channels]` of `[channels, ROWS, COLUMNS]`, in f32.
fn channels_last(image: &[u8]) -> Vec<u8> {
    let values = image.as_chunks::<4>().0;
    let cell = |cell: usize| values[cell..].iter().step_by(CELLS).flatten();
    (0..CELLS).flat_map(cell).copied().collect()
}

fn card(order: &Order<'_>, plan: Plan, tools: &str) -> Result<Card, DataError> {
    let channels: String = CHANNELS
        .iter()
        .enumerate()
        .map(|(number, (name, what))| format!("| {number} | {name} | {what} |\n"))
        .collect();
    let shape = match order.form {
        Form::Packed => format!("[{}, {ROWS}, {COLUMNS}]", CHANNELS.len()),
        Form::Hdf5 => format!("[{ROWS}, {COLUMNS}, {}]", CHANNELS.len()),
    };
    let few = match plan.other {
        2.. => "",
        _ => {
            "\n**This folder is a small one.** Validation and the final metric see half a year each, and not all \
             seasons.\n"
        }
    };
    Ok(Card {
        picture: shown(order)?,
        text: format!(
            "# Maps of the weather\n\n\
             Weather of a simulated atmosphere, with masks of cyclones and of atmospheric rivers: the form of the data of \
             DeepCAM (MLPerf HPC; T. Kurth et al. 2018, \"Exascale Deep Learning for Climate Analytics\"), made small.\n\n\
             - `image` (HDF5: `climate/data`): float32 `{shape}`. Rows go from south to north, columns from Greenwich to \
             the east, 3.75 degrees each, once around the globe.\n\
             - `mask` (HDF5: `climate/labels_0`): uint8 `[{ROWS}, {COLUMNS}]`: 0 for background, 1 in a cyclone, 2 in an \
             atmospheric river.\n\n\
             | channel | name | what it is |\n|---|---|---|\n{channels}\n\
             **Cyclones here are those of middle latitudes.** In the public data class 1 is tropical cyclones. A grid of \
             3.75 degrees has none.\n\n\
             ## How it was made\n\n\
             {tools}; `deploy/data/climate/weather.py` in Tradewind's source says all. jcm has the physics of SPEEDY (F. \
             Molteni 2003) on a spectral dynamical core, here at T31 with eight levels, with mountains, and with the sea \
             surface, ice and soil of a mean year. A simulation begins at rest; 60 days of it are thrown away, then come \
             {} maps, 12 hours apart.\n\n\
             - **Rivers** by the rules of B. Guan and D. E. Waliser (2015): the transport of vapour is above the local \
             85th percentile of the simulation, smoothed over cells, and above 100 kg/(m s), on an area longer than 2,000 \
             km and more than twice as long as wide, and goes to the pole by more than 50 kg/(m s). Cells within 20 \
             degrees of the equator are left out.\n\
             - **Cyclones** in the manner of TECA (Prabhat et al. 2012): the pressure at sea level is 6 hPa or more below \
             the mean of a ring from 900 to 1,400 km around, on three cells that touch, or more. Ground above 1,500 m is \
             left out.\n\n\
             **Approximations:** U850, V850, T200, T500 and Z200 lie between the eight levels, linear in the logarithm of \
             pressure; where the ground is above 850 hPa winds are those of the lowest level. PSL and Z1000 take a lapse \
             rate of 6.5 K/km. The air at 200 hPa begins too warm and goes on cooling, by 5 K in half a year. UBOT, VBOT and QREFHT are of the lowest level, about 400 m above the surface. PRECT is that \
             of one step of the model. ZBOT says no more than the temperature of the lowest level does. Rules made the \
             masks, as they did in DeepCAM: a network learns to do without what they see and it does not, the transport of \
             vapour and the climate.\n\
             {few}\n\
             `samples.png` shows the water vapour, the pressure at sea level and the mask of three training maps, north \
             above; cyclones are bright, rivers half.\n\n\
             ## Splits\n\n\
             By simulation, which each have a beginning of their own: no two splits share any weather. In each split the \
             simulations begin evenly over the year. The climate is the same in all: that of one mean year.\n\n\
             ## Licence\n\n\
             Made from equations and random numbers by jcm (Apache licence 2.0), with the boundary conditions that come \
             with it. CC0 1.0; please cite SPEEDY and jcm.\n",
            plan.maps,
        ),
    })
}

/// Three training maps of different seasons, if there are so many simulations.
fn shown(order: &Order<'_>) -> Result<Picture, DataError> {
    let train = order.folder.join(Split::Train.folder());
    let source = tradewind_data::open(&train, None, 1, None)?;
    let rows = (0..3).map(|row| {
        let samples = [row * source.len() / 3];
        let batch = read_batch(&*source, &samples, &mut Memory::default())?;
        let values = |name| &*batch.column(name).expect("it was written").values;
        let image: Vec<f64> = Kind::F32.numbers(values("image")).collect();
        let at = |channel: usize, cell: usize| match order.form {
            Form::Packed => image[channel * CELLS + cell],
            Form::Hdf5 => image[cell * CHANNELS.len() + channel],
        };
        // North above.
        let cells =
            || (0..CELLS).map(|cell| CELLS - COLUMNS - cell / COLUMNS * COLUMNS + cell % COLUMNS);
        let channel = |(channel, least, most): (usize, f64, f64)| {
            let part = |cell| (at(channel, cell) - least) / (most - least);
            cells().map(part).collect()
        };
        let mask = values("mask");
        let brightness = |cell: usize| [0.0, 1.0, 0.5][usize::from(mask[cell])];
        let [vapour, pressure]: [Vec<f64>; 2] = SHOWN.map(channel);
        Ok(vec![vapour, pressure, cells().map(brightness).collect()])
    });
    let rows: Vec<Vec<Vec<f64>>> = rows.collect::<Result<_, DataError>>()?;
    let labels = [
        "water vapour",
        "pressure at sea level",
        "cyclones and rivers",
    ];
    Ok(picture::maps(&rows, COLUMNS, &labels.map(String::from)))
}

#[cfg(test)]
mod tests;
