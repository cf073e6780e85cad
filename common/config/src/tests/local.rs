//! Section `local`.

use super::{GOOD, parse};
use crate::{Algorithm, Inner, Local};
use tradewind_common::optimizer::Elastic;
use tradewind_common::schedule::Schedule;
use tradewind_common::spec::{DecayExempt, OptimizerSpec};

const DILOCO: [&str; 3] = [
    "local.algorithm=diloco",
    "local.steps=8",
    "local.learning_rate=0.02",
];

const ELASTIC: [&str; 5] = [
    "train.consistency=async",
    "local.algorithm=easgd",
    "optimizer.name=elastic",
    "optimizer.learning_rate=0.3",
    "local.learning_rate=0.02",
];

#[test]
fn without_an_algorithm_there_are_none() {
    let config = parse(GOOD, &[]).unwrap();
    assert_eq!(config.local, None);
    assert_eq!(config.spec(Vec::new(), 10).local_steps, 1);
}

#[test]
fn the_schedule_is_the_inner_steps_and_the_outer_rate_is_constant() {
    let others = [
        "schedule.warmup_samples=5",
        "optimizer.name=outer-nesterov",
        "optimizer.momentum=0.9",
        "optimizer.decay_exempt=vectors",
        "optimizer.learning_rate=0.7",
        "local.weight_decay=0.1",
        "local.fitted=true",
    ];
    let config = parse(GOOD, &[&DILOCO[..], &others].concat()).unwrap();
    assert_eq!(config.optimizer.schedule, Schedule::constant(0.7));
    let spec = config.spec(Vec::new(), 10);
    assert_eq!(
        (spec.local_steps, spec.schedule),
        (8, Schedule::constant(0.7))
    );
    let want = Local {
        algorithm: Algorithm::DiLoCo,
        steps: 8,
        fitted: true,
        inner: Inner::AdamW {
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.1,
        },
        decay_exempt: DecayExempt::Vectors,
        schedule: Schedule {
            warmup: 5,
            ..Schedule::constant(0.02)
        },
    };
    assert_eq!(config.local, Some(want));
}

#[test]
fn elastic_averaging_has_an_inner_sgd() {
    let momentum = ["local.momentum=0.9", "local.nesterov=true"];
    let config = parse(GOOD, &[&ELASTIC[..], &momentum].concat()).unwrap();
    assert_eq!(config.optimizer.spec, OptimizerSpec::Elastic(Elastic {}));
    let local = config.local.unwrap();
    assert_eq!(local.algorithm, Algorithm::Elastic);
    let want = Inner::Sgd {
        momentum: 0.9,
        nesterov: true,
        weight_decay: 0.0,
    };
    assert_eq!(local.inner, want);
}

#[test]
fn what_does_not_fit_is_refused_by_its_key() {
    let check = |with: &[&str], overrides: &[&str], want: &str| {
        let text = parse(GOOD, &[with, overrides].concat())
            .unwrap_err()
            .to_string();
        assert!(text.contains(want), "{text}");
    };
    let diloco = |overrides: &[&str], want: &str| check(&DILOCO, overrides, want);
    diloco(
        &["train.overlap=1"],
        "local.algorithm = \"diloco\" excludes train.overlap = 1",
    );
    diloco(
        &["exchange.per_bucket=true"],
        "excludes exchange.per_bucket",
    );
    diloco(
        &["staleness.policy=compensate", "train.consistency=async"],
        "local.algorithm = \"diloco\" excludes staleness.policy = \"compensate\"",
    );
    diloco(
        &["local.inner=adamw", "local.epsilon=0.0"],
        "local.epsilon = 0.0 is 0 as a 32-bit number",
    );
    diloco(
        &["optimizer.weight_decay=0.1"],
        "optimizer.weight_decay = 0.1 excludes local.algorithm",
    );
    for name in ["lars", "larc"] {
        let this = format!("excludes optimizer.name = {name:?}");
        let name = format!("optimizer.name={name}");
        diloco(&[&name], &this);
        let elastic = [&ELASTIC[..], &[&name]].concat();
        check(&elastic, &[], "needs optimizer.name = \"elastic\"");
    }
    diloco(
        &["local.fitted=true", "train.consistency=sync"],
        "local.fitted = true excludes train.consistency = \"sync\"",
    );
    diloco(
        &["optimizer.name=elastic", "optimizer.learning_rate=0.5"],
        "optimizer.name = \"elastic\" needs local.algorithm = \"easgd\"",
    );
    diloco(
        &["local.inner=sgd", "local.nesterov=true"],
        "local.nesterov = true needs local.momentum",
    );
    check(
        &[],
        &["optimizer.name=elastic", "optimizer.learning_rate=0.5"],
        "optimizer.name = \"elastic\" needs local.algorithm = \"easgd\"",
    );
    let elastic = |overrides: &[&str], want: &str| check(&ELASTIC, overrides, want);
    elastic(
        &["optimizer.name=sgd"],
        "local.algorithm = \"easgd\" needs optimizer.name = \"elastic\"",
    );
    for rate in ["0.0", "1.0"] {
        let rate = format!("optimizer.learning_rate={rate}");
        elastic(&[&rate], "is not more than 0, less than 1 and constant");
    }
    for (overrides, other) in [
        (
            &["train.consistency=sync"][..],
            "train.consistency other than \"async\"",
        ),
        (
            &["train.consistency=bounded"],
            "train.consistency other than \"async\"",
        ),
        (&["exchange.up=bf16"], "exchange.up"),
        (&["exchange.down=int8"], "exchange.down"),
        (&["staleness.policy=scale"], "staleness.policy"),
        (
            &["cluster.groups=[1, 1]", "merge.min_groups=2"],
            "merge.min_groups",
        ),
    ] {
        let want = format!("optimizer.name = \"elastic\" excludes {other}");
        elastic(overrides, &want);
    }
    elastic(&["momentum.policy=lowered"], "momentum.policy");
}

#[test]
fn slower_groups_take_fewer_steps() {
    let config = parse(GOOD, &DILOCO).unwrap().local.unwrap();
    for (own, fastest, want) in [
        (0.0, 0.0, 8),
        (0.0, 5.0, 8),
        (5.0, 0.0, 8),
        (5.0, 5.0, 8),
        (6.0, 5.0, 8),
        (4.8, 5.0, 8),
        (4.5, 5.0, 7),
        (2.5, 5.0, 4),
        (1.0, 1000.0, 1),
    ] {
        assert_eq!(
            config.fitted_steps(own, fastest),
            want,
            "{own} of {fastest}"
        );
    }
}
