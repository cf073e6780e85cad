//! Images of collisions of protons in a detector: pairs of gluinos that decay to quarks, against ordinary jets. Pythia
//! makes the collisions, in a script apart (`deploy/data/hep/events.py`).
//!
//! A simulation is some events of one kind with random numbers of its own.

use std::path::Path;
use std::time::Duration;

use tradewind_data::{DataError, Field, Kind, Memory, read_batch};

use crate::folder::{Card, Folder, Sample, Split, Told};
use crate::generator::{Generator, Script};
use crate::{Made, Order, Progress, Recipe, picture};

/// What it is asked for by, and all that is needed to make it.
pub const RECIPE: Recipe = Recipe {
    name: "hep",
    about: "images of simulated collisions of protons, for model.name = \"hep\"",
    samples: 30_000,
    python: Some(PYTHON),
    make,
};

/// The interpreter that has the script's packages, if no other is named.
const PYTHON: &str = ".deps/pythia/bin/python";

/// How long the script may be silent. An event takes a tenth of a second.
const PATIENCE: Duration = Duration::from_secs(600);

const SCRIPT: &str = include_str!("../../data/hep/events.py");

/// The script's packages, a line each.
const PACKAGES: &str = include_str!("../../data/hep/requirements.txt");

/// Number of the way in which samples are made; those of another one differ.
const VERSION: u32 = 1;

/// Events of a simulation.
const EVENTS: usize = 20;

/// Simulations of a file.
const FILE_UNITS: usize = 16;

/// Cells of an image along an edge.
const CELLS: usize = 64;

/// Energy, electromagnetic part, tracks.
const CHANNELS: usize = 3;

/// Features of jets.
const JETS: usize = 12;

/// Bytes of the features, which stand first in a record.
const JETS_BYTES: usize = 4 * JETS;

const RECORD_BYTES: usize = JETS_BYTES + 2 * CHANNELS * CELLS * CELLS;

/// One simulation of so many held-out ones is of signal: rates of false alarms are told from background.
const HELD_OUT_SIGNAL: usize = 6;

/// Energy in GeV of the brightest colour in the picture, and number of tracks.
const BRIGHTEST: [f64; 2] = [500.0, 20.0];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Background,
    Signal,
}

impl Event {
    fn name(self) -> &'static str {
        match self {
            Self::Background => "background",
            Self::Signal => "signal",
        }
    }
}

/// How many simulations each split has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    train: usize,
    validation: usize,
    held_out: usize,
}

impl Plan {
    /// Of 30: 16 for training, 2 for validation, 12 held out. Each split has both kinds.
    fn of(samples: usize) -> Option<Self> {
        let all = samples.div_ceil(EVENTS);
        let validation = 2 * all.div_ceil(30);
        let held_out = (2 * all).div_ceil(5);
        let train = all.checked_sub(validation + held_out)?;
        (train >= 2 && held_out >= 2).then_some(Self {
            train,
            validation,
            held_out,
        })
    }

    fn units(self) -> usize {
        self.train + self.validation + self.held_out
    }

    /// Where a simulation belongs, and its number there.
    fn place(self, unit: usize) -> (Split, usize) {
        if unit < self.train {
            (Split::Train, unit)
        } else if unit < self.train + self.validation {
            (Split::Validation, unit - self.train)
        } else {
            (Split::HeldOut, unit - self.train - self.validation)
        }
    }

    fn event(self, unit: usize) -> Event {
        let of = |signal| match signal {
            true => Event::Signal,
            false => Event::Background,
        };
        match self.place(unit) {
            (Split::HeldOut, number) => of(number.is_multiple_of(HELD_OUT_SIGNAL)),
            (_, number) => of(number.is_multiple_of(2)),
        }
    }

    /// Samples of a split that are of a kind.
    fn count(self, split: Split, event: Event) -> usize {
        let is = |unit: &usize| self.place(*unit).0 == split && self.event(*unit) == event;
        EVENTS * (0..self.units()).filter(is).count()
    }
}

/// What samples have.
fn fields() -> [Field; 3] {
    [
        Field::new("data", Kind::F16, &[CHANNELS, CELLS, CELLS]),
        Field::new("label", Kind::U8, &[]).classes(2),
        Field::new("jets", Kind::F32, &[JETS]),
    ]
}

fn make(order: &Order<'_>, progress: Progress<'_>) -> Result<Made, DataError> {
    let plan = Plan::of(order.samples).ok_or_else(|| {
        let least = (1..).find(|samples| Plan::of(*samples).is_some());
        DataError::Asked(format!(
            "{} samples are too few: training, validation and the final metric need signal and background each; ask for \
             {} or more",
            order.samples,
            least.unwrap_or_default()
        ))
    })?;
    let way_out = format!(
        "`make data-hep` in a source tree of Tradewind fetches it; elsewhere: python3 -m venv .deps/pythia && {PYTHON} -m \
         pip install {}; or name an interpreter that has these with --python",
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
        fields: &fields(),
        datasets: &["data", "label", "jets"],
        units: plan.units(),
        unit_samples: EVENTS,
        file_units: FILE_UNITS,
        split: &|unit| plan.place(unit).0,
    };
    let unit = |generator: &mut Option<Generator>, unit: usize, _: Told<'_>| {
        let generator = match generator {
            Some(generator) => generator,
            none => none.insert(script.start(order.seed)?),
        };
        simulation(generator, plan.event(unit), unit)
    };
    folder.make(|| None, unit, progress, &|| card(order, plan, &tools))
}

/// The events of one simulation.
fn simulation(
    generator: &mut Generator,
    event: Event,
    unit: usize,
) -> Result<Vec<Sample>, DataError> {
    let request = format!("{} {unit} {EVENTS}", event.name());
    let records = generator.ask(&request, EVENTS, RECORD_BYTES, &mut |_| {})?;
    let sample = |(number, mut jets): (usize, Vec<u8>)| {
        let data = jets.split_off(JETS_BYTES);
        Sample {
            name: format!("{} {unit:05} event {number}", event.name()),
            values: vec![data, vec![event as u8], jets],
        }
    };
    Ok(records.into_iter().enumerate().map(sample).collect())
}

fn card(order: &Order<'_>, plan: Plan, tools: &str) -> Result<Card, DataError> {
    let table: String = [Split::Train, Split::Validation, Split::HeldOut]
        .map(|split| {
            let [signal, background] =
                [Event::Signal, Event::Background].map(|event| plan.count(split, event));
            format!("| `{}` | {signal} | {background} |\n", split.folder())
        })
        .concat();
    let held_out = plan.count(Split::HeldOut, Event::Background);
    let few = match held_out {
        10_000.. => String::new(),
        _ => format!(
            "\n**This folder is a small one.** With {held_out} background events held out, a rate of false alarms of 1 % \
             rests on {} events, and training does not reach what it does on the {} samples that are made without \
             `--samples`.\n",
            held_out / 100,
            RECIPE.samples
        ),
    };
    Ok(Card {
        picture: shown(order)?,
        text: format!(
            "# Images of collisions\n\n\
             Collisions of protons at 13 TeV, as images of a detector: is it a pair of gluinos that decay to many quarks, \
             or are they ordinary jets? The task is that of W. Bhimji et al. (2018), \"Deep Neural Networks for Physics \
             Analysis on low-level whole-detector data at the LHC\", arXiv:1711.03573, made small.\n\n\
             - `data`: float16 `[{CHANNELS}, {CELLS}, {CELLS}]`: energy in GeV in the cell of all calorimeters together; \
             the electromagnetic part of it, from 0 to 1, 0 where there is none; number of charged tracks. Rows are \
             pseudorapidity η from -2.5 to 2.5, columns azimuth φ from -π to π, which goes round.\n\
             - `label`: uint8, 1 for signal and 0 for background.\n\
             - `jets`: float32 `[{JETS}]`, features for baselines. Masses and momenta are in GeV, jets are in the order of \
             falling transverse momentum (pT), and a jet that is not there has 0:\n\n\
             | number | feature |\n|---|---|\n\
             | 0 | HT, the sum of the pT of jets |\n\
             | 1 | number of jets |\n\
             | 2 | number of fat jets |\n\
             | 3 | sum of the masses of the fat jets |\n\
             | 4, 5, 6, 7 | pT of the first, second, fourth and fifth jet |\n\
             | 8, 9, 10 | mass of the first, second and third fat jet |\n\
             | 11 | distance in η of the first two fat jets |\n\n\
             The first four are the \"four jet features\".\n\n\
             ## How it was made\n\n\
             {tools}; `deploy/data/hep/events.py` in Tradewind's source says all. A simulation is {EVENTS} events of one \
             kind.\n\n\
             - **Signal**: pairs of gluinos of 1400 GeV. Each decays to two quarks and a neutralino of 850 GeV, and that to \
             three quarks, with R-parity violated (coupling λ''₁₁₂).\n\
             - **Background**: jets of ordinary quarks and gluons (QCD), from hard processes with a pT above 500 GeV. An \
             event is given up before it is complete where its partons show that it will not be selected: none of 739 \
             selected ones would have been lost by that.\n\
             - **Selected** are, of both kinds, events with HT above 1.5 TeV and at least five jets. Hard processes below \
             500 GeV would add some.\n\
             - **Jets** are found in the cells of the image: anti-kT of radius 0.4 and pT above 50 GeV; fat ones of radius \
             1.0 and pT above 200 GeV.\n\n\
             **Approximation:** the detector is smearing; in the paper it is the program Delphes. Here \
             tracks bend in a field of 2 T and are found with the efficiencies of Delphes' card of ATLAS, and the energy of \
             a cell has the resolution of that card. There is no noise, no pile-up, no material, and fat jets are not \
             trimmed. So figures can be compared with each other, and not with those of the paper.\n\
             {few}\n\
             `samples.png` shows energies and tracks of three training events of each kind.\n\n\
             ## Splits\n\n\
             | split | signal | background |\n|---|---|---|\n{table}\n\
             By simulation. `held_out` has mostly background, since that says how rare false alarms are.\n\n\
             ## Licence\n\n\
             Made from random numbers by Pythia 8 (C. Bierlich et al. 2022, arXiv:2203.11601), which is under the GPL 2 or \
             later, and with jets by FastJet's core (M. Cacciari, G. P. Salam, G. Soyez 2012, arXiv:1111.6097); nobody \
             else's data are in it. The licence of a program is not that of its output. CC0 1.0; please cite both.\n"
        ),
    })
}

/// Three training events of each kind.
fn shown(order: &Order<'_>) -> Result<tradewind_report::picture::Picture, DataError> {
    let train = order.folder.join(Split::Train.folder());
    let source = tradewind_data::open(&train, None, 1, None)?;
    // Simulations of signal and background take turns.
    let rows = (0..3).map(|row| {
        let batch = read_batch(&*source, &[row, EVENTS + row], &mut Memory::default())?;
        let data = batch.column("data").expect("it was written");
        let images = data.values.chunks_exact(2 * CHANNELS * CELLS * CELLS);
        let maps = images.flat_map(|image| {
            [0, 2].map(|channel| {
                let bytes = &image[2 * CELLS * CELLS * channel..][..2 * CELLS * CELLS];
                let most = BRIGHTEST[channel / 2].ln_1p();
                Kind::F16
                    .numbers(bytes)
                    .map(|value| value.ln_1p() / most)
                    .collect()
            })
        });
        Ok(maps.collect())
    });
    let rows: Vec<Vec<Vec<f64>>> = rows.collect::<Result<_, DataError>>()?;
    let labels = ["signal: energy", "tracks", "background: energy", "tracks"];
    Ok(picture::maps(&rows, CELLS, &labels.map(String::from)))
}

#[cfg(test)]
mod tests;
