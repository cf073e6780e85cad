//! What the ranks of a group tell each other beside finiteness where each runs a script of a person's: scripts
//! may go different ways, which collectives would not survive.

use crate::step::Copied;

/// Where a rank is in its script, with the batches that it has taken since the last step.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// A step, which has so many batches.
    Step(u32),
    /// A backward that averages, after another one since the last step.
    Backward(u32),
}

/// The ranks of a group do not do the same; what a person can do.
#[derive(Debug)]
pub struct Misused(pub String);

/// Values of one rank, which become their sums: a loss, of two numbers that have to be the same the number
/// and its square, and what was copied.
#[derive(Debug)]
pub struct Agreed(pub [f64; 7]);

/// Sums of squares stay exact.
const NUMBER_MAX: u32 = (1 << 18) - 1;

impl Agreed {
    /// Those of a rank at `place`; `options` is below 2^18.
    pub fn new(place: Place, options: u32, loss: f64, copied: Copied) -> Self {
        let number = match place {
            Place::Step(batches) => batches.saturating_mul(2).saturating_add(1),
            Place::Backward(batches) => batches.saturating_mul(2),
        };
        let [place, options] = [number, options].map(|number| f64::from(number.min(NUMBER_MAX)));
        Self([
            loss,
            place,
            place * place,
            options,
            options * options,
            copied.bytes as f64,
            copied.seconds,
        ])
    }

    /// Once they are sums.
    pub fn loss_sum(&self) -> f64 {
        self.0[0]
    }

    /// Once they are sums.
    pub fn copied_sum(&self) -> Copied {
        let [.., bytes, seconds] = self.0;
        Copied {
            bytes: bytes as u64,
            seconds,
        }
    }

    /// Once they are sums: what the ranks, `size` of them, do not do alike. The same on all ranks.
    pub fn misused(&self, own: Place, size: u32) -> Option<Misused> {
        let [_, place, places, options, option_squares, ..] = self.0;
        let size = f64::from(size);
        // The mean of squares is the square of the mean only if all are equal.
        if size * places != place * place {
            let (batches, at) = match own {
                Place::Step(batches) => (batches, "a step"),
                Place::Backward(batches) => (batches, "a backward"),
            };
            return Some(Misused(format!(
                "the ranks of the group have taken different numbers of batches since the last step, this one \
                 {batches} before {at}: all ranks take as many for a step, and call backward as often"
            )));
        }
        (size * option_squares != options * options).then(|| {
            Misused(
                "the optimizers of the group's ranks have different options, such as the learning rate: all \
                 ranks set the same; a rank that was started again goes on with its scheduler where the others are"
                    .into(),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_differ_are_told_by_all_of_them() {
        let check = |ranks: &[(Place, u32)], want: Option<&str>| {
            let mut sums = Agreed([0.0; 7]);
            for (place, options) in ranks {
                let copied = Copied {
                    bytes: 3,
                    seconds: 0.5,
                };
                let own = Agreed::new(*place, *options, 1.0, copied).0;
                sums.0
                    .iter_mut()
                    .zip(own)
                    .for_each(|(sum, own)| *sum += own);
            }
            assert_eq!(sums.loss_sum(), ranks.len() as f64);
            let copied = sums.copied_sum();
            assert_eq!(copied.bytes, 3 * ranks.len() as u64);
            assert_eq!(copied.seconds, 0.5 * ranks.len() as f64);
            for (place, _) in ranks {
                let told = sums.misused(*place, ranks.len() as u32);
                let said = told.map(|Misused(text)| text);
                assert_eq!(said.is_some(), want.is_some(), "{said:?}");
                assert!(said.is_none_or(|said| said.contains(want.unwrap_or(""))));
            }
        };
        let (step, backward) = (Place::Step, Place::Backward);
        check(&[(step(1), 7)], None);
        check(&[(step(2), 7), (step(2), 7), (step(2), 7)], None);
        check(&[(backward(2), 0), (backward(2), 0)], None);
        let batches = Some("different numbers of batches");
        // The mean of the others is that of the one in the middle.
        check(&[(step(1), 7), (step(2), 7), (step(3), 7)], batches);
        check(&[(step(1), 0), (backward(2), 0)], batches);
        check(&[(step(2), 0), (backward(2), 0)], batches);
        check(&[(step(2), 7), (step(2), 8)], Some("different options"));
        let large = NUMBER_MAX;
        check(&vec![(step(5), large); 65_536], None);
    }
}
