//! Settings that have no effect beside others.

use std::path::Path;

use super::{GOOD, parse};
use crate::Config;

#[test]
fn settings_without_effect_are_told() {
    let check = |overrides: &[&str], want: &[&str]| {
        let config = parse(GOOD, overrides).unwrap();
        let told: Vec<_> = config
            .idle()
            .iter()
            .map(|line| line.split(' ').next().unwrap())
            .collect();
        assert_eq!(told, want, "{overrides:?}");
        let again = Config::parse(config.resolved(), "c.toml", Path::new("/"), &[]).unwrap();
        assert_eq!(again.idle(), config.idle());
    };
    check(&[], &[]);
    check(&["optimizer.momentum=0.5"], &[]);
    let pauses = ["stragglers.pause_factor=5", "pace.step_seconds=1.0"];
    check(&pauses, &["stragglers.pause_factor"]);
    check(&[&pauses[..], &["stragglers.profile=pauses"]].concat(), &[]);
    let among = ["stragglers.among=rank 0", "pace.step_seconds=1.0"];
    check(&among, &["stragglers.among"]);
    check(&[&among[..], &["stragglers.profile=pauses"]].concat(), &[]);
    let spells = ["stragglers.spell_every=5", "stragglers.spell_steps=2"];
    check(&[&among[..], &spells].concat(), &[]);
    check(&["merge.wait_ms_max=5"], &["merge.wait_ms_max"]);
    check(
        &["stragglers.spell_steps=5", "stragglers.spell_every=0"],
        &["stragglers.spell_steps"],
    );
    let local = [
        "local.algorithm=diloco",
        "optimizer.name=outer-nesterov",
        "optimizer.momentum=0.9",
    ];
    let momentum = ["local.momentum=0.5"];
    check(&[&local[..], &momentum].concat(), &["local.momentum"]);
    let sgd = ["local.inner=sgd", "local.beta1=0.5"];
    check(&[&local[..], &momentum, &sgd].concat(), &["local.beta1"]);
    check(
        &["optimizer.momentum=0.5", "optimizer.name=adam"],
        &["optimizer.momentum"],
    );
    check(&["train.consistency=async"], &[]);
    let account = "slurm.options=[\"--account=x\"]";
    for (overrides, want) in [
        (&["compute.device=cuda"][..], &[][..]),
        (&["compute.device=cuda", account], &["slurm.rank_gpus"]),
        (
            &["compute.device=cuda:1", "slurm.server_cpus=2"],
            &["slurm.rank_gpus"],
        ),
        (&["compute.device=cuda", "slurm.rank_gpus=1"], &[]),
        (
            &["compute.device=cpu", "slurm.rank_gpus=1"],
            &["slurm.rank_gpus"],
        ),
        (&["compute.device=cpu", account], &[]),
        (&[account], &[]),
    ] {
        check(overrides, want);
    }
    check(
        &["train.consistency=async", "train.staleness_bound=9"],
        &["train.staleness_bound"],
    );
    check(&["staleness.lambda=2"], &["staleness.lambda"]);
    check(&["staleness.policy=compensate", "staleness.lambda=2"], &[]);
    let fraction = "exchange.topk_fraction=0.5";
    check(&[fraction], &["exchange.topk_fraction"]);
    check(&[fraction, "exchange.up=int8"], &["exchange.topk_fraction"]);
    check(&[fraction, "exchange.down=topk"], &[]);
    check(&["exchange.up=topk", fraction], &[]);
    check(
        &["schedule.warmup_samples=100"],
        &["schedule.warmup_samples"],
    );
    check(
        &["schedule.warmup_samples=100", "schedule.unit=updates"],
        &["schedule.warmup_samples"],
    );
    check(
        &[
            "schedule.milestones=[5]",
            "schedule.power=2",
            "schedule.end_updates=7",
            "schedule.reference_batch=8",
        ],
        &[
            "schedule.end_updates",
            "schedule.milestones",
            "schedule.power",
            "schedule.reference_batch",
        ],
    );
    check(&["loader.damaged=replace"], &["loader.damaged"]);
    check(
        &["loader.cache=/tmp/a", "loader.cache_bytes=9"],
        &["loader.cache"],
    );
}
