//! How well scores tell signal from background, whatever the threshold: the receiver operating characteristic.

/// The curve of the rate of true positives over that of false ones.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Roc {
    /// How many of background and of signal have a score of at least some threshold: from none of both to all, one
    /// pair more for each score that occurs.
    counts: Vec<[u64; 2]>,
}

impl Roc {
    /// Of samples with their scores, the higher the more like signal, and whether they are signal. `None` without
    /// samples of both, or with a score that is no number: then there is no curve.
    ///
    /// # Panics
    /// If there are not as many of the one as of the other.
    pub(super) fn new(scores: &[f64], is_signal: &[bool]) -> Option<Self> {
        assert_eq!(scores.len(), is_signal.len());
        if scores.iter().any(|score| score.is_nan()) {
            return None;
        }
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_unstable_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        let mut counts = vec![[0, 0]];
        // Samples of equal scores pass a threshold together.
        for equal in order.chunk_by(|a, b| scores[*a] == scores[*b]) {
            let mut next = counts[counts.len() - 1];
            for sample in equal {
                next[usize::from(is_signal[*sample])] += 1;
            }
            counts.push(next);
        }
        let all = counts[counts.len() - 1];
        all.iter()
            .all(|count| *count > 0)
            .then_some(Self { counts })
    }

    /// Number of samples of background and of signal.
    fn all(&self) -> [u64; 2] {
        self.counts[self.counts.len() - 1]
    }

    /// The area under the curve: how often a sample of signal has a higher score than one of background, equal
    /// scores counting as half. That is the statistic of Mann and Whitney 1947, equation 1, over its largest value.
    pub(super) fn auc(&self) -> f64 {
        let areas = self.counts.windows(2).map(|pair| {
            let [[false_before, true_before], [false_after, true_after]] = [pair[0], pair[1]];
            u128::from(false_after - false_before) * u128::from(true_before + true_after)
        });
        let [background, signal] = self.all();
        areas.sum::<u128>() as f64 / (2 * u128::from(background) * u128::from(signal)) as f64
    }

    /// The largest rate of true positives that a threshold has whose rate of false ones is at most this.
    pub(super) fn true_rate(&self, false_rate_max: f64) -> f64 {
        let [background, signal] = self.all();
        let most = false_rate_max * background as f64;
        let within = self
            .counts
            .partition_point(|counts| counts[0] as f64 <= most);
        // The first threshold lets nothing pass.
        self.counts[within - 1][1] as f64 / signal as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As they are defined: over all pairs, and over all thresholds.
    fn slow(scores: &[f64], is_signal: &[bool], false_rate_max: f64) -> (f64, f64) {
        let of = |kind: bool| -> Vec<f64> {
            let samples = scores.iter().zip(is_signal);
            samples.filter(|is| *is.1 == kind).map(|is| *is.0).collect()
        };
        let (background, signal) = (of(false), of(true));
        let mut won = 0.0;
        for s in &signal {
            for b in &background {
                won += if s > b {
                    1.0
                } else if s == b {
                    0.5
                } else {
                    0.0
                };
            }
        }
        let rate = |of: &[f64], threshold: f64| {
            of.iter().filter(|score| **score >= threshold).count() as f64 / of.len() as f64
        };
        let thresholds = scores
            .iter()
            .filter(|at| rate(&background, **at) <= false_rate_max);
        let best = thresholds.map(|at| rate(&signal, *at)).fold(0.0, f64::max);
        (won / (background.len() * signal.len()) as f64, best)
    }

    #[test]
    fn it_is_what_the_definitions_say() {
        // With numbers that repeat, so that scores of signal and background are equal, too.
        for (seed, values) in [(1u64, 4), (2, 30), (3, 1_000_000), (4, 1)] {
            let mut state = seed;
            let mut draw = |n: u64| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 33) % n
            };
            let is_signal: Vec<bool> = (0..200).map(|_| draw(3) == 0).collect();
            let scores: Vec<f64> = (is_signal.iter())
                .map(|is| draw(values) as f64 + if *is { values as f64 / 3.0 } else { 0.0 })
                .map(f64::floor)
                .collect();
            let roc = Roc::new(&scores, &is_signal).unwrap();
            for most in [0.0, 0.01, 0.1, 0.5, 1.0] {
                let (auc, rate) = slow(&scores, &is_signal, most);
                assert!(
                    (roc.auc() - auc).abs() < 1e-12,
                    "{} is not {auc}",
                    roc.auc()
                );
                assert_eq!(roc.true_rate(most), rate, "{values} values, at {most}");
            }
        }
    }

    #[test]
    fn by_hand() {
        let check = |scores: &[f64], want: Option<(f64, f64)>| {
            let is_signal: Vec<bool> = (0..scores.len()).map(|at| at % 2 == 1).collect();
            let roc = Roc::new(scores, &is_signal);
            let got = roc.map(|roc| (roc.auc(), roc.true_rate(0.0)));
            assert_eq!(got, want, "{scores:?}");
        };
        // Background and signal by turns.
        check(&[0.0, 1.0, 0.5, 2.0], Some((1.0, 1.0)));
        check(&[1.0, 0.0, 2.0, 0.5], Some((0.0, 0.0)));
        check(&[1.0, 1.0, 1.0, 1.0], Some((0.5, 0.0)));
        check(&[1.0, 1.0, 0.0, 2.0], Some((0.875, 0.5)));
        check(&[-0.0, 0.0], Some((0.5, 0.0)));
        check(&[f64::NAN, 1.0], None);
        check(&[1.0], None);
        check(&[], None);
    }
}
