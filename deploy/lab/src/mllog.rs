//! `tradewind report --mllog`: runs of DeepCAM and CosmoFlow in the form of MLPerf's logs.
//!
//! Keys and rules are those of MLPerf HPC 3.0 (mlcommons/training_policies, `hpc_training_rules.adoc`), open division. No
//! log is a result of MLPerf: nobody has verified it.

use std::path::Path;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use tradewind_common::record::Validation;
use tradewind_config::{Cosmoflow, Deepcam};
use tradewind_folder::found::FoundRun;
use tradewind_process::whole;

use crate::file::Goal;
use crate::keys::keys_of;
use crate::reading::Reading;

/// Of so many runs the fastest and the slowest do not count.
const OLYMPIC: usize = 5;

/// A benchmark of MLPerf HPC.
struct Benchmark {
    /// As MLPerf names it.
    name: &'static str,
    /// The key of what is measured.
    key: &'static str,
    /// From what is measured here to that.
    measure: fn(f64) -> f64,
    /// MLPerf's target, of what is measured here.
    target: Goal,
}

const COSMOFLOW: Benchmark = Benchmark {
    name: "cosmoflow",
    key: "eval_error",
    measure: |mae| mae,
    target: Goal::AtMost(0.124),
};

const DEEPCAM: Benchmark = Benchmark {
    name: "deepcam",
    key: "eval_accuracy",
    measure: |one_minus_iou| 1.0 - one_minus_iou,
    target: Goal::AtMost(0.18),
};

/// Numbers of samples.
#[derive(Clone, Copy, Debug)]
struct Splits {
    train: usize,
    validation: usize,
}

/// Writes a log for each run, `result_0.txt` and so on, into a folder; what they come to, in words.
pub fn write(runs: &[(String, Reading)], goal: Option<Goal>, out: &Path) -> anyhow::Result<String> {
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let mut seconds = Vec::new();
    for (number, (name, reading)) in runs.iter().enumerate() {
        let folder = Path::new(name);
        let begun = begun(folder, reading)?;
        let (benchmark, splits) = benchmark(reading).with_context(|| name.clone())?;
        let log =
            Log::of(reading, &benchmark, goal, splits, begun).with_context(|| name.clone())?;
        whole::write(&out.join(format!("result_{number}.txt")), &log.text)?;
        seconds.push(log.seconds);
    }
    Ok(format!("{}; logs are in {}", told(&seconds), out.display()))
}

/// When the command began, seconds since the Unix epoch.
fn begun(folder: &Path, reading: &Reading) -> anyhow::Result<f64> {
    let begun = FoundRun::find(Some(folder))?.begun();
    let begun = begun.filter(|begun| *begun <= reading.begun());
    begun.with_context(|| {
        let folder = folder.display();
        format!("nothing says when the run in {folder} was started: its config.toml is younger than its first step, as of a copy")
    })
}

/// Which benchmark a run is of, and how large its data are.
fn benchmark(reading: &Reading) -> anyhow::Result<(Benchmark, Splits)> {
    let task = &reading.config.task;
    let cosmoflow = task
        .settings()
        .map(|Cosmoflow { folder, .. }| (COSMOFLOW, folder));
    let deepcam = task
        .settings()
        .map(|Deepcam { folder, .. }| (DEEPCAM, folder));
    let Some((benchmark, folder)) = cosmoflow.or(deepcam) else {
        bail!(
            "{} is no benchmark of MLPerf HPC; deepcam and cosmoflow are",
            task.name()
        );
    };
    let count = |split: &str| -> anyhow::Result<usize> {
        Ok(tradewind_data::open(&folder.join(split), None, 1, None)?.len())
    };
    let splits = Splits {
        train: count("train")?,
        validation: count("validation")?,
    };
    Ok((benchmark, splits))
}

/// A log, line by line.
struct Log {
    text: String,
    /// From the start of the command to the target; `None` if it was not reached.
    seconds: Option<f64>,
}

impl Log {
    fn of(
        reading: &Reading,
        benchmark: &Benchmark,
        goal: Option<Goal>,
        splits: Splits,
        begun: f64,
    ) -> anyhow::Result<Self> {
        let goal = goal.unwrap_or(benchmark.target);
        let evaluations = reading.evaluations();
        let Some(last) = evaluations.last() else {
            bail!("it has no evaluations on the way; set evaluation.every_samples when it is run");
        };
        let reached = evaluations.iter().position(|at| goal.met(at.measure.value));
        let counted = &evaluations[..reached.map_or(evaluations.len(), |at| at + 1)];
        let end = counted.last().unwrap_or(last).wall;
        let mut log = Self {
            text: String::new(),
            seconds: reached.map(|at| evaluations[at].wall - begun),
        };
        log.settings(reading, benchmark, splits, begun);
        // What is touched counts from the start of the command on, so there is nothing before.
        log.line(
            begun,
            "INTERVAL_START",
            "init_start",
            Value::Null,
            json!({}),
        );
        log.line(begun, "INTERVAL_END", "init_stop", Value::Null, json!({}));
        log.line(begun, "INTERVAL_START", "run_start", Value::Null, json!({}));
        log.epochs(reading, benchmark, splits, counted, begun);
        let status = if reached.is_some() {
            "success"
        } else {
            "aborted"
        };
        log.line(
            end,
            "INTERVAL_END",
            "run_stop",
            Value::Null,
            json!({"status": status}),
        );
        Ok(log)
    }

    /// What was set, and what it was set on.
    fn settings(&mut self, reading: &Reading, benchmark: &Benchmark, splits: Splits, at: f64) {
        let config = &reading.config;
        let keys = keys_of(config.resolved());
        let text = |key: &str| {
            keys.get(key)
                .map_or("", |value| value.trim_matches('"'))
                .to_owned()
        };
        let number = |key: &str| text(key).parse::<f64>().unwrap_or(f64::NAN);
        let ranks = config.world_size();
        let version = reading.summary.version.as_deref().unwrap_or_default();
        let settings = [
            ("submission_benchmark", json!(benchmark.name)),
            ("submission_division", json!("open")),
            ("submission_org", json!("none: unverified")),
            (
                "submission_platform",
                json!(format!("Tradewind {version}, {ranks} ranks")),
            ),
            ("submission_status", json!("research")),
            // Nobody has looked whether it was.
            ("cache_clear", json!(false)),
            ("seed", json!(config.seed)),
            ("train_samples", json!(splits.train)),
            ("eval_samples", json!(splits.validation)),
            (
                "global_batch_size",
                json!(number("train.batch") * f64::from(ranks)),
            ),
            ("opt_name", json!(text("optimizer.name"))),
            (
                "opt_base_learning_rate",
                json!(number("optimizer.learning_rate")),
            ),
            ("opt_weight_decay", json!(number("optimizer.weight_decay"))),
            ("tradewind_consistency", json!(text("train.consistency"))),
            ("tradewind_groups", json!(config.cluster.groups)),
        ];
        for (key, value) in settings {
            self.line(at, "POINT_IN_TIME", key, value, json!({}));
        }
    }

    /// Epochs by the samples that were applied, and the evaluations among them.
    fn epochs(
        &mut self,
        reading: &Reading,
        benchmark: &Benchmark,
        splits: Splits,
        evaluations: &[&Validation],
        begun: f64,
    ) {
        let end = evaluations.last().map_or(begun, |at| at.wall);
        let mut lines: Vec<(f64, &str, &str, Value, Value)> = Vec::new();
        let mut started = (0, begun);
        let epoch_of = |samples: u64| samples / splits.train.max(1) as u64;
        for record in reading.records.iter().filter(|record| record.wall < end) {
            let epoch = epoch_of(record.samples_applied);
            if epoch > started.0 {
                lines.extend(epoch_lines(started, record.wall));
                started = (epoch, record.wall);
            }
        }
        lines.extend(epoch_lines(started, end));
        for at in evaluations {
            let epoch = at.samples as f64 / splits.train.max(1) as f64;
            let of = json!({"epoch_num": epoch, "samples": at.samples});
            let value = json!((benchmark.measure)(at.measure.value));
            lines.push((
                at.wall,
                "INTERVAL_START",
                "eval_start",
                Value::Null,
                of.clone(),
            ));
            lines.push((at.wall, "POINT_IN_TIME", benchmark.key, value, of.clone()));
            lines.push((at.wall, "INTERVAL_END", "eval_stop", Value::Null, of));
        }
        lines.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (wall, kind, key, value, of) in lines {
            self.line(wall, kind, key, value, of);
        }
    }

    fn line(&mut self, wall: f64, kind: &str, key: &str, value: Value, mut metadata: Value) {
        // Who has written a line, as MLPerf's own logger says it.
        metadata["file"] = json!("tradewind report");
        metadata["lineno"] = json!(0);
        let line = json!({
            "namespace": "",
            "time_ms": (wall * 1000.0).round() as i64,
            "event_type": kind,
            "key": key,
            "value": value,
            "metadata": metadata,
        });
        self.text += &format!(":::MLLOG {line}\n");
    }
}

fn epoch_lines(
    (epoch, begun): (u64, f64),
    end: f64,
) -> [(f64, &'static str, &'static str, Value, Value); 2] {
    let of = json!({"epoch_num": epoch});
    [
        (
            begun,
            "INTERVAL_START",
            "epoch_start",
            Value::Null,
            of.clone(),
        ),
        (end, "INTERVAL_END", "epoch_stop", Value::Null, of),
    ]
}

/// What runs come to: of five or more the fastest and the slowest do not count.
fn told(seconds: &[Option<f64>]) -> String {
    let all = seconds.len();
    let mut known: Vec<f64> = seconds.iter().flatten().copied().collect();
    if known.len() < all {
        return format!(
            "{} of {all} runs have reached the target, so there is no time",
            known.len()
        );
    }
    known.sort_by(f64::total_cmp);
    let kept = match known.as_slice() {
        [_, kept @ .., _] if all >= OLYMPIC => kept,
        all => all,
    };
    let mean = kept.iter().sum::<f64>() / kept.len() as f64;
    format!(
        "{mean:.1} s to the target, the mean of {} of {all} runs",
        kept.len()
    )
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::tests::reading_of;

    const SPLITS: Splits = Splits {
        train: 30,
        validation: 7,
    };

    /// A run whose evaluations came to these values, one a second.
    fn log(values: &[f64], goal: Option<Goal>) -> anyhow::Result<(Vec<Value>, Option<String>)> {
        let folder = tempfile::tempdir().unwrap();
        let reading = reading_of(folder.path(), "", values);
        let log = Log::of(&reading, &COSMOFLOW, goal, SPLITS, reading.begun() - 2.0)?;
        let lines = log.text.lines().map(|line| {
            let json = line.strip_prefix(":::MLLOG ").unwrap();
            serde_json::from_str(json).unwrap()
        });
        Ok((
            lines.collect(),
            log.seconds.map(|seconds| format!("{seconds:.3}")),
        ))
    }

    fn of<'a>(lines: &'a [Value], key: &str) -> Vec<&'a Value> {
        lines.iter().filter(|line| line["key"] == key).collect()
    }

    #[test]
    fn time_counts_from_the_start_to_the_target() {
        let (lines, seconds) = log(&[0.5, 0.2, 0.12, 0.1], None).unwrap();
        // The third second of training, and two before.
        assert_eq!(seconds.as_deref(), Some("5.000"));
        let errors: Vec<f64> = of(&lines, "eval_error")
            .iter()
            .map(|line| line["value"].as_f64().unwrap())
            .collect();
        assert_eq!(
            errors,
            [0.5, 0.2, 0.12],
            "what comes after the target does not count"
        );
        assert_eq!(of(&lines, "run_stop")[0]["metadata"]["status"], "success");
        let ms = |key: &str| of(&lines, key)[0]["time_ms"].as_i64().unwrap();
        assert_eq!(ms("run_stop") - ms("run_start"), 5000);
        assert_eq!(of(&lines, "train_samples")[0]["value"], 30);
        let times: Vec<i64> = lines
            .iter()
            .map(|line| line["time_ms"].as_i64().unwrap())
            .collect();
        assert!(times.is_sorted(), "{times:?}");
        let (starts, stops) = (of(&lines, "epoch_start"), of(&lines, "epoch_stop"));
        assert_eq!(starts.len(), stops.len());
        assert!(!starts.is_empty());
    }

    #[test]
    fn a_run_that_misses_the_target_has_no_time() {
        let (lines, seconds) = log(&[0.5, 0.4], None).unwrap();
        assert_eq!(seconds, None);
        assert_eq!(of(&lines, "run_stop")[0]["metadata"]["status"], "aborted");
        let (_, seconds) = log(&[0.5, 0.4], Some(Goal::AtMost(0.45))).unwrap();
        assert_eq!(seconds.as_deref(), Some("4.000"));
        let error = log(&[], None).unwrap_err().to_string();
        assert!(error.contains("evaluation.every_samples"), "{error}");
    }

    #[test]
    fn only_what_is_a_benchmark_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let runs = vec![(
            folder.path().display().to_string(),
            reading_of(folder.path(), "", &[0.1]),
        )];
        let error = write(&runs, None, &PathBuf::from(folder.path()).join("logs")).unwrap_err();
        // The files of this one are younger than its steps.
        assert!(format!("{error:#}").contains("as of a copy"), "{error:#}");
        let error = benchmark(&runs[0].1).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("forecast is no benchmark"), "{error}");
    }

    #[test]
    fn the_fastest_and_the_slowest_of_five_do_not_count() {
        let check = |seconds: &[Option<f64>], want: &str| assert_eq!(told(seconds), want);
        check(
            &[Some(1.0), Some(3.0)],
            "2.0 s to the target, the mean of 2 of 2 runs",
        );
        let five = [9.0, 1.0, 2.0, 3.0, 4.0].map(Some);
        check(&five, "3.0 s to the target, the mean of 3 of 5 runs");
        check(
            &[Some(1.0), None],
            "1 of 2 runs have reached the target, so there is no time",
        );
    }
}
