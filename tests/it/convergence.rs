//! Training with compressed exchanges comes to forecasts as good as those without: the climate
//! forecaster, five seeds, each form beside f32 on the same seeds.
//!
//! The network begins as the mean of the years before, which is hard to beat: training lowers the
//! error by no more than 1.5 %. So a limit on the error alone would pass a network that has learned
//! nothing, and each form must also keep its part of what f32 gains over that mean.

use std::fmt::Write as _;

use serde_json::Value;
use tradewind_tests::cluster::run::Run;

const SEEDS: [u64; 5] = [1, 2, 3, 4, 5];

/// What the network begins as, a baseline of the forecaster.
const START: &str = "8-year mean";

/// How values travel, and how far from f32 the result may be.
struct Setting {
    name: &'static str,
    /// Keys, with TOML.
    keys: &'static [(&'static str, &'static str)],
    /// Largest difference of the mean error to that of f32, as a part of it.
    error: f64,
    /// Least gain over [`START`], as a part of that of f32.
    gain: f64,
}

const PLAIN: Setting = Setting {
    name: "f32",
    keys: &[],
    error: 0.0,
    gain: 1.0,
};

const BF16: Setting = Setting {
    name: "bf16 up and down",
    keys: &[("exchange.up", "\"bf16\""), ("exchange.down", "\"bf16\"")],
    error: 0.02,
    gain: 0.9,
};

const INT8: Setting = Setting {
    name: "int8 up and down",
    keys: &[("exchange.up", "\"int8\""), ("exchange.down", "\"int8\"")],
    error: 0.02,
    gain: 0.9,
};

const TOP_K: Setting = Setting {
    name: "top-k 1 % up",
    keys: &[
        ("exchange.up", "\"topk\""),
        ("exchange.topk_fraction", "0.01"),
    ],
    error: 0.05,
    gain: 0.75,
};

/// Errors on the held-out years, K: of the network, seed by seed, and of what it begins as.
struct Outcome {
    seeds: Vec<f64>,
    start: f64,
}

impl Outcome {
    fn mean(&self) -> f64 {
        self.seeds.iter().sum::<f64>() / self.seeds.len() as f64
    }

    fn gain(&self) -> f64 {
        self.start - self.mean()
    }
}

fn train(run: impl Fn() -> Run, setting: &Setting) -> Outcome {
    let (mut seeds, mut start) = (Vec::new(), 0.0);
    for seed in SEEDS {
        let run = run().key("run.seed", seed.to_string());
        let keys = setting.keys.iter();
        let ended = keys
            .fold(run, |run, (name, value)| run.key(name, *value))
            .complete();
        assert!(ended.status.success(), "{}: {}", setting.name, ended.stderr);
        let metric = &ended.summary()["metric"];
        let number = |value: &Value| value.as_f64().expect("a number");
        let baselines = metric["baselines"].as_array().expect("baselines");
        let mean = baselines.iter().find(|baseline| baseline["name"] == START);
        start = number(&mean.expect("the mean is a baseline")["value"]);
        seeds.push(number(&metric["value"]));
    }
    Outcome { seeds, start }
}

/// Trains every setting, prints a table and checks it.
fn compare(run: impl Fn() -> Run, settings: &[Setting]) {
    let plain = train(&run, &PLAIN);
    let mut table = String::from("| exchange |");
    SEEDS
        .iter()
        .for_each(|seed| _ = write!(table, " seed {seed} |"));
    table += " mean | to f32 | gain kept |\n|---|";
    table += &"---|".repeat(SEEDS.len() + 3);
    let mut far = Vec::new();
    let mut row = |setting: &Setting, outcome: &Outcome| {
        let ratio = outcome.mean() / plain.mean();
        let gain = outcome.gain() / plain.gain();
        _ = write!(table, "\n| {} |", setting.name);
        outcome
            .seeds
            .iter()
            .for_each(|x| _ = write!(table, " {x:.4} |"));
        _ = write!(
            table,
            " {:.4} | {ratio:.4} | {:.0} % |",
            outcome.mean(),
            gain * 100.0
        );
        if (ratio - 1.0).abs() > setting.error || gain < setting.gain {
            far.push(setting.name);
        }
    };
    row(&PLAIN, &plain);
    for setting in settings {
        row(setting, &train(&run, setting));
    }
    println!("held-out RMSE (K); {START}: {:.4}\n{table}", plain.start);
    assert!(plain.gain() > 0.01 * plain.start, "f32 learns:\n{table}");
    assert!(far.is_empty(), "{far:?} are too far from f32:\n{table}");
}

/// A tenth of the demo's budget, in steps of one sample, so that there are more updates than the
/// demo has; two groups of one rank under `sync`, so that the bits repeat. Most of the time of
/// its twenty runs is for starting processes.
#[test]
fn compressed_training_keeps_up() {
    let run = || {
        Run::shipped("climate-forecast.toml")
            .key("cluster.servers", "1")
            .key("cluster.groups", "[1, 1]")
            .key("train.consistency", "\"sync\"")
            .key("train.samples", "688")
            .key("train.batch", "1")
            .key("schedule.warmup_samples", "68")
            .key("optimizer.learning_rate", "2e-3")
    };
    compare(run, &[BF16, INT8, TOP_K]);
}

/// The demo as it is shipped; makes the table of docs/compression.md.
#[test]
#[ignore = "about ten minutes; prints the table of docs/compression.md"]
fn the_demo_compressed() {
    let both = Setting {
        name: "top-k 1 % up, int8 down",
        keys: &[
            ("exchange.up", "\"topk\""),
            ("exchange.topk_fraction", "0.01"),
            ("exchange.down", "\"int8\""),
        ],
        ..TOP_K
    };
    let overlap = Setting {
        name: "int8 up and down, overlap 1",
        keys: &[
            ("exchange.up", "\"int8\""),
            ("exchange.down", "\"int8\""),
            ("train.overlap", "1"),
        ],
        ..INT8
    };
    let run = || Run::shipped("climate-forecast.toml");
    compare(run, &[BF16, INT8, TOP_K, both, overlap]);
}
