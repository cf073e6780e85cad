//! DiLoCo under `sync`.

use tch::nn::{self, OptimizerConfig};
use tch::{COptimizer, Tensor};

use super::{BATCH, Bad, Begun, Differs, check_log, configured, double, initial, loss, set, train};

const GROUPS: [u32; 2] = [2, 1];
const STEPS: usize = 5;
const EXCHANGES: usize = 6;
const RATE: f64 = 0.02;
const OUTER_RATE: f64 = 0.7;
const MOMENTUM: f64 = 0.9;
const DECAY: f64 = 0.1;
/// In samples: it ends during the third exchange.
const WARMUP: usize = 80;

const SYNC: &str = "train.consistency = \"sync\"";
const DILOCO: &str = "local.algorithm = \"diloco\"";

fn settings() -> Vec<String> {
    vec![
        SYNC.into(),
        DILOCO.into(),
        "optimizer.name = \"outer-nesterov\"".into(),
        format!("optimizer.learning_rate = {OUTER_RATE}"),
        format!("optimizer.momentum = {MOMENTUM}"),
        "optimizer.decay_exempt = \"vectors\"".into(),
        format!("local.learning_rate = {RATE}"),
        format!("local.weight_decay = {DECAY}"),
        "local.beta2 = 0.99".into(),
        format!("schedule.warmup_samples = {WARMUP}"),
    ]
}

fn adamw(decay: f64, parameter: &Tensor) -> COptimizer {
    let config = nn::AdamW {
        beta1: 0.9,
        beta2: 0.99,
        wd: decay,
        eps: 1e-8,
        amsgrad: false,
    };
    let mut optimizer = config.build_copt(RATE).unwrap();
    optimizer.add_parameters(parameter, 0).unwrap();
    optimizer
}

/// A group of the reference: its parameters, and an optimizer for each.
struct Group {
    size: usize,
    parameters: Vec<Tensor>,
    optimizers: Vec<COptimizer>,
}

impl Group {
    fn new(size: u32) -> Self {
        let parameters = initial();
        let optimizers = [(DECAY, &parameters[0]), (0.0, &parameters[1])];
        let optimizers = optimizers.map(|(decay, parameter)| adamw(decay, parameter));
        Self {
            size: size as usize,
            optimizers: optimizers.into(),
            parameters,
        }
    }

    /// A step of all its ranks at once.
    fn step(&mut self, group: usize, step: usize, rate: f64) {
        let ranks = 0..self.size;
        let losses = ranks.map(|rank| loss((group, rank), step, &self.parameters));
        let mean = losses.reduce(|a, b| a + b).unwrap() / self.size as f64;
        for parameter in &self.parameters {
            parameter.shallow_clone().zero_grad();
        }
        mean.backward();
        for optimizer in &mut self.optimizers {
            optimizer.set_learning_rate(rate).unwrap();
            optimizer.step().unwrap();
        }
    }
}

/// What the steps of each group begin with: algorithm 1 of the paper, the outer values in f64.
/// Steps that are `bad` for the first group are left out by it.
fn reference(bad: &[usize]) -> Vec<Vec<Vec<f64>>> {
    let mut groups: Vec<_> = GROUPS.iter().map(|size| Group::new(*size)).collect();
    let mut logs = vec![Vec::new(); GROUPS.len()];
    let mut theta = double(&initial());
    let mut velocity = vec![0.0; theta.len()];
    let mut seen = 0;
    for exchange in 0..EXCHANGES {
        let (mut sum, mut samples) = (vec![0.0; theta.len()], 0);
        for (number, group) in groups.iter_mut().enumerate() {
            set(&group.parameters, &theta);
            let of_step = BATCH * group.size;
            let mut own = 0;
            for step in exchange * STEPS..(exchange + 1) * STEPS {
                logs[number].push(double(&group.parameters));
                if number == 0 && bad.contains(&step) {
                    continue;
                }
                let warm = ((seen + own + of_step) as f64 / WARMUP as f64).min(1.0);
                group.step(number, step, RATE * warm);
                own += of_step;
            }
            let trained = double(&group.parameters);
            for (sum, (theta, trained)) in sum.iter_mut().zip(theta.iter().zip(trained)) {
                *sum += own as f64 * (theta - trained);
            }
            samples += own;
        }
        for (theta, (v, sum)) in theta.iter_mut().zip(velocity.iter_mut().zip(sum)) {
            let delta = sum / samples as f64;
            *v = MOMENTUM * *v + delta;
            *theta -= OUTER_RATE * (delta + MOMENTUM * *v);
        }
        seen += samples;
    }
    logs
}

fn check(settings: &[String], staged: bool, bad: &'static [usize]) {
    let settings: Vec<_> = settings.iter().map(String::as_str).collect();
    let config = configured(&GROUPS, STEPS, EXCHANGES, &settings);
    let differs = Differs {
        staged,
        bad: Bad {
            gradient: bad,
            ..Bad::default()
        },
        ..Differs::default()
    };
    let logs = train(&config, differs);
    let want = reference(bad);
    for ((group, _), got) in &logs {
        check_log(got, &want[*group], 1e-5);
    }
}

#[test]
fn it_is_the_papers_algorithm() {
    check(&settings(), false, &[]);
}

#[test]
fn a_copy_of_the_model_elsewhere_makes_no_difference() {
    check(&settings(), true, &[]);
    let bf16 = |staged| {
        let mut settings = settings();
        settings.push("exchange.up = \"bf16\"".into());
        settings.push("exchange.down = \"int8\"".into());
        let settings: Vec<_> = settings.iter().map(String::as_str).collect();
        let config = configured(&GROUPS, STEPS, EXCHANGES, &settings);
        let differs = Differs {
            staged,
            ..Differs::default()
        };
        train(&config, differs)
    };
    assert_eq!(bf16(false), bf16(true));
}

#[test]
fn steps_without_a_finite_gradient_are_left_out() {
    // Of two exchanges, once the last one.
    for staged in [false, true] {
        check(&settings(), staged, &[3, 14]);
    }
}

/// θ − η(θ − (θ − g)) is a step of SGD.
#[test]
fn one_step_of_rate_1_is_none_at_all() {
    let keys = [SYNC, "optimizer.learning_rate = 0.25"];
    let plain = train(&configured(&GROUPS, 1, 8, &keys), Differs::default());
    let inner = [DILOCO, "local.inner = \"sgd\"", "local.learning_rate = 1.0"];
    let keys = [&keys[..], &inner].concat();
    let local = train(&configured(&GROUPS, 1, 8, &keys), Differs::default());
    for (who, want) in plain {
        assert_eq!(want.len(), 8);
        let double = |begun: &Begun| begun.values.iter().copied().map(f64::from).collect();
        let want: Vec<_> = want.iter().map(double).collect();
        check_log(&local[&who], &want, 1e-6);
    }
}

/// Each sample once in an epoch: of 1,000 samples 166 global batches of 6, whatever H is.
#[test]
fn a_step_has_the_same_data_however_many_there_are_between_exchanges() {
    let drawn = |steps: usize| {
        let keys = [SYNC, DILOCO, "optimizer.learning_rate = 0.5"];
        let logs = train(
            &configured(&GROUPS, steps, 180 / steps, &keys),
            Differs::default(),
        );
        let samples = |log: Vec<Begun>| log.into_iter().map(|begun| begun.samples);
        let all = logs
            .into_iter()
            .map(|(who, log)| (who, samples(log).collect::<Vec<_>>()));
        all.collect::<Vec<_>>()
    };
    let plain = drawn(1);
    assert!(plain.iter().all(|(_, samples)| samples.len() == 180));
    let epoch = plain
        .iter()
        .flat_map(|(_, samples)| samples[..166].iter().flatten());
    let mut epoch: Vec<_> = epoch.collect();
    epoch.sort_unstable();
    epoch.dedup();
    assert_eq!(epoch.len(), 996);
    assert_eq!(drawn(9), plain);
}
