//! Elastic averaging of groups that take turns.

use super::{Bad, Differs, Turns, check_log, configured, double, gradient, initial, train};

const GROUPS: usize = 2;
const STEPS: usize = 3;
const TURNS: usize = 5;
const RATE: f64 = 0.25;
const ALPHA: f64 = 0.3;

/// What the steps of each group begin with: algorithm 1 of the paper, asynchronous; with momentum
/// algorithm 2, EAMSGD, as libtorch has Nesterov's form. The first group has what is `bad`.
fn reference(momentum: f64, nesterov: bool, bad: Bad) -> Vec<Vec<Vec<f64>>> {
    let mut centre = double(&initial());
    let mut own: Vec<Vec<f64>> = vec![centre.clone(); GROUPS];
    let mut velocity = vec![vec![0.0; centre.len()]; GROUPS];
    let mut logs = vec![Vec::new(); GROUPS];
    for turn in 0..TURNS {
        for group in 0..GROUPS {
            let mut skipped = 0;
            let of_first = |steps: &[usize], step| group == 0 && steps.contains(&step);
            let mut lost = false;
            for step in turn * STEPS..(turn + 1) * STEPS {
                logs[group].push(own[group].clone());
                if of_first(bad.gradient, step) {
                    skipped += 1;
                    continue;
                }
                lost |= of_first(bad.huge, step);
                let gradient = gradient((group, 0), step, &own[group]);
                let states = own[group].iter_mut().zip(&mut velocity[group]);
                for ((x, v), g) in states.zip(gradient) {
                    *v = momentum * *v + g;
                    *x -= RATE * if nesterov { g + momentum * *v } else { *v };
                }
            }
            if lost {
                // Of such steps nothing is left.
                own[group].clone_from(&centre);
                velocity[group].fill(0.0);
                logs[group].truncate(turn * STEPS + 1);
                logs[group].resize((turn + 1) * STEPS, Vec::new());
                continue;
            }
            for (x, centre) in own[group].iter_mut().zip(&mut centre) {
                let moved = ALPHA * (*x - *centre);
                *x -= moved;
                if skipped < STEPS {
                    *centre += moved;
                }
            }
        }
    }
    logs
}

fn check(momentum: f64, nesterov: bool, staged: bool, bad: Bad) {
    let settings = [
        "train.consistency = \"async\"".to_owned(),
        "local.algorithm = \"easgd\"".to_owned(),
        "optimizer.name = \"elastic\"".to_owned(),
        format!("optimizer.learning_rate = {ALPHA}"),
        format!("local.learning_rate = {RATE}"),
        format!("local.momentum = {momentum}"),
        format!("local.nesterov = {nesterov}"),
    ];
    let settings = settings.each_ref().map(String::as_str);
    let config = configured(&[1; GROUPS], STEPS, TURNS, &settings);
    let differs = Differs {
        staged,
        bad,
        turns: Turns::of(GROUPS, STEPS),
        ..Differs::default()
    };
    let logs = train(&config, differs);
    for (group, want) in reference(momentum, nesterov, bad).iter().enumerate() {
        check_log(&logs[&(group, 0)], want, 1e-5);
    }
}

#[test]
fn groups_and_centre_draw_each_other() {
    for staged in [false, true] {
        check(0.0, false, staged, Bad::default());
    }
}

#[test]
fn momentum_stays_with_the_group() {
    check(0.5, false, false, Bad::default());
    check(0.5, true, false, Bad::default());
}

/// A turn with one such step, and a turn of nothing else, which moves the group alone.
#[test]
fn steps_without_a_finite_gradient_are_left_out() {
    let bad = Bad {
        gradient: &[1, 6, 7, 8],
        ..Bad::default()
    };
    check(0.5, false, false, bad);
}

#[test]
fn a_group_whose_values_are_not_finite_begins_anew_from_the_centre() {
    let bad = Bad {
        huge: &[4, 5],
        ..Bad::default()
    };
    for staged in [false, true] {
        check(0.9, false, staged, bad);
    }
}
