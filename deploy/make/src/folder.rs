//! Folders of samples that are made unit by unit: a unit is one simulation with all its samples, in one split. Files
//! are put in their place whole, and those that are there are not made again.
//!
//! ```text
//! made.json         what was asked for, and in the end the files with their samples and BLAKE3 sums
//! CARD.md           what it is; there when all is made
//! samples.png       some samples
//! train/            00000.pack, …; or a file for each sample: 00000-0.hdf5, …
//! validation/
//! held_out/
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use serde::{Deserialize, Serialize};
use tradewind_data::hdf5::write_sample;
use tradewind_data::packed::{Packed, Settings, Writer};
use tradewind_data::{DataError, Field, Hdf5Folder, Source, manifest};
use tradewind_process::whole;
use tradewind_report::picture::Picture;

use crate::{Form, Made, Order, Progress};

/// Says what was asked for, and what there is.
const MADE: &str = "made.json";

const CARD: &str = "CARD.md";

const PICTURE: &str = "samples.png";

/// Which part of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Split {
    Train,
    Validation,
    HeldOut,
}

impl Split {
    const ALL: [Self; 3] = [Self::Train, Self::Validation, Self::HeldOut];

    pub(crate) fn folder(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Validation => "validation",
            Self::HeldOut => "held_out",
        }
    }
}

/// One sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Where it comes from.
    pub name: String,
    /// Its values field by field, little-endian.
    pub values: Vec<Vec<u8>>,
}

/// Takes how many more samples of a unit are there, before all of them are.
pub(crate) type Told<'a> = &'a mut dyn FnMut(usize);

/// What people are told of it.
pub(crate) struct Card {
    pub(crate) text: String,
    pub(crate) picture: Picture,
}

/// What is to be made.
pub(crate) struct Folder<'a> {
    pub(crate) order: &'a Order<'a>,
    pub(crate) name: &'static str,
    /// Number of the way in which samples are made.
    pub(crate) version: u32,
    /// Programs beside this one that decide what is made, with their versions; empty if there are none.
    pub(crate) tools: &'a str,
    pub(crate) fields: &'a [Field],
    /// Data sets of HDF5 files, one for each field.
    pub(crate) datasets: &'a [&'a str],
    pub(crate) units: usize,
    pub(crate) unit_samples: usize,
    /// Most units of a packed file.
    pub(crate) file_units: usize,
    /// Rises with the number of the unit.
    pub(crate) split: &'a (dyn Fn(usize) -> Split + Sync),
}

/// `made.json`.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Record {
    name: String,
    version: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    tools: String,
    seed: u64,
    samples: usize,
    form: Form,
    /// By path in the folder; empty until all is made.
    files: BTreeMap<String, Sum>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Sum {
    bytes: u64,
    blake3: String,
}

/// Units that are made together.
struct Work {
    split: Split,
    number: usize,
    units: Range<usize>,
}

impl Folder<'_> {
    /// Makes what is not there, with so many threads, each of which has a state of its own. `unit` makes the samples of
    /// a unit; if that takes minutes, it tells how many more there are on the way.
    pub(crate) fn make<S>(
        &self,
        state: impl Fn() -> S + Sync,
        unit: impl Fn(&mut S, usize, Told<'_>) -> Result<Vec<Sample>, DataError> + Sync,
        progress: Progress<'_>,
        card: &dyn Fn() -> Result<Card, DataError>,
    ) -> Result<Made, DataError> {
        let _lock = self.begin()?;
        let (mut left, mut found) = (Vec::new(), 0);
        for work in self.work() {
            match self.is_there(&work)? {
                true => found += work.units.len() * self.unit_samples,
                false => left.push(work),
            }
        }
        let samples = self.units * self.unit_samples;
        progress(found, samples);
        self.work_through(&left, &state, &unit, &mut |done| {
            progress(found + done, samples);
        })?;
        let bytes = self.finish(!left.is_empty(), card)?;
        Ok(Made {
            samples,
            found,
            bytes,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.order.folder.join(name)
    }

    fn record(&self) -> Record {
        Record {
            name: self.name.into(),
            version: self.version,
            tools: self.tools.into(),
            seed: self.order.seed,
            samples: self.units * self.unit_samples,
            form: self.order.form,
            files: BTreeMap::new(),
        }
    }

    /// Makes the folder ready, and keeps others out of it.
    fn begin(&self) -> Result<File, DataError> {
        let folder = self.order.folder;
        let path = self.path(MADE);
        let failed = |error| DataError::of_system(folder, &error);
        if !path.exists() && folder.exists() {
            let mut entries = fs::read_dir(folder).map_err(failed)?;
            if entries.next().is_some() {
                let reason = format!(
                    "there is something else in it, and no {MADE}; name a new folder with --out"
                );
                return Err(DataError::file(folder, reason));
            }
        }
        for split in Split::ALL {
            fs::create_dir_all(self.path(split.folder())).map_err(failed)?;
        }
        // Locks end with their process.
        let lock = File::open(folder).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let reason = "another process makes it; wait for that one, or name another folder with --out";
                return Err(DataError::file(folder, reason));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let want = self.record();
        if !path.exists() {
            write(&path, &json(&want))?;
        }
        let text = fs::read(&path).map_err(|error| DataError::of_system(&path, &error))?;
        let got: Record = serde_json::from_slice(&text).map_err(|error| {
            let reason = format!("{error}; delete the folder to have it made again");
            DataError::file(&path, reason)
        })?;
        let differs = [
            (got.name != want.name).then(|| format!("it has {}", got.name)),
            (got.version != want.version)
                .then(|| format!("another version of this program began it ({})", got.version)),
            (got.tools != want.tools).then(|| {
                format!(
                    "it was begun with {} and there is {}",
                    got.tools, want.tools
                )
            }),
            (got.seed != want.seed).then(|| format!("its seed is {}", got.seed)),
            (got.samples != want.samples).then(|| format!("it has {} samples", got.samples)),
            (got.form != want.form).then(|| format!("its form is {:?}", got.form).to_lowercase()),
        ];
        let differs: Vec<String> = differs.into_iter().flatten().collect();
        if !differs.is_empty() {
            let reason = format!(
                "it was begun for something else: {}; ask for the same, delete it, or name another folder with --out",
                differs.join(", ")
            );
            return Err(DataError::file(folder, reason));
        }
        // What was interrupted; nobody else writes here.
        for split in Split::ALL {
            let folder = self.path(split.folder());
            for name in names(&folder)? {
                if name.ends_with(".part") {
                    let path = folder.join(name);
                    fs::remove_file(&path).map_err(|error| DataError::of_system(&path, &error))?;
                }
            }
        }
        Ok(lock)
    }

    /// Units of one split each, in their order.
    fn work(&self) -> Vec<Work> {
        let mut all: Vec<Work> = Vec::new();
        for unit in 0..self.units {
            let split = (self.split)(unit);
            match all.last_mut() {
                Some(last) if last.split == split && last.units.len() < self.file_units => {
                    last.units.end += 1;
                }
                last => {
                    let number = last.filter(|last| last.split == split);
                    let number = number.map_or(0, |last| last.number + 1);
                    all.push(Work {
                        split,
                        number,
                        units: unit..unit + 1,
                    });
                }
            }
        }
        all
    }

    fn packed(&self, work: &Work) -> PathBuf {
        self.path(work.split.folder())
            .join(format!("{:05}.pack", work.number))
    }

    fn hdf5(&self, work: &Work, unit: usize, sample: usize) -> PathBuf {
        self.path(work.split.folder())
            .join(format!("{unit:05}-{sample}.hdf5"))
    }

    fn is_there(&self, work: &Work) -> Result<bool, DataError> {
        if self.order.form == Form::Hdf5 {
            let each = |unit| (0..self.unit_samples).map(move |sample| (unit, sample));
            let mut files = work.units.clone().flat_map(each);
            return Ok(files.all(|(unit, sample)| self.hdf5(work, unit, sample).exists()));
        }
        let path = self.packed(work);
        if !path.exists() {
            return Ok(false);
        }
        let again = "delete it, and it is made again";
        let packed = Packed::open(&path)
            .map_err(|error| DataError::file(&path, format!("{error}; {again}")))?;
        let want = work.units.len() * self.unit_samples;
        if packed.len() != want {
            let reason = format!("it has {} samples instead of {want}; {again}", packed.len());
            return Err(DataError::file(&path, reason));
        }
        Ok(true)
    }

    /// Tells how many samples are done.
    fn work_through<S>(
        &self,
        left: &[Work],
        state: &(impl Fn() -> S + Sync),
        unit: &(impl Fn(&mut S, usize, Told<'_>) -> Result<Vec<Sample>, DataError> + Sync),
        progress: &mut dyn FnMut(usize),
    ) -> Result<(), DataError> {
        let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (told, hear) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..self.order.threads.clamp(1, left.len().max(1)) {
                let told = told.clone();
                let (next, stop) = (&next, &stop);
                // Not supervised: the scope waits for it, and a panic of it is the caller's.
                scope.spawn(move || {
                    let mut state = state();
                    let mut each = |number| {
                        let mut early = 0;
                        let samples = unit(&mut state, number, &mut |samples| {
                            early += samples;
                            let _ = told.send(Ok(samples));
                        })?;
                        let _ = told.send(Ok(samples.len() - early));
                        Ok(samples)
                    };
                    while let Some(work) = left.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                        if let Err(error) = self.write(work, &mut each) {
                            let _ = told.send(Err(error));
                            break;
                        }
                    }
                });
            }
            drop(told);
            let (mut done, mut failed) = (0, None);
            for heard in hear {
                match heard {
                    Ok(samples) => {
                        done += samples;
                        progress(done);
                    }
                    Err(error) => {
                        stop.store(true, Ordering::Relaxed);
                        failed.get_or_insert(error);
                    }
                }
            }
            failed.map_or(Ok(()), Err)
        })
    }

    fn write(
        &self,
        work: &Work,
        unit: &mut impl FnMut(usize) -> Result<Vec<Sample>, DataError>,
    ) -> Result<(), DataError> {
        if self.order.form == Form::Hdf5 {
            for number in work.units.clone() {
                for (at, sample) in unit(number)?.iter().enumerate() {
                    self.write_hdf5(&self.hdf5(work, number, at), sample)?;
                }
            }
            return Ok(());
        }
        let path = self.packed(work);
        let mut writer = Writer::create(&path, self.fields, Settings::default())?;
        for number in work.units.clone() {
            for sample in unit(number)? {
                let values: Vec<&[u8]> = sample.values.iter().map(Vec::as_slice).collect();
                writer.push(&sample.name, &values)?;
            }
        }
        writer.finish()
    }

    fn write_hdf5(&self, path: &Path, sample: &Sample) -> Result<(), DataError> {
        let part = path.with_extension("part");
        let named = |(field, dataset): (&Field, &&str)| Field {
            name: (*dataset).into(),
            ..field.clone()
        };
        let fields: Vec<Field> = self.fields.iter().zip(self.datasets).map(named).collect();
        write_sample(&part, &fields, &sample.values)?;
        fs::rename(&part, path).map_err(|error| DataError::of_system(path, &error))
    }

    /// Writes what people and programs are told. Gives the bytes of all files of samples.
    fn finish(
        &self,
        is_new: bool,
        card: &dyn Fn() -> Result<Card, DataError>,
    ) -> Result<u64, DataError> {
        let path = self.path(MADE);
        let mut record = self.record();
        for split in Split::ALL {
            let folder = self.path(split.folder());
            if self.order.form == Form::Hdf5 && !folder.join(manifest::FILE).exists() {
                Hdf5Folder::open(&folder, Some(&self.layout()))?
                    .write_manifest(&folder.join(manifest::FILE))?;
            }
            for name in names(&folder)? {
                let path = folder.join(&name);
                let failed = |error| DataError::of_system(&path, &error);
                let file = File::open(&path).map_err(failed)?;
                let mut sum = blake3::Hasher::new();
                sum.update_reader(&file).map_err(failed)?;
                let bytes = file.metadata().map_err(failed)?.len();
                let blake3 = sum.finalize().to_hex().to_string();
                let name = format!("{}/{name}", split.folder());
                record.files.insert(name, Sum { bytes, blake3 });
            }
        }
        let bytes = record.files.values().map(|file| file.bytes).sum();
        let is_told = self.path(CARD).exists() && self.path(PICTURE).exists();
        if is_new || !is_told {
            let Card { text, picture } = card()?;
            let picture = picture.write_png(&self.path(PICTURE));
            picture.map_err(|error| DataError::file(&self.path(PICTURE), error))?;
            write(&path, &json(&record))?;
            let text = format!("{text}{}", self.origin(&record, &json(&record)));
            write(&self.path(CARD), text.as_bytes())?;
        }
        Ok(bytes)
    }

    fn layout(&self) -> tradewind_data::Layout {
        let items = self.fields.iter().zip(self.datasets);
        let items = items.map(|(field, dataset)| {
            let classes = field.classes.map(|n| format!(":{}<{n}", field.kind.name()));
            format!("{}={dataset}{}", field.name, classes.unwrap_or_default())
        });
        let items: Vec<String> = items.collect();
        items.join(",").parse().expect("fields have names")
    }

    fn origin(&self, record: &Record, json: &[u8]) -> String {
        let splits = Split::ALL.map(|split| {
            let units = (0..self.units).filter(|unit| (self.split)(*unit) == split);
            let units: Vec<usize> = units.collect();
            let (first, last) = (units[0], units[units.len() - 1]);
            format!(
                "- `{}`: {} samples, of simulations {first} to {last}\n",
                split.folder(),
                units.len() * self.unit_samples
            )
        });
        let form = match record.form {
            Form::Packed => "packed",
            Form::Hdf5 => "hdf5",
        };
        let tools = match self.tools {
            "" => String::new(),
            tools => format!(", {tools}"),
        };
        format!(
            "\n## This folder\n\n{}\n\
             Made by `tradewind data make {} --samples {} --seed {} --form {form}`, Tradewind {}, version {} of the \
             recipe{}. `{MADE}` has the BLAKE3 sum of each file; its own is\n`{}`.\n",
            splits.concat(),
            record.name,
            record.samples,
            record.seed,
            env!("CARGO_PKG_VERSION"),
            record.version,
            tools,
            blake3::hash(json).to_hex(),
        )
    }
}

fn json(record: &Record) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(record).expect("it has only names and numbers");
    text.push(b'\n');
    text
}

fn write(path: &Path, text: &[u8]) -> Result<(), DataError> {
    whole::write(path, text).map_err(|error| DataError::of_system(path, &error))
}

/// Of the files of a folder, in order.
fn names(folder: &Path) -> Result<Vec<String>, DataError> {
    let failed = |error: std::io::Error| DataError::of_system(folder, &error);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        names.push(
            entry
                .map_err(failed)?
                .file_name()
                .to_string_lossy()
                .into_owned(),
        );
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests;
