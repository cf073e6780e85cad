//! Samples: what a data set is to training, and what can be wrong with one.
//!
//! A form of data is one file here that implements [`Dataset`]; samples that files hold in one of the forms of
//! [`tradewind_data`] are a [`Stored`]. The order in which samples are visited is in
//! [`tradewind_client::order`], reading them ahead of their use in [`ahead`].

pub mod ahead;
pub mod digits;
pub mod hdf5;
pub mod idx;
pub mod netcdf;
pub mod on_device;
mod reading;
pub mod series;
mod stored;
pub mod synthetic;

#[cfg(test)]
pub(crate) mod fixture;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use tch::{Device, TchError, Tensor};
pub use tradewind_client::step::Copied;
pub use tradewind_data::{Field, Kind};

pub use self::reading::Reading;
pub use self::stored::Stored;
pub(crate) use self::stored::spread;
use crate::c10d::without_stack;

/// Which part of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// What gradients are computed on, and what statistics are taken from.
    Train,
    /// For choosing settings.
    Validation,
    /// For the reported metric only: used for no tuning and no stopping.
    HeldOut,
}

/// Samples that a batch is to be made of.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The part of the data in which they have their numbers.
    pub split: Split,
    /// The pass over the data in which they are trained on, from 0; `None` where they are not: what changes
    /// samples at random for training, such as mirroring images, draws from (seed, epoch, number of the sample)
    /// and leaves those without an epoch as they are.
    pub epoch: Option<u64>,
    /// Their numbers.
    pub samples: &'a [usize],
    /// Where the batch is going. For a GPU it may be read into page-locked memory at once, from which the GPU
    /// copies by itself; any other memory is good as well, and is copied once more.
    pub device: Device,
}

impl<'a> Asked<'a> {
    /// Samples as they are, in main memory.
    pub fn of(split: Split, samples: &'a [usize]) -> Self {
        Self {
            split,
            epoch: None,
            samples,
            device: Device::Cpu,
        }
    }
}

/// A field of the samples of a batch.
#[derive(Debug)]
struct Column {
    name: String,
    values: Tensor,
    offsets: Option<Vec<usize>>,
}

/// Samples, field by field, as they are on disk: what decodes or normalises them runs where the model is.
///
/// ```
/// use tch::{Kind, Tensor};
/// use tradewind_worker::data::Batch;
///
/// let batch = Batch::of(&[7, 3])
///     .with("image", Tensor::zeros([2, 1, 28, 28], (Kind::Uint8, tch::Device::Cpu)))
///     .with("label", Tensor::from_slice(&[7u8, 3]));
/// let images = batch["image"].to_kind(Kind::Float) / 255.0;
/// assert_eq!(images.size(), [2, 1, 28, 28]);
/// ```
#[derive(Debug)]
pub struct Batch {
    /// Numbers of the samples in their split, in the order of the rows.
    pub samples: Vec<usize>,
    columns: Vec<Column>,
}

impl Batch {
    /// Of these samples, without fields.
    pub fn of(samples: &[usize]) -> Self {
        Self {
            samples: samples.into(),
            columns: Vec::new(),
        }
    }

    /// With a field that has one shape in all samples: `[samples, …]`.
    #[must_use]
    pub fn with(self, name: &str, values: Tensor) -> Self {
        self.column(name, values, None)
    }

    /// With a field of which a sample has any number of rows: those of all samples, `[rows, …]`, and where those
    /// of each sample begin, and at last where they end.
    #[must_use]
    pub fn with_rows(self, name: &str, values: Tensor, offsets: Vec<usize>) -> Self {
        self.column(name, values, Some(offsets))
    }

    fn column(mut self, name: &str, values: Tensor, offsets: Option<Vec<usize>>) -> Self {
        self.columns.push(Column {
            name: name.into(),
            values,
            offsets,
        });
        self
    }

    fn find(&self, name: &str) -> &Column {
        let found = self.columns.iter().find(|column| column.name == name);
        found.unwrap_or_else(|| {
            let names: Vec<_> = self.columns.iter().map(|column| &column.name).collect();
            panic!("samples have no field {name:?}; they have {names:?}")
        })
    }

    /// Where the rows of each sample begin, and at last where they end; `None` for a field that has one shape.
    ///
    /// # Panics
    /// If there is no such field.
    pub fn offsets(&self, name: &str) -> Option<&[usize]> {
        self.find(name).offsets.as_deref()
    }

    /// Ready to be copied to `device` without anybody waiting: for a GPU in page-locked memory.
    ///
    /// # Errors
    /// Memory that cannot be locked.
    pub fn staged(self, device: Device) -> Result<Self, DataError> {
        if !device.is_cuda() {
            return Ok(self);
        }
        self.each(|tensor| tensor.f_pin_memory(device))
    }

    /// The same on `device`. From page-locked memory the copy is only put into the GPU's order of
    /// work.
    ///
    /// # Errors
    /// A device without room.
    pub fn to(self, device: Device) -> Result<Self, DataError> {
        self.each(|tensor| tensor.f_to_device_(device, tensor.f_kind()?, true, false))
    }

    /// The same with the channels of maps, `[samples, channels, y, x]`, beside each other in memory: no shape
    /// changes.
    ///
    /// # Errors
    /// A device without room.
    pub fn channels_last(self) -> Result<Self, DataError> {
        self.each(|tensor| match tensor.dim() {
            4 => tensor
                .f_permute([0, 2, 3, 1])?
                .f_contiguous()?
                .f_permute([0, 3, 1, 2]),
            _ => Ok(tensor.shallow_clone()),
        })
    }

    /// The tensors.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.columns.iter().map(|column| &column.values)
    }

    fn each(
        mut self,
        change: impl Fn(&Tensor) -> Result<Tensor, TchError>,
    ) -> Result<Self, DataError> {
        for column in &mut self.columns {
            column.values = change(&column.values).map_err(|error| DataError::Device {
                samples: self.samples.len(),
                reason: without_stack(&error.to_string()),
            })?;
        }
        Ok(self)
    }
}

/// The values of a field.
impl std::ops::Index<&str> for Batch {
    type Output = Tensor;

    fn index(&self, name: &str) -> &Tensor {
        &self.find(name).values
    }
}

/// Numbered samples in three splits. Read from several threads at once.
pub trait Dataset: Send + Sync {
    /// What every sample is made of. Batches have these fields.
    fn fields(&self) -> Vec<Field>;

    /// Number of samples in `split`; their numbers are `0..len`.
    fn len(&self, split: Split) -> usize;

    /// The samples asked for, in this order; a number may occur more than once.
    ///
    /// # Errors
    /// A number outside the split, or data that cannot be read or has no valid value.
    fn batch(&self, asked: Asked<'_>) -> Result<Batch, DataError>;

    /// Copies the files of training samples to this node's own disk until it is stopped; nothing where there is no
    /// cache.
    ///
    /// # Errors
    /// A file that is missing, cannot be read, or was changed.
    fn stage(&self, _samples: Range<usize>, _stop: &AtomicBool) -> Result<(), DataError> {
        Ok(())
    }

    /// What was copied there so far, ahead of its use or when it was used; nothing where there is no cache.
    fn copied(&self) -> Copied {
        Copied::default()
    }
}

/// Why data cannot be used. Every message names the file, what is wrong and the way out.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DataError {
    /// No file was given.
    #[error("no data files are given; name at least one")]
    NoFiles,
    /// There is no such file.
    #[error("{} does not exist; correct the path, or fetch the file (`make setup` fetches the demo's, `make mnist` those of MNIST)", file.display())]
    Missing {
        /// The file.
        file: PathBuf,
    },
    /// The operating system refuses it.
    #[error("{} cannot be read: {reason}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The system's message.
        reason: String,
    },
    /// It is a file of another format.
    #[error("{} is no HDF5 or NetCDF-4 file: {hint}", file.display())]
    NotHdf5 {
        /// The file.
        file: PathBuf,
        /// What it may be instead, and what to do.
        hint: &'static str,
    },
    /// HDF5 locks what it reads, and cannot.
    #[error("{} cannot be locked ({reason}): another program writes it, or its file system has no locks, and HDF5_USE_FILE_LOCKING=FALSE in the environment reads it without", file.display())]
    Locked {
        /// The file.
        file: PathBuf,
        /// The library's message.
        reason: String,
    },
    /// It starts as HDF5 but cannot be read.
    #[error("{} is damaged or truncated ({reason}); copy or fetch it again", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The HDF5 library's message.
        reason: String,
    },
    /// It is no IDX file of bytes, or damaged.
    #[error("{} is no usable IDX file: {reason}", file.display())]
    NotIdx {
        /// The file.
        file: PathBuf,
        /// What is wrong with it, and what to do.
        reason: String,
    },
    /// It is an IDX file, but not one of MNIST's form.
    #[error("{} does not hold handwritten digits as MNIST does: {reason}; `make mnist` fetches the original files", file.display())]
    NotDigits {
        /// The file.
        file: PathBuf,
        /// Where it differs.
        reason: String,
    },
    /// It has no such variable.
    #[error("{} has no variable {variable:?}{}; it has: {}", file.display(), meant(nearest), list(available))]
    NoVariable {
        /// The file.
        file: PathBuf,
        /// The name that was asked for.
        variable: String,
        /// The existing name that is nearest to it.
        nearest: Option<String>,
        /// The variables that exist, at most [`tradewind_data::hdf5::NAMES_MAX`].
        available: Vec<String>,
    },
    /// The variable's values are no numbers.
    #[error("{}: variable {variable:?} does not hold numbers; choose another variable", file.display())]
    NotNumbers {
        /// The file.
        file: PathBuf,
        /// The variable.
        variable: String,
    },
    /// The variable is no series of maps.
    #[error("{}: variable {variable:?} has shape {shape:?}, but a series of maps has three extents, [time, y, x], none of them 0; choose another variable", file.display())]
    Rank {
        /// The file.
        file: PathBuf,
        /// The variable.
        variable: String,
        /// Its extents.
        shape: Vec<usize>,
    },
    /// Two files are on different grids.
    #[error("{}: variable {variable:?} is on another grid than in {} ({difference}); regrid one of them, or leave it out", file.display(), first.display())]
    Grid {
        /// The file.
        file: PathBuf,
        /// The variable.
        variable: String,
        /// The first file, which sets the grid.
        first: PathBuf,
        /// Where they differ.
        difference: String,
    },
    /// A value that is not finite, or is the file's mark for a missing one.
    #[error("{}: variable {variable:?} has {what} at [time, y, x] = {index:?}; fill the gaps, or choose ranges without them", file.display())]
    BadValue {
        /// The file.
        file: PathBuf,
        /// The variable.
        variable: String,
        /// Where: time step, row, column.
        index: [usize; 3],
        /// The value, in words.
        what: String,
    },
    /// A range of time steps that does not fit.
    #[error("{which} {}..{} does not fit: {reason}", range.start, range.end)]
    Range {
        /// Which range: `train`, `validation`, `held_out`.
        which: &'static str,
        /// The range, in time steps from 0.
        range: Range<usize>,
        /// What it must satisfy.
        reason: String,
    },
    /// A sample number outside its split.
    #[error("{split:?} has samples 0..{len}, asked for {sample}")]
    Sample {
        /// The split.
        split: Split,
        /// The number.
        sample: usize,
        /// How many there are.
        len: usize,
    },
    /// A batch that cannot be brought to the GPU.
    #[error(
        "a batch of {samples} samples cannot be brought to the device: {reason}; lower train.batch"
    )]
    Device {
        /// In the batch.
        samples: usize,
        /// libtorch's message.
        reason: String,
    },
    /// What is wrong with data of somebody's own, in its words. Another process may fare better.
    #[error("{0}")]
    Other(String),
    /// Samples of files cannot be read.
    #[error(transparent)]
    Source(#[from] tradewind_data::DataError),
    /// A batch needs more memory than batches that are read ahead may take.
    #[error(
        "a batch of {samples} samples takes {bytes} bytes, and batches that are read ahead may take {most}; raise loader.bytes_ahead, or lower train.batch"
    )]
    Ahead {
        /// In the batch.
        samples: usize,
        /// Of the batch.
        bytes: usize,
        /// Of all batches.
        most: usize,
    },
}

fn meant(nearest: &Option<String>) -> String {
    nearest.as_ref().map_or(String::new(), |name| {
        format!(", perhaps {name:?} was meant")
    })
}

fn list(names: &[String]) -> String {
    if names.is_empty() {
        "no variables at all".into()
    } else {
        names.join(", ")
    }
}
