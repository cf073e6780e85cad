use tradewind_common::layout::Layout;

use super::*;
use crate::member::tensor_specs;

const IMAGES: ImagesSpec = ImagesSpec {
    size: 16,
    classes: 4,
    samples: 64,
};

fn tiny() -> Resnet {
    let spec = ResnetSpec {
        blocks: [1, 1, 1, 1],
        width: 4,
        images: IMAGES,
    };
    Resnet::new(&spec, 1).unwrap()
}

fn batch(task: &Resnet, samples: usize) -> Batch {
    let samples: Vec<usize> = (0..samples).collect();
    task.dataset()
        .batch(Asked::of(Split::Train, &samples))
        .unwrap()
}

fn count(task: &Resnet, kind: TensorKind) -> usize {
    let tensors = task.tensors().into_iter();
    let counts = tensors
        .filter(|(_, _, own)| *own == kind)
        .map(|(_, tensor, _)| tensor.numel());
    counts.sum()
}

#[test]
fn resnet_50_has_the_known_number_of_parameters() {
    let images = ImagesSpec {
        size: 32,
        classes: 1000,
        samples: 10,
    };
    let spec = ResnetSpec {
        blocks: [3, 4, 6, 3],
        width: 64,
        images,
    };
    let task = Resnet::new(&spec, 1).unwrap();
    assert_eq!(count(&task, TensorKind::Parameter), 25_557_032);
    assert_eq!(count(&task, TensorKind::Buffer), 53_120);
    let tensors = task.tensors();
    let shape = |name: &str| {
        let found = tensors.iter().find(|(own, ..)| own == name);
        found.unwrap_or_else(|| panic!("{name}")).1.size()
    };
    assert_eq!(shape("conv1.weight"), [64, 3, 7, 7]);
    assert_eq!(shape("layer1.0.downsample.0.weight"), [256, 64, 1, 1]);
    assert_eq!(shape("layer3.5.conv2.weight"), [256, 256, 3, 3]);
    assert_eq!(shape("layer4.2.bn3.running_var"), [2048]);
    assert_eq!(shape("fc.weight"), [1000, 2048]);

    let told = tch::no_grad(|| task.forward(&batch(&task, 2)["image"], true));
    assert_eq!(told.size(), [2, 1000]);
    let layout = Layout::new(&tensor_specs(task.tensors()), 1 << 18).unwrap();
    let counted =
        [TensorKind::Parameter, TensorKind::Buffer].map(|kind| layout.of_kind(kind).len());
    assert_eq!(counted, [25_557_032, 53_120]);
}

#[test]
fn statistics_move_in_training_alone() {
    let task = tiny();
    let statistics = || {
        let tensors = task.tensors().into_iter();
        let buffers = tensors.filter(|(_, _, kind)| *kind == TensorKind::Buffer);
        buffers
            .map(|(_, tensor, _)| tensor.copy())
            .collect::<Vec<_>>()
    };
    let before = statistics();
    task.measure(Split::Validation).unwrap();
    assert!(statistics() == before);
    let batch = batch(&task, 8);
    let _ = task.loss(&batch);
    let after = statistics();
    assert!(
        before
            .iter()
            .zip(&after)
            .all(|(before, after)| before != after)
    );
    let told = || tch::no_grad(|| task.forward(&batch["image"], false));
    let first = told();
    assert!(first == told());
    assert!(first != tch::no_grad(|| task.forward(&batch["image"], true)));
}

#[test]
fn some_steps_lower_loss_and_error_and_reach_every_parameter() {
    let task = tiny();
    let batch = batch(&task, 64);
    let first = task.loss(&batch).double_value(&[]);
    assert!((first - 4f64.ln()).abs() < 0.2, "{first}");
    let parameters: Vec<_> = task.tensors();
    let parameters = parameters
        .iter()
        .filter(|(_, _, kind)| *kind == TensorKind::Parameter);
    for step in 0..60 {
        task.loss(&batch).backward();
        for (name, tensor, _) in parameters.clone() {
            let gradient = tensor.grad();
            let reached = step > 0 || gradient.abs().max().double_value(&[]) > 0.0;
            assert!(reached, "no gradient reaches {name}");
            let _ = tch::no_grad(|| tensor.shallow_clone().f_sub_(&(gradient * 0.1)).unwrap());
            tensor.shallow_clone().zero_grad();
        }
    }
    let last = task.loss(&batch).double_value(&[]);
    assert!(last < 0.5 * first, "{first} to {last}");
    let report = task.evaluate().unwrap();
    assert_eq!(report.baselines[0].value, 75.0);
    assert!(report.metric.value < 50.0, "{:?}", report.metric);
}

#[test]
fn the_seed_alone_decides_the_initial_values() {
    let spec = |seed| {
        let spec = ResnetSpec {
            blocks: [1, 1, 1, 1],
            width: 4,
            images: IMAGES,
        };
        Resnet::new(&spec, seed).unwrap().tensors()
    };
    let (a, b, c) = (spec(1), spec(1), spec(2));
    assert!(a.iter().zip(&b).all(|(a, b)| a.1 == b.1));
    assert!(a[0].1 != c[0].1);
}
