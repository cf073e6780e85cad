//! Samples that files hold in one of the forms of [`tradewind_data`].

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tch::{Device, Kind, Tensor};
use tradewind_config::Damaged;
use tradewind_data::{
    Augmentation, Cache, DataError as SourceError, Field, Kind as Number, Moves, Part, Place,
    Places, Pool, Sound, Source, stage_and_tell,
};

use super::{Asked, Batch, Copied, DataError, Dataset, Reading, Split};
use crate::c10d::without_stack;
use crate::stream::BatchMemory;

/// Bytes of samples that [`Stored::each`] reads at once; one sample may be larger.
const EACH_BYTES: usize = 1 << 20;

/// Three sources of the same fields, one for each split.
pub struct Stored {
    sources: [Arc<dyn Source>; 3],
    cache: Option<Arc<Cache>>,
    /// With the seed of the run.
    augmentation: Option<(Augmentation, u64)>,
    /// Memory of its batches.
    pool: Pool,
}

impl Stored {
    /// What is trained on, what settings are compared by, and what is for the metric alone.
    ///
    /// # Errors
    /// Sources of other fields than those for training; a source without samples.
    pub fn new(
        train: Arc<dyn Source>,
        validation: Arc<dyn Source>,
        held_out: Arc<dyn Source>,
    ) -> Result<Self, DataError> {
        let sources = [train, validation, held_out];
        let parts = ["training", "validation", "held-out"];
        for (source, part) in sources.iter().zip(parts) {
            if source.is_empty() {
                return Err(DataError::Other(format!("there are no {part} samples")));
            }
            for (want, got) in sources[0].fields().iter().zip(source.fields()) {
                if !want.is_like(got) {
                    return Err(DataError::Other(format!(
                        "{part} samples have the field {got}, and those for training {want}"
                    )));
                }
            }
            let [want, got] = [sources[0].fields().len(), source.fields().len()];
            if want != got {
                return Err(DataError::Other(format!(
                    "{part} samples have {got} fields, and those for training {want}"
                )));
            }
        }
        Ok(Self {
            sources,
            cache: None,
            augmentation: None,
            pool: Pool::default(),
        })
    }

    /// What the folders `train`, `validation` and `held_out` in a folder have, read as a configuration says.
    ///
    /// # Errors
    /// Samples that cannot be used, or of other fields than those for training; a folder without samples.
    pub fn of_folder(folder: &Path, reading: &Reading) -> Result<Self, DataError> {
        let open = |part: &str| reading.open(&folder.join(part), None);
        let samples = Self::new(open("train")?, open("validation")?, open("held_out")?)?;
        Ok(samples.read_by(reading))
    }

    /// The same, read as a configuration says: files that its sources were opened with a cache for can be copied
    /// ahead of their use, and in the place of a damaged sample another one of its own split is taken.
    pub fn read_by(self, reading: &Reading) -> Self {
        let sources = match reading.damaged() {
            Damaged::End => self.sources,
            Damaged::Replace => self.sources.map(|source| Arc::new(Sound::new(source)) as _),
        };
        Self {
            sources,
            cache: reading.cache().cloned(),
            ..self
        }
    }

    /// The same, whose samples are moved as they are trained on: another way in each epoch, the same in every run of
    /// this seed.
    ///
    /// # Errors
    /// Fields that are not there, or cannot be moved so.
    pub fn augmented(self, names: &[&str], moves: Moves, seed: u64) -> Result<Self, DataError> {
        let augmentation = Augmentation::new(self.sources[0].fields(), names, moves)?;
        Ok(Self {
            augmentation: Some((augmentation, seed)),
            ..self
        })
    }

    /// The samples of one source: the last ones are held out, those before them are for validation, and the others
    /// for training.
    ///
    /// # Errors
    /// So few samples that none is left for training; a part without samples.
    pub fn split(
        source: Arc<dyn Source>,
        validation: usize,
        held_out: usize,
    ) -> Result<Self, DataError> {
        let all = source.len();
        let begin = all.saturating_sub(held_out);
        let ends = [begin.saturating_sub(validation), begin, all];
        let part = |samples| Arc::new(Part::new(Arc::clone(&source), samples)) as Arc<dyn Source>;
        Self::new(
            part(0..ends[0]),
            part(ends[0]..ends[1]),
            part(ends[1]..ends[2]),
        )
    }

    /// Shows all samples of a split in order, as they are, some at a time on `device`. Tells how many there are.
    ///
    /// # Errors
    /// Data that cannot be read, or what `look` cannot do with them.
    pub fn each(
        &self,
        split: Split,
        device: Device,
        look: impl FnMut(&Batch) -> Result<(), DataError>,
    ) -> Result<usize, DataError> {
        self.up_to(u64::MAX, split, device, look)
    }

    /// The same of no more than so many bytes: of samples that are spread evenly over the split.
    ///
    /// # Errors
    /// As of [`each`](Self::each).
    pub fn up_to(
        &self,
        bytes: u64,
        split: Split,
        device: Device,
        mut look: impl FnMut(&Batch) -> Result<(), DataError>,
    ) -> Result<usize, DataError> {
        let sample_bytes = tradewind_data::batch_bytes(&self.fields(), 1).max(1);
        let most = usize::try_from(bytes / sample_bytes as u64).unwrap_or(usize::MAX);
        let samples: Vec<usize> = spread(self.len(split), most.max(1)).collect();
        for some in samples.chunks((EACH_BYTES / sample_bytes).max(1)) {
            let asked = Asked {
                device,
                ..Asked::of(split, some)
            };
            look(&self.batch(asked)?.to(device)?)?;
        }
        Ok(samples.len())
    }

    fn source(&self, split: Split) -> &dyn Source {
        match split {
            Split::Train => &*self.sources[0],
            Split::Validation => &*self.sources[1],
            Split::HeldOut => &*self.sources[2],
        }
    }
}

/// So many of the numbers before `all`, or all of them, spread evenly.
pub(crate) fn spread(all: usize, most: usize) -> impl Iterator<Item = usize> {
    let count = all.min(most);
    // In u128: a product of counts.
    (0..count).map(move |number| (number as u128 * all as u128 / count as u128) as usize)
}

impl Dataset for Stored {
    fn fields(&self) -> Vec<Field> {
        self.sources[0].fields().to_vec()
    }

    fn len(&self, split: Split) -> usize {
        self.source(split).len()
    }

    fn batch(&self, asked: Asked<'_>) -> Result<Batch, DataError> {
        let Asked {
            split,
            epoch,
            samples,
            device,
        } = asked;
        let pool = &self.pool;
        let mut memories = Memories { pool, device };
        let mut read = tradewind_data::read_batch(self.source(split), samples, &mut memories)?;
        if let Some(((augmentation, seed), epoch)) = self.augmentation.as_ref().zip(epoch) {
            augmentation.batch(&mut read, *seed, epoch);
        }
        let mut batch = Batch::of(samples);
        for column in read.columns {
            let (name, values) = (&column.field.name, column.values.into_tensor()?);
            batch = match column.offsets {
                None => batch.with(name, values),
                Some(offsets) => batch.with_rows(name, values, offsets),
            };
        }
        Ok(batch)
    }

    fn stage(&self, samples: Range<usize>, stop: &AtomicBool) -> Result<(), DataError> {
        match &self.cache {
            Some(cache) => Ok(stage_and_tell(&*self.sources[0], samples, cache, stop)?),
            None => Ok(()),
        }
    }

    fn copied(&self) -> Copied {
        let counts = self.cache.as_ref().map(|cache| cache.counts());
        counts.map_or_else(Copied::default, |counts| Copied {
            bytes: counts.bytes_copied,
            seconds: counts.copying_seconds,
        })
    }
}

/// Memory of batches on their way to a device.
struct Memories<'a> {
    pool: &'a Pool,
    device: Device,
}

/// The values of a field that is being read.
enum Filled {
    /// Of a field that has one shape: `[rows, …]`.
    Whole {
        memory: BatchMemory,
        kind: Kind,
        extents: Vec<i64>,
    },
    /// Of a field whose rows vary: a contiguous tensor with room for as many as there may be, of which what is not
    /// needed is never touched.
    Varying(Tensor),
}

impl Places for Memories<'_> {
    type Place = Filled;

    fn place(&mut self, field: &Field, rows: usize) -> Result<Filled, SourceError> {
        let extents = std::iter::once(rows).chain(field.shape.iter().copied());
        let extents: Vec<i64> = extents.map(|extent| extent as i64).collect();
        let kind = kind_of(field.kind);
        let failed =
            |reason: String| SourceError::Memory(format!("{rows} rows of {field}: {reason}"));
        if field.varies() {
            let made = Tensor::f_empty(extents, (kind, Device::Cpu));
            let made = made.map_err(|error| failed(without_stack(&error.to_string())))?;
            return Ok(Filled::Varying(made));
        }
        let bytes = field.rows_bytes(rows);
        let memory = match self.device.is_cuda() {
            true => BatchMemory::page_locked(bytes).map_err(|error| failed(error.to_string()))?,
            false => BatchMemory::pooled(self.pool.take(bytes)?),
        };
        Ok(Filled::Whole {
            memory,
            kind,
            extents,
        })
    }
}

impl Place for Filled {
    fn bytes_mut(&mut self) -> &mut [u8] {
        let tensor = match self {
            Self::Whole { memory, .. } => return memory.bytes_mut(),
            Self::Varying(tensor) => tensor,
        };
        let bytes = tensor.numel() * tensor.kind().elt_size_in_bytes();
        if bytes == 0 {
            return &mut [];
        }
        // SAFETY: the tensor is contiguous and of this length since it was made, nobody else has it yet, and
        // numbers of all kinds may have any bits.
        unsafe { std::slice::from_raw_parts_mut(tensor.data_ptr().cast(), bytes) }
    }

    fn keep(&mut self, _field: &Field, rows: usize) {
        if let Self::Varying(tensor) = self {
            *tensor = tensor.narrow(0, 0, rows as i64);
        }
    }
}

impl Filled {
    /// The values, where they are.
    fn into_tensor(self) -> Result<Tensor, DataError> {
        let failed = |reason: String| DataError::Other(reason);
        match self {
            Self::Varying(tensor) => Ok(tensor),
            Self::Whole {
                memory,
                kind,
                extents,
            } => {
                let bytes = memory
                    .into_tensor()
                    .map_err(|error| failed(error.to_string()))?;
                let values = bytes
                    .f_view_dtype(kind)
                    .and_then(|values| values.f_view(&*extents));
                values.map_err(|error| failed(without_stack(&error.to_string())))
            }
        }
    }
}

fn kind_of(number: Number) -> Kind {
    match number {
        Number::U8 => Kind::Uint8,
        Number::I16 => Kind::Int16,
        Number::I32 => Kind::Int,
        Number::F16 => Kind::Half,
        Number::BF16 => Kind::BFloat16,
        Number::F32 => Kind::Float,
    }
}

#[cfg(test)]
mod tests {
    use tradewind_data::packed::{Packed, Settings, Writer};

    use super::*;

    #[test]
    fn some_of_many_lie_evenly_among_them() {
        let some = |all, most| spread(all, most).collect::<Vec<_>>();
        assert_eq!(some(3, usize::MAX), [0, 1, 2]);
        assert_eq!(some(10, 4), [0, 2, 5, 7]);
        assert_eq!(some(usize::MAX, 2), [0, usize::MAX / 2]);
        assert_eq!(some(0, 4), [0; 0]);
    }

    /// Sample `n` of all kinds of numbers, with `n` rows.
    fn source(folder: &std::path::Path, name: &str, samples: u8) -> Arc<dyn Source> {
        let mut fields: Vec<_> = Number::ALL
            .iter()
            .map(|kind| Field::new(kind.name(), *kind, &[2]))
            .collect();
        fields.push(Field::varying("rows", Number::U8, &[3], 9));
        let path = folder.join(name);
        let mut writer = Writer::create(&path, &fields, Settings::default()).unwrap();
        for n in 0..samples {
            let (float, integer) = (f32::from(n), i32::from(n));
            let float = [float.to_le_bytes(), (-float).to_le_bytes()].concat();
            let values: Vec<Vec<u8>> = vec![
                vec![n, 2 * n],
                [i16::from(n), -i16::from(n)].map(i16::to_le_bytes).concat(),
                [integer, -integer].map(i32::to_le_bytes).concat(),
                [half(integer), half(-integer)].concat(),
                [&float[2..4], &float[6..8]].concat(),
                float.clone(),
                vec![n; 3 * usize::from(n)],
            ];
            let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
            writer.push(&n.to_string(), &values).unwrap();
        }
        writer.finish().unwrap();
        Arc::new(Packed::open(&path).unwrap())
    }

    /// Small integers as binary16.
    fn half(n: i32) -> Vec<u8> {
        let tensor = Tensor::from_slice(&[n]).to_kind(Kind::Half);
        let mut bytes = vec![0; 2];
        tensor.copy_data_u8(&mut bytes, 1);
        bytes
    }

    #[test]
    fn numbers_of_all_kinds_become_tensors() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b, c] = [("a", 5), ("b", 3), ("c", 2)].map(|(n, s)| source(folder.path(), n, s));
        let stored = Stored::new(a, b, c).unwrap();
        assert_eq!(stored.len(Split::HeldOut), 2);
        let batch = stored.batch(Asked::of(Split::Train, &[3, 1])).unwrap();
        for kind in Number::ALL {
            let tensor = &batch[kind.name()];
            assert_eq!((tensor.size(), tensor.kind()), (vec![2, 2], kind_of(kind)));
            let values = Vec::<f32>::try_from(&tensor.to_kind(Kind::Float).view([-1])).unwrap();
            let want = match kind {
                Number::U8 => [3.0, 6.0, 1.0, 2.0],
                _ => [3.0, -3.0, 1.0, -1.0],
            };
            assert_eq!(values, want, "{kind:?}");
            assert_eq!(batch.offsets(kind.name()), None);
        }
        assert_eq!(batch["rows"].size(), [4, 3]);
        assert_eq!(batch.offsets("rows"), Some(&[0, 3, 4][..]));
        let error = stored
            .batch(Asked::of(Split::Validation, &[3]))
            .unwrap_err()
            .to_string();
        assert_eq!(error, "there are samples 0..3, asked for 3");
    }

    #[test]
    fn batches_are_read_into_memory_that_those_before_them_have_left() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b, c] = [("a", 5), ("b", 3), ("c", 2)].map(|(n, s)| source(folder.path(), n, s));
        let stored = Stored::new(a, b, c).unwrap();
        let read = |samples| stored.batch(Asked::of(Split::Train, samples)).unwrap();
        let numbers = |batch: &Batch| Vec::<f32>::try_from(&batch["f32"].view([-1])).unwrap();
        let first = read(&[1, 2]);
        let second = read(&[3, 4]);
        assert_eq!(numbers(&first), [1.0, -1.0, 2.0, -2.0]);
        let of_both = stored.pool.given_bytes();
        assert!(of_both > 0, "batches lie in the pool");
        drop(first);
        assert_eq!(2 * stored.pool.given_bytes(), of_both);
        let third = read(&[0, 1]);
        assert_eq!(stored.pool.given_bytes(), of_both);
        assert_eq!(numbers(&second), [3.0, -3.0, 4.0, -4.0]);
        assert_eq!(numbers(&third), [0.0, 0.0, 1.0, -1.0]);
    }

    #[test]
    fn for_a_gpu_batches_are_read_into_page_locked_memory() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b, c] = [("a", 5), ("b", 3), ("c", 2)].map(|(n, s)| source(folder.path(), n, s));
        let asked = Asked {
            device: Device::Cuda(0),
            ..Asked::of(Split::Train, &[1])
        };
        let read = Stored::new(a, b, c).unwrap().batch(asked);
        if tch::Cuda::is_available() {
            assert!(read.unwrap()["f32"].is_pinned(Device::Cuda(0)));
        } else {
            let error = read.unwrap_err().to_string();
            assert!(error.contains("page-locked main memory"), "{error}");
        }
    }

    /// What is held out is never trained on.
    #[test]
    fn another_sample_of_the_same_split_is_read_in_the_place_of_a_damaged_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("numbers");
        let number = Field::new("number", Number::U8, &[8]);
        let mut writer = Writer::create(&path, &[number], Settings::default()).unwrap();
        for n in 0..40 {
            writer.push(&n.to_string(), &[&[100 + n; 8]]).unwrap();
        }
        writer.finish().unwrap();
        let whole = std::fs::read(&path).unwrap();
        for damaged in 0..3 {
            let mut bytes = whole.clone();
            let at = bytes
                .windows(8)
                .position(|window| window == [100 + damaged; 8]);
            bytes[at.unwrap()] ^= 0x80;
            std::fs::write(&path, bytes).unwrap();
            let source: Arc<dyn Source> = Arc::new(Packed::open(&path).unwrap());
            let stored = Stored::split(source, 30, 7).unwrap();
            let stored = stored.read_by(&Reading::default().replacing());
            let batch = stored.batch(Asked::of(Split::Train, &[damaged.into()]));
            let read = Vec::<u8>::try_from(&batch.unwrap()["number"].view([-1])).unwrap();
            let instead = read[0] - 100;
            assert!(instead < 3 && instead != damaged, "{damaged}: {instead}");
        }
    }

    #[test]
    fn samples_are_moved_when_they_are_trained_on_and_only_then() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows");
        let row = Field::new("row", Number::U8, &[16]);
        let mut writer = Writer::create(&path, &[row], Settings::default()).unwrap();
        let values: Vec<u8> = (0..16).collect();
        for n in 0..4 {
            writer.push(&n.to_string(), &[&values]).unwrap();
        }
        writer.finish().unwrap();
        let source: Arc<dyn Source> = Arc::new(Packed::open(&path).unwrap());
        let moves = Moves {
            extents: 1,
            roll: vec![0],
            ..Moves::default()
        };
        let moved = |seed, epoch: Option<u64>| {
            let stored = Stored::split(Arc::clone(&source), 1, 1).unwrap();
            let stored = stored.augmented(&["row"], moves.clone(), seed).unwrap();
            let batch = stored.batch(Asked {
                split: Split::Train,
                epoch,
                samples: &[0, 1],
                device: Device::Cpu,
            });
            Vec::<u8>::try_from(&batch.unwrap()["row"].view([-1])).unwrap()
        };
        assert_eq!(moved(1, None), [&values[..], &values].concat());
        assert_eq!(moved(1, Some(0)), moved(1, Some(0)));
        assert_ne!(moved(1, Some(0)), moved(1, Some(1)));
        assert_ne!(moved(1, Some(0)), moved(2, Some(0)));
        let mut sorted = moved(1, Some(0));
        sorted.sort_unstable();
        assert_eq!(sorted, (0..32).map(|n| n / 2).collect::<Vec<u8>>());
        let stored = Stored::split(Arc::clone(&source), 1, 1).unwrap();
        let error = stored
            .augmented(&["column"], moves.clone(), 1)
            .err()
            .unwrap();
        assert!(error.to_string().contains("column"), "{error}");
    }

    #[test]
    fn splits_of_other_fields_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let whole = source(folder.path(), "whole", 2);
        let path = folder.path().join("other");
        let one = Field::new("u8", Number::I32, &[2]);
        let mut writer = Writer::create(&path, &[one], Settings::default()).unwrap();
        writer.push("one", &[&[0; 8]]).unwrap();
        writer.finish().unwrap();
        let other: Arc<dyn Source> = Arc::new(Packed::open(&path).unwrap());
        let error = Stored::new(whole.clone(), whole.clone(), other)
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.contains("held-out samples have the field u8 i32 [2]"),
            "{error}"
        );
        let none = source(folder.path(), "none", 0);
        let error = Stored::new(whole.clone(), none, whole)
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("there are no validation samples"), "{error}");
    }
}
