//! Whole simulations: what the cores decide, when, and how long that takes.

use crate::plan::tests::plan;
use crate::report::Report;

/// Eight groups of one rank at 0.06 s a step, with these settings besides.
fn simulated(set: &[&str]) -> Report {
    crate::simulate(&plan(set).unwrap()).unwrap()
}

fn near(got: f64, want: f64, part: f64) {
    assert!((got / want - 1.0).abs() < part, "{got}, not {want}");
}

/// Whoever follows the page sees what it shows.
#[test]
fn the_page_shows_what_is_printed() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/scale.md")).unwrap();
    let plan = crate::plan::Plan::read(&root.join("deploy/plans/stored-mnist.toml"), &[]).unwrap();
    let text = crate::simulate(&plan).unwrap().text();
    assert!(page.contains(&text), "docs/scale.md should have\n{text}");
    let keys = crate::machine::markdown();
    assert!(
        page.contains(keys.trim_end()),
        "docs/scale.md should have\n{keys}"
    );
}

#[test]
fn the_same_plan_gives_the_same_answer_and_another_seed_another() {
    let jitter = ["stragglers.profile=jitter", "train.consistency=async"];
    let other = [&jitter[..], &["run.seed=2"]].concat();
    let first = simulated(&jitter).json();
    assert_eq!(first, simulated(&jitter).json());
    assert_ne!(first, simulated(&other).json());
}

#[test]
fn a_slow_rank_sets_the_pace_under_sync_and_a_bound_and_slows_only_itself_without_one() {
    let slow = "stragglers.profile=one-slow";
    let seconds = |set: &[&str]| simulated(&[&[slow], set].concat()).figure("seconds");
    // 1,250 updates of eight groups at half the speed.
    near(seconds(&[]), 1250.0 * 0.12, 0.02);
    let bounded = ["train.consistency=bounded", "train.staleness_bound=3"];
    near(seconds(&bounded), 1250.0 * 0.12, 0.02);
    // Eight ranks do the work of seven and a half.
    near(
        seconds(&["train.consistency=async"]),
        10_000.0 * 0.06 / 7.5,
        0.02,
    );
}

#[test]
fn the_shard_decides_as_it_does_in_a_run() {
    let sync = simulated(&[]);
    assert_eq!(
        (sync.figure("updates"), sync.figure("exchanges")),
        (1250.0, 10_000.0)
    );
    assert_eq!(sync.figure("delay_max"), 0.0);
    let asynchronous = simulated(&["train.consistency=async"]);
    assert_eq!(
        asynchronous.figure("delay_p50"),
        7.0,
        "seven others come between"
    );
    let many = simulated(&[
        "train.consistency=async",
        "simulate.groups=400",
        "simulate.clocks=5",
    ]);
    assert_eq!(many.figure("delay_p50"), 399.0);
    let bounded = ["train.consistency=bounded", "train.staleness_bound=2"];
    let slow = ["stragglers.profile=one-slow"];
    let lag = simulated(&[&bounded[..], &slow[..]].concat()).figure("lag_max");
    assert!((1.0..=3.0).contains(&lag), "at most s + 1: {lag}");
    let backup = simulated(&["train.backup_groups=1", slow[0]]);
    assert!(backup.figure("dropped") > 0.0);
    near(backup.figure("step_p50"), 0.06, 0.03);
}

#[test]
fn what_is_shared_queues_and_saturates() {
    let narrow = [
        "train.consistency=async",
        "simulate.parameters=25000000",
        "machine.link_gbit=10",
        "simulate.clocks=30",
    ];
    // 100 MB of each of eight groups, 10 Gbit/s: 80 ms each, 640 ms in turn, where a step takes 60.
    let report = simulated(&narrow);
    near(report.figure("step_mean"), 0.64, 0.1);
    assert!(report.figure("load_server_in") > 0.9);
    assert!(
        report.text().contains("server link in from"),
        "{}",
        report.text()
    );
    let more = simulated(&[&narrow[..], &["cluster.servers=8"]].concat());
    assert!(
        more.figure("step_mean") < 0.25,
        "{}",
        more.figure("step_mean")
    );
    let hidden = simulated(
        &[
            &narrow[..3],
            &[
                "cluster.servers=32",
                "train.overlap=1",
                "simulate.clocks=30",
            ],
        ]
        .concat(),
    );
    near(hidden.figure("step_mean"), 0.1, 0.2);
}

#[test]
fn groups_fail_and_come_back_through_the_coordinator() {
    // A node dies once in 500 s, of eight: a failure a minute.
    let failing = [
        "train.consistency=async",
        "failures.node_years=0.0000158",
        "failures.detect_seconds=2",
        "failures.recover_seconds=10",
        "simulate.clocks=5000",
    ];
    let report = simulated(&failing);
    let failures = report.figure("node_failures");
    assert!(failures > 2.0, "{failures}");
    // Each failure costs one group of eight 12 s and half a step.
    let lost = failures * 12.0 / (8.0 * report.figure("seconds"));
    near(report.figure("goodput"), 0.991 * (1.0 - lost), 0.02);
    let bound = [
        &failing[1..],
        &["train.consistency=bounded", "train.staleness_bound=3"],
    ]
    .concat();
    let bounded = simulated(&bound);
    assert!(
        bounded.figure("goodput") < report.figure("goodput"),
        "until a death is noticed others wait"
    );
    // Others wait until it is noticed, and no longer: 2 s, and not the 12 until the group is back.
    let failures = bounded.figure("node_failures");
    let lost = failures * (2.0 + 12.0 / 8.0) / bounded.figure("seconds");
    assert!(bounded.figure("goodput") > 0.98 * (1.0 - lost));
    let restart = [
        &failing[1..],
        &[
            "train.consistency=sync",
            "failures.restart=true",
            "failures.snapshot_every_seconds=30",
        ],
    ]
    .concat();
    let restarted = simulated(&restart);
    assert!(restarted.figure("samples_lost") > 0.0);
    assert!(restarted.figure("goodput") < bounded.figure("goodput"));
}

#[test]
fn servers_fail_and_everybody_waits() {
    let failing = simulated(&[
        "failures.server_years=0.0000003",
        "failures.detect_seconds=1",
    ]);
    assert!(failing.figure("server_failures") > 0.0);
    assert!(failing.figure("seconds") > simulated(&[]).figure("seconds") + 5.0);
}
