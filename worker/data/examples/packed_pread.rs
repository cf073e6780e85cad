//! Measures how fast packed samples of 262 kB are read by two readers, checksums compared, over plain `pread` of the
//! same bytes by two threads, from the page cache. The rounds are interleaved; printed are medians.
//!
//! ```text
//! cargo run --release -p tradewind-data --example packed_pread -- [FOLDER] [SAMPLES] [ROUNDS]
//! ```

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tradewind_data::packed::{Packed, Settings, Writer};
use tradewind_data::{Ahead, Batch, DataError, Field, Kind, Pool, Pooled, Readers, read_batch};

const SHAPE: [usize; 3] = [4, 128, 128];
const SAMPLE: usize = 4 * 4 * 128 * 128;
const BATCH: usize = 4;
const THREADS: usize = 2;

type Done = Result<Batch<Pooled>, DataError>;
type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let temporary = tempfile::tempdir()?;
    let folder = arguments
        .first()
        .map_or(temporary.path().into(), PathBuf::from);
    let samples = arguments.get(1).map_or(Ok(2000), |text| text.parse())?;
    let rounds = arguments.get(2).map_or(Ok(9), |text| text.parse())?;
    let path = folder.join("samples.pack");
    let fields = [Field::new("x", Kind::F32, &SHAPE)];
    let mut writer = Writer::create(&path, &fields, Settings::default())?;
    for sample in 0..samples {
        let values = (0..SAMPLE / 4).flat_map(|at| ((sample + at) as f32).to_le_bytes());
        writer.push("x", &[&values.collect::<Vec<_>>()])?;
    }
    writer.finish()?;
    let mut rates = [const { Vec::new() }; 4];
    for round in 0..=rounds {
        let packed = Arc::new(Packed::open(&path)?);
        let now = [
            pread(&path, samples, true)?,
            read(&packed, samples)?,
            read(&packed, samples)?,
            pread(&path, samples, false)?,
        ];
        if round > 0 {
            rates
                .iter_mut()
                .zip(now)
                .for_each(|(rates, now)| rates.push(now));
        }
    }
    let names = [
        "pread, memory of its own each",
        "packed, checksums compared",
        "packed, second pass",
        "pread, the same memory again",
    ];
    let plain = median(&mut rates[0].clone());
    for (name, rates) in names.iter().zip(&mut rates) {
        let rate = median(rates);
        let (least, most) = (rates[0], rates[rates.len() - 1]);
        let gigabytes = rate * SAMPLE as f64 / 1e9;
        println!(
            "{name:30} {rate:6.0} samples/s ({least:.0} to {most:.0}), {gigabytes:.2} GB/s, {:.2} of the first",
            rate / plain
        );
    }
    Ok(())
}

fn order(samples: usize) -> Vec<usize> {
    (0..samples).map(|at| at * 7919 % samples).collect()
}

/// Samples a second of plain reads, in batches, in the same order.
#[expect(clippy::disallowed_methods, reason = "it measures")]
fn pread(path: &Path, samples: usize, is_new: bool) -> Result<f64, Failure> {
    let file = File::open(path)?;
    let all = order(samples);
    let next = AtomicUsize::new(0);
    let batches = samples / BATCH;
    let from = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut memory = vec![0; BATCH * SAMPLE];
                loop {
                    let batch = next.fetch_add(1, Ordering::Relaxed);
                    if batch >= batches {
                        break;
                    }
                    if is_new {
                        memory = vec![0; BATCH * SAMPLE];
                    }
                    let numbers = &all[batch * BATCH..(batch + 1) * BATCH];
                    for (sample, into) in numbers.iter().zip(memory.chunks_mut(SAMPLE)) {
                        let at = 64 + (sample * SAMPLE) as u64;
                        file.read_exact_at(into, at).expect("it is there");
                    }
                    std::hint::black_box(&mut memory);
                }
            });
        }
    });
    Ok((batches * BATCH) as f64 / from.elapsed().as_secs_f64())
}

/// Samples a second of readers.
#[expect(clippy::disallowed_methods, reason = "it measures")]
fn read(packed: &Arc<Packed>, samples: usize) -> Result<f64, Failure> {
    let source = Arc::clone(packed);
    let pool = Pool::default();
    let read =
        move |samples: &Vec<usize>| -> Done { read_batch(&*source, samples, &mut pool.clone()) };
    let ahead = Ahead {
        readers: THREADS,
        batches: 2 * THREADS + 2,
        bytes: 1 << 30,
    };
    let mut readers = Readers::new(ahead, read, |samples: &Vec<usize>| samples.len() * SAMPLE);
    let all = order(samples);
    let mut batches = all.chunks_exact(BATCH);
    let (from, mut got) = (Instant::now(), 0);
    loop {
        while readers.room() > 0 {
            let Some(batch) = batches.next() else { break };
            readers.request(batch.to_vec())?;
        }
        match readers.next() {
            Some(batch) => got += batch??.samples.len(),
            None => break,
        }
    }
    Ok(got as f64 / from.elapsed().as_secs_f64())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
