//! All samples of a source, one after the other, read by several threads: packing, verifying, statistics.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::packed::{Settings, Writer};
use crate::{Ahead, Batch, DataError, Memory, Readers, Source, batch_bytes, read_batch};

/// Batches that readers are ahead, for each of them.
const AHEAD_BATCHES: usize = 4;

/// Bytes that readers are ahead.
const AHEAD_BYTES: usize = 256 << 20;

/// What is told of a long walk after each sample: samples so far, and bytes.
pub type Progress<'a> = &'a mut dyn FnMut(usize, usize);

/// Reads all samples in order and hands each on, or what is wrong with it.
///
/// # Errors
/// What `each` returns.
pub fn walk(
    source: &Arc<dyn Source>,
    readers: usize,
    mut each: impl FnMut(usize, Result<Batch<Vec<u8>>, DataError>) -> Result<(), DataError>,
) -> Result<(), DataError> {
    let ahead = Ahead {
        readers,
        batches: AHEAD_BATCHES * readers,
        bytes: AHEAD_BYTES,
    };
    let sample_bytes = batch_bytes(source.fields(), 1);
    let from = Arc::clone(source);
    let read = move |samples: &Vec<usize>| read_batch(&*from, samples, &mut Memory {});
    let mut reading = Readers::new(ahead, read, move |samples| sample_bytes * samples.len());
    let mut asked = 0..source.len();
    for number in 0..source.len() {
        while reading.room() > 0 {
            let Some(next) = asked.next() else { break };
            reading.request(vec![next]).expect("there is room");
        }
        let read = reading.next().expect("it was asked for");
        each(number, read.unwrap_or_else(|ended| Err(ended.into())))?;
    }
    Ok(())
}

/// How samples are packed.
#[derive(Clone, Copy, Debug)]
pub struct Packing {
    /// Files that they are dealt to, so that each has as many.
    pub files: usize,
    /// Threads that read.
    pub readers: usize,
    /// How records are stored.
    pub settings: Settings,
    /// Whether samples that cannot be read or have bad numbers are left out, instead of ending it.
    pub leave_out: bool,
}

/// What was packed.
#[derive(Debug, Default)]
pub struct Done {
    /// Samples.
    pub samples: usize,
    /// Bytes of their fields.
    pub bytes: usize,
    /// Bytes of the files.
    pub stored: u64,
    /// Samples that were left out, and why.
    pub left_out: Vec<DataError>,
}

/// Packs all samples into a new folder of files, `00000.pack` and so on; there is no folder until it is whole.
///
/// # Errors
/// A folder that is there, more files than samples, a sample that cannot be packed and is not to be left out, a
/// full disk; that it was stopped.
pub fn pack(
    source: &Arc<dyn Source>,
    folder: &Path,
    packing: Packing,
    progress: Progress<'_>,
    stop: &AtomicBool,
) -> Result<Done, DataError> {
    if folder.exists() {
        let folder = folder.display();
        let asked = format!("{folder}: it is there already; name a new folder, or delete it");
        return Err(DataError::Asked(asked));
    }
    let (len, files) = (source.len(), packing.files);
    if files == 0 || files > len {
        let asked = format!("{len} samples cannot be dealt to {files} files");
        return Err(DataError::Asked(asked));
    }
    let part = PartFolder::create(folder)?;
    let mut done = Done::default();
    let mut writer = None;
    let begins = |file: usize| file * len / files;
    let mut file = 0;
    walk(source, packing.readers, |number, read| {
        if stop.load(Ordering::Relaxed) {
            return Err(DataError::Interrupted);
        }
        if number == begins(file) {
            if let Some(whole) = writer.take() {
                done.stored += finish(whole)?;
            }
            let path = part.0.join(format!("{file:05}.pack"));
            writer = Some(Writer::create(&path, source.fields(), packing.settings)?);
            file += 1;
        }
        let writer = writer
            .as_mut()
            .expect("the first sample begins the first file");
        let pushed = read.and_then(|batch| {
            let values: Vec<&[u8]> = batch.columns.iter().map(|c| &c.values[..]).collect();
            writer.push(&source.name(number), &values)?;
            Ok(values.iter().map(|values| values.len()).sum::<usize>())
        });
        match pushed {
            Ok(bytes) => {
                done.samples += 1;
                done.bytes += bytes;
            }
            Err(DataError::Sample { name, reason, .. }) => {
                let error = DataError::Sample {
                    number,
                    name,
                    reason,
                };
                match packing.leave_out {
                    true => done.left_out.push(error),
                    false => return Err(error),
                }
            }
            Err(error) => return Err(error),
        }
        progress(number + 1, done.bytes);
        Ok(())
    })?;
    if let Some(whole) = writer {
        done.stored += finish(whole)?;
    }
    part.place(folder)?;
    Ok(done)
}

fn finish(writer: Writer) -> Result<u64, DataError> {
    let bytes = writer.bytes();
    writer.finish()?;
    Ok(bytes)
}

/// A folder that is being filled beside its place; deleted unless it is put there.
struct PartFolder(PathBuf);

impl PartFolder {
    fn create(target: &Path) -> Result<Self, DataError> {
        let mut name = target.as_os_str().to_owned();
        name.push(".part");
        let path = PathBuf::from(name);
        // Of one that was interrupted.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).map_err(|error| DataError::of_system(&path, &error))?;
        Ok(Self(path))
    }

    fn place(self, target: &Path) -> Result<(), DataError> {
        std::fs::rename(&self.0, target).map_err(|error| DataError::of_system(target, &error))
    }
}

impl Drop for PartFolder {
    fn drop(&mut self) {
        // It is gone where it was put in its place.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Reads every sample and checks its numbers: what is wrong, in the order of samples.
///
/// # Errors
/// A file that is gone or has changed meanwhile.
pub fn verify(
    source: &Arc<dyn Source>,
    readers: usize,
    progress: Progress<'_>,
) -> Result<Vec<DataError>, DataError> {
    let (mut bad, mut bytes) = (Vec::new(), 0);
    walk(source, readers, |number, read| {
        match read {
            Ok(batch) => {
                bytes += batch.columns.iter().map(|c| c.values.len()).sum::<usize>();
                let mut checks = batch.columns.iter().map(|c| c.field.check(&c.values));
                if let Some(reason) = checks.find_map(Result::err) {
                    bad.push(crate::source::unusable(&**source, number, reason));
                }
            }
            Err(error @ DataError::Sample { .. }) => bad.push(error),
            Err(error) => return Err(error),
        }
        progress(number + 1, bytes);
        Ok(())
    })?;
    Ok(bad)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::testing::Numbers;
    use crate::packed::{Compression, Packed};

    /// Of which sample 13 is damaged.
    fn numbers() -> Arc<dyn Source> {
        Arc::new(Numbers::of(50))
    }

    static GO: AtomicBool = AtomicBool::new(false);

    const PACKING: Packing = Packing {
        files: 3,
        readers: 2,
        settings: Settings {
            compression: Compression::Lz4,
            any_numbers: false,
        },
        leave_out: true,
    };

    #[test]
    fn all_samples_are_dealt_to_files_but_those_that_cannot_be() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("packed");
        let mut steps = Vec::new();
        let done = pack(
            &numbers(),
            &folder,
            PACKING,
            &mut |samples, _| steps.push(samples),
            &GO,
        );
        let done = done.unwrap();
        assert_eq!((done.samples, steps.len()), (49, 50));
        let left_out: Vec<_> = done.left_out.iter().map(ToString::to_string).collect();
        assert_eq!(left_out, ["sample 13, the number 13: unlucky"]);
        let mut got = Vec::new();
        for file in 0..3 {
            let packed = Packed::open(&folder.join(format!("{file:05}.pack"))).unwrap();
            let all: Vec<usize> = (0..packed.len()).collect();
            let batch = read_batch(&packed, &all, &mut Memory {}).unwrap();
            let numbers = batch.column("number").unwrap().values.as_chunks::<4>().0;
            got.extend(numbers.iter().map(|one| i32::from_le_bytes(*one)));
        }
        let want: Vec<i32> = (0..50).filter(|number| *number != 13).collect();
        assert_eq!(got, want);
        let again = pack(&numbers(), &folder, PACKING, &mut |_, _| {}, &GO).unwrap_err();
        assert!(again.to_string().contains("it is there already"), "{again}");
    }

    #[test]
    fn a_sample_that_cannot_be_packed_leaves_nothing() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("packed");
        let strict = Packing {
            leave_out: false,
            ..PACKING
        };
        let error = pack(&numbers(), &folder, strict, &mut |_, _| {}, &GO).unwrap_err();
        assert_eq!(error.to_string(), "sample 13, the number 13: unlucky");
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
        let many = Packing {
            files: 51,
            ..PACKING
        };
        let error = pack(&numbers(), &folder, many, &mut |_, _| {}, &GO).unwrap_err();
        assert_eq!(error.to_string(), "50 samples cannot be dealt to 51 files");
    }

    #[test]
    fn one_that_is_stopped_leaves_nothing() {
        let parent = tempfile::tempdir().unwrap();
        let stop = AtomicBool::new(false);
        let at = &mut |samples, _| stop.store(samples == 20, Ordering::Relaxed);
        let error = pack(
            &numbers(),
            &parent.path().join("packed"),
            PACKING,
            at,
            &stop,
        )
        .unwrap_err();
        assert_eq!(error, DataError::Interrupted);
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn verifying_finds_every_bad_sample() {
        let (mut told, mut bytes) = (0, 0);
        let bad = verify(&numbers(), 3, &mut |samples, all| {
            (told, bytes) = (samples, all)
        });
        let bad: Vec<_> = bad.unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(bad, ["sample 13, the number 13: unlucky"]);
        let rows: usize = (0..50)
            .filter(|number| *number != 13)
            .map(|number| number % 3)
            .sum();
        assert_eq!((told, bytes), (50, 49 * 4 + 2 * rows));
        // One that panics in its reader is no fault of a sample.
        let all: Arc<dyn Source> = Arc::new(Numbers::new());
        let ended = verify(&all, 3, &mut |_, _| {});
        assert!(matches!(ended, Err(DataError::Ended(_))));
    }
}
