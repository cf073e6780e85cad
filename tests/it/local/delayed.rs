//! DiLoCo under `async`, with delayed Nesterov momentum: groups that take turns, each of which pushes
//! what its steps came to from values that the other one has moved since.

use super::{Differs, Turns, check_log, configured, double, gradient, initial, train};

const GROUPS: usize = 2;
const STEPS: usize = 3;
const TURNS: usize = 5;
const RATE: f64 = 0.25;
const OUTER_RATE: f64 = 0.7;
const MOMENTUM: f64 = 0.9;

/// What the steps of each group begin with: Liu et al. 2024, algorithm 3, updates counted from 1.
fn reference(every: usize, activation: f64) -> Vec<Vec<Vec<f64>>> {
    let n = every as f64;
    let mut theta = double(&initial());
    let (mut momentum, mut sum) = (vec![0.0; theta.len()], vec![0.0; theta.len()]);
    let mut pulled = vec![theta.clone(); GROUPS];
    let mut logs = vec![Vec::new(); GROUPS];
    for update in 1..=TURNS * GROUPS {
        let (turn, group) = ((update - 1) / GROUPS, (update - 1) % GROUPS);
        let base = &pulled[group];
        let apart = theta.iter().zip(base).map(|(now, then)| (now - then).abs());
        assert!(
            update == 1 || apart.fold(0.0, f64::max) > 1e-2,
            "whether a group counts from what it pulled would not show"
        );
        let mut trained = base.clone();
        for step in turn * STEPS..(turn + 1) * STEPS {
            logs[group].push(trained.clone());
            let gradient = gradient((group, 0), step, &trained);
            for (x, g) in trained.iter_mut().zip(gradient) {
                *x -= RATE * g;
            }
        }
        let due = update.is_multiple_of(every);
        let deltas = base.iter().zip(&trained).map(|(from, to)| from - to);
        let states = momentum.iter_mut().zip(&mut sum);
        for ((x, (m, sum)), delta) in theta.iter_mut().zip(states).zip(deltas) {
            *sum += delta;
            let mut active = activation;
            if due {
                *m = MOMENTUM * *m + *sum / n;
                *sum = 0.0;
                active = 1.0 - activation * n + activation;
            }
            *x -= OUTER_RATE * (active * MOMENTUM * *m + delta / n);
        }
        pulled[group].clone_from(&theta);
    }
    logs
}

fn check(every: usize, activation: f64, staged: bool) {
    let settings = [
        "train.consistency = \"async\"".to_owned(),
        "local.algorithm = \"diloco\"".to_owned(),
        "local.inner = \"sgd\"".to_owned(),
        format!("local.learning_rate = {RATE}"),
        "optimizer.name = \"delayed-nesterov\"".to_owned(),
        format!("optimizer.learning_rate = {OUTER_RATE}"),
        format!("optimizer.momentum = {MOMENTUM}"),
        format!("optimizer.momentum_updates = {every}"),
        format!("optimizer.activation = {activation}"),
    ];
    let settings = settings.each_ref().map(String::as_str);
    let config = configured(&[1; GROUPS], STEPS, TURNS, &settings);
    let differs = Differs {
        staged,
        turns: Turns::of(GROUPS, STEPS),
        ..Differs::default()
    };
    let logs = train(&config, differs);
    for (group, want) in reference(every, activation).iter().enumerate() {
        check_log(&logs[&(group, 0)], want, 1e-5);
    }
}

/// Momentum moves with every update of the second group, or now with one's and now with the other's.
#[test]
fn it_is_the_papers_algorithm() {
    for (every, activation) in [(2, 0.0), (2, 0.25), (3, 0.2)] {
        check(every, activation, false);
    }
}

#[test]
fn a_copy_of_the_model_elsewhere_makes_no_difference() {
    check(2, 0.25, true);
}
