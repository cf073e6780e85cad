//! Measures how fast HDF5 files of one sample each are read, from the page cache: by one thread of this process,
//! by two, and by one and two processes. The rounds are interleaved; printed are medians.
//!
//! ```text
//! cargo build --release -p tradewind-data --bins
//! cargo run --release -p tradewind-data --example hdf5_readers -- [FOLDER] [SAMPLES] [ROUNDS] [gzip]
//! cargo run --release -p tradewind-data --example hdf5_readers -- [FOLDER] --start FILES
//! ```
//! The second form writes a manifest of so many files (links of one) and measures from opening to the first
//! sample.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use tradewind_data::{Hdf5Folder, Layout, Memory, Processes, Source, manifest, read_batch};

#[path = "shared/reading.rs"]
mod reading;

use reading::{median, rate};

/// f32 values of a sample: 262 kB.
const SHAPE: (usize, usize, usize) = (4, 128, 128);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let temporary = tempfile::tempdir()?;
    let folder = arguments
        .first()
        .map_or(temporary.path().into(), PathBuf::from);
    if arguments
        .get(1)
        .is_some_and(|argument| argument == "--start")
    {
        return start(&folder, arguments[2].parse()?);
    }
    let samples = arguments.get(1).map_or(Ok(2000), |text| text.parse())?;
    let rounds = arguments.get(2).map_or(Ok(7), |text| text.parse())?;
    let gzip = arguments.get(3).is_some_and(|argument| argument == "gzip");
    for sample in 0..samples {
        write(&folder.join(format!("{sample}.h5")), sample, gzip)?;
    }
    let layout: Layout = "x=x:f32".parse()?;
    let open = || Hdf5Folder::open(&folder, Some(&layout));
    let processes =
        |readers| Processes::start(Box::new(open()?), &folder, Some(&layout), readers, None);
    let sources: [(&str, usize, Arc<dyn Source>); 4] = [
        ("one thread", 1, Arc::new(open()?)),
        ("two threads", 2, Arc::new(open()?)),
        ("one process, one thread", 1, Arc::new(processes(1)?)),
        ("two processes, two threads", 2, Arc::new(processes(2)?)),
    ];
    let mut rates = vec![Vec::new(); sources.len()];
    let mut used = vec![Vec::new(); sources.len()];
    // The first round checks the numbers of every sample, and is not counted.
    for round in 0..=rounds {
        for ((_, threads, source), (rates, used)) in
            sources.iter().zip(rates.iter_mut().zip(&mut used))
        {
            let before = processor_seconds()?;
            let rate = rate(source, *threads, samples)?;
            if round > 0 {
                rates.push(rate);
                used.push((processor_seconds()? - before) / samples as f64);
            }
        }
    }
    let one = median(&rates[0].clone());
    for ((name, ..), (rates, used)) in sources.iter().zip(rates.iter_mut().zip(&mut used)) {
        let rate = median(rates);
        let all: Vec<_> = rates.iter().map(|rate| format!("{rate:.0}")).collect();
        let of_one = rate / one;
        let used = 1e6 * median(used);
        println!(
            "{name:28} {rate:6.0} samples/s, {of_one:.2} of one thread, {used:.0} µs of a processor each ({})",
            all.join(" ")
        );
    }
    let of_process = ratios(&rates[3], &rates[2]);
    println!("two processes over one: {of_process:.2} (median of medians' ratio)");
    Ok(())
}

fn write(path: &Path, sample: usize, gzip: bool) -> hdf5_metno::Result<()> {
    let values = ndarray::Array3::from_shape_fn(SHAPE, |(c, y, x)| (sample + c * y + x) as f32);
    let file = hdf5_metno::File::create(path)?;
    let builder = file.new_dataset_builder();
    let builder = match gzip {
        true => builder.chunk((1, 128, 128)).deflate(4),
        false => builder,
    };
    builder.with_data(&values).create("x")?;
    Ok(())
}

/// What this process and its readers have had of a processor.
fn processor_seconds() -> Result<f64, Box<dyn std::error::Error>> {
    let mut ticks = 0.0;
    let own = std::process::id().to_string();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        // There are links to this process, too.
        if entry.file_type()?.is_symlink() {
            continue;
        }
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // Behind the name, which may have blanks: state, parent, and from the 12th on user and system ticks.
        let Some((begin, rest)) = stat.rsplit_once(") ") else {
            continue;
        };
        let rest: Vec<&str> = rest.split(' ').collect();
        if rest[1] == own || begin.split(' ').next() == Some(&own) {
            ticks += rest[11].parse::<f64>()? + rest[12].parse::<f64>()?;
        }
    }
    Ok(ticks / 100.0)
}

fn ratios(left: &[f64], right: &[f64]) -> f64 {
    median(left) / median(right)
}

/// Seconds from opening to the first sample, with a manifest and without.
#[expect(clippy::disallowed_methods, reason = "it measures")]
fn start(folder: &Path, files: usize) -> Result<(), Box<dyn std::error::Error>> {
    let layout: Layout = "x=x:f32".parse()?;
    write(&folder.join("0.h5"), 0, false)?;
    for file in 1..files {
        let sub = folder.join(format!("{}", file / 1000));
        std::fs::create_dir_all(&sub)?;
        // A file has at most so many names.
        let first = sub.join("first.h5");
        if !first.exists() {
            std::fs::copy(folder.join("0.h5"), &first)?;
        }
        std::fs::hard_link(first, sub.join(format!("{file}.h5")))?;
    }
    let list = folder.join("list");
    let from = Instant::now();
    Hdf5Folder::open(folder, Some(&layout))?.write_manifest(&list)?;
    println!(
        "listing {files} files and writing the manifest: {:.3} s",
        from.elapsed().as_secs_f64()
    );
    for _ in 0..5 {
        for (name, manifest) in [("without a manifest", false), ("with a manifest", true)] {
            let path = folder.join(manifest::FILE);
            match manifest {
                true => drop(std::fs::copy(&list, &path)?),
                false => drop(std::fs::remove_file(&path)),
            }
            let from = Instant::now();
            let source = tradewind_data::open(folder, Some(&layout), 1, None)?;
            let opened = from.elapsed().as_secs_f64();
            read_batch(&*source, &[files / 2], &mut Memory {})?;
            let first = from.elapsed().as_secs_f64();
            let started = Instant::now();
            let two = tradewind_data::open(folder, Some(&layout), 2, None)?;
            read_batch(&*two, &[files / 2], &mut Memory {})?;
            let processes = started.elapsed().as_secs_f64();
            println!(
                "{name}: opened after {opened:.3} s, first sample after {first:.3} s; by two processes {processes:.3} s"
            );
        }
    }
    Ok(())
}
