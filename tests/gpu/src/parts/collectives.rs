//! Groups of 1, 2 and 4 ranks on one device: sums are those of the CPU.

use std::time::Duration;

use anyhow::Context;
use serde_json::{Map, Value};
use tradewind_worker::c10d::Store;

use crate::cluster::apart;
use crate::options::{Options, Planted};
use crate::process::{Process, own, read_json};
use crate::report::Teller;

/// How long ranks may take to meet and to reduce.
const LIMIT: Duration = Duration::from_secs(40);

/// Of sums of four f32 in whatever order, relative to their size.
const TOLERANCE: f64 = 1e-6;

pub(super) fn run(options: &Options, teller: &Teller) -> anyhow::Result<()> {
    for size in [1, 2, 4] {
        let found = group(options, size)?;
        let name = format!("{size}_ranks");
        for (what, value) in &found {
            if let Some(distance) = value.as_f64().filter(|_| what.ends_with("_distance")) {
                teller.demand(distance <= TOLERANCE, || {
                    format!("{size} ranks: {what} = {distance:.1e} is more than {TOLERANCE:.0e}")
                });
            }
        }
        let exact = found.get("integers_exact").and_then(Value::as_bool) == Some(true);
        teller.demand(exact, || {
            format!("{size} ranks: a sum of integers is not exact")
        });
        teller.figure(name, found);
    }
    Ok(())
}

/// The worst of what the ranks have found.
fn group(options: &Options, size: u32) -> anyhow::Result<Map<String, Value>> {
    let folder = options.folder(&format!("collectives-{size}"))?;
    let store = Store::serve("127.0.0.1", options.patience(LIMIT))?;
    let mut ranks = Vec::new();
    for rank in 0..size {
        let mut arguments = vec![
            "rank".to_owned(),
            format!("--size={size}"),
            format!("--rank={rank}"),
            format!("--port={}", store.port()),
            format!("--device={}", options.device_key().trim_matches('"')),
            format!("--bytes={}", options.size(40_000_000, 400_000)),
            format!("--out={}", folder.join(format!("{rank}.json")).display()),
        ];
        if options.plant == Some(Planted::WrongSum) && rank + 1 == size {
            arguments.push("--wrong".into());
        }
        let mut command = own(&arguments)?;
        apart(&mut command, &rank.to_string());
        ranks.push(Process::start(&format!("rank-{rank}"), command, &folder)?);
    }
    for rank in ranks {
        rank.finish(options.patience(LIMIT))?;
    }
    let mut worst = Map::new();
    for rank in 0..size {
        let found = read_json(&folder.join(format!("{rank}.json")))?;
        for (name, value) in found.as_object().context("a rank tells an object")? {
            let worse = match (worst.get(name), value) {
                (Some(Value::Number(known)), Value::Number(new)) => known.as_f64() < new.as_f64(),
                (Some(Value::Bool(known)), Value::Bool(new)) => *known && !new,
                (Some(_), _) => false,
                (None, _) => true,
            };
            if worse {
                worst.insert(name.clone(), value.clone());
            }
        }
    }
    Ok(worst)
}
