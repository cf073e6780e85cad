//! Workloads that are known: what a sample is made of, and how long a step computes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ValueEnum;
use serde::Serialize;
use tradewind_common::mix::mixed;
use tradewind_data::{DataError, Field, Kind, Room, Rows, Source, batch_bytes};

/// A row of UNet3D's samples.
const ROW_BYTES: usize = 1 << 20;

/// Of UNet3D's samples, in rows: 146,600,628 ± 68,341,808 bytes in DLIO's configuration, and no more than twice
/// the mean.
const ROWS: (f64, f64) = (139.8, 65.2);
const ROWS_MAX: usize = 279;

/// Networks whose input is replayed. Batches, step times and thresholds are those of DLIO's configurations for MLPerf
/// Storage; samples are as they are trained on, not compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// 3D volumes of 16.8 MB, one a step.
    Cosmoflow,
    /// 3D images of 147 MB on average, of many sizes, 7 a step.
    Unet3d,
    /// Images of 151 KB, 400 a step.
    Resnet50,
}

/// What the network would be computed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Accelerator {
    /// NVIDIA A100.
    A100,
    /// NVIDIA H100.
    H100,
}

impl Accelerator {
    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::A100 => "A100",
            Self::H100 => "H100",
        }
    }
}

impl Workload {
    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cosmoflow => "cosmoflow",
            Self::Unet3d => "unet3d",
            Self::Resnet50 => "resnet50",
        }
    }

    /// What a sample is made of.
    pub fn fields(self) -> Vec<Field> {
        match self {
            Self::Cosmoflow => vec![
                Field::new("volume", Kind::I16, &[4, 128, 128, 128]),
                Field::new("target", Kind::F32, &[4]),
            ],
            Self::Unet3d => vec![Field::varying("image", Kind::U8, &[ROW_BYTES], ROWS_MAX)],
            Self::Resnet50 => vec![
                Field::new("image", Kind::U8, &[3, 224, 224]),
                Field::new("label", Kind::I32, &[]),
            ],
        }
    }

    /// The layout of HDF5 files that [`tradewind_data::hdf5::write_sample`] makes of it.
    pub fn layout(self) -> String {
        let item = |field: &Field| match field.rows {
            Rows::One => format!("{0}={0}", field.name),
            Rows::Varying { most } => format!("{0}={0}[rows<={most}]", field.name),
        };
        let items: Vec<String> = self.fields().iter().map(item).collect();
        items.join(",")
    }

    /// Samples of a rank in a step.
    pub fn batch(self) -> usize {
        match self {
            Self::Cosmoflow => 1,
            Self::Unet3d => 7,
            Self::Resnet50 => 400,
        }
    }

    /// How long a step computes.
    pub fn step_seconds(self, on: Accelerator) -> f64 {
        match (self, on) {
            (Self::Cosmoflow, Accelerator::A100) => 0.005_51,
            (Self::Cosmoflow, Accelerator::H100) => 0.003_50,
            (Self::Unet3d, Accelerator::A100) => 0.636,
            (Self::Unet3d, Accelerator::H100) => 0.323,
            (Self::Resnet50, Accelerator::A100) => 0.435,
            (Self::Resnet50, Accelerator::H100) => 0.224,
        }
    }

    /// What part of the time the accelerator has to compute for a storage to pass.
    pub fn threshold(self) -> f64 {
        match self {
            Self::Cosmoflow => 0.70,
            Self::Unet3d | Self::Resnet50 => 0.90,
        }
    }

    /// Bytes of a sample, on average.
    pub fn sample_bytes(self) -> usize {
        match self {
            Self::Unet3d => (ROWS.0 * ROW_BYTES as f64) as usize,
            Self::Cosmoflow | Self::Resnet50 => self.sample_bytes_max(),
        }
    }

    /// Bytes of the largest sample.
    pub fn sample_bytes_max(self) -> usize {
        batch_bytes(&self.fields(), 1)
    }
}

/// Random samples of a workload, the same ones every time.
pub struct Drawn {
    workload: Workload,
    fields: Vec<Field>,
    samples: usize,
    stop: Arc<AtomicBool>,
}

/// Ends the reading of what it belongs to, when it is dropped.
pub struct StopsReading(Arc<AtomicBool>);

impl Drop for StopsReading {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Drawn {
    pub fn new(workload: Workload, samples: usize) -> Self {
        Self {
            workload,
            fields: workload.fields(),
            samples,
            stop: Arc::default(),
        }
    }

    /// Whoever waits for the reading holds it.
    pub fn stops(&self) -> StopsReading {
        StopsReading(Arc::clone(&self.stop))
    }

    /// Rows of a sample: near enough to normal by the sum of four uniform draws.
    fn rows(sample: usize) -> usize {
        let uniform = |part| mixed(sample as u64, [part]) as f64 / u64::MAX as f64 - 0.5;
        let normal = (0..4).map(uniform).sum::<f64>() * 3f64.sqrt();
        let rows = (ROWS.0 + ROWS.1 * normal).round();
        rows.clamp(1.0, ROWS_MAX as f64) as usize
    }

    /// Bytes of the fields of all samples.
    pub fn bytes(&self) -> u64 {
        let bytes = |sample| match self.workload {
            Workload::Unet3d => Self::rows(sample) * ROW_BYTES,
            Workload::Cosmoflow | Workload::Resnet50 => self.workload.sample_bytes(),
        };
        (0..self.samples).map(|sample| bytes(sample) as u64).sum()
    }
}

impl Source for Drawn {
    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn len(&self) -> usize {
        self.samples
    }

    fn name(&self, sample: usize) -> String {
        format!("{} {sample}", self.workload.name())
    }

    fn read(&self, sample: usize, rooms: &mut [Room<'_>]) -> Result<(), DataError> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(DataError::Asked("it was stopped".into()));
        }
        for (number, (field, room)) in self.fields.iter().zip(rooms).enumerate() {
            let bytes = match room {
                Room::One(bytes) => &mut **bytes,
                Room::Varying(rows) => rows.add(Self::rows(sample) * field.row_bytes()),
            };
            let seed = mixed(sample as u64, [number as u64]);
            draw(field.kind, seed, bytes);
        }
        Ok(())
    }
}

/// Numbers that do not repeat, so that nothing between here and the disk makes them smaller.
fn draw(kind: Kind, seed: u64, bytes: &mut [u8]) {
    if kind == Kind::F32 {
        for (at, number) in bytes.chunks_exact_mut(4).enumerate() {
            let uniform = mixed(seed, [at as u64]) as f32 / u64::MAX as f32;
            number.copy_from_slice(&uniform.to_le_bytes());
        }
        return;
    }
    for (at, some) in bytes.chunks_mut(8).enumerate() {
        let bits = mixed(seed, [at as u64]).to_le_bytes();
        some.copy_from_slice(&bits[..some.len()]);
    }
}

#[cfg(test)]
mod tests {
    use tradewind_data::{Layout, Memory, read_batch};

    use super::*;

    #[test]
    fn samples_have_the_sizes_of_the_workloads() {
        let sizes = Workload::value_variants()
            .iter()
            .map(|is| is.sample_bytes());
        let sizes: Vec<usize> = sizes.collect();
        assert_eq!(sizes, [16_777_232, 146_590_924, 150_532]);
        for workload in Workload::value_variants() {
            workload.layout().parse::<Layout>().unwrap();
        }
    }

    #[test]
    fn rows_spread_as_those_of_unet3d() {
        let all: Vec<f64> = (0..2000).map(|sample| Drawn::rows(sample) as f64).collect();
        let mean = all.iter().sum::<f64>() / 2000.0;
        let square = all.iter().map(|rows| (rows - mean).powi(2)).sum::<f64>() / 2000.0;
        assert!((mean - ROWS.0).abs() < 5.0, "{mean}");
        assert!((square.sqrt() - ROWS.1).abs() < 5.0, "{}", square.sqrt());
        let drawn = Drawn::new(Workload::Unet3d, 3);
        let rows: usize = (0..3).map(Drawn::rows).sum();
        assert_eq!(drawn.bytes(), (rows * ROW_BYTES) as u64);
    }

    #[test]
    fn samples_differ_and_come_again() {
        let drawn = Drawn::new(Workload::Resnet50, 5);
        let read = || read_batch(&drawn, &[3, 4], &mut Memory {}).unwrap();
        let images = |batch: &tradewind_data::Batch<Vec<u8>>| batch.columns[0].values.clone();
        let (first, again) = (images(&read()), images(&read()));
        assert!(first == again);
        let (one, other) = first.split_at(first.len() / 2);
        assert!(one != other);
        drop(drawn.stops());
        let stopped = read_batch(&drawn, &[3], &mut Memory {}).unwrap_err();
        assert_eq!(stopped.to_string(), "it was stopped");
        let mut target = [0; 400];
        draw(Kind::F32, 1, &mut target);
        let field = Field::new("target", Kind::F32, &[100]);
        field.check(&target).unwrap();
    }
}
