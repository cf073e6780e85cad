//! How fast a vector goes from the device to the servers and back, beside one in main memory.

use std::time::Duration;

use anyhow::Context;
use serde_json::json;
use tradewind_common::record::StepRecord;

use super::median;
use crate::cluster::{Cluster, Ranks};
use crate::options::{Keys, Options};
use crate::report::Teller;

const LIMIT: Duration = Duration::from_secs(40);

/// Steps that are not counted: memory is used for the first time.
const WARMUP: usize = 2;

pub(super) fn run(options: &Options, teller: &Teller) -> anyhow::Result<()> {
    let servers = options.size(4, 1);
    teller.figure("servers", servers);
    for (name, bytes, steps) in options.size(
        [("100_mb", 100_000_000, 20), ("1_gb", 1_000_000_000, 6)],
        [("100_kb", 100_000, 4), ("1_mb", 1_000_000, 4)],
    ) {
        for (place, device) in [("device", options.device_key()), ("main_memory", "\"cpu\"")] {
            let name = format!("{place}_{name}");
            let keys = Keys::common(options, "check")
                .resnet(options, 8, 2)
                .with("compute.device", device)
                .with("cluster.servers", servers)
                .with("train.batch", 1)
                .with("train.samples", WARMUP + steps)
                .with("exchange.bucket_bytes", 4 << 20);
            let cluster = Cluster::start(options, &name, &keys, Ranks::Bulk(bytes))?;
            let records = cluster
                .finish(options.patience(LIMIT))
                .with_context(|| name.clone())?;
            anyhow::ensure!(records.len() > WARMUP + 1, "{name}: too few exchanges");
            let timed = &records[WARMUP..];
            let took = |record: &StepRecord| record.exchange_seconds + record.wait_seconds;
            let exchange = median(timed.iter().map(took).collect());
            let steps = timed.windows(2).map(|pair| pair[1].wall - pair[0].wall);
            let step = median(steps.collect());
            let rate = |seconds: f64| 2.0 * bytes as f64 / seconds / 1e9;
            teller.figure(
                name,
                json!({
                    "bytes": bytes,
                    "exchange_seconds": exchange,
                    "exchange_gb_per_second": rate(exchange),
                    "step_seconds": step,
                    "step_gb_per_second": rate(step),
                }),
            );
        }
    }
    Ok(())
}
