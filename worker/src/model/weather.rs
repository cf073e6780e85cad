//! Maps of the weather with a mask that tells for each cell whether it is part of an event.

use std::path::Path;
use std::sync::Arc;

use tch::{Device, Kind, Tensor};
use tradewind_data::{Field, Moves};

use super::detection::Place;
use super::{Outline, Reading, TaskError};
use crate::data::{Asked, Batch, DataError, Dataset, Split, Stored, spread};

/// What cells may be, by number.
pub(super) const CLASSES: [&str; 3] = ["background", "tropical cyclone", "atmospheric river"];

/// Maps of a split that are looked at where all of them would be too many: for means, deviations and the parts of
/// classes, for what a simple forecast is fitted to, and for a picture.
const LOOKED_AT: usize = 16;

const OVER_MAPS: [i64; 3] = [0, 2, 3];

/// Samples with the fields `image` and `mask`.
pub(super) struct Maps {
    pub(super) samples: Arc<Stored>,
    pub(super) channels: i64,
    pub(super) y: i64,
    pub(super) x: i64,
    /// Whether channels are the last extent of images, and not the first.
    channels_last: bool,
}

impl Maps {
    /// Of the folders `train`, `validation` and `held_out`. With `augment` maps are turned around the globe as they
    /// are trained on, by angles that follow from `seed`.
    ///
    /// # Errors
    /// Samples that cannot be used or are no such maps.
    pub(super) fn open(
        folder: &Path,
        augment: bool,
        seed: u64,
        reading: &Reading,
    ) -> Result<Self, TaskError> {
        let mut samples = Stored::of_folder(folder, reading)?;
        let fields = samples.fields();
        let (channels, y, x, channels_last) = shape(&fields).ok_or_else(|| {
            TaskError::Other(format!(
                "{}: samples need a field image of shape [channels, y, x] or [y, x, channels], and a field mask of \
                 shape [y, x], of {} classes; they have {}",
                folder.display(),
                CLASSES.len(),
                Field::listed(&fields)
            ))
        })?;
        if augment && channels_last {
            return Err(TaskError::Other(format!(
                "{}: data.augment = true needs images of shape [channels, y, x], and they are {}; set it to false, or \
                 store them so",
                folder.display(),
                Field::listed(&fields)
            )));
        }
        if augment {
            let moves = Moves {
                extents: 2,
                roll: vec![1],
                ..Moves::default()
            };
            samples = samples.augmented(&["image", "mask"], moves, seed)?;
        }
        let [channels, y, x] = [channels, y, x].map(|extent| extent as i64);
        Ok(Self {
            samples: Arc::new(samples),
            channels,
            y,
            x,
            channels_last,
        })
    }

    /// The maps of a batch, `[samples, channels, y, x]`.
    pub(super) fn image(&self, batch: &Batch) -> Tensor {
        match self.channels_last {
            true => batch["image"].permute([0, 3, 1, 2]),
            false => batch["image"].shallow_clone(),
        }
    }

    /// One sample as it is, as a batch.
    pub(super) fn one(&self, split: Split, sample: usize) -> Result<Batch, DataError> {
        self.samples.batch(Asked::of(split, &[sample]))
    }

    /// Samples that lie evenly over a split, [`LOOKED_AT`] at most.
    pub(super) fn looked_at(&self, split: Split) -> Vec<usize> {
        spread(self.samples.len(split), LOOKED_AT).collect()
    }

    /// What some training samples are like, the same on every rank.
    pub(super) fn looks(&self) -> Result<Looks, DataError> {
        let sum = || Tensor::zeros([self.channels], (Kind::Double, Device::Cpu));
        let (mut first, mut second, mut cells) = (sum(), sum(), 0.0);
        let mut classes = Tensor::zeros([CLASSES.len() as i64], (Kind::Double, Device::Cpu));
        for sample in self.looked_at(Split::Train) {
            let batch = self.one(Split::Train, sample)?;
            let image = self.image(&batch).to_kind(Kind::Double);
            let of =
                |image: &Tensor| image.sum_dim_intlist(OVER_MAPS.as_slice(), false, Kind::Double);
            first += of(&image);
            second += of(&image.square());
            let mask = batch["mask"].flatten(0, -1).to_kind(Kind::Int64);
            cells += mask.numel() as f64;
            classes += mask
                .bincount::<Tensor>(None, CLASSES.len() as i64)
                .to_kind(Kind::Double);
        }
        let mean: Tensor = first / cells;
        let variance = second / cells - mean.square();
        Ok(Looks {
            deviation: variance.clamp_min(1e-24).sqrt(),
            parts: (classes / cells).to_kind(Kind::Float),
            mean,
        })
    }

    /// Of some samples of the held-out split the one with most cells that are part of an event.
    pub(super) fn eventful(&self) -> Result<Option<Batch>, DataError> {
        let mut most: Option<(i64, Batch)> = None;
        for sample in self.looked_at(Split::HeldOut) {
            let batch = self.one(Split::HeldOut, sample)?;
            let events = batch["mask"].ne(0).sum(Kind::Int64).int64_value(&[]);
            if most.as_ref().is_none_or(|(most, _)| events > *most) {
                most = Some((events, batch));
            }
        }
        Ok(most.map(|(_, batch)| batch))
    }

    /// Degrees north of each row and east of each column, as though maps went once round the globe, from the south
    /// pole to the north pole.
    pub(super) fn degrees(&self) -> (Vec<f32>, Vec<f32>) {
        let middles = |count: i64, at: fn(&Self, f64) -> f32| {
            (0..count)
                .map(|number| at(self, number as f64 + 0.5))
                .collect()
        };
        (middles(self.y, Self::north), middles(self.x, Self::east))
    }

    /// Around a place.
    pub(super) fn outline(&self, class: usize, place: &Place) -> Outline {
        Outline {
            latitude: [place.y, place.y + place.height].map(|y| self.north(y)),
            longitude: [place.x, place.x + place.width].map(|x| self.east(x)),
            class: class as u8,
        }
    }

    fn north(&self, y: f64) -> f32 {
        (180.0 * y / self.y as f64 - 90.0) as f32
    }

    fn east(&self, x: f64) -> f32 {
        (360.0 * x / self.x as f64) as f32
    }
}

/// What some training samples are like.
pub(super) struct Looks {
    /// `[channels]`.
    pub(super) mean: Tensor,
    /// `[channels]`.
    pub(super) deviation: Tensor,
    /// Of all cells that are of each class, `[classes]`.
    pub(super) parts: Tensor,
}

/// Channels, height and width of the field `image`, and whether its channels come last, where there is a mask for it.
fn shape(fields: &[Field]) -> Option<(usize, usize, usize, bool)> {
    let find = |name: &str| {
        fields
            .iter()
            .find(|field| field.name == name && !field.varies())
    };
    let mask = find("mask").filter(|mask| mask.classes == Some(CLASSES.len() as u32))?;
    match (&find("image")?.shape[..], &mask.shape[..]) {
        ([channels, y, x], mask) if [*y, *x] == mask => Some((*channels, *y, *x, false)),
        ([y, x, channels], mask) if [*y, *x] == mask => Some((*channels, *y, *x, true)),
        _ => None,
    }
}

/// The numbers of a map row by row, in f32.
pub(super) fn numbers(map: &Tensor) -> Vec<f32> {
    let map = map.to(Device::Cpu).to_kind(Kind::Float).flatten(0, -1);
    Vec::try_from(map).expect("f32 on the CPU")
}
