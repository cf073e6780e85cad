//! Logistic regression on a few features: a baseline for networks that tell two classes apart.

use tch::{Device, Kind, Tensor};

/// Weight of the squares of coefficients, of features with deviation 1, beside the mean of the samples' losses. It
/// bounds them where the classes can be told apart without an error.
const RIDGE: f64 = 1e-6;

/// Newton's steps; a few are enough, since each one about squares the distance.
const STEPS_MAX: usize = 50;

/// The step is halved at most so often until the loss falls.
const HALVINGS_MAX: usize = 30;

/// Steps end when the loss falls by less than this part of it.
const LOSS_PART_MIN: f64 = 1e-12;

const OVER_SAMPLES: [i64; 1] = [0];

/// log(p / (1 − p)) = features · weight + bias, where p is the probability of class 1.
pub(super) struct Logistic {
    /// `[1, features]`, of training.
    middle: Tensor,
    /// `[1, features]`, of training.
    deviation: Tensor,
    /// `[features + 1, 1]`, of features that are centred and scaled; the last one is the bias.
    weight: Tensor,
}

impl Logistic {
    /// Of features `[samples, features]` and classes `[samples]`, 0 or 1, in f64 on the CPU: the coefficients at
    /// which the loss is least, by Newton's method (Hastie, Tibshirani, Friedman 2009, "The Elements of Statistical
    /// Learning", equation 4.26).
    pub(super) fn fit(features: &Tensor, classes: &Tensor) -> Self {
        let middle = features.mean_dim(OVER_SAMPLES.as_slice(), true, Kind::Double);
        let deviation = features.std_dim(OVER_SAMPLES.as_slice(), false, true);
        let mut fitted = Self {
            weight: Tensor::zeros([features.size()[1] + 1, 1], (Kind::Double, Device::Cpu)),
            deviation: deviation.clamp_min(1e-9),
            middle,
        };
        let (x, y) = (fitted.scaled(features), classes.unsqueeze(1));
        let samples = x.size()[0] as f64;
        let ridge = Tensor::eye(x.size()[1], (Kind::Double, Device::Cpu)) * RIDGE;
        let loss = |weight: &Tensor| {
            let entropy = x.matmul(weight).binary_cross_entropy_with_logits::<Tensor>(
                &y,
                None,
                None,
                tch::Reduction::Mean,
            );
            let squares = weight.square().sum(Kind::Double) * (RIDGE / 2.0);
            (entropy + squares).double_value(&[])
        };
        let mut least = loss(&fitted.weight);
        for _ in 0..STEPS_MAX {
            let told = x.matmul(&fitted.weight).sigmoid();
            let slope = x.tr().matmul(&(&told - &y)) / samples + &fitted.weight * RIDGE;
            let curvature = x.tr().matmul(&(&x * &told * (1.0 - &told))) / samples + &ridge;
            let step = Tensor::linalg_solve(&curvature, &slope, true);
            // Far from the least loss a whole step may go beyond it.
            let steps =
                (0..HALVINGS_MAX).map(|half| &fitted.weight - &step * 0.5f64.powi(half as i32));
            let mut steps = steps.map(|weight| (loss(&weight), weight));
            let Some((lower, weight)) = steps.find(|(lower, _)| *lower < least) else {
                break;
            };
            let fall = least - lower;
            (least, fitted.weight) = (lower, weight);
            if fall < LOSS_PART_MIN * lower {
                break;
            }
        }
        fitted
    }

    /// log(p / (1 − p)) of samples with these features, `[samples]`.
    pub(super) fn scores(&self, features: &Tensor) -> Tensor {
        self.scaled(features).matmul(&self.weight).squeeze_dim(1)
    }

    /// Centred, scaled, and with a column of ones.
    fn scaled(&self, features: &Tensor) -> Tensor {
        let scaled = (features - &self.middle) / &self.deviation;
        let ones = scaled.narrow(1, 0, 1).ones_like();
        Tensor::cat(&[scaled, ones], 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(values: &[f64]) -> Tensor {
        Tensor::from_slice(values).unsqueeze(1)
    }

    /// Of one feature with two values the probabilities are the parts of each.
    #[test]
    fn it_tells_the_probabilities_that_samples_have() {
        let x = column(&[10.0, 10.0, 10.0, 10.0, 30.0, 30.0, 30.0]);
        let y = Tensor::from_slice(&[0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0]);
        let fitted = Logistic::fit(&x, &y);
        let told = Vec::<f64>::try_from(fitted.scores(&column(&[10.0, 30.0])).sigmoid()).unwrap();
        assert!((told[0] - 0.25).abs() < 1e-4, "{told:?}");
        assert!((told[1] - 2.0 / 3.0).abs() < 1e-4, "{told:?}");
    }

    #[test]
    fn classes_without_an_error_and_features_that_are_all_alike_have_an_end() {
        let x = Tensor::from_slice(&[1.0, 7.0, 2.0, 7.0, 3.0, 7.0, 4.0, 7.0]).view([4, 2]);
        let fitted = Logistic::fit(&x, &Tensor::from_slice(&[0.0, 0.0, 1.0, 1.0]));
        let told = Vec::<f64>::try_from(fitted.scores(&x)).unwrap();
        assert!(told.iter().all(|score| score.is_finite()), "{told:?}");
        assert!(told[1] < -1.0 && told[2] > 1.0, "{told:?}");
    }
}
