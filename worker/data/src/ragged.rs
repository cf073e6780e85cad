//! Where the rows of each sample are, in files of several samples whose numbers of rows differ.

use std::ops::Range;

/// The rows of one sample behind those of another.
#[derive(Debug)]
pub(crate) struct Ragged {
    /// Where the rows of each sample begin, and at last where they end.
    begins: Vec<usize>,
}

impl Ragged {
    /// As the numbers of a data set say, of which there is one more than there are samples.
    ///
    /// # Errors
    /// What is wrong with them: they are no whole numbers, do not begin at 0, fall, or do not end at `rows`.
    pub fn new(begins: Option<&[i64]>, rows: usize) -> Result<Self, String> {
        let begins = begins.ok_or("it does not hold whole numbers")?;
        let (Some(0), Some(last)) = (begins.first(), begins.last()) else {
            return Err(format!(
                "it begins with {:?}: the rows of the first sample begin at 0",
                &begins[..begins.len().min(1)]
            ));
        };
        if let Some(at) = begins.windows(2).position(|pair| pair[1] < pair[0]) {
            let (sample, begin, end) = (at, begins[at], begins[at + 1]);
            return Err(format!(
                "the rows of sample {sample} begin at {begin} and end at {end}"
            ));
        }
        if *last != rows as i64 {
            return Err(format!(
                "the rows of the last sample end at {last}, and there are {rows}: it has a number for each sample, and at last the number of rows"
            ));
        }
        let begins = begins.iter().map(|begin| *begin as usize);
        Ok(Self {
            begins: begins.collect(),
        })
    }

    /// How many samples there are.
    pub fn samples(&self) -> usize {
        self.begins.len() - 1
    }

    /// The rows of a sample.
    ///
    /// # Errors
    /// They are more than the layout says.
    ///
    /// # Panics
    /// If there is no such sample.
    pub fn rows(&self, sample: usize, most: usize) -> Result<Range<usize>, String> {
        let rows = self.begins[sample]..self.begins[sample + 1];
        match rows.len() <= most {
            true => Ok(rows),
            false => Err(format!(
                "has {} rows, and the layout says at most {most}; raise the number in the layout",
                rows.len()
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_the_rows_between_two_numbers() {
        let ragged = Ragged::new(Some(&[0, 2, 2, 5]), 5).unwrap();
        assert_eq!(ragged.samples(), 3);
        let rows = [0, 1, 2].map(|sample| ragged.rows(sample, 3).unwrap());
        assert_eq!(rows, [0..2, 2..2, 2..5]);
        let error = ragged.rows(2, 2).unwrap_err();
        assert!(error.contains("has 3 rows, and the layout says at most 2"));
        assert_eq!(Ragged::new(Some(&[0]), 0).unwrap().samples(), 0);
    }

    #[test]
    fn numbers_that_are_no_beginnings_are_told() {
        let check = |begins: Option<&[i64]>, want: &str| {
            let error = Ragged::new(begins, 5).unwrap_err();
            assert!(error.contains(want), "{error}");
        };
        check(None, "whole numbers");
        check(Some(&[]), "it begins with []");
        check(Some(&[1, 5]), "it begins with [1]");
        check(
            Some(&[0, 3, 2, 5]),
            "the rows of sample 1 begin at 3 and end at 2",
        );
        check(
            Some(&[0, -3, 5]),
            "the rows of sample 0 begin at 0 and end at -3",
        );
        check(Some(&[0, 2, 4]), "end at 4, and there are 5");
        check(Some(&[0, 2, 6]), "end at 6, and there are 5");
    }
}
