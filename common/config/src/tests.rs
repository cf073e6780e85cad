mod batches;
mod identity;
mod idle;
mod keys;
mod local;
mod optimizer;
mod own;
mod problems;
mod script;
mod slurm;
mod task;

use std::path::Path;
use tradewind_common::policy::momentum::{ClosedLoop, Lowered};
use tradewind_common::policy::staleness::{Drop, Scale};

use super::*;
use tradewind_common::policy::{MergeSpec, MomentumSpec, Policies, StalenessSpec, Weights};
use tradewind_common::spec::{ConsistencySpec, RunSpec};

const GOOD: &str = r#"
[run]
name = "r"

[data]
files = ["a.nc"]
variable = "t"
validation = [10, 20]
held_out = [20, 30]

[train]
samples = 100

[optimizer]
learning_rate = 1
"#;

fn parse(text: &str, overrides: &[&str]) -> Result<Config, ConfigError> {
    let overrides: Vec<String> = overrides.iter().map(|s| s.to_string()).collect();
    Config::parse(text, "c.toml", Path::new("/base"), &overrides)
}

#[test]
fn what_is_resolved_reads_back_the_same() {
    let config = parse(GOOD, &["cluster.groups=[2, 1]", "train.consistency=sync"]).unwrap();
    assert_eq!(config.cluster.groups, [2, 1]);
    assert_eq!(config.train.consistency, ConsistencySpec::Sync);
    let forecast: Forecast = config.task.settings().expect("the default task forecasts");
    assert_eq!(forecast.files, [Path::new("/base/a.nc")]);
    assert_eq!(config.train.chunk_samples, 32, "two steps of 2 ranks of 8");
    let again = Config::parse(config.resolved(), "c.toml", Path::new("/elsewhere"), &[]).unwrap();
    assert_eq!(again.resolved(), config.resolved());
    assert_eq!(again.task, config.task);
}

/// Who starts a program of another build is told so, beside the keys that it does not know.
#[test]
fn a_configuration_of_another_build_is_told_from_one_with_a_mistake() {
    let config = parse(GOOD, &[]).unwrap();
    let (by, keys) = config.resolved().split_once('\n').unwrap();
    let (words, digest) = by.rsplit_once(' ').unwrap();
    let mistaken = keys.replacen("[run]", "[run]\nkolour = 7", 1);
    let problems = |by: &str| parse(&format!("{by}\n{mistaken}"), &[]).unwrap_err().0;
    let own = problems(by);
    assert_eq!(own.len(), 1, "{own:?}");
    assert!(own[0].text.contains("run.kolour is no key"), "{own:?}");
    let other = problems(&format!("{words} 0badf00d"));
    let texts = other.iter().map(|problem| problem.text.as_str());
    let texts: Vec<_> = texts.collect();
    assert_eq!(texts[0], own[0].text);
    let told = [
        " with keys 0badf00d) than this program's (",
        &format!("{digest}): build "),
    ];
    assert!(told.iter().all(|told| texts[1].contains(told)), "{texts:?}");
}

#[test]
fn what_ranks_compute_on() {
    let check = |overrides: &[&str], device, precision| {
        let compute = parse(GOOD, overrides).unwrap().compute;
        assert_eq!((compute.device, compute.precision), (device, precision));
    };
    check(&[], DeviceChoice::Auto, Precision::F32);
    check(
        &["compute.device=cuda:3"],
        DeviceChoice::CudaAt(3),
        Precision::F32,
    );
    let fp16 = Precision::Fp16 {
        initial: 1024.0,
        growth_steps: 2000,
    };
    check(
        &[
            "compute.device=cuda",
            "compute.precision=fp16",
            "compute.loss_scale=1024",
        ],
        DeviceChoice::Cuda,
        fp16,
    );
}

#[test]
fn how_updates_come_about() {
    let check = |overrides: &[&str], want: Policies| {
        assert_eq!(parse(GOOD, overrides).unwrap().policies, want);
    };
    let staleness = |staleness| Policies {
        staleness,
        ..Policies::default()
    };
    check(&[], Policies::default());
    check(
        &["train.weights=groups"],
        Policies {
            weights: Weights::Groups,
            ..Policies::default()
        },
    );
    check(
        &["staleness.policy=scale"],
        staleness(StalenessSpec::Scale(Scale {})),
    );
    check(
        &["staleness.policy=drop", "staleness.drop_beyond=3"],
        staleness(StalenessSpec::Drop(Drop { beyond: 3 })),
    );
    let compensate = |lambda, mean_square_decay| {
        staleness(StalenessSpec::compensating(lambda, mean_square_decay))
    };
    check(&["staleness.policy=compensate"], compensate(0.04, None));
    check(
        &["staleness.policy=compensate-adaptive", "staleness.lambda=2"],
        compensate(2.0, Some(0.95)),
    );
    check(
        &["merge.grace_ms_max=20"],
        Policies {
            merge: Some(MergeSpec {
                min_groups: 1,
                grace_ms_max: 20,
                wait_ms_max: 1000,
            }),
            ..Policies::default()
        },
    );
    for (name, momentum) in [
        ("lowered", MomentumSpec::Lowered(Lowered {})),
        (
            "closed-loop",
            MomentumSpec::ClosedLoop(ClosedLoop { gain: 0.25 }),
        ),
    ] {
        check(
            &[
                &format!("momentum.policy={name}"),
                "momentum.gain=0.25",
                "optimizer.momentum=0.9",
            ],
            Policies {
                momentum,
                ..Policies::default()
            },
        );
    }
}

#[test]
fn who_keeps_copies_stops_at_a_loss_unless_told_otherwise() {
    let check = |replication: u32, said: &[&str], want| {
        let copies = format!("servers.replication={replication}");
        let overrides = [&["cluster.servers=3", copies.as_str()], said].concat();
        let config = parse(GOOD, &overrides).unwrap();
        let faults = config.spec(Vec::new(), 1).faults;
        assert_eq!(faults.stops_on_loss(), want, "{replication} {said:?}");
    };
    check(1, &[], false);
    check(2, &[], true);
    check(3, &["faults.on_loss=continue"], false);
    check(1, &["faults.on_loss=stop"], true);
}

#[test]
fn what_was_saved_before_runs_had_patience_is_still_read() {
    let spec = parse(GOOD, &[]).unwrap().spec(Vec::new(), 1);
    let mut saved = serde_json::to_value(&spec).unwrap();
    let faults = saved["faults"].as_object_mut().unwrap();
    for field in ["patience_ms", "on_loss"] {
        assert!(faults.remove(field).is_some(), "{field} is written");
    }
    let read: RunSpec = serde_json::from_value(saved).unwrap();
    assert_eq!(read, spec);
}

#[test]
fn an_error_names_the_sections_that_it_is_about() {
    let text =
        "[train]\nsampels = 1\n[optimizer]\nname = \"slow\"\n[nowhere]\nkey = 1\n[run]\nname = 3\n";
    let error = parse(text, &[]).unwrap_err();
    let sections = error.sections();
    for name in ["run", "train", "optimizer"] {
        assert!(sections.contains(&name), "{sections:?} of\n{error}");
    }
    assert!(!sections.contains(&"nowhere"), "{sections:?}");
    assert!(!sections.contains(&"telemetry"), "{sections:?}");
}
