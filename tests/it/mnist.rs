//! Which digit it is, learned through servers from a few images made for the purpose.

use std::fs;
use std::path::Path;

use tradewind_common::record::{StepRecord, Validation};
use tradewind_tests::cluster::run::Run;

const CLASSES: usize = 10;

fn idx(path: &Path, extents: &[usize], values: Vec<u8>) {
    let mut bytes = vec![0, 0, 8, extents.len() as u8];
    bytes.extend(
        extents
            .iter()
            .flat_map(|extent| (*extent as u32).to_be_bytes()),
    );
    bytes.extend(values);
    fs::write(path, bytes).unwrap();
}

/// Each digit is a bar at a place of its own, over noise: 120 images, and 40 to test.
fn digits(folder: &Path) {
    for (name, count) in [("train", 120), ("t10k", 40)] {
        let digit = |number: usize| (number * 7 + number / CLASSES) % CLASSES;
        let pixels = (0..count * 784).map(|at| {
            let (number, column) = (at / 784, at % 28);
            let bar = column / 2 == 2 + digit(number);
            ((at * 31 + number * 17) % 41 + if bar { 200 } else { 0 }) as u8
        });
        let path = |what: &str| folder.join(format!("{name}-{what}-ubyte"));
        idx(&path("images-idx3"), &[count, 28, 28], pixels.collect());
        let labels = (0..count).map(|number| digit(number) as u8);
        idx(&path("labels-idx1"), &[count], labels.collect());
    }
}

fn run(folder: &Path) -> Run {
    Run::new()
        .key("model.name", "\"mnist\"")
        .key("data.folder", format!("{:?}", folder.display().to_string()))
        .key("cluster.servers", "2")
        .key("cluster.groups", "[2, 1]")
        .key("train.consistency", "\"sync\"")
        .key("train.batch", "10")
        .key("train.samples", "2400")
        .key("optimizer.learning_rate", "0.1")
        .key("exchange.block_bytes", "8192")
        .key("exchange.bucket_bytes", "32768")
        .key("evaluation.every_samples", "600")
}

#[test]
fn groups_learn_digits_and_the_report_says_which_way_is_better() {
    let folder = tempfile::tempdir().unwrap();
    digits(folder.path());
    let ended = run(folder.path()).complete();
    assert!(ended.status.success(), "{}", ended.stderr);

    let summary = ended.summary();
    let metric = &summary["metric"];
    assert_eq!(metric["name"], "test accuracy");
    assert_eq!(
        (&metric["unit"], &metric["better"]),
        (&"%".into(), &"higher".into())
    );
    assert_eq!(metric["validation"]["name"], "validation cross-entropy");
    assert_eq!(metric["validation"]["unit"], "nat");
    assert_eq!(metric["baselines"][0]["name"], "most frequent digit");
    assert_eq!(metric["baselines"][0]["value"], 10.0);
    let accuracy = metric["value"].as_f64().unwrap();
    assert!(accuracy > 90.0, "{summary}");
    let better = format!("    {:.1} points", accuracy - 10.0);
    assert!(ended.stdout.contains(&better), "{better}: {}", ended.stdout);
    assert!(!ended.out().join("forecast.png").exists());

    // What targets are set on is measured along the way, and falls.
    let text = fs::read_to_string(ended.out().join("validation.jsonl")).unwrap();
    let rows = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let rows: Vec<Validation> = rows.collect();
    let samples: Vec<u64> = rows.iter().map(|row| row.samples).collect();
    assert_eq!(samples, [600, 1200, 1800, 2400]);
    assert!(
        rows.iter()
            .all(|row| row.measure.name == "validation cross-entropy")
    );
    assert!(
        rows[3].measure.value < 0.5 * rows[0].measure.value,
        "{rows:?}"
    );

    // When its last update was applied, and not when it was written or evaluated.
    let records = ended.records();
    for row in &rows {
        let reached = |r: &&StepRecord| r.samples_applied >= row.samples_applied.1;
        let clock = records.iter().filter(reached).map(|r| r.clock).min();
        let own = records.iter().filter(|r| Some(r.clock) == clock);
        let begun =
            |r: &StepRecord| r.wall - r.reduce_seconds - r.exchange_seconds - r.wait_seconds;
        let from = own.clone().map(begun).fold(f64::INFINITY, f64::min);
        let until = own.map(|r| r.wall).fold(0.0, f64::max);
        assert!(
            (from..=until).contains(&row.wall),
            "{row:?}: {from} to {until}"
        );
    }
}

#[test]
fn digits_that_are_not_there_are_told_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    digits(folder.path());
    let missing = folder.path().join("t10k-labels-idx1-ubyte");
    fs::remove_file(&missing).unwrap();
    let ended = run(folder.path()).complete();
    assert_eq!(ended.status.code(), Some(2), "{}", ended.stderr);
    for text in [missing.to_str().unwrap(), "`make mnist`"] {
        assert!(ended.stderr.contains(text), "{text}: {}", ended.stderr);
    }
    assert!(!ended.out().exists());
}
