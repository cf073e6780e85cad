//! Where on a map of the weather there are tropical cyclones and atmospheric rivers, as boxes, learned from maps of which
//! few are labelled: a semi-supervised network.
//!
//! Kurth et al. 2017, "Deep Learning at 15PF: Supervised and Semi-Supervised Classification for Scientific Data", section
//! III-B, which trains the network of Racah et al. 2017, "ExtremeWeather: A large-scale climate dataset for
//! semi-supervised detection, localization, and understanding of extreme weather events" (arXiv:1612.02095), section 3:
//!
//! ```text
//! h = (image − mean) / deviation                       [samples, channels, y, x]
//! for each convolution: h = leaky(conv5(h))            it looks at every second cell; leaky(x) = x, or 0.1 x where x < 0
//! place, object, class = conv3(h), conv3(h), conv3(h)  [samples, 4 | 2 | 2, y, x] on the coarsest map
//! for each convolution, the last first: h = leaky(the same convolution, transposed (h)); the last one without leaky
//! ```
//! With `model.norm` batch normalisation comes between convolution and `leaky`, not so on the way back.
//! A cell of the coarsest map, `size` cells of the map along an edge, tells the box whose middle is in it: the middle is
//! (cell + place 0 and 1) × size, height and width are 2^(place 2 and 3) × size, and its score for a class is the
//! probability of an event there times that of the class.
//!
//! The loss of a labelled map is a sum over cells of the coarsest map: where an event's middle is, 5 × the smooth L1
//! distance of the middle (Girshick 2015, equation 3), 7 × that of the sizes, −log p(event) and −log p(its class);
//! elsewhere −0.5 log p(no event). Of two events in a cell the larger one counts. To the mean over labelled maps comes
//! `model.reconstruction` × the mean over all maps of the squared error of what is decoded. Weights are those of the
//! authors' program.
//!
//! The boxes that are true follow from masks (`detection.rs`). The metric is the average precision (AP), the mean over
//! classes, where boxes that overlap by half of their union are of one event.

mod climatology;
mod network;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use tch::{Device, Kind, Reduction, Tensor};
use tradewind_common::layout::TensorKind;
use tradewind_common::mix::mixed;
use tradewind_common::record::{Better, Measure, Part};

use self::climatology::Climatology;
use self::network::{Heads, Network};
use super::detection::{Found, Place, Told, events, suppressed};
use super::weather::{CLASSES, Maps, numbers};
use super::{Picture, Reading, Report, Task, TaskError, TaskKind, measured, seeded};
use crate::data::{Batch, DataError, Dataset, Split};

/// The classes of events: all but background.
const EVENTS: usize = CLASSES.len() - 1;

/// Weights of the distances of row and column of a middle, of height and of width.
const PLACE_WEIGHTS: [f32; 4] = [5.0, 5.0, 7.0, 7.0];

/// Weight of cells without an event.
const NO_EVENT: f64 = 0.5;

/// No cell is left out of the loss by its class.
const NO_CLASS: i64 = -100;

/// Boxes of a picture have at least this score.
const SHOWN_MIN: f64 = 0.5;

/// "labelled" in ASCII: keeps these draws apart from others of the run's seed.
const LABELLED: u64 = 0x6c61_6265_6c6c_6564;

impl TaskKind for tradewind_config::ClimateBoxes {
    fn build(&self, seed: u64, reading: &Reading) -> Result<Box<dyn Task>, TaskError> {
        Ok(Box::new(ClimateBoxes::new(self, seed, reading)?))
    }
}

/// The samples with the network.
pub struct ClimateBoxes {
    folder: PathBuf,
    maps: Maps,
    event_cells: usize,
    /// Of each training map whether its events are known.
    labelled: Vec<bool>,
    /// Whether the others have a part in the loss.
    unlabelled: bool,
    /// Weight of the reconstruction error.
    reconstruction: f64,
    network: Network,
}

/// How good what is told of the maps of a split is.
struct Score {
    /// Of each class.
    found: [Found; EVENTS],
    /// Squares of the errors of the reconstruction, and of what is to be reconstructed.
    squares: [f64; 2],
}

impl ClimateBoxes {
    /// Opens the samples, looks at some of them, and draws initial values, and which maps are labelled, from `seed`.
    ///
    /// # Errors
    /// Samples that cannot be used or do not fit the network.
    pub fn new(
        settings: &tradewind_config::ClimateBoxes,
        seed: u64,
        reading: &Reading,
    ) -> Result<Self, TaskError> {
        let maps = Maps::open(&settings.folder, settings.augment, seed, reading)?;
        let looks = maps.looks()?;
        let times = 1i64.checked_shl(settings.encoder.len() as u32);
        let (y, x) = (maps.y, maps.x);
        if times.is_none_or(|times| y % times != 0 || x % times != 0) {
            return Err(TaskError::Other(format!(
                "{}: maps are of {y} × {x} cells, and with {} convolutions in model.encoder height and width have to be \
                 multiples of 2^{1}",
                settings.folder.display(),
                settings.encoder.len()
            )));
        }
        let network = seeded(seed, || {
            Network::new(
                &settings.encoder,
                settings.norm,
                maps.channels,
                EVENTS as i64,
            )
        });
        network.input.set(&looks.mean, &looks.deviation);
        Ok(Self {
            folder: settings.folder.clone(),
            event_cells: settings.event_cells,
            labelled: labelled(maps.samples.len(Split::Train), settings.labelled, seed),
            unlabelled: settings.unlabelled,
            reconstruction: settings.reconstruction,
            maps,
            network,
        })
    }

    /// Weights of the training maps of a batch in the loss of boxes and in that of the reconstruction, `[samples]` each:
    /// such that the mean over all maps is the mean over those that have a part.
    fn weights(&self, batch: &Batch) -> [Tensor; 2] {
        let count = self.labelled.iter().filter(|is| **is).count();
        let each = self.labelled.len() as f32 / count as f32;
        let is_labelled = batch.samples.iter().map(|sample| self.labelled[*sample]);
        let of_labelled: Vec<f32> = is_labelled.map(|is| if is { each } else { 0.0 }).collect();
        let of_labelled = Tensor::from_slice(&of_labelled).to(self.network.device());
        let of_all = match self.unlabelled {
            true => of_labelled.ones_like(),
            false => of_labelled.shallow_clone(),
        };
        [of_labelled, of_all]
    }

    /// The masks of a batch one after the other, each row by row.
    fn masks(&self, batch: &Batch) -> Vec<u8> {
        let masks = batch["mask"].to(Device::Cpu).to_kind(Kind::Uint8);
        Vec::try_from(masks.flatten(0, -1)).expect("u8 on the CPU")
    }

    fn cells(&self) -> usize {
        (self.maps.y * self.maps.x) as usize
    }

    /// The events of a mask, with their classes from 0 on.
    fn events_of(&self, mask: &[u8]) -> Vec<(usize, Place)> {
        let mut found = events(mask, self.maps.x as usize, self.event_cells);
        for (class, _) in &mut found {
            *class -= 1;
        }
        found
    }

    /// The events of each map of a batch.
    fn events(&self, batch: &Batch) -> Vec<Vec<(usize, Place)>> {
        let masks = self.masks(batch);
        let each = masks.chunks_exact(self.cells());
        each.map(|mask| self.events_of(mask)).collect()
    }

    /// What the heads are to tell of the labelled maps of a batch, `[samples, 6, y, x]`: the four numbers of a place,
    /// whether there is an event, and its class. 0 where there is none, and for maps that are not labelled.
    fn targets(&self, batch: &Batch) -> Tensor {
        let size = self.network.smaller();
        let (rows, columns) = (self.maps.y / size, self.maps.x / size);
        let cells = (rows * columns) as usize;
        let mut targets = vec![0f32; batch.samples.len() * 6 * cells];
        let masks = self.masks(batch);
        for (at, mask) in masks.chunks_exact(self.cells()).enumerate() {
            if !self.labelled[batch.samples[at]] {
                continue;
            }
            let mut events = self.events_of(mask);
            events.sort_by(|(_, a), (_, b)| a.area().total_cmp(&b.area()));
            for (class, place) in events {
                let [y, x] = place.middle().map(|middle| middle / size as f64);
                let cell = y as usize * columns as usize + x as usize;
                let [height, width] =
                    [place.height, place.width].map(|side| (side / size as f64).log2());
                let values = [y.fract(), x.fract(), height, width, 1.0, class as f64];
                for (number, value) in values.into_iter().enumerate() {
                    targets[(at * 6 + number) * cells + cell] = value as f32;
                }
            }
        }
        let shape = [batch.samples.len() as i64, 6, rows, columns];
        Tensor::from_slice(&targets)
            .view(shape)
            .to(self.network.device())
    }

    /// The boxes that heads tell of each map, of each class.
    fn told(&self, heads: &Heads) -> Vec<[Vec<Told>; EVENTS]> {
        let size = self.network.smaller() as f64;
        let map = [self.maps.y as f64, self.maps.x as f64];
        let places = heads.place.permute([0, 2, 3, 1]).contiguous();
        let event = heads.object.softmax(1, Kind::Float).narrow(1, 0, 1);
        let scores = event * heads.class.softmax(1, Kind::Float);
        let scores = numbers(&scores.permute([0, 2, 3, 1]).contiguous());
        let columns = heads.place.size()[3] as usize;
        let cells = heads.place.size()[2] as usize * columns;
        let places = numbers(&places);
        let of_map = |(places, scores): (&[f32], &[f32])| {
            std::array::from_fn(|class| {
                let of_cell = |(cell, place): (usize, &[f32])| {
                    let [y, x, height, width] = [0, 1, 2, 3].map(|at| f64::from(place[at]));
                    let middle = [(cell / columns) as f64 + y, (cell % columns) as f64 + x];
                    let sides = [height, width].map(|side| side.exp2() * size);
                    Told {
                        place: Place::around(middle.map(|middle| middle * size), sides, map),
                        score: scores[cell * EVENTS + class].into(),
                    }
                };
                let cells = places.chunks_exact(4).enumerate();
                suppressed(cells.map(of_cell).collect())
            })
        };
        let maps = places
            .chunks_exact(4 * cells)
            .zip(scores.chunks_exact(EVENTS * cells));
        maps.map(of_map).collect()
    }

    /// What the network tells of a split.
    fn score(&self, split: Split) -> Result<Score, DataError> {
        let mut score = Score::default();
        self.maps
            .samples
            .each(split, self.network.device(), |batch| {
                tch::no_grad(|| {
                    let scaled = self.network.input.scaled(&self.maps.image(batch));
                    let coarsest = self.network.encode(&scaled, false);
                    let told = self.told(&self.network.heads(&coarsest));
                    for (told, events) in told.iter().zip(self.events(batch)) {
                        score.boxes(told, &events);
                    }
                    if self.reconstruction > 0.0 {
                        score.reconstruction(&self.network.decode(&coarsest), &scaled);
                    }
                });
                Ok(())
            })?;
        Ok(score)
    }

    /// What the climatology tells of held-out maps.
    fn simple(&self) -> Result<Score, DataError> {
        let climatology = Climatology::of(self)?;
        let mut score = Score::default();
        self.maps
            .samples
            .each(Split::HeldOut, Device::Cpu, |batch| {
                for events in self.events(batch) {
                    score.boxes(&climatology.boxes, &events);
                }
                let scaled = self.on_cpu(batch);
                score.reconstruction(&climatology.mean.expand_as(&scaled), &scaled);
                Ok(())
            })?;
        Ok(score)
    }

    /// Scaled maps of a batch, on the CPU.
    fn on_cpu(&self, batch: &Batch) -> Tensor {
        let image = self.maps.image(batch).to(self.network.device());
        self.network.input.scaled(&image).to(Device::Cpu)
    }

    /// The mean over classes.
    fn precision(&self, split: Split, score: &Score) -> Result<f64, TaskError> {
        let part = match split {
            Split::Train => "train",
            Split::Validation => "validation",
            Split::HeldOut => "held_out",
        };
        score.precision().ok_or_else(|| {
            TaskError::Other(format!(
                "{}: there is no average precision without events there; the masks have none of at least {} cells, which \
                 data.event_cells says",
                self.folder.join(part).display(),
                self.event_cells
            ))
        })
    }

    /// A held-out map and its reconstruction, with boxes: the first channel of that one of some maps that has most cells
    /// of events.
    fn picture(&self) -> Result<Option<Picture>, DataError> {
        let Some(batch) = self.maps.eventful()? else {
            return Ok(None);
        };
        let (scaled, coarsest) = tch::no_grad(|| {
            let image = self.maps.image(&batch).to(self.network.device());
            let scaled = self.network.input.scaled(&image);
            let coarsest = self.network.encode(&scaled, false);
            (scaled, coarsest)
        });
        let again = match self.reconstruction > 0.0 {
            true => tch::no_grad(|| self.network.decode(&coarsest)),
            false => scaled.shallow_clone(),
        };
        let told = tch::no_grad(|| self.told(&self.network.heads(&coarsest)));
        let told = told.iter().flatten().enumerate();
        let told = told.flat_map(|(class, told)| {
            let shown = told.iter().filter(|told| told.score >= SHOWN_MIN);
            shown.map(move |told| (class, told.place))
        });
        let outline = |(class, place): (usize, Place)| self.maps.outline(class + 1, &place);
        let (latitude, longitude) = self.maps.degrees();
        let first = |maps: &Tensor| numbers(&maps.select(1, 0));
        Ok(Some(Picture {
            label: "orange cyclones, white rivers".into(),
            unit: "standard deviations".into(),
            variable: "first channel".into(),
            truth: first(&scaled),
            forecast: first(&again),
            latitude,
            longitude,
            outlines: [
                self.events(&batch)
                    .concat()
                    .into_iter()
                    .map(outline)
                    .collect(),
                told.map(outline).collect(),
            ],
        }))
    }
}

/// Which of so many maps are labelled: this part of them, one at least. The choice follows from the seed and the maps'
/// numbers.
fn labelled(maps: usize, part: f64, seed: u64) -> Vec<bool> {
    let mut order: Vec<usize> = (0..maps).collect();
    order.sort_unstable_by_key(|map| mixed(seed, [LABELLED, *map as u64]));
    let count = ((part * maps as f64).round() as usize).clamp(1, maps);
    let mut labelled = vec![false; maps];
    for map in &order[..count] {
        labelled[*map] = true;
    }
    labelled
}

/// The loss of boxes of each map, `[samples]`, from what is told and what is to be told.
fn box_losses(heads: &Heads, targets: &Tensor) -> Tensor {
    let target = |first, count| targets.narrow(1, first, count);
    let (is_event, class) = (
        target(4, 1),
        target(5, 1).squeeze_dim(1).to_kind(Kind::Int64),
    );
    let weights = Tensor::from_slice(&PLACE_WEIGHTS)
        .view([1, 4, 1, 1])
        .to(targets.device());
    let places = heads
        .place
        .smooth_l1_loss(&target(0, 4), Reduction::None, 1.0);
    let sure = heads.object.log_softmax(1, Kind::Float);
    let events = &is_event * sure.narrow(1, 0, 1);
    let others = (1.0 - &is_event) * sure.narrow(1, 1, 1);
    let classes =
        heads
            .class
            .cross_entropy_loss::<Tensor>(&class, None, Reduction::None, NO_CLASS, 0.0);
    let of_events = (places * weights).sum_dim_intlist([1i64].as_slice(), true, Kind::Float)
        + classes.unsqueeze(1);
    let all: Tensor = is_event * of_events - events - others * NO_EVENT;
    all.sum_dim_intlist([1i64, 2, 3].as_slice(), false, Kind::Float)
}

impl Default for Score {
    fn default() -> Self {
        Self {
            found: Default::default(),
            squares: [0.0; 2],
        }
    }
}

impl Score {
    /// Takes in what is told of a map's boxes.
    fn boxes(&mut self, told: &[Vec<Told>; EVENTS], events: &[(usize, Place)]) {
        for (class, (found, told)) in self.found.iter_mut().zip(told).enumerate() {
            let own = events.iter().filter(|(of, _)| *of == class);
            let own: Vec<Place> = own.map(|(_, place)| *place).collect();
            found.add(told, &own);
        }
    }

    /// Takes in what is told of scaled maps.
    fn reconstruction(&mut self, told: &Tensor, scaled: &Tensor) {
        let squares = [told - scaled, scaled.shallow_clone()];
        for (sum, values) in self.squares.iter_mut().zip(squares) {
            *sum += values.square().sum(Kind::Double).double_value(&[]);
        }
    }

    /// The mean of the average precisions of classes of which there are events.
    fn precision(&self) -> Option<f64> {
        let each = self.found.iter().filter_map(Found::average_precision);
        let each: Vec<f64> = each.collect();
        (!each.is_empty()).then(|| each.iter().sum::<f64>() / each.len() as f64)
    }

    /// The squared error of the reconstruction as part of the squared distance from the mean of each channel.
    fn relative_error(&self) -> f64 {
        self.squares[0] / self.squares[1]
    }
}

impl Task for ClimateBoxes {
    fn tensors(&self) -> Vec<(String, Tensor, TensorKind)> {
        self.network.tensors()
    }

    fn dataset(&self) -> Arc<dyn Dataset> {
        Arc::clone(&self.maps.samples) as Arc<dyn Dataset>
    }

    fn loss(&self, batch: &Batch) -> Tensor {
        let scaled = self.network.input.scaled(&self.maps.image(batch));
        let coarsest = self.network.encode(&scaled, true);
        let [of_boxes, of_maps] = self.weights(batch);
        let boxes = box_losses(&self.network.heads(&coarsest), &self.targets(batch));
        let mut losses = boxes * of_boxes;
        if self.reconstruction > 0.0 {
            let errors = (self.network.decode(&coarsest) - scaled).square();
            let errors = errors.mean_dim([1i64, 2, 3].as_slice(), false, Kind::Float);
            losses += errors * of_maps * self.reconstruction;
        }
        losses.mean(Kind::Float)
    }

    /// 1 − the average precision.
    fn measure(&self, split: Split) -> Result<Measure, TaskError> {
        let name = match split {
            Split::Train => "training 1 - AP",
            Split::Validation => tradewind_config::ClimateBoxes::VALIDATION_METRIC,
            Split::HeldOut => "held-out 1 - AP",
        };
        let precision = self.precision(split, &self.score(split)?)?;
        Ok(measured(name, "", 1.0 - precision))
    }

    /// The average precision on held-out maps and that of each class, and the error of the reconstruction.
    fn evaluate(&self) -> Result<Report, TaskError> {
        let (score, simple) = (self.score(Split::HeldOut)?, self.simple()?);
        let [precision, baseline] =
            [&score, &simple].map(|score| self.precision(Split::HeldOut, score));
        let mut parts = Vec::new();
        for (class, name) in CLASSES[1..].iter().enumerate() {
            let of = |score: &Score| score.found[class].average_precision();
            // Both have seen the same events.
            if let Some((value, baseline)) = of(&score).zip(of(&simple)) {
                parts.push(Part {
                    name: (*name).into(),
                    value,
                    baselines: vec![baseline],
                });
            }
        }
        if self.reconstruction > 0.0 {
            parts.push(Part {
                name: "reconstruction error".into(),
                value: score.relative_error(),
                baselines: vec![simple.relative_error()],
            });
        }
        let metric = measured("held-out AP", "", precision?);
        Ok(Report {
            baselines: vec![measured("climatology of labelled maps", "", baseline?)],
            parts,
            picture: self.picture()?,
            ..Report::of(metric, Better::Higher, self.measure(Split::Validation)?)
        })
    }

    fn notes(&self) -> BTreeMap<String, String> {
        let conv = match self.network.is_normed() {
            true => "norm(conv(h))",
            false => "conv(h)",
        };
        let forward = format!(
            "h = (image - input.mean) / input.deviation; h = leaky({conv}) for each encoder (5x5, stride 2, zero \
             padding 2); place, object, class = conv(h) (3x3, zero padding 1); decoded with the encoder's kernels \
             transposed, as docs/tasks/climate-boxes.md says; leaky = leaky_relu with slope 0.1; eps of norms 1e-5"
        );
        BTreeMap::from([
            ("model".into(), "climate-boxes".into()),
            ("classes".into(), CLASSES[1..].join(", ")),
            ("forward".into(), forward),
        ])
    }
}

#[cfg(test)]
mod tests;
