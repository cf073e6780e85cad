//! What the forward of a step draws. libtorch's generator is the process's, so that a process of its own looks at it.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use super::*;
use crate::model::seed_step;

/// The last clock, and the first of a second incarnation.
const LAST: u64 = 12;
const AGAIN: u64 = 6;

/// What was drawn in each step.
type Drawn = Arc<Mutex<Vec<u64>>>;

/// Its loss tells the mask of a dropout and nothing else.
fn dropout(drawn: Drawn) -> Box<dyn Task> {
    Box::new(Fake {
        tensors: vec![("weight", weight(), TensorKind::Parameter)],
        loss: move |tensors: &[(&str, Tensor, TensorKind)]| {
            let weight = &tensors[0].1;
            let numbers = Tensor::arange(64, (Kind::Float, Device::Cpu)).sqrt();
            let told = numbers.dropout(0.5, true).sum(Kind::Float);
            let bits = told.double_value(&[]).to_bits();
            drawn.lock().unwrap().push(bits);
            told + (weight - weight.detach()).sum(Kind::Float)
        },
    })
}

/// The loss of each clock. The first incarnation of the group ends at a clock, if it comes so far.
fn losses(ends: u64, overrides: &[&str]) -> BTreeMap<u64, f64> {
    trained(ends, overrides).0
}

/// The same, and what was drawn.
fn trained(ends: u64, overrides: &[&str]) -> (BTreeMap<u64, f64>, Vec<u64>) {
    let drawn = Drawn::default();
    let shard = FakeShard::new(move |frame| match (frame.incarnation, frame.clock) {
        (1, clock) if clock >= ends => Does::Ends(Err(fenced())),
        (_, clock) => decided(frame, clock == LAST),
    });
    let shard_runs = shard.run();
    let address = shard_runs.address.clone();
    let coordinator = FakeCoordinator::beats(|_| Does::Answers(BeatReply::default()))
        .joined(move |before| Ok(joined(u64::from(before) + 1, &address)))
        .starting(|incarnation| [0, AGAIN][incarnation as usize - 1]);
    let coordinator_runs = coordinator.run();
    let folder = tempfile::tempdir().unwrap();
    let metrics = folder.path().join("metrics.jsonl");
    let runtime = runtime();
    let (task, metrics) = (dropout(drawn.clone()), metrics.as_path());
    let mut member = member_with(&coordinator_runs, task, overrides, Some(metrics), &runtime);
    live(&mut member).unwrap();
    let text = std::fs::read_to_string(metrics).unwrap();
    let steps = text.lines().map(|line| {
        let step: StepRecord = serde_json::from_str(line).unwrap();
        (step.clock, step.loss.unwrap())
    });
    let drawn = std::mem::take(&mut *drawn.lock().unwrap());
    (steps.collect(), drawn)
}

#[test]
fn what_a_step_draws_follows_from_seed_rank_and_clock() {
    let mut alone = Command::new(std::env::current_exe().unwrap());
    alone.args([
        "lives::tests::drawn::looked_at_alone",
        "--exact",
        "--ignored",
    ]);
    let output = alone.output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && told.contains("1 passed"),
        "{told}"
    );
}

#[test]
#[ignore = "the test above runs it in a process of its own"]
fn looked_at_alone() {
    let modes = [
        "train.overlap=0",
        "train.overlap=1",
        "exchange.per_bucket=true",
    ];
    let first = losses(100, &[modes[0]]);
    let masks = |losses: &BTreeMap<u64, f64>| -> BTreeSet<u64> {
        losses.values().map(|loss| loss.to_bits()).collect()
    };
    let clocks: Vec<u64> = first.keys().copied().collect();
    assert_eq!(clocks, (0..=LAST).collect::<Vec<_>>());
    assert_eq!(
        masks(&first).len(),
        clocks.len(),
        "another mask in each step"
    );
    for mode in modes {
        assert_eq!(losses(100, &[mode]), first, "{mode}");
        // A group that goes on from a clock goes on with the masks of this clock.
        let again = losses(4, &[mode]);
        assert!(
            again.contains_key(&0) && again.contains_key(&LAST),
            "{again:?}"
        );
        for (clock, loss) in &again {
            assert_eq!(first[clock], *loss, "{mode}, clock {clock}");
        }
    }
    let other = losses(100, &["run.seed=2"]);
    assert!(masks(&other).is_disjoint(&masks(&first)));
    let local = ["local.algorithm=diloco", "local.steps=3"];
    let steps = trained(100, &local).1;
    let distinct: BTreeSet<_> = steps.iter().collect();
    assert_eq!(
        distinct.len(),
        3 * clocks.len(),
        "steps between exchanges, too"
    );
    assert_eq!(trained(100, &local).1, steps);

    let mut seen = BTreeSet::new();
    for (group, rank, step) in [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0), (1, 1, 1)] {
        seed_step(1, GroupId(group), Rank(rank), step);
        let drawn = Tensor::rand([2], (Kind::Double, Device::Cpu));
        let drawn = Vec::<f64>::try_from(drawn).unwrap();
        assert!(seen.insert(drawn[0].to_bits()), "{group} {rank} {step}");
    }
}
