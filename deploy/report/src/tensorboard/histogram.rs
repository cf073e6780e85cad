//! Numbers that are counted in buckets, each 1.1 times as wide as the one before: as TensorFlow does, so bounded
//! whatever comes.

use std::collections::BTreeMap;

use super::event::Counted;

/// How much farther from 0 the end of a bucket is than that of the one before.
const GROWTH: f64 = 1.1;

/// The end of the bucket for 0 and what is next to it.
const LEAST: f64 = 1e-12;

/// Numbers of 0 and more.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    /// How many are in each bucket, by its number: the bucket n ends at [`LEAST`] · [`GROWTH`]^n.
    buckets: BTreeMap<u32, u64>,
    /// The least and the greatest.
    range: Option<(f64, f64)>,
    sum: f64,
    squares: f64,
}

impl Histogram {
    /// Counts a number several times; one that is not finite, or below 0, not at all.
    pub(super) fn add(&mut self, number: f64, times: u64) {
        if !number.is_finite() || number < 0.0 {
            return;
        }
        let bucket = (number / LEAST).log(GROWTH).ceil().max(0.0) as u32;
        *self.buckets.entry(bucket).or_default() += times;
        let (least, greatest) = self.range.unwrap_or((number, number));
        self.range = Some((least.min(number), greatest.max(number)));
        self.sum += number * times as f64;
        self.squares += number * number * times as f64;
    }

    /// As TensorBoard reads it; `None` if nothing was counted.
    pub(super) fn finish(self) -> Option<Counted> {
        let (min, max) = self.range?;
        let end = |bucket: u32| LEAST * GROWTH.powi(bucket as i32);
        let (mut bucket_limit, mut bucket) = (Vec::new(), Vec::new());
        let mut next = 0;
        for (number, count) in &self.buckets {
            // A bucket begins where the one before ends.
            if *number > next {
                bucket_limit.push(end(number - 1));
                bucket.push(0.0);
            }
            bucket_limit.push(end(*number));
            bucket.push(*count as f64);
            next = number + 1;
        }
        Some(Counted {
            min,
            max,
            num: bucket.iter().sum(),
            sum: self.sum,
            sum_squares: self.squares,
            bucket_limit,
            bucket,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_the_buckets_that_they_belong_to() {
        let mut histogram = Histogram::default();
        for number in [0.0, 1.0, 1.0, 2.0, 300.0, f64::NAN, -1.0] {
            histogram.add(number, 1);
        }
        histogram.add(5.0, 3);
        let told = histogram.finish().unwrap();
        assert_eq!((told.min, told.max, told.num), (0.0, 300.0, 8.0));
        assert_eq!((told.sum, told.sum_squares), (319.0, 90_081.0));
        assert_eq!(told.bucket, [1.0, 0.0, 2.0, 0.0, 1.0, 0.0, 3.0, 0.0, 1.0]);
        for (ends, number) in told
            .bucket_limit
            .windows(2)
            .skip(1)
            .step_by(2)
            .zip([1.0, 2.0, 5.0, 300.0])
        {
            let about = |end: f64| end * (1.0 - 1e-9)..end * (1.0 + 1e-9);
            assert!(
                about(ends[0]).start <= number && number <= about(ends[1]).end,
                "{ends:?} {number}"
            );
            assert!(ends[1] <= ends[0] * GROWTH * (1.0 + 1e-9), "{ends:?}");
        }
        assert_eq!(told.bucket_limit[0], LEAST);
        assert_eq!(Histogram::default().finish(), None);
    }
}
