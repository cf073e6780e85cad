//! Elastic averaging of groups that take turns.

use tch::Tensor;

use super::{Differs, Turns, check_log, configured, initial, loss, train, values};

const GROUPS: usize = 2;
const STEPS: usize = 3;
const TURNS: usize = 5;
const RATE: f64 = 0.25;
const ALPHA: f64 = 0.3;

/// What the steps of each group begin with: algorithm 1 of the paper, asynchronous.
fn reference() -> Vec<Vec<Vec<f64>>> {
    let double = |parameters: &[Tensor]| -> Vec<f64> {
        values(parameters).into_iter().map(f64::from).collect()
    };
    let mut centre = double(&initial());
    let groups: Vec<Vec<Tensor>> = (0..GROUPS).map(|_| initial()).collect();
    let mut own: Vec<Vec<f64>> = vec![centre.clone(); GROUPS];
    let mut logs = vec![Vec::new(); GROUPS];
    for turn in 0..TURNS {
        for group in 0..GROUPS {
            let parameters = &groups[group];
            for step in turn * STEPS..(turn + 1) * STEPS {
                logs[group].push(own[group].clone());
                set(parameters, &own[group]);
                for parameter in parameters {
                    parameter.shallow_clone().zero_grad();
                }
                loss((group, 0), step, parameters).backward();
                let gradients: Vec<Tensor> = parameters.iter().map(Tensor::grad).collect();
                for (x, g) in own[group].iter_mut().zip(double(&gradients)) {
                    *x -= RATE * g;
                }
            }
            for (x, centre) in own[group].iter_mut().zip(&mut centre) {
                let moved = ALPHA * (*x - *centre);
                *x -= moved;
                *centre += moved;
            }
        }
    }
    logs
}

fn set(parameters: &[Tensor], values: &[f64]) {
    let mut start = 0;
    for parameter in parameters {
        let part = Tensor::from_slice(&values[start..start + parameter.numel()]);
        tch::no_grad(|| parameter.shallow_clone().copy_(&part.reshape_as(parameter)));
        start += parameter.numel();
    }
}

#[test]
fn groups_and_centre_draw_each_other() {
    let alpha = format!("optimizer.learning_rate = {ALPHA}");
    let rate = format!("local.learning_rate = {RATE}");
    let settings = [
        "train.consistency = \"async\"",
        "local.algorithm = \"easgd\"",
        "optimizer.name = \"elastic\"",
        &alpha,
        &rate,
    ];
    let config = configured(&[1; GROUPS], STEPS, TURNS, &settings);
    for staged in [false, true] {
        let differs = Differs {
            staged,
            turns: Turns::of(GROUPS, STEPS),
            ..Differs::default()
        };
        let logs = train(&config, differs);
        for (group, want) in reference().iter().enumerate() {
            check_log(&logs[&(group, 0)], want, 1e-5);
        }
    }
}
