//! Wrong configurations, and what is said about them.

use super::{GOOD, parse};

#[test]
fn problems_name_the_key_the_line_and_the_way_out() {
    let check = |overrides: &[&str], replace: (&str, &str), want: &[&str]| {
        let text = GOOD.replace(replace.0, replace.1);
        let error = parse(&text, overrides).unwrap_err().to_string();
        for want in want {
            assert!(error.contains(want), "{want:?} is not in {error:?}");
        }
    };
    let none = ("", "");
    check(
        &[],
        ("samples", "sampels"),
        &[
            "c.toml, line 12: train.sampels is no key; did you mean \"train.samples\"?",
            "train.samples is missing",
        ],
    );
    check(
        &[],
        ("[run]", "[rum]"),
        &["line 3: rum.name is no key; did you mean \"run.name\"?"],
    );
    check(
        &[],
        ("samples = 100", "samples = \"100\""),
        &["line 12: train.samples = \"100\"; it takes an integer from 1 to 10^12"],
    );
    check(
        &[],
        ("samples = 100", "samples = 0"),
        &["train.samples = 0; it takes an integer"],
    );
    check(
        &[],
        ("[20, 30]", "[20]"),
        &["line 9: data.held_out = [20]; it takes a list of 2 integers"],
    );
    check(
        &[],
        ("[20, 30]", "[15, 30]"),
        &["line 9: data.held_out = [15, 30] begins before data.validation has ended"],
    );
    check(
        &[],
        ("[20, 30]", "[30, 20]"),
        &["data.held_out = [30, 20] is an empty range"],
    );
    check(&[], ("samples = 100", "samples = "), &["c.toml, line 12: "]);
    for (setting, want) in [
        (
            "train.batch=0",
            "train.batch = 0; it takes an integer from 1 to 1000000",
        ),
        (
            "train.samples=1e6",
            "train.samples = 1e6; it takes an integer from 1 to 10^12; write 1000000",
        ),
        (
            "cluster.groups=2",
            "; it takes a list of integers from 1 to 65536, such as [2, 2]",
        ),
        (
            "slurm.options=--account=x",
            "slurm.options = \"--account=x\"; it takes a list of texts, or []; write [\"--account=x\"], on the command line in single quotes",
        ),
        (
            "foo.bar=1",
            "foo.bar is no key; there is no section \"foo\"; sections are run, cluster, ",
        ),
    ] {
        check(&[setting], none, &[want]);
    }
    check(
        &[],
        ("name = \"r\"", "name = 5"),
        &["run.name = 5; it takes text; write it in quotes"],
    );
    check(
        &["batch=4"],
        none,
        &["--set: batch is no key; did you mean \"train.batch\"?"],
    );
    check(
        &["train.consistency=snyc"],
        none,
        &[
            "--set: train.consistency = \"snyc\"; it takes",
            "did you mean \"sync\"?",
        ],
    );
    check(
        &["train.batch"],
        none,
        &["--set train.batch: give it as key=value"],
    );
    check(
        &["optimizer.nesterov=true"],
        none,
        &["--set: optimizer.nesterov = true needs optimizer.momentum"],
    );
    check(
        &["liveness.heartbeat_ms=4000"],
        none,
        &["is more than a third of liveness.lease_ms"],
    );
    check(
        &["liveness.lease_ms=40000"],
        none,
        &["liveness.retry_ms = 60000 is less than two of liveness.lease_ms"],
    );
    check(
        &["liveness.patience_ms=10000"],
        none,
        &["--set: liveness.patience_ms = 10000 is not longer than liveness.lease_ms = 10000"],
    );
    check(
        &["servers.replication=2"],
        none,
        &["servers.replication = 2 is more than cluster.servers"],
    );
    check(
        &["train.chunk_samples=7"],
        none,
        &["less than one step of the largest group, 8 samples"],
    );
    check(
        &["loader.cache=\"here\"", "loader.cache_bytes=1"],
        none,
        &["--set: loader.cache = \"here\" is not absolute: it is a folder on each node's own disk"],
    );
    check(
        &["loader.cache=\"$TMPDIR/a\""],
        none,
        &["loader.cache = \"$TMPDIR/a\" needs loader.cache_bytes"],
    );
    check(
        &["loader.cache_bytes=5"],
        none,
        &["loader.cache_bytes = 5 is of no use without loader.cache"],
    );
    check(
        &["train.consistency=\"sync\"", "loader.sets=2"],
        none,
        &["--set: loader.sets = 2 excludes train.consistency = \"sync\""],
    );
    check(
        &["train.overlap=2"],
        none,
        &["--set: train.overlap = 2; it takes an integer from 0 to 1"],
    );
    check(
        &["train.overlap=true"],
        none,
        &["--set: train.overlap = true; it takes an integer"],
    );
    check(
        &["exchange.per_bucket=true", "train.overlap=1"],
        none,
        &["--set: exchange.per_bucket = true excludes train.overlap = 1"],
    );
    check(
        &["exchange.per_bucket=true", "optimizer.clip_norm=1"],
        none,
        &["--set: optimizer.clip_norm = 1.0 excludes exchange.per_bucket"],
    );
    check(
        &[
            "local.algorithm=diloco",
            "optimizer.name=outer-nesterov",
            "optimizer.momentum=0.9",
            "optimizer.clip_norm=1",
        ],
        none,
        &["--set: optimizer.clip_norm = 1.0 excludes local.algorithm"],
    );
    check(
        &["exchange.per_bucket=true", "pace.step_seconds=0.1"],
        none,
        &["--set: exchange.per_bucket = true excludes pace.step_seconds"],
    );
    for device in ["gpu", "cuda:", "cuda:-1", "cuda:x"] {
        check(
            &[&format!("compute.device={device}")],
            none,
            &[
                "--set: compute.device",
                "is none of \"auto\", \"cpu\", \"cuda\"",
            ],
        );
    }
    check(
        &["compute.precision=fp16", "compute.device=cpu"],
        none,
        &["--set: compute.precision = \"fp16\" needs a GPU"],
    );
    check(
        &["compute.precision=fp16", "exchange.per_bucket=true"],
        none,
        &["--set: compute.precision = \"fp16\" excludes exchange.per_bucket"],
    );
    check(
        &["compute.loss_scale=1000"],
        none,
        &["compute.loss_scale = 1000.0 is no power of two"],
    );
    check(
        &["exchange.up=fp16"],
        none,
        &["--set: exchange.up = \"fp16\"; it takes one of \"none\", \"bf16\", \"int8\", \"topk\""],
    );
    for (direction, fraction) in [("up", "0.0"), ("down", "0")] {
        check(
            &[
                &format!("exchange.{direction}=topk"),
                &format!("exchange.topk_fraction={fraction}"),
            ],
            none,
            &["exchange.topk_fraction = 0.0 is 0, so nothing would ever be sent"],
        );
    }
    for fraction in ["1.5", "-0.1", "nan"] {
        check(
            &[&format!("exchange.topk_fraction={fraction}")],
            none,
            &["exchange.topk_fraction = ", "a number from 0 to 1"],
        );
    }
    let sync = "train.consistency=sync";
    for policy in ["scale", "drop", "compensate", "compensate-adaptive"] {
        check(
            &[&format!("staleness.policy={policy}"), sync],
            none,
            &[
                &format!("--set: staleness.policy = \"{policy}\" excludes"),
                "train.consistency = \"sync\"",
            ],
        );
    }
    check(
        &["staleness.policy=compensate", "exchange.down=bf16"],
        none,
        &["staleness.policy = \"compensate\" excludes exchange.down"],
    );
    for policy in ["compensate", "compensate-adaptive"] {
        check(
            &[&format!("staleness.policy={policy}"), "exchange.up=topk"],
            none,
            &[&format!(
                "exchange.up = \"topk\" excludes staleness.policy = {policy:?}"
            )],
        );
    }
    check(
        &[
            "momentum.policy=closed-loop",
            "optimizer.momentum=0.9",
            "exchange.up=topk",
        ],
        none,
        &["exchange.up = \"topk\" excludes momentum.policy = \"closed-loop\""],
    );
    check(
        &[
            "merge.min_groups=2",
            "cluster.groups=[1, 1]",
            "merge.wait_ms_max=0",
        ],
        none,
        &["merge.wait_ms_max = 0 is not above 0 beside merge.min_groups"],
    );
    check(
        &[
            "momentum.policy=closed-loop",
            "optimizer.momentum=0.9",
            "exchange.down=bf16",
        ],
        none,
        &["momentum.policy = \"closed-loop\" excludes exchange.down"],
    );
    for policy in ["lowered", "closed-loop"] {
        let policy = format!("momentum.policy={policy}");
        let momentum = "optimizer.momentum=0.9";
        check(
            &[&policy, momentum, sync],
            none,
            &["--set: momentum.policy", "excludes train.consistency"],
        );
        for beside in ["optimizer.name=adam", "optimizer.nesterov=true"] {
            check(
                &[&policy, momentum, beside],
                none,
                &["momentum.policy", "needs optimizer.momentum above 0"],
            );
        }
        check(
            &[&policy],
            none,
            &["momentum.policy", "needs optimizer.momentum above 0"],
        );
    }
    check(
        &["train.backup_groups=1", sync],
        none,
        &["train.backup_groups = 1 is not less than the number of cluster.groups"],
    );
    check(
        &["train.backup_groups=1", "cluster.groups=[1, 1]"],
        none,
        &["train.backup_groups = 1 excludes train.consistency"],
    );
    for merge in ["merge.min_groups=2", "merge.grace_ms_max=5"] {
        check(
            &[merge, sync, "cluster.groups=[1, 1]"],
            none,
            &[&merge.replace('=', " = "), "excludes train.consistency"],
        );
    }
    check(
        &["merge.min_groups=3", "cluster.groups=[1, 1]"],
        none,
        &["merge.min_groups = 3 is not from 1 to the number of cluster.groups"],
    );
    check(&["run.name=../x"], none, &["cannot name a run"]);
    check(
        &["telemetry.prometheus=nowhere"],
        none,
        &["no address:port"],
    );
    for address in [
        "nowhere",
        "http://nowhere",
        "http://a:0",
        "http://:4317",
        "http://u@a/b:1",
    ] {
        let set = format!("telemetry.otlp={address}");
        check(&[&set], none, &["is no http://host:port"]);
    }
    check(&["telemetry.otlp=https://a:4317"], none, &["asks for TLS"]);
    check(
        &["train.batch=nan"],
        none,
        &["train.batch = nan; it takes an integer"],
    );
    check(
        &["optimizer.learning_rate=nan"],
        none,
        &["optimizer.learning_rate = nan; it takes a number"],
    );
}

#[test]
fn several_problems_are_told_at_once() {
    let error = parse("[run]\nname = 3\nseeed = 1\n", &[]).unwrap_err();
    let keys: Vec<_> = error.0.iter().map(|p| p.key.as_str()).collect();
    assert_eq!(&keys[..2], ["run.name", "run.seeed"]);
    assert!(keys.contains(&"data.files"), "{keys:?}");
}
