//! Samples in files, as a script reads them: by the forms, the cache and the checks of [`tradewind_data`].

use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use tradewind_client::step::Copied;
use tradewind_data::{
    Cache, DataError, Field, Layout, Part, Place, Places, Rows, Sound, Source, Staging, read_batch,
    stage_and_tell,
};

use crate::errors::{unavailable, wrong};
use crate::process_log;

/// What a sample is made of.
#[pyclass(frozen, get_all)]
pub struct SampleField {
    /// Its name.
    name: String,
    /// `u8`, `i16`, `i32`, `f16`, `bf16` or `f32`; little-endian.
    kind: &'static str,
    /// Extents of a sample's array, or of one row where their number varies.
    shape: Vec<usize>,
    /// Most rows of a sample, where their number varies.
    rows_max: Option<usize>,
}

impl SampleField {
    fn of(field: &Field) -> Self {
        Self {
            name: field.name.clone(),
            kind: field.kind.name(),
            shape: field.shape.clone(),
            rows_max: match field.rows {
                Rows::One => None,
                Rows::Varying { most } => Some(most),
            },
        }
    }
}

/// Samples that are open in one process.
#[pyclass(frozen)]
pub struct Samples {
    /// All of the files.
    whole: Arc<dyn Source>,
    /// Those that are read.
    source: Arc<dyn Source>,
    replaces_damaged: bool,
    cache: Option<Arc<Cache>>,
}

#[pymethods]
impl Samples {
    /// Opens samples in any form that `tradewind data` understands. `cache` is a folder for copies, which may begin
    /// with `$` and a variable of the environment, and most bytes in it; with `replaces_damaged` another sample is
    /// read in the place of a damaged one.
    #[new]
    fn open(
        py: Python<'_>,
        path: PathBuf,
        layout: Option<&str>,
        cache: Option<(String, u64)>,
        replaces_damaged: bool,
    ) -> PyResult<Self> {
        process_log::begin();
        let layout = layout.map(str::parse::<Layout>).transpose();
        let layout = layout.map_err(|error| wrong(format!("layout: {error}")))?;
        let cache = cache.and_then(|(folder, bytes)| cache_of_process(&folder, bytes));
        let open = || tradewind_data::open(&path, layout.as_ref(), 1, cache.clone());
        let whole: Arc<dyn Source> = py.detach(open).map_err(unread)?.into();
        let source = sound(whole.clone(), replaces_damaged);
        Ok(Self {
            whole,
            source,
            replaces_damaged,
            cache,
        })
    }

    /// Those from the number `begin` to before `end` in the files. A damaged one is replaced by one of them.
    fn part(&self, begin: usize, end: usize) -> PyResult<Self> {
        let all = self.whole.len();
        if begin > end || end > all {
            let text = format!("there are samples 0..{all}, asked for {begin}..{end}");
            return Err(wrong(text));
        }
        let part = Part::new(self.whole.clone(), begin..end);
        Ok(Self {
            whole: self.whole.clone(),
            source: sound(Arc::new(part), self.replaces_damaged),
            replaces_damaged: self.replaces_damaged,
            cache: self.cache.clone(),
        })
    }

    fn __len__(&self) -> usize {
        self.source.len()
    }

    /// What a sample is made of.
    #[getter]
    fn fields(&self) -> Vec<SampleField> {
        self.source.fields().iter().map(SampleField::of).collect()
    }

    /// The same, in words.
    #[getter]
    fn described(&self) -> String {
        Field::listed(self.source.fields())
    }

    /// Reads samples into memory that has room for each field of all of them. Of a field whose rows vary: where those
    /// of each sample begin, and at last where they end.
    fn read(
        &self,
        py: Python<'_>,
        samples: Vec<usize>,
        memory: Vec<PyBuffer<u8>>,
    ) -> PyResult<Vec<Option<Vec<usize>>>> {
        let is_flat = |memory: &PyBuffer<u8>| memory.is_c_contiguous() && !memory.readonly();
        if !memory.iter().all(is_flat) || memory.len() != self.source.fields().len() {
            return Err(wrong("samples are read into writable memory in one piece"));
        }
        let mut memory = Given(memory.into_iter());
        let read = py.detach(|| read_batch(&*self.source, &samples, &mut memory));
        let columns = read.map_err(unread)?.columns.into_iter();
        Ok(columns.map(|column| column.offsets).collect())
    }
}

impl Samples {
    /// Copies their files ahead of their use; `None` without a cache.
    pub fn staging(&self) -> Option<Staging> {
        let (source, cache) = (Arc::clone(&self.source), self.cache.clone()?);
        let copy = move |samples: Range<usize>, stop: &AtomicBool| {
            stage_and_tell(&*source, samples, &cache, stop)
        };
        Some(Staging::new(copy))
    }
}

fn sound(source: Arc<dyn Source>, replaces_damaged: bool) -> Arc<dyn Source> {
    match replaces_damaged {
        true => Arc::new(Sound::new(source)),
        false => source,
    }
}

/// The cache that all samples of a process have, as the run's configuration is one.
struct OfProcess {
    /// The number of the process; children that it forks have another.
    process: u32,
    cache: Arc<Cache>,
    /// What was told of its copies.
    told: Copied,
}

static CACHE: Mutex<Option<OfProcess>> = Mutex::new(None);

/// The cache of this process, if it has one.
fn of_process() -> MutexGuard<'static, Option<OfProcess>> {
    // Nothing panics while it is held.
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    // That of the process it was forked from counts that one's copies.
    cache.take_if(|cache| cache.process != std::process::id());
    cache
}

/// The cache of this process; `None` where the folder's variable is not set.
fn cache_of_process(folder: &str, bytes: u64) -> Option<Arc<Cache>> {
    let mut cache = of_process();
    if cache.is_none() {
        *cache = Cache::named(folder, bytes).map(|cache| OfProcess {
            process: std::process::id(),
            cache: Arc::new(cache),
            told: Copied::default(),
        });
    }
    cache.as_ref().map(|of| of.cache.clone())
}

/// What this process has copied for its samples since it was asked last.
pub fn copied() -> Copied {
    of_process().as_mut().map_or_else(Copied::default, |of| {
        let counts = of.cache.counts();
        let all = Copied {
            bytes: counts.bytes_copied,
            seconds: counts.copying_seconds,
        };
        all - std::mem::replace(&mut of.told, all)
    })
}

/// What this process has copied for its samples since it was asked last, as bytes and the seconds that it took.
#[pyfunction]
pub fn take_copied() -> (u64, f64) {
    let Copied { bytes, seconds } = copied();
    (bytes, seconds)
}

/// What the files hold does not change; the disk may be back. Built-in models tell them apart alike.
fn unread(error: DataError) -> PyErr {
    let text = error.to_string();
    match error {
        DataError::Sample { .. } | DataError::Asked(_) => wrong(text),
        DataError::File { .. }
        | DataError::Memory(_)
        | DataError::Interrupted
        | DataError::Ended(_) => unavailable(text),
    }
}

/// Memory of a script's, field by field.
struct Given(std::vec::IntoIter<PyBuffer<u8>>);

impl Places for Given {
    type Place = Filled;

    fn place(&mut self, field: &Field, rows: usize) -> Result<Filled, DataError> {
        let (memory, bytes) = (self.0.next(), field.rows_bytes(rows));
        let memory = memory.filter(|memory| memory.len_bytes() == bytes);
        let wrong = || DataError::Asked(format!("{field} of {rows} rows takes {bytes} bytes"));
        memory.map(Filled).ok_or_else(wrong)
    }
}

/// A field that is being read.
struct Filled(PyBuffer<u8>);

impl Place for Filled {
    fn bytes_mut(&mut self) -> &mut [u8] {
        match self.0.len_bytes() {
            0 => &mut [],
            // SAFETY: the buffer is contiguous, writable, of bytes, and held; the script has just made it, and waits.
            bytes => unsafe { std::slice::from_raw_parts_mut(self.0.buf_ptr().cast(), bytes) },
        }
    }

    /// The script cuts it off.
    fn keep(&mut self, _field: &Field, _rows: usize) {}
}
