//! The selection of top-k, in one pass over the block.
//!
//! A value is looked at closely only when it is above a floor. The floor is estimated from a
//! sample, a little too low (Lin et al. 2018, "Deep Gradient Compression", estimate it in this
//! way); it rises when more than twice the wanted number has come, and when too few have come the
//! pass is made again without one. So the selection is exact whatever the sample said, and takes
//! time in proportion to the block whatever the order of its values.

use super::dense::PIECE;
use super::feedback;

/// Values that are tested at a time.
const GROUP: usize = 8;

/// Values in a sample, about.
const SAMPLE: usize = 4096;

/// Values that follow each other in a sample: one line of the cache.
const LINE: usize = 16;

/// A floor that every magnitude is above.
const NO_FLOOR: i32 = -1;

/// Adds `values` to `sums`, within the limit, and chooses the `k` sums of largest magnitude; of
/// equal ones those with the lowest index.
pub(super) fn select(values: &[f32], sums: &mut [f32], k: usize) -> Chosen {
    assert!(
        u32::try_from(values.len()).is_ok(),
        "a block has fewer than 2^32 values"
    );
    let mut chosen = Chosen::new(k, sampled_floor(values, sums, k));
    for (piece, sums) in sums.chunks_mut(PIECE).enumerate() {
        let first = piece * PIECE;
        feedback::add(sums, &values[first..first + sums.len()]);
        chosen.offer(first, sums);
    }
    if chosen.keys.len() < k {
        chosen = Chosen::new(k, NO_FLOOR);
        chosen.offer(0, sums);
    }
    chosen.cut();
    chosen
}

/// The bits of |x|, which order as |x| does.
fn magnitude(x: f32) -> i32 {
    x.abs().to_bits() as i32
}

/// Of so many lines one is sampled: an odd number, so that the sample goes through all columns of
/// a matrix.
fn stride_lines(values: usize) -> usize {
    (values / SAMPLE) | 1
}

/// A floor that about k and rarely fewer sums are above.
fn sampled_floor(values: &[f32], sums: &[f32], k: usize) -> i32 {
    let stride = LINE * stride_lines(values.len());
    let mut sample = Vec::with_capacity(2 * SAMPLE + LINE);
    for (values, sums) in values.chunks(stride).zip(sums.chunks(stride)) {
        let line = values.iter().zip(sums).take(LINE);
        sample.extend(line.map(|(value, sum)| magnitude(value + sum)));
    }
    let expected = (sample.len() as f64 * k as f64 / values.len().max(1) as f64).ceil();
    // Three standard deviations of a count, and some for runs whose values are alike.
    let rank = (expected + 3.0 * expected.sqrt() + 4.0) as usize;
    if rank >= sample.len() {
        return NO_FLOOR;
    }
    let (_, floor, _) = sample.select_nth_unstable_by(rank, |a, b| b.cmp(a));
    *floor - 1
}

/// The best sums so far.
pub(super) struct Chosen {
    k: usize,
    /// Only larger magnitudes can be among the best.
    floor: i32,
    /// In the order of their indices. Keys order as the sums are preferred: the magnitude above
    /// the complement of the index.
    keys: Vec<u64>,
    scratch: Vec<u64>,
}

impl Chosen {
    fn new(k: usize, floor: i32) -> Self {
        Self {
            k,
            floor,
            keys: Vec::with_capacity(2 * k + GROUP),
            scratch: Vec::new(),
        }
    }

    /// Looks at sums whose indices start at `first` and come after all that were seen.
    fn offer(&mut self, first: usize, sums: &[f32]) {
        let (groups, rest) = sums.as_chunks::<GROUP>();
        for (number, group) in groups.iter().enumerate() {
            let above = |any, sum: &f32| any | (magnitude(*sum) > self.floor);
            if group.iter().fold(false, above) {
                self.take(first + number * GROUP, group);
            }
        }
        self.take(first + groups.len() * GROUP, rest);
    }

    /// Keeps those of at most [`GROUP`] sums that are above the floor.
    fn take(&mut self, first: usize, sums: &[f32]) {
        let mut found = [0; GROUP];
        let mut count = 0;
        for (index, sum) in (first..).zip(sums) {
            // Written in any case and overwritten by the next one: no branch to predict.
            found[count % GROUP] = ((magnitude(*sum) as u64) << 32) | u64::from(!(index as u32));
            count += usize::from(magnitude(*sum) > self.floor);
        }
        self.keys.extend_from_slice(&found[..count]);
        if self.keys.len() > 2 * self.k {
            self.cut();
        }
    }

    /// Keeps the best k. What comes later has higher indices, so it must be larger than these.
    fn cut(&mut self) {
        let Some(surplus @ 1..) = self.keys.len().checked_sub(self.k) else {
            return;
        };
        self.scratch.clone_from(&self.keys);
        let (_, least, _) = self.scratch.select_nth_unstable(surplus);
        let least = *least;
        self.keys.retain(|key| *key >= least);
        self.floor = (least >> 32) as i32;
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Their indices, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = usize> {
        self.keys.iter().map(|key| !(*key as u32) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::noise;
    use super::*;

    /// By sorting everything.
    fn sorted(sums: &[f32], k: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..sums.len()).collect();
        let larger_first = |a: &usize, b: &usize| sums[*b].abs().total_cmp(&sums[*a].abs());
        order.sort_by(|a, b| larger_first(a, b).then(a.cmp(b)));
        order.truncate(k);
        order.sort();
        order
    }

    fn check(values: &[f32], k: usize, what: &str) {
        let residual = noise(9, values.len()).iter().map(|x| x / 64.0).collect();
        for start in [vec![0.0; values.len()], residual] {
            let mut sums = start.clone();
            let chosen: Vec<usize> = select(values, &mut sums, k).iter().collect();
            let want: Vec<f32> = start.iter().zip(values).map(|(a, b)| a + b).collect();
            assert_eq!(sums, want, "{what}: the sums");
            let want = sorted(&sums, k);
            assert!(chosen == want, "{what}: {k} of {} values", values.len());
        }
    }

    #[test]
    fn selection_equals_sorting() {
        for n in [0, 1, 7, 8, 9, 511, 512, 513, 5000, 70_000] {
            let wild = noise(n as u64, n);
            let coarse: Vec<f32> = wild.iter().map(|x| (x * 2.0).round()).collect();
            let sparse: Vec<f32> = (0..n)
                .map(|i| f32::from(u8::from(i % 700 == 5)))
                .map(|x| if x > 0.0 { -x } else { -0.0 })
                .collect();
            for k in [1, 2, n / 100, n / 10, n / 2, n.saturating_sub(1), n] {
                let k = k.max(1).min(n);
                check(&wild, k, "noise");
                check(&coarse, k, "ties");
                check(&sparse, k, "mostly zeros of either sign");
                check(&vec![-3.5; n], k, "all equal");
            }
        }
    }

    /// Where the sample looks at a block of this many values.
    fn sampled(index: usize, n: usize) -> bool {
        (index / LINE).is_multiple_of(stride_lines(n))
    }

    #[test]
    fn a_misleading_sample_costs_time_and_nothing_else() {
        let n = 40 * SAMPLE;
        let with = |seen: fn(usize) -> f32, hidden: fn(usize) -> f32| -> Vec<f32> {
            let value = |i| if sampled(i, n) { seen(i) } else { hidden(i) };
            (0..n).map(value).collect()
        };
        let k = n / 100;
        let high = with(|i| 2.0 + i as f32, |i| 1.0 / (1.0 + i as f32));
        let floor = sampled_floor(&high, &vec![0.0; n], k);
        let above = high.iter().filter(|x| magnitude(**x) > floor).count();
        assert!(above < k, "too few come");
        check(&high, k, "high sample");

        let low = with(|_| 0.0, |i| 1.0 + i as f32);
        let floor = sampled_floor(&low, &vec![0.0; n], k);
        assert_eq!(floor, NO_FLOOR, "all come, each larger than the one before");
        check(&low, k, "low sample");
    }

    #[test]
    fn a_sample_of_noise_lets_through_all_and_not_many_more() {
        let n = 1 << 18;
        for k in [n / 1000, n / 100, n / 10] {
            let floor = sampled_floor(&noise(3, n), &noise(4, n), k);
            let sums = noise(3, n).into_iter().zip(noise(4, n));
            let above = sums.filter(|(a, b)| magnitude(a + b) > floor).count();
            assert!((k..8 * k).contains(&above), "{above} for {k}");
        }
    }
}
