//! Losses as the fleet tells them.

use std::path::Path;

use serde_json::Value;
use tradewind_history::Loss;

/// What `events.jsonl` says was lost: each `updates_lost` adds to what was told of its lineage.
///
/// # Panics
/// If the file has something that is no event.
pub(super) fn told(folder: &Path) -> Vec<Loss> {
    let text = std::fs::read_to_string(folder.join("events.jsonl")).unwrap_or_default();
    let event = |line: &str| serde_json::from_str::<Value>(line).expect("a line of events.jsonl");
    text.lines().map(event).filter_map(|event| of(&event)).collect()
}

fn of(event: &Value) -> Option<Loss> {
    if event["kind"] != "updates_lost" {
        return None;
    }
    let number = |key: &str| {
        let number = event[key].as_u64();
        number.unwrap_or_else(|| panic!("a loss without {key}: {event}"))
    };
    Some(Loss {
        shard: number("shard") as u32,
        lineage: number("lineage"),
        updates: number("lost_updates"),
        samples: number("lost_samples"),
        too_high_max: 0,
    })
}
