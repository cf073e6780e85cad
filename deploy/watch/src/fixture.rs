//! Folders of runs that tests begin with.

use std::fs;
use std::path::Path;

use serde_json::json;
use tradewind_common::record::StepRecord;
use tradewind_common::record::fixture::run;

/// The configuration of a run of three groups of two ranks and two servers.
const CONFIG: &str = r#"[run]
name = "r"
[cluster]
servers = 2
groups = [2, 2, 2]
[servers]
replication = 2
[model]
name = "forecast"
[data]
files = ["a.nc"]
variable = "air_temperature"
history = 8
validation = [180, 200]
held_out = [200, 240]
[train]
samples = 12000
batch = 8
[optimizer]
name = "adam"
learning_rate = 1e-3
"#;

/// Makes a folder with nothing but a configuration.
pub(crate) fn folder(path: &Path) {
    fs::create_dir_all(path.join("logs")).unwrap();
    fs::write(path.join("config.toml"), CONFIG).unwrap();
}

/// A row for each, as a file of them has it.
pub(crate) fn lines<T: serde::Serialize>(rows: impl IntoIterator<Item = T>) -> String {
    let line = |row: T| serde_json::to_string(&row).unwrap() + "\n";
    rows.into_iter().map(line).collect()
}

/// Three groups that have made 100 exchanges each; the third was away for 40 s after half of them.
pub(crate) fn rows() -> Vec<StepRecord> {
    let mut rows = run(3, 100);
    for row in rows
        .iter_mut()
        .filter(|row| row.group == 2 && row.clock >= 50)
    {
        row.wall += 40.0;
    }
    rows.sort_by(|a, b| a.wall.total_cmp(&b.wall));
    rows
}

/// A run that has completed in spite of a server and a rank that died.
pub(crate) fn with_faults(path: &Path) {
    folder(path);
    let write = |name: &str, text: String| fs::write(path.join(name), text).unwrap();
    write("metrics.jsonl", lines(rows()));
    let event = |wall: f64, kind: &str, text: &str| json!({"wall": 1.7e9 + wall, "kind": kind, "text": text});
    write(
        "events.jsonl",
        lines([
            event(-2.0, "run_ready", "the run is ready"),
            event(9.0, "snapshot", "snapshot 1 is whole"),
            event(12.5, "process_died", "server 1 was killed by signal 9"),
            event(
                12.9,
                "promoted",
                "server 0 answers for shard 1: server 1 is gone",
            ),
            event(
                13.0,
                "process_restarted",
                "server 1 is started again, as life 2",
            ),
            event(
                22.0,
                "process_died",
                "rank 1 of group 2 was killed by signal 9",
            ),
            event(22.1, "group_reforms", "group 2 forms again"),
            json!({"wall": 1.7e9 + 30.0, "kind": "promoted", "text": "of another run", "run": "other"}),
        ]),
    );
    let validation = |samples: u64, value: f64| {
        json!({"samples": samples, "samples_applied": [samples, samples + 64], "updates": samples / 32,
               "wall": 1.7e9 + samples as f64 / 200.0,
               "measure": {"name": "validation RMSE", "unit": "K", "value": value}})
    };
    write(
        "validation.jsonl",
        lines([
            validation(3200, 1.5),
            validation(6400, 0.9),
            validation(9600, 0.75),
        ]),
    );
    let rank = |index: u32| {
        json!({"role": "worker", "index": index, "group": index / 2, "group_rank": index % 2, "pid": 4_000_000 + index,
               "address": "127.0.0.1", "life": 1 + u64::from(index == 5)})
    };
    let server = |index: u32| {
        json!({"role": "server", "index": index, "group": null, "group_rank": null, "pid": 4_100_000 + index,
               "address": format!("127.0.0.1:500{index}"), "life": 1 + index})
    };
    let processes: Vec<serde_json::Value> = (0..2).map(server).chain((0..6).map(rank)).collect();
    write("processes.json", serde_json::to_string(&processes).unwrap());
    let summary = json!({
        "status": "completed", "exit_status": 0, "failure": null, "train_seconds": 83.7,
        "samples": {"applied": 9600},
        "shards": [
            {"server": 0, "copies": [1], "bytes": 40_000, "blocks": 10, "updates": 2970, "version_min": 297, "version_max": 297},
            {"server": 0, "bytes": 36_000, "blocks": 9, "updates": 2673, "version_min": 296, "version_max": 297},
        ],
        "faults": {"lost": {"updates": 0, "samples": 0}},
    });
    write("summary.json", summary.to_string());
    write(
        "logs/server-1.log",
        "listening\nkilled, <b>not shown as markup</b>\n".into(),
    );
    write(
        "logs/group-2-rank-1.log",
        (0..3000).map(|n| format!("step {n}\n")).collect(),
    );
}
