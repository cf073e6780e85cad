//! Measures how fast samples of 262 kB come from a disk: packed and in HDF5 files of one sample each, over plain reads
//! of the same files. Before each of them the system's page cache is emptied, for which it has to be root.
//!
//! ```text
//! cargo build --release -p tradewind-data --bins
//! cargo run --release -p tradewind-data --example cold_reads -- FOLDER [SAMPLES] [ROUNDS]
//! ```
//! Files that are there from an earlier call are read again, not made. Everything is read once a round, in an order
//! that is no file's, by two threads or processes.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tradewind_data::packed::{Packed, Settings, Writer};
use tradewind_data::{Field, Hdf5Folder, Kind, Layout, Processes, Source};

#[path = "shared/reading.rs"]
mod reading;

use reading::{SAMPLE, median, order, rate};

const SHAPE: [usize; 3] = [4, 128, 128];
const READERS: usize = 2;
/// Of each way the plain one that reads the same bytes.
const PLAIN: [usize; 5] = [0, 0, 2, 2, 2];

type Failure = Box<dyn std::error::Error>;
/// Reads everything once: samples a second.
type Way<'a> = dyn Fn() -> Result<f64, Failure> + 'a;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let folder = PathBuf::from(arguments.first().ok_or("FOLDER [SAMPLES] [ROUNDS]")?);
    let samples = arguments.get(1).map_or(Ok(4000), |text| text.parse())?;
    let rounds = arguments.get(2).map_or(Ok(3), |text| text.parse())?;
    let (packed, files) = (folder.join("samples.pack"), folder.join("files"));
    if !packed.exists() {
        make(&packed, &files, samples)?;
    }
    let layout: Layout = "x=x:f32".parse()?;
    let folder_of = || Hdf5Folder::open(&files, Some(&layout));
    let ways: [(&str, &Way<'_>); 5] = [
        ("pread of the packed file", &|| {
            let file = File::open(&packed)?;
            plain(samples, |sample, memory| {
                file.read_exact_at(memory, 64 + (sample * SAMPLE) as u64)
            })
        }),
        ("packed, checksums compared", &|| {
            reads(Packed::open(&packed)?, samples)
        }),
        ("pread of the HDF5 files", &|| {
            plain(samples, |sample, memory| {
                let file = File::open(files.join(format!("{sample}.h5")))?;
                // The numbers are at its end.
                let begin = file.metadata()?.len() - SAMPLE as u64;
                file.read_exact_at(memory, begin)
            })
        }),
        ("HDF5, two threads", &|| reads(folder_of()?, samples)),
        ("HDF5, two processes", &|| {
            let source = Box::new(folder_of()?);
            let processes = Processes::start(source, &files, Some(&layout), READERS, None)?;
            reads(processes, samples)
        }),
    ];
    let mut rates_of = vec![Vec::new(); ways.len()];
    for _ in 0..rounds {
        for ((_, way), rates) in ways.iter().zip(&mut rates_of) {
            rustix::fs::sync();
            std::fs::write("/proc/sys/vm/drop_caches", "3")?;
            rates.push(way()?);
        }
    }
    for (number, ((name, _), rates)) in ways.iter().zip(&rates_of).enumerate() {
        let all: Vec<_> = rates.iter().map(|rate| format!("{rate:.0}")).collect();
        let rate = median(rates);
        let of_plain = rate / median(&rates_of[PLAIN[number]]);
        println!(
            "{name:28} {rate:6.0} samples/s ({}), {:.2} GB/s, {of_plain:.2} of plain reads",
            all.join(" "),
            rate * SAMPLE as f64 / 1e9
        );
    }
    Ok(())
}

/// Makes the packed file and the folder of HDF5 files.
fn make(packed: &Path, files: &Path, samples: usize) -> Result<(), Failure> {
    std::fs::create_dir_all(files)?;
    let fields = [Field::new("x", Kind::F32, &SHAPE)];
    let mut writer = Writer::create(packed, &fields, Settings::default())?;
    for sample in 0..samples {
        let values = ndarray::Array3::from_shape_fn(SHAPE, |(c, y, x)| (sample + c * y + x) as f32);
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        writer.push("x", &[&bytes])?;
        let file = hdf5_metno::File::create(files.join(format!("{sample}.h5")))?;
        file.new_dataset_builder().with_data(&values).create("x")?;
    }
    writer.finish()?;
    Ok(())
}

/// Samples a second of plain reads by two threads.
#[expect(clippy::disallowed_methods, reason = "it measures")]
fn plain(
    samples: usize,
    read: impl Fn(usize, &mut [u8]) -> std::io::Result<()> + Sync,
) -> Result<f64, Failure> {
    let (all, next) = (order(samples), AtomicUsize::new(0));
    let from = Instant::now();
    std::thread::scope(|scope| {
        let reading = || -> std::io::Result<()> {
            let mut memory = vec![0; SAMPLE];
            while let Some(sample) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                read(*sample, &mut memory)?;
                std::hint::black_box(&mut memory);
            }
            Ok(())
        };
        let threads: Vec<_> = (0..READERS).map(|_| scope.spawn(reading)).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().expect("it does not panic"))
    })?;
    Ok(samples as f64 / from.elapsed().as_secs_f64())
}

/// Samples a second of two readers.
fn reads(source: impl Source + 'static, samples: usize) -> Result<f64, Failure> {
    rate(&(Arc::new(source) as _), READERS, samples)
}
