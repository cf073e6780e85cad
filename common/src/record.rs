//! What a group writes down after each exchange, and what an evaluation found: the rows of
//! `metrics.jsonl` and the content of `evaluation.json`. Written by workers, read by `tradewind`.

#[doc(hidden)]
pub mod fixture;

use serde::{Deserialize, Deserializer, Serialize};

/// A `metrics.jsonl` that has become longer is moved aside by whoever leads the run, and whoever writes
/// goes on in a new one; older ones are thinned.
pub const METRICS_PART_BYTES: u64 = 32 << 20;

/// One line of `metrics.jsonl`: one exchange of one group. Times are those of group_rank 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Wall time at the end of the exchange of this step's gradient, seconds since the Unix epoch.
    pub wall: f64,
    /// The group.
    pub group: u32,
    /// The clock that the exchange had.
    pub clock: u64,
    /// Exchanges that it tells of: more than 1 where rows were merged, into that of the last of them.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub exchanges: u64,
    /// Mean training loss over the group's samples of this step; `null` if it was not finite.
    pub loss: Option<f64>,
    /// Samples in this step, over all ranks of the group.
    pub samples: u64,
    /// Samples applied to the run so far, as the shards reported with this exchange.
    pub samples_applied: u64,
    /// Updates applied to the run so far: the largest version among the blocks that came back.
    pub updates: u64,
    /// Exchanges behind the fastest live group, as measured by the shards (the largest of all blocks).
    pub lag: u64,
    /// Updates applied between the pull that the gradient was computed on and its own
    /// application (the largest of all blocks); `null` for a skipped step.
    pub delay: Option<u64>,
    /// Blocks whose gradient a policy left out, by its delay or because the others had gone on.
    #[serde(default)]
    pub dropped: u64,
    /// Whether the group sent `skip` because its gradient was not finite: for all of its blocks.
    pub skipped: bool,
    /// Buckets for whose blocks it did, the model's buffers counted as one: without
    /// `exchange.per_bucket` all or none.
    pub buckets_skipped: u64,
    /// Whether it did because gradients of the scaled loss overflowed in f16.
    #[serde(default)]
    pub overflowed: bool,
    /// What the loss of this step was multiplied by; `null` where it is not scaled.
    #[serde(default)]
    pub loss_scale: Option<f64>,
    /// Steps of this exchange: several where the group takes some between exchanges, and then the
    /// loss is their mean, and times and samples are of all of them.
    #[serde(default = "one")]
    pub local_steps: u64,
    /// Those of them that were left out, because their gradient was not finite.
    #[serde(default)]
    pub local_skipped: u64,
    /// Seconds that the step waited for its batch.
    #[serde(default)]
    pub data_seconds: f64,
    /// Bytes of files of samples that ranks of the group have copied to disks of their nodes since the
    /// last step.
    #[serde(default)]
    pub staged_bytes: u64,
    /// Seconds that took, summed over threads and ranks: beside steps, which wait for a file only when
    /// they need it.
    #[serde(default)]
    pub staged_seconds: f64,
    /// Seconds in forward and backward, without `reduce_seconds`.
    pub compute_seconds: f64,
    /// Steps in which the computation of a rank of the group took longer than its pace, with what a
    /// straggler's step is multiplied with; 0 without a pace.
    #[serde(default)]
    pub missed_pace: u64,
    /// Seconds in reductions that were not hidden behind backward, in agreement, and in the gather
    /// that ended the step: with overlap that of the values of the exchange before.
    pub reduce_seconds: f64,
    /// Seconds in the exchange, without `wait_seconds`; with `exchange.per_bucket` from the
    /// beginning of backward.
    pub exchange_seconds: f64,
    /// Seconds that the group stood still for the exchange: all of it, or with overlap what the
    /// computation of the next step did not hide, or with `exchange.per_bucket` backward.
    pub exposed_seconds: f64,
    /// Seconds that the slowest block of the exchange was held back by the consistency policy, as
    /// the shards measured it.
    pub wait_seconds: f64,
    /// Bus bandwidth of the reductions of this step's gradient, bytes a second, as NCCL's tests
    /// define it: 2 (N − 1) / N · bytes / seconds for N ranks, so that it compares with the links
    /// whatever N is. Absent where the group has not measured the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reduce_bytes_per_second: Option<f64>,
    /// The GPU of group_rank 0; absent without one, or without NVML.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<Gpu>,
}

/// What records of runs that knew no local steps leave out.
fn one() -> u64 {
    1
}

/// Rows that were not merged say nothing of it.
fn is_one(exchanges: &u64) -> bool {
    *exchanges == 1
}

impl StepRecord {
    /// When the step began, seconds since the Unix epoch.
    pub fn begun(&self) -> f64 {
        let computed = self.data_seconds + self.compute_seconds + self.reduce_seconds;
        self.wall - computed - self.exchange_seconds - self.wait_seconds
    }

    /// One row for an exchange of a group and a later one of it: sums stay sums and greatest values
    /// greatest, the loss is the mean over the exchanges that had one. What was so at a moment is as it
    /// was at the later one.
    pub fn and(self, later: Self) -> Self {
        let mean = |of: fn(&Self) -> Option<f64>| {
            let known = [(of(&self), self.exchanges), (of(&later), later.exchanges)];
            let known = known.into_iter().filter_map(|(x, n)| Some((x?, n as f64)));
            let (sum, weight) = known.fold((0.0, 0.0), |(s, w), (x, n)| (s + x * n, w + n));
            (weight > 0.0).then_some(sum / weight)
        };
        Self {
            loss: mean(|record| record.loss),
            reduce_bytes_per_second: mean(|record| record.reduce_bytes_per_second),
            exchanges: self.exchanges + later.exchanges,
            samples: self.samples + later.samples,
            lag: self.lag.max(later.lag),
            delay: self.delay.max(later.delay),
            dropped: self.dropped + later.dropped,
            buckets_skipped: self.buckets_skipped + later.buckets_skipped,
            local_steps: self.local_steps + later.local_steps,
            local_skipped: self.local_skipped + later.local_skipped,
            missed_pace: self.missed_pace + later.missed_pace,
            data_seconds: self.data_seconds + later.data_seconds,
            staged_bytes: self.staged_bytes + later.staged_bytes,
            staged_seconds: self.staged_seconds + later.staged_seconds,
            compute_seconds: self.compute_seconds + later.compute_seconds,
            reduce_seconds: self.reduce_seconds + later.reduce_seconds,
            exchange_seconds: self.exchange_seconds + later.exchange_seconds,
            exposed_seconds: self.exposed_seconds + later.exposed_seconds,
            wait_seconds: self.wait_seconds + later.wait_seconds,
            ..later
        }
    }
}

/// A rank's GPU as NVML sees it, at most a second or so before the record was written.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gpu {
    /// Memory that the rank's process uses on it, bytes; absent where the driver does not tell, as
    /// in a container that has process numbers of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Memory that all processes use on it, bytes.
    pub device_memory_bytes: u64,
    /// Memory that it has, bytes.
    pub device_memory_bytes_total: u64,
    /// Part of the last sampling period of the driver (1/6 to 1 s) in which a kernel ran, 0 to 1;
    /// absent where the driver does not tell, as of a part of a GPU (MIG).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization: Option<f64>,
}

/// A quantity with its name and unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// Such as `held-out RMSE`.
    pub name: String,
    /// Such as `K`; empty for a pure number.
    pub unit: String,
    /// The value; what is not finite is written as `null`.
    #[serde(deserialize_with = "null_is_nan")]
    pub value: f64,
}

fn null_is_nan<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(from)?.unwrap_or(f64::NAN))
}

/// Which way a metric is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// An error.
    #[default]
    Lower,
    /// Such as an accuracy.
    Higher,
}

/// One line of `validation.jsonl`: the servers' parameters as they were when a number of samples had
/// been applied, evaluated on the validation split after the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Validation {
    /// Each block is as after the first update with which it had so many applied samples: a
    /// multiple of `evaluation.every_samples`.
    pub samples: u64,
    /// Samples that blocks had applied then: the least and the most of them.
    pub samples_applied: (u64, u64),
    /// Updates of the block that had most.
    pub updates: u64,
    /// When the last block had come so far, seconds since the Unix epoch.
    pub wall: f64,
    /// What settings are compared by: [`Evaluation::validation`] as it was then.
    pub measure: Measure,
}

/// What an evaluation of the servers' parameters found: `evaluation.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// The metric on the held-out split.
    pub metric: Measure,
    /// Which way it is better.
    #[serde(default)]
    pub better: Better,
    /// What settings are compared by, on the validation split: the same metric, or the loss where
    /// the metric is coarse. Less is better.
    pub validation: Measure,
    /// The metric of simple forecasts on the same held-out samples.
    pub baselines: Vec<Measure>,
    /// The metric and the baselines for each part of the held-out split, such as one file.
    pub parts: Vec<Part>,
    /// BLAKE3 of all parameters, little-endian f32 in name order, as hex.
    pub params_digest: String,
    /// Number of f32 parameters.
    pub parameters: u64,
    /// Version of the libtorch that evaluated, which is that of the ranks of the same build.
    #[serde(default)]
    pub libtorch: String,
    /// Of the network and then of each baseline, where two classes are told apart by a threshold; else none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curves: Vec<Curve>,
    /// Of each quantity, where numbers are told; else none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scatters: Vec<Scatter>,
    /// What the picture shows, such as `A1B 2080`; its maps are in `forecast.safetensors`. Empty
    /// for a task without maps.
    pub picture: String,
}

/// The metric on one part of the held-out split.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Such as the file's stem.
    pub name: String,
    /// The metric on it.
    pub value: f64,
    /// The baselines on it, in the order of [`Evaluation::baselines`].
    pub baselines: Vec<f64>,
}

/// The rates that thresholds have when two classes are told apart: the receiver operating characteristic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Such as that of a baseline.
    pub name: String,
    /// The rate of false positives and that of true ones, from 0 to 1, in increasing order; of close ones some.
    pub rates: Vec<(f64, f64)>,
}

/// What a model tells of one quantity beside what is true.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scatter {
    /// Of the quantity.
    pub name: String,
    /// What is true of a held-out sample, and what is told; of many samples some.
    pub points: Vec<(f64, f64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_finite_can_be_read_again() {
        let measure = |value| Measure {
            name: "validation RMSE".into(),
            unit: "K".into(),
            value,
        };
        let again = |measure: &Measure| {
            let text = serde_json::to_string(measure).unwrap();
            serde_json::from_str::<Measure>(&text).unwrap()
        };
        assert_eq!(again(&measure(0.5)), measure(0.5));
        assert!(again(&measure(f64::NAN)).value.is_nan());
        let without = r#"{"name": "validation RMSE", "unit": "K"}"#;
        serde_json::from_str::<Measure>(without).unwrap_err();
    }
}
