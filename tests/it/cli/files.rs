//! A small form of the demo: what a run leaves behind exists and agrees with itself.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use safetensors::SafeTensors;
use serde_json::Value;
use tradewind_common::record::StepRecord;
use tradewind_config::Config;
use tradewind_tests::cluster::process::alive;
use tradewind_tests::cluster::run::{Ended, Run};

/// Two servers, a group of two ranks and one of one.
fn small() -> Run {
    Run::new()
        .key("cluster.servers", "2")
        .key("cluster.groups", "[2, 1]")
        .key("train.samples", "160")
}

#[test]
fn a_small_run_completes_and_its_files_agree() {
    files_agree(&small().complete(), 0);
}

#[test]
fn an_overlapping_run_completes_and_its_files_agree() {
    let run = small().argument("--set").argument("train.overlap=1");
    files_agree(&run.complete(), 1);
}

fn files_agree(ended: &Ended, overlap: u8) {
    assert!(ended.status.success(), "{}", ended.stderr);
    let summary = ended.summary();
    assert_eq!(summary["status"], "completed");
    assert_eq!(summary["failure"], Value::Null);
    assert_eq!(summary["faults"]["counts"], serde_json::json!({}));
    assert_eq!(summary["faults"]["lost"]["updates"], 0);
    let records = ended.records();
    groups_agree(&summary, &records);
    if overlap == 0 {
        // Nothing hides an exchange; the shards' own clock may say that it took no time but waited.
        let whole = |r: &StepRecord| r.exposed_seconds - r.exchange_seconds - r.wait_seconds;
        let hidden = |r: &&StepRecord| r.exchange_seconds > 0.0 && whole(r).abs() > 1e-6;
        assert_eq!(records.iter().find(hidden), None);
    }
    shards_agree(&summary, &records, &ended.json("evaluation.json"));
    parameters_agree(&summary, &ended.out().join("model.safetensors"));
    processes_agree(ended);
    the_configuration_reads_back(&ended.out().join("config.toml"), overlap);
    for picture in ["loss.png", "forecast.png"] {
        is_png(&ended.out().join(picture));
    }
    let svg = fs::read_to_string(ended.out().join("loss.svg")).unwrap();
    assert!(svg.contains("<svg") && svg.trim_end().ends_with("</svg>"));
    lines_are_plain(&ended.stdout);
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is no count"))
}

fn real(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

fn groups_agree(summary: &Value, records: &[StepRecord]) {
    let groups = summary["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 2);
    for (id, (group, ranks)) in groups.iter().zip([2, 1]).enumerate() {
        let own: Vec<_> = records.iter().filter(|r| r.group as usize == id).collect();
        assert_eq!(
            (number(&group["id"]), number(&group["ranks"])),
            (id as u64, ranks)
        );
        let clocks: Vec<u64> = own.iter().map(|r| r.clock).collect();
        let counted: Vec<u64> = (0..number(&group["clocks"])).collect();
        assert!(!counted.is_empty(), "group {id} has trained");
        assert_eq!(clocks, counted, "one line for each clock of group {id}");
        let samples: u64 = own.iter().map(|r| r.samples).sum();
        assert_eq!(number(&group["samples"]), samples);
        assert!(
            own.iter().all(|r| r.samples == 8 * ranks),
            "batches of 8 a rank"
        );
        assert_eq!(
            Some(number(&group["lag_max"])),
            own.iter().map(|r| r.lag).max()
        );
        // A group of one has no reductions; of two each is a part of a network's rate.
        let rates = own.iter().map(|r| r.reduce_bytes_per_second);
        assert!(
            rates.clone().all(|rate| match ranks {
                1 => rate.is_none(),
                _ => rate.is_some_and(|rate| rate.is_finite() && rate > 0.0),
            }),
            "{:?}",
            rates.collect::<Vec<_>>()
        );
        type Seconds = fn(&StepRecord) -> f64;
        let seconds: [(&str, Seconds); 6] = [
            ("data_seconds", |r| r.data_seconds),
            ("compute_seconds", |r| r.compute_seconds),
            ("reduce_seconds", |r| r.reduce_seconds),
            ("exchange_seconds", |r| r.exchange_seconds),
            ("exposed_seconds", |r| r.exposed_seconds),
            ("wait_seconds", |r| r.wait_seconds),
        ];
        for (key, of) in seconds {
            let sum: f64 = own.iter().map(|r| of(r)).sum();
            assert!(
                (real(&group[key]) - sum).abs() < 1e-6,
                "{key} of group {id}"
            );
        }
        let (p50, p99) = (real(&group["data_p50"]), real(&group["data_p99"]));
        let most = own.iter().map(|r| r.data_seconds).fold(0.0, f64::max);
        assert!(0.0 < p50 && p50 <= p99 && p99 <= most, "{p50} {p99} {most}");
        let utilization = real(&group["utilization"]);
        assert!(0.0 < utilization && utilization < 1.0, "{utilization}");
    }
    let applied: u64 = records.iter().map(|r| r.samples).sum();
    assert_eq!(number(&summary["samples"]["applied"]), applied);
    assert!(applied >= number(&summary["samples"]["budget"]));
    let first = records
        .iter()
        .min_by(|a, b| a.wall.total_cmp(&b.wall))
        .unwrap();
    assert_eq!(summary["loss"]["first"].as_f64(), first.loss);
    assert!(real(&summary["loss"]["final"]).is_finite());
    assert!(real(&summary["train_seconds"]) <= real(&summary["wall_seconds"]));
    let delay = &summary["delay"];
    let longest = records.iter().filter_map(|r| r.delay).max();
    assert_eq!(Some(number(&delay["max"])), longest);
    assert!(number(&delay["p50"]) <= number(&delay["p99"]));
    assert!(number(&delay["p99"]) <= number(&delay["max"]));
}

fn shards_agree(summary: &Value, records: &[StepRecord], evaluation: &Value) {
    let shards = summary["shards"].as_array().unwrap();
    let sum = |key: &str| shards.iter().map(|shard| number(&shard[key])).sum::<u64>();
    let exchanges = records.len() as u64;
    for (server, shard) in shards.iter().enumerate() {
        assert_eq!(number(&shard["server"]), server as u64);
        assert_eq!(
            number(&shard["version_min"]),
            exchanges,
            "one update an exchange"
        );
        assert_eq!(number(&shard["version_max"]), exchanges);
        let updates = exchanges * number(&shard["blocks"]);
        assert_eq!(number(&shard["updates"]), updates);
    }
    assert_eq!(shards.len(), 2);
    let updates = &summary["updates"];
    assert_eq!(number(&updates["applied"]), exchanges * sum("blocks"));
    for none in ["skipped", "dropped", "duplicate", "refused"] {
        assert_eq!(number(&updates[none]), 0, "{none}");
    }
    assert_eq!(sum("bytes"), 4 * number(&evaluation["parameters"]));
    let metric = &summary["metric"];
    assert_eq!(metric["value"], evaluation["metric"]["value"]);
    assert_eq!(metric["unit"], "K");
    assert!(real(&metric["value"]) > 0.0 && real(&metric["value"]).is_finite());
    let baselines = metric["baselines"].as_array().unwrap();
    assert_eq!(baselines.len(), 3);
}

/// BLAKE3 of all parameters in name order, computed from the file.
fn parameters_agree(summary: &Value, model: &Path) {
    let bytes = fs::read(model).unwrap();
    let model = SafeTensors::deserialize(&bytes).unwrap();
    let mut names = model.names();
    names.sort();
    let mut hasher = blake3::Hasher::new();
    for name in names {
        hasher.update(model.tensor(name).unwrap().data());
    }
    let digest = hasher.finalize().to_hex().to_string();
    assert_eq!(summary["params_digest"], digest.as_str());
    assert_eq!(summary["version"], env!("CARGO_PKG_VERSION"));
    let libtorch = summary["libtorch"].as_str().unwrap();
    assert!(libtorch.starts_with("2.11."), "{libtorch}");
}

fn processes_agree(ended: &Ended) {
    let rows = ended.processes();
    let processes: Vec<_> = rows
        .iter()
        .map(|row| (row.role.as_str(), row.index, row.group, row.group_rank))
        .collect();
    let want = [
        ("server", 0, None, None),
        ("server", 1, None, None),
        ("worker", 0, Some(0), Some(0)),
        ("worker", 1, Some(0), Some(1)),
        ("worker", 2, Some(1), Some(0)),
    ];
    assert_eq!(processes, want);
    let pids: BTreeSet<u32> = rows.iter().map(|row| row.pid).collect();
    assert_eq!(pids.len(), rows.len());
    for row in &rows {
        assert!(!alive(row.pid), "{row:?} is still there");
    }
    for server in &rows[..2] {
        let address: std::net::SocketAddr = server.address.parse().unwrap();
        assert_ne!(address.port(), 0);
    }
    let logs = [
        "check",
        "evaluate",
        "server-0",
        "server-1",
        "group-0-rank-0",
        "group-0-rank-1",
        "group-1-rank-0",
    ];
    let token = fs::read_to_string(ended.out().join("token")).unwrap();
    for log in logs {
        let text = fs::read_to_string(ended.out().join(format!("logs/{log}.log"))).unwrap();
        assert!(!text.contains(&token), "{log} tells the token");
    }
}

fn the_configuration_reads_back(path: &Path, overlap: u8) {
    let text = fs::read_to_string(path).unwrap();
    let config = Config::parse(&text, "config.toml", Path::new("/nowhere"), &[]).unwrap();
    assert_eq!(config.resolved(), text);
    assert_eq!(config.cluster.groups, [2, 1]);
    assert_eq!(config.train.samples, 160);
    assert_eq!(config.train.overlap, overlap == 1);
}

fn is_png(path: &Path) {
    let bytes = fs::read(path).unwrap();
    assert_eq!(&bytes[..8], b"\x89PNG\r\n\x1a\n", "{}", path.display());
    // The header chunk: length, name, width, height.
    let extent = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!(&bytes[12..16], b"IHDR");
    assert!(extent(16) > 100 && extent(20) > 100, "{}", path.display());
}

/// A file or a pipe gets lines, without what moves a cursor.
fn lines_are_plain(stdout: &str) {
    for group in ["group 0: clock ", "group 1: clock "] {
        assert!(stdout.contains(group), "{stdout}");
    }
    assert!(stdout.contains("persistence"), "{stdout}");
    assert!(!stdout.contains(['\r', '\x1b']), "{stdout:?}");
}

#[test]
fn overrides_win_and_a_former_run_is_moved_aside() {
    let first = Run::new().key("train.samples", "8").complete();
    assert!(first.status.success(), "{}", first.stderr);
    let settings = ["--set", "train.samples=16", "--set", "run.name=second"];
    let again = settings
        .iter()
        .fold(first.again(), |run, set| run.argument(*set));
    let second = again.complete();
    assert!(second.status.success(), "{}", second.stderr);
    let (new, old) = (second.out(), second.out().with_file_name("out-1"));
    let told = |text: &str| assert!(second.stdout.contains(text), "{}", second.stdout);
    told("a former run of this name");
    told(&old.display().to_string());
    for (folder, name, samples) in [(old, "small", 8), (new, "second", 16)] {
        let text = fs::read_to_string(folder.join("summary.json")).unwrap();
        let summary: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(summary["run"], name);
        assert_eq!(summary["samples"]["budget"], samples);
        assert_eq!(summary["samples"]["applied"], samples);
    }
}
