use super::*;
use crate::data::{Asked, fixture};

/// On 60 training images, 10 of them for validation, and 15 test images, of which one shows a 3.
fn task(seed: u64) -> Mnist {
    task_of(60, 15, seed)
}

fn task_of(training: usize, test: usize, seed: u64) -> Mnist {
    let folder = tempfile::tempdir().unwrap();
    fixture::digits(folder.path(), training, test);
    let spec = MnistSpec {
        folder: folder.path().into(),
    };
    Mnist::new(&spec, seed).unwrap()
}

fn all(task: &Mnist, split: Split) -> Batch {
    let samples: Vec<usize> = (0..task.digits.len(split)).collect();
    task.digits.batch(Asked::of(split, &samples)).unwrap()
}

fn close(got: f64, want: f64) {
    assert!((got - want).abs() < 1e-6, "{got} instead of {want}");
}

#[test]
fn tensors_are_handles_under_their_names() {
    let task = task(1);
    let tensors = task.tensors();
    let shapes: Vec<_> = tensors.iter().map(|t| (t.0.as_str(), t.1.size())).collect();
    let want: [(&str, Vec<i64>); 8] = [
        ("conv1.weight", vec![8, 1, 5, 5]),
        ("conv1.bias", vec![8]),
        ("conv2.weight", vec![16, 8, 5, 5]),
        ("conv2.bias", vec![16]),
        ("fc1.weight", vec![64, 256]),
        ("fc1.bias", vec![64]),
        ("fc2.weight", vec![10, 64]),
        ("fc2.bias", vec![10]),
    ];
    assert_eq!(shapes, want);
    let before = task.measure(Split::Validation).unwrap();
    let bias: Vec<f32> = (0..10).map(|digit| digit as f32).collect();
    let mut handle = tensors[7].1.shallow_clone();
    handle.set_data(&Tensor::from_slice(&bias));
    assert_ne!(task.measure(Split::Validation).unwrap(), before);
}

#[test]
fn the_seed_alone_decides_the_initial_values() {
    let (a, b, c) = (task(1).tensors(), task(1).tensors(), task(2).tensors());
    assert!(a.iter().zip(&b).all(|(a, b)| a.1 == b.1));
    assert!(a.iter().zip(&c).any(|(a, c)| a.1 != c.1));
}

#[test]
fn some_steps_lower_the_loss_and_tell_other_images() {
    let task = task(1);
    let batch = all(&task, Split::Train);
    let first = task.loss(&batch);
    assert_eq!((first.size(), first.kind()), (Vec::new(), Kind::Float));
    let first = first.double_value(&[]);
    assert!((first - 10f64.ln()).abs() < 0.1, "{first}");
    let tensors = task.tensors();
    for step in 0..60 {
        task.loss(&batch).backward();
        for (name, tensor, _) in &tensors {
            let gradient = tensor.grad();
            let largest = gradient.abs().max().double_value(&[]);
            assert!(largest.is_finite() && (step > 0 || largest > 0.0), "{name}");
            let _ = tch::no_grad(|| tensor.shallow_clone().f_sub_(&(gradient * 0.05)).unwrap());
            tensor.shallow_clone().zero_grad();
        }
    }
    let last = task.loss(&batch).double_value(&[]);
    assert!(last < 0.2 * first, "{first} to {last}");
    let report = task.evaluate().unwrap();
    assert!(report.metric.value >= 90.0, "{:?}", report.metric);
    assert!(report.validation.value < 0.5 * first, "{report:?}");
}

/// All are told to be a 3.
fn told_3(task: &Mnist) {
    for (name, tensor, _) in task.tensors() {
        let values = tensor.zeros_like();
        if name == "fc2.bias" {
            let _ = values.get(3).fill_(2.0);
        }
        tensor.shallow_clone().set_data(&values);
    }
}

/// The cross-entropy where this part is one.
fn entropy(part: f64) -> f64 {
    (9.0 + 2f64.exp()).ln() - 2.0 * part
}

/// Of 605 images 61 show a 3, and of those that are looked at first 50 of 500.
#[test]
fn a_score_is_of_all_images() {
    let task = task_of(3630, 15, 1);
    told_3(&task);
    let measure = task.measure(Split::Validation).unwrap();
    close(measure.value, entropy(61.0 / 605.0));
}

#[test]
fn scores_by_hand() {
    let task = task(1);
    told_3(&task);
    for (split, part, name) in [
        (Split::Train, 0.1, "training cross-entropy"),
        (Split::Validation, 0.1, "validation cross-entropy"),
        (Split::HeldOut, 1.0 / 15.0, "test cross-entropy"),
    ] {
        let measure = task.measure(split).unwrap();
        assert_eq!(
            (measure.name.as_str(), measure.unit.as_str()),
            (name, "nat")
        );
        close(measure.value, entropy(part));
    }
    let report = task.evaluate().unwrap();
    assert_eq!((report.better, report.picture), (Better::Higher, None));
    assert_eq!(report.metric, measured("test accuracy", "%", 100.0 / 15.0));
    assert_eq!(report.validation, task.measure(Split::Validation).unwrap());
}

#[test]
fn baselines_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    // Paper for a 1, ink for a 7; the image that is kept for validation is not looked at.
    let write = |name: &str, shades: &[u8], labels: &[u8]| {
        let pixels: Vec<u8> = shades.iter().flat_map(|shade| [*shade; 784]).collect();
        let count = labels.len() as u32;
        fixture::idx(
            &path(&format!("{name}-images-idx3-ubyte")),
            &[count, 28, 28],
            &pixels,
        );
        fixture::idx(
            &path(&format!("{name}-labels-idx1-ubyte")),
            &[count],
            labels,
        );
    };
    write("train", &[200, 0, 40, 250, 10, 0], &[7, 1, 1, 7, 1, 9]);
    write("t10k", &[100, 180, 0, 130], &[1, 7, 1, 1]);
    let digits = Digits::open(folder.path()).unwrap();
    // Mean shades are 17 and 225, so 121 is half-way.
    let want = [
        measured("most frequent digit", "%", 75.0),
        measured("nearest mean image", "%", 75.0),
    ];
    assert_eq!(baselines(&digits).unwrap(), want);
    write("t10k", &[100, 180, 0, 110], &[1, 7, 1, 1]);
    let digits = Digits::open(folder.path()).unwrap();
    assert_eq!(baselines(&digits).unwrap()[1].value, 100.0);
}
