//! Samples that are read from copies on a disk near by, by several processes at once.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustix::process::{Signal, getpid, kill_process};
use tradewind_data::packed::{Settings, Writer};
use tradewind_data::{
    Cache, CacheCounts, DataError, Field, Hdf5Folder, Kind, Layout, Memory, Source, Staged, open,
    read_batch, stage,
};

/// What a process of a test does: folder, bytes of the cache, readers, how many samples.
const TASK: &str = "TRADEWIND_TEST_TASK";

/// One test at a time: a process that is started while another test writes an HDF5 file inherits the library's
/// lock on it.
static ALONE: Mutex<()> = Mutex::new(());

const SIDE: usize = 200;

fn layout() -> Layout {
    "x=x".parse().unwrap()
}

fn value(sample: usize) -> f32 {
    sample as f32 + 0.5
}

/// Files of 160 kB with one sample each.
fn folder(samples: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("raw")).unwrap();
    for sample in 0..samples {
        let path = folder.path().join(format!("raw/{sample}.h5"));
        let file = hdf5_metno::File::create(path).unwrap();
        let x = ndarray::Array2::from_elem((SIDE, SIDE), value(sample));
        let builder = file.new_dataset_builder();
        builder.with_data(&x).create("x").unwrap();
    }
    folder
}

fn opened(folder: &Path, readers: usize, cache: &Arc<Cache>) -> Box<dyn Source> {
    let cache = Some(Arc::clone(cache));
    open(&folder.join("raw"), Some(&layout()), readers, cache).unwrap()
}

fn check(source: &dyn Source, samples: &[usize]) {
    let batch = read_batch(source, samples, &mut Memory {}).unwrap();
    let values: Vec<f64> = Kind::F32.numbers(&batch.columns[0].values).collect();
    for (sample, values) in samples.iter().zip(values.chunks(SIDE * SIDE)) {
        let want = f64::from(value(*sample));
        assert!(values.iter().all(|value| *value == want), "sample {sample}");
    }
}

fn cache_in(folder: &Path, bytes: u64) -> Arc<Cache> {
    Arc::new(Cache::open(&folder.join("cache"), bytes))
}

fn names(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder.join("cache"))
        .into_iter()
        .flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|other| other == ending))
        .collect()
}

/// Bytes of everything in the cache's folder; a file may go while it is counted.
fn taken(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder.join("cache"))
        .into_iter()
        .flatten();
    let bytes = entries.map(|entry| entry.unwrap().metadata().map_or(0, |file| file.len()));
    bytes.sum()
}

/// A process that does the task of this test.
fn process(folder: &Path, bytes: u64, readers: usize, samples: usize, seed: usize) -> Child {
    let name = std::thread::current().name().unwrap().to_owned();
    let task = format!("{}|{bytes}|{readers}|{samples}|{seed}", folder.display());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &name, "--nocapture"]);
    command
        .env(TASK, task)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

struct Task {
    folder: PathBuf,
    bytes: u64,
    readers: usize,
    samples: usize,
    seed: usize,
}

fn task() -> Option<Task> {
    let task = std::env::var(TASK).ok()?;
    let parts: Vec<_> = task.split('|').collect();
    let number = |at: usize| parts[at].parse::<usize>().unwrap();
    Some(Task {
        folder: parts[0].into(),
        bytes: number(1) as u64,
        readers: number(2),
        samples: number(3),
        seed: number(4),
    })
}

/// Reads samples in an order of its own, and leaves the counts.
fn read_at_random(task: &Task) {
    let cache = cache_in(&task.folder, task.bytes);
    let source = opened(&task.folder, task.readers, &cache);
    let mut state = task.seed as u64;
    let samples = (0..task.samples).map(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % source.len()
    });
    let samples: Vec<_> = samples.collect();
    samples
        .chunks(3)
        .for_each(|samples| check(&*source, samples));
    assert!(cache.told().is_empty(), "{:?}", cache.told());
    let counts = serde_json::to_vec(&cache.counts()).unwrap();
    let path = task.folder.join(format!("counts-{}", task.seed));
    std::fs::write(path, counts).unwrap();
}

fn counts(folder: &Path, seed: usize) -> CacheCounts {
    let text = std::fs::read(folder.join(format!("counts-{seed}"))).unwrap();
    serde_json::from_slice(&text).unwrap()
}

#[test]
fn processes_keep_one_budget_and_read_what_is_right() {
    if let Some(task) = task() {
        return read_at_random(&task);
    }
    let _alone = ALONE.lock().unwrap_or_else(|held| held.into_inner());
    let folder = folder(16);
    let file = folder.path().join("raw/0.h5").metadata().unwrap().len();
    let budget = 8 * (file.next_multiple_of(4096) + 4096) + 4096;
    let mut children =
        [(1, 1), (2, 2)].map(|(readers, seed)| process(folder.path(), budget, readers, 400, seed));
    let (mut most, mut running) = (0, true);
    while running {
        most = most.max(taken(folder.path()));
        running = children
            .iter_mut()
            .any(|child| child.try_wait().unwrap().is_none());
    }
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    assert!(
        most <= budget && most >= budget / 2,
        "{most} of {budget} bytes"
    );
    let counts = [1, 2].map(|seed| counts(folder.path(), seed));
    for counts in counts {
        let used = counts.hits + counts.files_copied;
        assert_eq!(
            (used, counts.at_origin, counts.damaged),
            (400, 0, 0),
            "{counts:?}"
        );
        assert!(counts.files_copied > 16, "{counts:?}");
    }
    assert!(names(folder.path(), "part").is_empty());
}

#[test]
fn processes_copy_a_file_once() {
    if let Some(task) = task() {
        return read_at_random(&task);
    }
    let _alone = ALONE.lock().unwrap_or_else(|held| held.into_inner());
    let folder = folder(12);
    let children = [1, 2, 3].map(|seed| process(folder.path(), 1 << 30, 1, 300, seed));
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let counts = [1, 2, 3].map(|seed| counts(folder.path(), seed));
    let copied: u64 = counts.iter().map(|counts| counts.files_copied).sum();
    assert_eq!((copied, names(folder.path(), "copy").len()), (12, 12));
    // Nobody opens the files themselves any more.
    let cache = cache_in(folder.path(), 1 << 30);
    let source = opened(folder.path(), 2, &cache);
    check(&*source, &(0..12).collect::<Vec<_>>());
    assert_eq!((cache.counts().hits, cache.counts().files_copied), (12, 0));
}

#[test]
fn a_process_that_is_killed_while_it_copies_is_in_nobodys_way() {
    if let Some(task) = task() {
        let cache = cache_in(&task.folder, task.bytes);
        let source = opened(&task.folder, 1, &cache);
        let killed = &mut |staged: Staged| {
            if staged.files == 2 && staged.bytes > 400_000 {
                kill_process(getpid(), Signal::KILL).unwrap();
            }
        };
        let staged = stage(&*source, 0..4, &cache, killed, &AtomicBool::new(false));
        panic!("{staged:?}");
    }
    let _alone = ALONE.lock().unwrap_or_else(|held| held.into_inner());
    let folder = folder(4);
    let file = folder.path().join("raw/0.h5").metadata().unwrap().len();
    let budget = 2 * (file.next_multiple_of(4096) + 4096) + 4096 + (file / 2);
    let mut child = process(folder.path(), 1 << 30, 1, 0, 0);
    assert!(!child.wait().unwrap().success());
    assert_eq!(names(folder.path(), "part").len(), 1);
    // Another file: the part is in its way.
    let cache = cache_in(folder.path(), budget);
    let source = opened(folder.path(), 1, &cache);
    check(&*source, &[3]);
    assert!(names(folder.path(), "part").is_empty());
    check(&*source, &[2, 3, 1, 0, 2]);
    assert_eq!(cache.counts().at_origin, 0);
}

#[test]
fn opening_copies_nothing() {
    let _alone = ALONE.lock().unwrap_or_else(|held| held.into_inner());
    let folder = folder(5);
    let manifest = folder.path().join("raw/samples.manifest");
    let source = Hdf5Folder::open(&folder.path().join("raw"), Some(&layout())).unwrap();
    source.write_manifest(&manifest).unwrap();
    for readers in [1, 2] {
        let cache = cache_in(folder.path(), 1 << 30);
        let source = opened(folder.path(), readers, &cache);
        assert!(!folder.path().join("cache").exists());
        assert_eq!(source.files(1..3).len(), 2);
    }
    let cache = cache_in(folder.path(), 1 << 30);
    let source = opened(folder.path(), 2, &cache);
    check(&*source, &[4]);
    assert_eq!(
        (
            names(folder.path(), "copy").len(),
            cache.counts().files_copied
        ),
        (1, 1)
    );
}

fn pack(path: &Path, samples: std::ops::Range<usize>) {
    let fields = [Field::new("x", Kind::F32, &[SIDE, SIDE])];
    let mut writer = Writer::create(path, &fields, Settings::default()).unwrap();
    for sample in samples {
        let values = vec![value(sample); SIDE * SIDE]
            .into_iter()
            .flat_map(f32::to_le_bytes);
        writer.push("x", &[&values.collect::<Vec<_>>()]).unwrap();
    }
    writer.finish().unwrap();
}

fn npy(path: &Path, samples: usize) {
    let text = format!(
        "{{'descr': '<f4', 'fortran_order': False, 'shape': ({samples}, {SIDE}, {SIDE})}}\n"
    );
    let length = (text.len() as u16).to_le_bytes();
    let values = (0..samples).flat_map(|sample| vec![value(sample); SIDE * SIDE]);
    let values: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
    let bytes = [b"\x93NUMPY\x01\x00", &length[..], text.as_bytes(), &values].concat();
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn packed_files_and_arrays_are_read_from_copies_too() {
    let folder = tempfile::tempdir().unwrap();
    let raw = folder.path().join("raw");
    std::fs::create_dir(&raw).unwrap();
    let write = |name: &str| match name {
        "npy" => npy(&raw.join("x.npy"), 6),
        _ => {
            pack(&raw.join("0.pack"), 0..4);
            pack(&raw.join("1.pack"), 4..6);
        }
    };
    for form in ["pack", "npy"] {
        write(form);
        let cache = cache_in(folder.path(), 1 << 30);
        let source = open(&raw, None, 2, Some(Arc::clone(&cache))).unwrap();
        assert!(!folder.path().join("cache").exists());
        let files = source.files(0..6);
        assert_eq!(files.len(), if form == "npy" { 1 } else { 2 });
        assert_eq!(source.files(5..6), files[files.len() - 1..]);
        check(&*source, &[5, 0, 4, 3]);
        assert_eq!(cache.counts().files_copied, files.len() as u64);
        // What is written there now is not seen.
        for file in &files {
            std::fs::write(file, "").unwrap();
        }
        check(&*source, &[2, 1, 5]);
        std::fs::remove_dir_all(&raw).unwrap();
        std::fs::remove_dir_all(folder.path().join("cache")).unwrap();
        std::fs::create_dir(&raw).unwrap();
    }
    // One that is written between opening and copying.
    write("pack");
    let cache = cache_in(folder.path(), 1 << 30);
    let source = open(&raw.join("0.pack"), None, 1, Some(cache)).unwrap();
    pack(&raw.join("0.pack"), 1..5);
    let error = read_batch(&*source, &[0], &mut Memory {}).unwrap_err();
    assert!(
        matches!(&error, DataError::File { reason, .. } if reason.contains("it was written since")),
        "{error}"
    );
}

#[test]
fn files_are_staged_as_far_as_the_budget_goes_and_until_somebody_stops_it() {
    let _alone = ALONE.lock().unwrap_or_else(|held| held.into_inner());
    let folder = folder(6);
    let file = folder.path().join("raw/0.h5").metadata().unwrap().len();
    let budget = 3 * (file.next_multiple_of(4096) + 4096) + 4096;
    let cache = cache_in(folder.path(), budget);
    let source = opened(folder.path(), 1, &cache);
    let stop = AtomicBool::new(false);
    let mut told = Vec::new();
    let mut tell = |staged: Staged| {
        told.push(staged);
        stop.store(staged.files == 1, Ordering::SeqCst);
    };
    let staged = stage(&*source, 1..6, &cache, &mut tell, &stop).unwrap();
    assert_eq!(
        (staged.files, staged.files_all, staged.files_beyond),
        (1, 3, 2)
    );
    assert_eq!((staged.bytes, staged.bytes_all), (file, 3 * file));
    stop.store(false, Ordering::SeqCst);
    let mut tell = |staged: Staged| told.push(staged);
    let staged = stage(&*source, 1..6, &cache, &mut tell, &stop).unwrap();
    assert_eq!((staged.files, staged.bytes), (3, 3 * file));
    let bytes: Vec<_> = told.iter().map(|staged| staged.bytes).collect();
    assert!(
        bytes.is_sorted() && bytes.contains(&file) && bytes.ends_with(&[3 * file]),
        "{bytes:?}"
    );
    assert_eq!(
        (
            cache.counts().files_copied,
            names(folder.path(), "copy").len()
        ),
        (3, 3)
    );
    check(&*source, &[1, 2, 3]);
    assert_eq!(cache.counts().files_copied, 3);
    std::fs::remove_file(folder.path().join("raw/0.h5")).unwrap();
    let missing = stage(&*source, 0..2, &cache, &mut |_| (), &stop).unwrap_err();
    assert!(
        missing.to_string().contains("0.h5: No such file"),
        "{missing}"
    );
}
