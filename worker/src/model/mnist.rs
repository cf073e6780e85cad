//! Which digit an image of MNIST shows, by a small convolutional network: two convolutions with
//! pooling and one hidden layer, as LeCun, Bottou, Bengio, Haffner 1998, "Gradient-Based Learning
//! Applied to Document Recognition", figure 2, with rectifiers and maxima. It is small so that many
//! ranks hold on a few cores, and good enough that settings differ by how they train.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use tch::{Device, Kind, Tensor};
use tradewind_common::layout::TensorKind;
use tradewind_common::record::{Better, Measure};

use super::random::normal;
use super::{Reading, Report, Task, TaskError, TaskKind, measured, seeded};
use crate::data::digits::{CLASSES, Digits};
use crate::data::{Asked, Batch, DataError, Dataset, Split};

/// Samples that are evaluated at once.
const EVALUATE_SAMPLES: usize = 500;

/// Channels of the two convolutions.
const CHANNELS: [i64; 2] = [8, 16];

/// Height and width of what a convolution sees of a map.
const WINDOW: i64 = 5;

/// Height and width of the second convolution's maps once pooled: ((28 − 4) / 2 − 4) / 2.
const POOLED: i64 = 4;

/// Units of the hidden layer.
const HIDDEN: i64 = 64;

/// Mean and standard deviation of the pixels of MNIST's training images, in the pixels' unit.
const PIXELS: (f64, f64) = (33.32, 78.57);

/// Settings of the task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MnistSpec {
    /// Where the four IDX files are.
    pub folder: PathBuf,
}

impl TaskKind for tradewind_config::Mnist {
    fn build(&self, seed: u64, _: &Reading) -> Result<Box<dyn Task>, TaskError> {
        let folder = self.folder.clone();
        Ok(Box::new(Mnist::new(&MnistSpec { folder }, seed)?))
    }
}

/// The model with its data.
pub struct Mnist {
    digits: Arc<Digits>,
    conv1: Layer,
    conv2: Layer,
    fc1: Layer,
    fc2: Layer,
}

impl Mnist {
    /// Reads the data and draws initial values from `seed`.
    ///
    /// # Errors
    /// Data that cannot be used.
    pub fn new(spec: &MnistSpec, seed: u64) -> Result<Self, TaskError> {
        let digits = Arc::new(Digits::open(&spec.folder)?);
        let [first, second] = CHANNELS;
        let features = second * POOLED * POOLED;
        Ok(seeded(seed, || Self {
            digits,
            conv1: Layer::rectified(&[first, 1, WINDOW, WINDOW]),
            conv2: Layer::rectified(&[second, first, WINDOW, WINDOW]),
            fc1: Layer::rectified(&[HIDDEN, features]),
            // Small, so that at first all digits are about as likely.
            fc2: Layer::normal(&[CLASSES as i64, HIDDEN], 0.01),
        }))
    }

    /// From images `[samples, 1, 28, 28]` to the logarithms of unnormalised probabilities
    /// `[samples, 10]`, in f32.
    fn forward(&self, images: &Tensor) -> Tensor {
        let (mean, deviation) = PIXELS;
        let mut map = (images.to_kind(Kind::Float) - mean) / deviation;
        for layer in [&self.conv1, &self.conv2] {
            let wide = map.conv2d(&layer.weight, Some(&layer.bias), 1, 0, 1, 1);
            map = wide.max_pool2d(2, 2, 0, 1, false).relu();
        }
        let hidden = map.flatten(1, -1);
        let hidden = hidden.linear(&self.fc1.weight, Some(&self.fc1.bias)).relu();
        let told = hidden.linear(&self.fc2.weight, Some(&self.fc2.bias));
        // Under autocast too, probabilities are f32.
        told.to_kind(Kind::Float)
    }

    /// Means over a split: the cross-entropy in nats, and the part of the images whose digit is
    /// told, per cent.
    fn scores(&self, split: Split) -> Result<(f64, f64), DataError> {
        let (mut entropy, mut right) = (0.0, 0);
        let device = self.fc2.weight.device();
        let samples = each(&*self.digits, split, |batch| {
            let batch = batch.to(device)?;
            let digits = batch["digit"].to_kind(Kind::Int64);
            let told = tch::no_grad(|| self.forward(&batch["image"]));
            let mean = told.cross_entropy_for_logits(&digits).double_value(&[]);
            entropy += mean * batch.samples.len() as f64;
            right += correct(&told, &digits);
            Ok(())
        })?;
        Ok((
            entropy / samples as f64,
            100.0 * right as f64 / samples as f64,
        ))
    }

    fn layers(&self) -> [(&'static str, &Layer); 4] {
        [
            ("conv1", &self.conv1),
            ("conv2", &self.conv2),
            ("fc1", &self.fc1),
            ("fc2", &self.fc2),
        ]
    }
}

impl Task for Mnist {
    fn tensors(&self) -> Vec<(String, Tensor, TensorKind)> {
        let parts = self.layers().into_iter().flat_map(|(name, layer)| {
            let handle = |part: &str, tensor: &Tensor| {
                let name = format!("{name}.{part}");
                (name, tensor.shallow_clone(), TensorKind::Parameter)
            };
            [handle("weight", &layer.weight), handle("bias", &layer.bias)]
        });
        parts.collect()
    }

    fn dataset(&self) -> Arc<dyn Dataset> {
        Arc::clone(&self.digits) as Arc<dyn Dataset>
    }

    /// Cross-entropy, in nats.
    fn loss(&self, batch: &Batch) -> Tensor {
        let digits = batch["digit"].to_kind(Kind::Int64);
        self.forward(&batch["image"])
            .cross_entropy_for_logits(&digits)
    }

    /// Cross-entropy, which tells settings apart long before the images do that they get wrong.
    fn measure(&self, split: Split) -> Result<Measure, TaskError> {
        let name = match split {
            Split::Train => "training cross-entropy",
            Split::Validation => tradewind_config::Mnist::VALIDATION_METRIC,
            Split::HeldOut => "test cross-entropy",
        };
        Ok(Measure {
            name: name.into(),
            unit: "nat".into(),
            value: self.scores(split)?.0,
        })
    }

    /// Accuracy on the test images, beside that of two guesses that look little or not at all.
    fn evaluate(&self) -> Result<Report, TaskError> {
        let (_, accuracy) = self.scores(Split::HeldOut)?;
        let validation = self.measure(Split::Validation)?;
        let accuracy = measured("test accuracy", "%", accuracy);
        Ok(Report {
            baselines: baselines(&*self.digits)?,
            ..Report::of(accuracy, Better::Higher, validation)
        })
    }

    fn notes(&self) -> BTreeMap<String, String> {
        let (mean, deviation) = PIXELS;
        let forward = format!(
            "h = (pixels - {mean}) / {deviation}; h = relu(max_pool2d(conv(h), 2)) for conv1, conv2 \
             (no padding); fc2(relu(fc1(flatten(h))))"
        );
        BTreeMap::from([
            ("model".into(), "mnist".into()),
            ("forward".into(), forward),
        ])
    }
}

/// What is right without learning, on the test images: to say the digit that is most frequent in
/// training, and that whose mean image is nearest.
fn baselines(digits: &dyn Dataset) -> Result<Vec<Measure>, DataError> {
    let options = (Kind::Double, Device::Cpu);
    let mut counts = Tensor::zeros([CLASSES as i64], options);
    let mut sums = Tensor::zeros([CLASSES as i64, 1], options);
    each(digits, Split::Train, |batch| {
        let kinds = batch["digit"].to_kind(Kind::Int64).one_hot(CLASSES as i64);
        let kinds = kinds.to_kind(Kind::Double);
        let images = batch["image"].flatten(1, -1).to_kind(Kind::Double);
        counts += kinds.sum_dim_intlist([0i64].as_slice(), false, Kind::Double);
        sums = &sums + kinds.tr().matmul(&images);
        Ok(())
    })?;
    let frequent = counts.argmax(0, false);
    // A digit that does not occur has no mean and is infinitely far.
    let means = &sums / counts.unsqueeze(1);
    let (mut guessed, mut near) = (0, 0);
    let samples = each(digits, Split::HeldOut, |batch| {
        let kinds = batch["digit"].to_kind(Kind::Int64);
        let images = batch["image"].flatten(1, -1).to_kind(Kind::Double);
        let far = (images.unsqueeze(1) - means.unsqueeze(0)).square();
        let far = far.sum_dim_intlist([2i64].as_slice(), false, Kind::Double);
        near += correct(&-far.nan_to_num(f64::INFINITY, None, None), &kinds);
        guessed += kinds.eq_tensor(&frequent).sum(Kind::Int64).int64_value(&[]);
        Ok(())
    })?;
    let part = |right: i64| 100.0 * right as f64 / samples as f64;
    Ok(vec![
        measured("most frequent digit", "%", part(guessed)),
        measured("nearest mean image", "%", part(near)),
    ])
}

/// All samples of a split in order, some at a time. Tells how many there are.
fn each(
    digits: &dyn Dataset,
    split: Split,
    mut look: impl FnMut(Batch) -> Result<(), DataError>,
) -> Result<usize, DataError> {
    let samples: Vec<usize> = (0..digits.len(split)).collect();
    for some in samples.chunks(EVALUATE_SAMPLES) {
        look(digits.batch(Asked::of(split, some))?)?;
    }
    Ok(samples.len())
}

/// How many rows of `[samples, 10]` are largest where `digits` says.
fn correct(told: &Tensor, digits: &Tensor) -> i64 {
    let largest = told.argmax(-1, false);
    largest.eq_tensor(digits).sum(Kind::Int64).int64_value(&[])
}

/// A convolution or a linear layer.
struct Layer {
    /// `[out, into, …]`.
    weight: Tensor,
    /// `[out]`.
    bias: Tensor,
}

impl Layer {
    /// Normal weights of variance 2 / inputs, which keeps the size of values through a ReLU (He et
    /// al. 2015, "Delving Deep into Rectifiers", equation 10).
    fn rectified(shape: &[i64]) -> Self {
        let inputs: i64 = shape[1..].iter().product();
        Self::normal(shape, (2.0 / inputs as f64).sqrt())
    }

    fn normal(shape: &[i64], deviation: f64) -> Self {
        let options = (Kind::Float, Device::Cpu);
        Self {
            weight: normal(shape, deviation).set_requires_grad(true),
            bias: Tensor::zeros([shape[0]], options).set_requires_grad(true),
        }
    }
}

#[cfg(test)]
mod tests;
