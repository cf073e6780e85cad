//! Sections `optimizer` and `schedule`.

use super::{GOOD, parse};
use tradewind_common::optimizer::{DelayedNesterov, Larc, Lars, Sgd};
use tradewind_common::schedule::{Decay, Scaling, Schedule, Unit};
use tradewind_common::spec::OptimizerSpec;

#[test]
fn schedules() {
    let read = |overrides: &[&str]| parse(GOOD, overrides).map(|config| config.optimizer.schedule);
    let plain = Schedule::constant(1.0);
    let check = |overrides: &[&str], want: Schedule| {
        assert_eq!(read(overrides).unwrap(), want, "{overrides:?}");
    };
    check(&[], plain.clone());
    check(
        &[
            "schedule.decay=step",
            "schedule.milestones=[30, 60]",
            "schedule.gamma=0.5",
            "schedule.warmup_samples=10",
        ],
        Schedule {
            warmup: 10,
            decay: Decay::Step {
                milestones: vec![30, 60],
                gamma: 0.5,
                factors: vec![],
            },
            ..plain.clone()
        },
    );
    check(
        &[
            "schedule.decay=step",
            "schedule.milestones=[30, 60]",
            "schedule.factors=[0.25, 1]",
        ],
        Schedule {
            decay: Decay::Step {
                milestones: vec![30, 60],
                gamma: 0.1,
                factors: vec![0.25, 1.0],
            },
            ..plain.clone()
        },
    );
    check(
        &[
            "schedule.unit=updates",
            "schedule.warmup_updates=5",
            "schedule.end_updates=50",
            "schedule.decay=polynomial",
            "schedule.power=2",
            "schedule.scaling=sqrt",
            "schedule.reference_batch=64",
        ],
        Schedule {
            unit: Unit::Updates { end: 50 },
            warmup: 5,
            decay: Decay::Polynomial {
                power: 2.0,
                floor: 0.0,
            },
            scaling: Scaling::Sqrt { reference: 64 },
            ..plain
        },
    );
    let refused = |overrides: &[&str], want: &str| {
        let text = read(overrides).unwrap_err().to_string();
        assert!(text.contains(want), "{text}");
    };
    refused(
        &["schedule.warmup_epochs=1", "schedule.warmup_samples=1"],
        "schedule.warmup_epochs = 1.0 stands beside another length of the warm-up: give one of them",
    );
    refused(
        &[
            "schedule.warmup_epochs=1",
            "schedule.unit=updates",
            "schedule.end_updates=9",
        ],
        "schedule.warmup_epochs = 1.0 needs schedule.unit = \"samples\"",
    );
    let epochs = parse(GOOD, &["schedule.warmup_epochs=0.25"]).unwrap();
    let warmup = |epoch_samples| epochs.spec(Vec::new(), epoch_samples).schedule.warmup;
    assert_eq!((warmup(1000), warmup(6)), (250, 2));
    refused(
        &["schedule.decay=step"],
        "schedule.milestones = [] is empty, and schedule.decay = \"step\" needs one",
    );
    refused(
        &["schedule.decay=step", "schedule.milestones=[5, 5]"],
        "schedule.milestones = [5, 5] do not increase",
    );
    refused(
        &["schedule.decay=step", "schedule.milestones=[0]"],
        "schedule.milestones = [0]; it takes a list of integers from 1 to 10^12, or []",
    );
    refused(
        &["schedule.decay=cosine", "schedule.unit=updates"],
        "schedule.end_updates = 0 is not more than schedule.warmup_updates",
    );
    refused(
        &["schedule.decay=polynomial", "schedule.power=0"],
        "schedule.power = 0.0 is no power",
    );
    refused(
        &["schedule.scaling=linear"],
        "schedule.reference_batch = 0 is 0; schedule.scaling needs the samples of an update",
    );
}

#[test]
fn outer_optimizers() {
    let read = |overrides: &[&str]| parse(GOOD, overrides).map(|config| config.optimizer.spec);
    let outer = ["optimizer.name=outer-nesterov", "optimizer.momentum=0.9"];
    let sgd = OptimizerSpec::Sgd(Sgd {
        momentum: 0.9,
        nesterov: true,
        weight_decay: 0.0,
    });
    assert_eq!(read(&outer).unwrap(), sgd);
    let delayed = ["optimizer.name=delayed-nesterov", "optimizer.momentum=0.9"];
    let keys = ["optimizer.momentum_updates=4", "optimizer.activation=0.25"];
    let want = OptimizerSpec::DelayedNesterov(DelayedNesterov {
        momentum: 0.9,
        every: 4,
        activation: 0.25,
    });
    assert_eq!(read(&[delayed, keys].concat()).unwrap(), want);
    let refused = |overrides: &[&str], want: &str| {
        let text = read(overrides).unwrap_err().to_string();
        assert!(text.contains(want), "{text}");
    };
    for name in [outer[0], delayed[0]] {
        refused(
            &[name],
            "optimizer.momentum = 0.0 is 0, and this optimizer.name needs",
        );
        let decay = "optimizer.weight_decay=0.1";
        refused(
            &[name, "optimizer.momentum=0.9", decay],
            "optimizer.weight_decay = 0.1 excludes this optimizer.name",
        );
    }
    refused(
        &[
            delayed[0],
            delayed[1],
            "optimizer.momentum_updates=4",
            "optimizer.activation=0.3",
        ],
        "optimizer.activation = 0.3 is more than 1 / optimizer.momentum_updates",
    );
}

#[test]
fn layerwise_optimizers() {
    let read = |overrides: &[&str]| {
        let overrides = [overrides, &["optimizer.momentum=0.9"]].concat();
        parse(GOOD, &overrides)
    };
    let (momentum, weight_decay, trust) = (0.9, 0.25, 0.5);
    let lars = OptimizerSpec::Lars(Lars {
        momentum,
        weight_decay,
        trust,
    });
    let larc = OptimizerSpec::Larc(Larc {
        momentum,
        weight_decay,
        trust,
    });
    let refused = |overrides: &[&str], want: &str| {
        let text = read(overrides).unwrap_err().to_string();
        assert!(text.contains(want), "{text}");
    };
    for name in ["adam", "adamw"] {
        let name = format!("optimizer.name={name}");
        for epsilon in ["0.0", "1e-50"] {
            let epsilon = format!("optimizer.epsilon={epsilon}");
            refused(&[&name, &epsilon], "is 0 as a 32-bit number");
        }
    }
    for (name, want) in [("lars", lars), ("larc", larc)] {
        let this = format!("excludes optimizer.name = {name:?}");
        let name = format!("optimizer.name={name}");
        let keys = ["optimizer.weight_decay=0.25", "optimizer.trust=0.5"];
        let config = read(&[&name, keys[0], keys[1]]).unwrap();
        assert_eq!(config.optimizer.spec, want);
        assert!(config.idle().is_empty(), "{:?}", config.idle());
        refused(&[&name, "optimizer.trust=0"], "optimizer.trust = 0.0 is 0");
        refused(
            &[&name, "exchange.per_bucket=true"],
            "exchange.per_bucket = true excludes optimizer.name = \"lar",
        );
        for policy in ["compensate", "compensate-adaptive"] {
            refused(
                &[&name, &format!("staleness.policy={policy}")],
                &format!("staleness.policy = \"{policy}\" {this}"),
            );
        }
        refused(
            &[
                "optimizer.momentum=0.9",
                "momentum.policy=closed-loop",
                "staleness.policy=scale",
            ],
            "momentum.policy = \"closed-loop\" excludes staleness.policy = \"scale\"",
        );
        refused(
            &[&name, "exchange.up=topk"],
            &format!("exchange.up = \"topk\" {this}"),
        );
        refused(
            &[&name, "momentum.policy=closed-loop"],
            &format!("momentum.policy = \"closed-loop\" {this}"),
        );
        for beside in [
            "momentum.policy=lowered",
            "staleness.policy=scale",
            "staleness.policy=drop",
            "train.overlap=1",
        ] {
            read(&[&name, beside]).unwrap_or_else(|error| panic!("{error}"));
        }
    }
    let idle = read(&["optimizer.trust=0.5"]).unwrap();
    assert_eq!(
        idle.idle(),
        ["optimizer.trust has no effect while optimizer.name = \"sgd\""]
    );
}
