//! Records that tests of their readers begin with.

use super::StepRecord;

/// A run of `groups` groups, each slower than the one before, with a noisy falling loss.
pub fn run(groups: u32, steps: u64) -> Vec<StepRecord> {
    let mut records = Vec::new();
    let mut noise = 1_u64;
    for group in 0..groups {
        let pace = 0.2 * (1.0 + 0.6 * f64::from(group));
        for clock in 0..steps {
            noise = noise.wrapping_mul(6364136223846793005).wrapping_add(1);
            let jitter = ((noise >> 40) as f64 / f64::from(1 << 24) - 0.5) * 0.4;
            let t = clock as f64 / steps as f64;
            let loss = (0.08 + 0.9 * (-12.0 * t).exp()) * (1.0 + jitter);
            records.push(StepRecord {
                wall: 1.7e9 + pace * clock as f64,
                group,
                clock,
                exchanges: 1,
                loss: (clock % 97 != 5).then_some(loss),
                samples: 32,
                samples_applied: 32 * u64::from(groups) * (clock + 1),
                updates: u64::from(groups) * clock + u64::from(group),
                lag: 0,
                delay: Some(1),
                dropped: 0,
                skipped: clock % 97 == 5,
                buckets_skipped: u64::from(clock % 97 == 5),
                local_steps: 1,
                local_skipped: 0,
                missed_pace: 0,
                overflowed: false,
                loss_scale: None,
                data_seconds: 0.0,
                staged_bytes: 0,
                staged_seconds: 0.0,
                compute_seconds: 0.1,
                reduce_seconds: 0.01,
                exchange_seconds: 0.02,
                exposed_seconds: 0.02,
                wait_seconds: 0.0,
                reduce_bytes_per_second: None,
                gpu: None,
            });
        }
    }
    records.sort_by(|a, b| a.wall.total_cmp(&b.wall));
    records
}
