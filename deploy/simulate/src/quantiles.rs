//! Quantiles of many numbers in little memory.

/// Two numbers of one bucket differ by at most this factor.
const STEP: f64 = 1.005;

/// Counts of positive numbers in buckets of equal ratio: a quantile is exact to 0.5 %.
#[derive(Clone, Debug, Default)]
pub(crate) struct Quantiles {
    zeros: u64,
    /// Buckets below 1, by −1, −2, …, then those from 1 on.
    below: Vec<u64>,
    above: Vec<u64>,
    count: u64,
    sum: f64,
    max: f64,
}

impl Quantiles {
    pub(crate) fn add(&mut self, value: f64) {
        self.count += 1;
        self.sum += value;
        self.max = self.max.max(value);
        if value <= 0.0 {
            self.zeros += 1;
            return;
        }
        let bucket = (value.ln() / STEP.ln()).floor();
        let (buckets, index) = match bucket < 0.0 {
            true => (&mut self.below, -bucket as usize - 1),
            false => (&mut self.above, bucket as usize),
        };
        if buckets.len() <= index {
            buckets.resize(index + 1, 0);
        }
        buckets[index] += 1;
    }

    pub(crate) fn mean(&self) -> f64 {
        match self.count {
            0 => 0.0,
            count => self.sum / count as f64,
        }
    }

    pub(crate) fn max(&self) -> f64 {
        self.max
    }

    /// The least number that is not below this part of all.
    pub(crate) fn at(&self, part: f64) -> f64 {
        let wanted = ((part * self.count as f64).ceil() as u64).max(1);
        let mut seen = self.zeros;
        if seen >= wanted {
            return 0.0;
        }
        let below = self.below.iter().enumerate().rev();
        let below = below.map(|(index, count)| (-(index as f64) - 1.0, count));
        let above = self.above.iter().enumerate();
        let above = above.map(|(index, count)| (index as f64, count));
        for (bucket, count) in below.chain(above) {
            seen += count;
            if seen >= wanted {
                return STEP.powf(bucket + 0.5).min(self.max);
            }
        }
        self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_to_half_a_percent() {
        let mut all = Quantiles::default();
        for n in 1..=1000 {
            all.add(f64::from(n) / 100.0);
        }
        for (part, want) in [(0.01, 0.1), (0.5, 5.0), (0.99, 9.9), (1.0, 10.0)] {
            let got = all.at(part);
            assert!((got / want - 1.0).abs() < 0.006, "{part}: {got}");
        }
        assert!((all.mean() - 5.005).abs() < 1e-9 && all.max() == 10.0);
        assert_eq!(Quantiles::default().at(0.5), 0.0);
    }
}
