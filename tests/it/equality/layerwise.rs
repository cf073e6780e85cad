//! LARS and LARC through servers beside a few lines of f64. Blocks are smaller than most tensors,
//! whose norms then come with the push: of each group's own gradient, and of the values that it was
//! computed on.

use tch::{Kind, Tensor};
use tradewind_common::{Layout, TensorKind};
use tradewind_worker::member::run_spec;

use super::distance;
use super::plain::{
    Keys, Plain, RATE, SYNC, complete, configured, divided, loop_in_parts, trained, values,
};

/// Of the parameters, relative, as an L2 norm.
const TOLERANCE: f64 = 1e-5;

const MOMENTUM: f64 = 0.5;
const DECAY: f64 = 0.01;

/// Steps that change the values a lot and yet do not swing, for LARS; limits that some exceed, for LARC. A step
/// of LARS is as long however short the gradient is, so that longer ones swing about a minimum and make the
/// rounding of the first steps a hundred times as large by the last (0.5: up to 2e-5, by the processor).
const TRUST: [(&str, f64); 2] = [("lars", 0.2), ("larc", 0.003)];

/// How a tensor is treated.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Treated {
    /// Its norms are taken where it is: in one block.
    Here,
    /// They come with the push.
    Spans,
    /// As plain momentum does, without weight decay.
    Spared,
}

/// How each parameter is treated, in name order.
fn treatment(vectors_spared: bool) -> Vec<Treated> {
    let (config, task) = configured();
    let layout: Layout = run_spec(&config, &*task).layout().unwrap();
    let trained = layout.tensors.iter();
    let trained = trained.filter(|tensor| tensor.spec.kind == TensorKind::Parameter);
    let mut all: Vec<_> = trained
        .map(|tensor| {
            let (own, blocks) = (&tensor.elements, &layout.blocks);
            let holds = |of: &std::ops::Range<usize>| of.start <= own.start && own.end <= of.end;
            let treated = match vectors_spared && tensor.spec.shape.len() < 2 {
                true => Treated::Spared,
                false if blocks.iter().any(|b| holds(&b.elements)) => Treated::Here,
                false => Treated::Spans,
            };
            (tensor.spec.name.clone(), treated)
        })
        .collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all.into_iter().map(|(_, treated)| treated).collect()
}

fn norm(of: &Tensor) -> f64 {
    of.to_kind(Kind::Double).norm().double_value(&[])
}

/// One update of a tensor's values and velocity, both f64. `computed_on` are the values that the
/// groups' `gradients` were computed on.
fn update(
    name: &str,
    treated: Treated,
    (theta, velocity): (&mut Tensor, &mut Tensor),
    computed_on: &Tensor,
    gradients: &[Tensor],
) {
    let parts = gradients.len() as f64;
    let mean = |of: &dyn Fn(&Tensor) -> f64| gradients.iter().map(of).sum::<f64>() / parts;
    let doubles = gradients.iter().map(|g| g.to_kind(Kind::Double));
    let merged = doubles.reduce(|a, b| a + b).unwrap() / parts;
    let (of_values, of_gradient) = match treated {
        Treated::Here => (norm(theta), norm(&merged)),
        Treated::Spans => (norm(computed_on), mean(&norm)),
        Treated::Spared => (0.0, 0.0),
    };
    let trust = TRUST.iter().find(|of| of.0 == name).unwrap().1;
    let local = trust * of_values / (of_gradient + DECAY * of_values);
    // What has no gradient stays, as in NVIDIA's implementation: there the decay is in the branch that
    // the ratio is in.
    let (local, decay) = match treated {
        Treated::Spared => (None, 0.0),
        _ if of_gradient == 0.0 => (None, 0.0),
        _ => (Some(local).filter(|_| of_values > 0.0), DECAY),
    };
    let decayed = merged + decay * &*theta;
    let step = match name {
        "lars" => {
            *velocity = MOMENTUM * &*velocity + RATE * local.unwrap_or(1.0) * decayed;
            velocity.copy()
        }
        _ => {
            let clip = local.map_or(1.0, |local| (local / RATE).min(1.0));
            *velocity = MOMENTUM * &*velocity + clip * decayed;
            RATE * &*velocity
        }
    };
    *theta = &*theta - step;
}

/// The loop in f64 with so many groups; the model is one update behind, if it is `late`.
fn reference(name: &str, spared: bool, groups: usize, late: bool) -> Plain {
    let treatment = treatment(spared);
    for kind in [Treated::Here, Treated::Spans] {
        assert!(treatment.contains(&kind), "{treatment:?}");
    }
    assert_eq!(treatment.contains(&Treated::Spared), spared);
    let mut servers: Vec<(Tensor, Tensor)> = Vec::new();
    let plain = loop_in_parts(groups, |model, gradients| {
        if servers.is_empty() {
            let of = |p: &Tensor| p.detach().to_kind(Kind::Double);
            servers.extend(model.iter().map(|p| (of(p), of(p).zeros_like())));
        }
        let before: Vec<Tensor> = servers.iter().map(|(theta, _)| theta.copy()).collect();
        for (at, (theta, velocity)) in servers.iter_mut().enumerate() {
            let of_groups: Vec<Tensor> = gradients.iter().map(|g| g[at].shallow_clone()).collect();
            let computed_on = model[at].detach();
            update(
                name,
                treatment[at],
                (theta, velocity),
                &computed_on,
                &of_groups,
            );
        }
        for ((parameter, before), (theta, _)) in model.iter().zip(&before).zip(&servers) {
            let held = if late { before } else { theta };
            tch::no_grad(|| parameter.shallow_clone().copy_(held));
        }
    });
    let after: Vec<Tensor> = servers
        .iter()
        .map(|(theta, _)| theta.to_kind(Kind::Float))
        .collect();
    Plain {
        after: values(&after),
        ..plain
    }
}

fn check(name: &str, spared: bool, groups: &[u32], keys: Keys<'_>) {
    let late = keys.contains(&("train.overlap", "1"));
    let want = reference(name, spared, groups.len(), late);
    let moved = distance(&want.before, &want.after);
    assert!(
        moved > 1000.0 * TOLERANCE,
        "too little to tell: {moved:.1e}"
    );
    let trust = TRUST.iter().find(|of| of.0 == name).unwrap().1;
    let exempt = if spared { "vectors" } else { "none" };
    let run = divided(groups, &[keys, &[SYNC, ("cluster.servers", "2")]].concat())
        .key("optimizer.name", format!("{name:?}"))
        .key("optimizer.momentum", MOMENTUM.to_string())
        .key("optimizer.weight_decay", DECAY.to_string())
        .key("optimizer.trust", trust.to_string())
        .key("optimizer.decay_exempt", format!("{exempt:?}"));
    let difference = distance(&trained(&complete(run)), &want.after);
    println!("{name} {groups:?} {keys:?} {exempt}: {difference:.1e} of a change by {moved:.1e}");
    assert!(
        difference <= TOLERANCE,
        "{name} {groups:?} {keys:?}: {difference:.1e}"
    );
}

#[test]
fn one_group_takes_the_norms_of_all_of_its_gradient() {
    for (name, _) in TRUST {
        for spared in [false, true] {
            check(name, spared, &[1], &[]);
        }
        check(name, true, &[2], &[]);
    }
}

#[test]
fn the_norms_of_groups_are_averaged() {
    for (name, _) in TRUST {
        check(name, true, &[1, 1], &[]);
        check(name, false, &[2, 2], &[]);
    }
}

#[test]
fn with_overlap_norms_are_those_of_the_values_that_a_gradient_was_computed_on() {
    for (name, _) in TRUST {
        check(name, true, &[1], &[("train.overlap", "1")]);
        check(name, false, &[2], &[("train.overlap", "1")]);
    }
}
