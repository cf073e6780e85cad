//! What measurements of readers have in common.

use std::sync::Arc;
use std::time::Instant;

use tradewind_data::{Ahead, Batch, DataError, Memory, Readers, Source, read_batch};

/// Bytes of a sample: f32, 4 × 128 × 128.
pub const SAMPLE: usize = 4 * 4 * 128 * 128;

const BATCH: usize = 4;

type Done = Result<Batch<Vec<u8>>, DataError>;

/// All samples once, in an order that is no file's.
pub fn order(samples: usize) -> Vec<usize> {
    (0..samples).map(|at| at * 7919 % samples).collect()
}

/// Samples a second of so many readers, in batches of 4.
#[expect(clippy::disallowed_methods, reason = "it measures")]
pub fn rate(
    source: &Arc<dyn Source>,
    threads: usize,
    samples: usize,
) -> Result<f64, Box<dyn std::error::Error>> {
    let reading = Arc::clone(source);
    let read =
        move |samples: &Vec<usize>| -> Done { read_batch(&*reading, samples, &mut Memory {}) };
    let ahead = Ahead {
        readers: threads,
        batches: 2 * threads + 2,
        bytes: 1 << 30,
    };
    let mut readers = Readers::new(ahead, read, |samples: &Vec<usize>| samples.len() * SAMPLE);
    let all = order(samples);
    let mut batches = all.chunks(BATCH);
    let from = Instant::now();
    loop {
        while readers.room() > 0 {
            let Some(batch) = batches.next() else { break };
            readers.request(batch.to_vec())?;
        }
        match readers.next() {
            Some(batch) => drop(batch??),
            None => break,
        }
    }
    Ok(samples as f64 / from.elapsed().as_secs_f64())
}

/// The middle one.
pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
