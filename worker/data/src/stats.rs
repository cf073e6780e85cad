//! Statistics of fields: what normalisation needs, and what shows that data are not what one thinks.

use std::sync::Arc;

use serde::Serialize;

use crate::walk::{Progress, walk};
use crate::{DataError, Field, Source};

/// Which extent of a field counts channels, of which each has statistics of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Channels {
    /// None: all numbers together.
    #[default]
    Together,
    /// The first, as in `[channels, y, x]`.
    First,
    /// The last, as in `[y, x, channels]`.
    Last,
}

/// Of the numbers of a field, or of one of its channels.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Numbers {
    /// How many.
    pub count: u64,
    /// The least; NaN without numbers.
    pub min: f64,
    /// The greatest; NaN without numbers.
    pub max: f64,
    /// The mean; NaN without numbers.
    pub mean: f64,
    /// The square root of the mean square difference to the mean; NaN without numbers.
    pub deviation: f64,
}

/// Of one field.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FieldStats {
    /// The field.
    pub field: Field,
    /// By channel; one where they are together.
    pub channels: Vec<Numbers>,
    /// How many numbers there are of each class, where there are classes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<u64>,
    /// Least, mean and most rows of a sample, where their number varies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<(usize, f64, usize)>,
}

/// Sums of one channel: Chan, Golub and LeVeque 1983, "Algorithms for Computing the Sample Variance", equations
/// 1.5 for what is added to what there is.
#[derive(Clone, Copy, Debug)]
struct Sums {
    count: f64,
    mean: f64,
    squares: f64,
    min: f64,
    max: f64,
}

impl Sums {
    const NONE: Self = Self {
        count: 0.0,
        mean: 0.0,
        squares: 0.0,
        min: f64::INFINITY,
        max: f64::NEG_INFINITY,
    };

    /// Adds the numbers of one sample.
    fn add(&mut self, numbers: impl Iterator<Item = f64> + Clone) {
        let (mut count, mut sum) = (0.0, 0.0);
        for number in numbers.clone() {
            count += 1.0;
            sum += number;
            self.min = self.min.min(number);
            self.max = self.max.max(number);
        }
        if count == 0.0 {
            return;
        }
        let mean = sum / count;
        let squares: f64 = numbers.map(|number| (number - mean).powi(2)).sum();
        let all = self.count + count;
        let apart = mean - self.mean;
        self.squares += squares + apart * apart * self.count * count / all;
        self.mean += apart * count / all;
        self.count = all;
    }

    fn numbers(&self) -> Numbers {
        let or_none = |value: f64| if self.count > 0.0 { value } else { f64::NAN };
        Numbers {
            count: self.count as u64,
            min: or_none(self.min),
            max: or_none(self.max),
            mean: or_none(self.mean),
            deviation: (self.squares / self.count).sqrt(),
        }
    }
}

/// Reads every sample.
///
/// # Errors
/// A sample that cannot be read; a number that is not finite or no class.
pub fn stats(
    source: &Arc<dyn Source>,
    channels: Channels,
    readers: usize,
    progress: Progress<'_>,
) -> Result<Vec<FieldStats>, DataError> {
    let fields = source.fields();
    let strides: Vec<(usize, usize)> = fields.iter().map(|field| split(field, channels)).collect();
    let mut sums: Vec<Vec<Sums>> = strides.iter().map(|(n, _)| vec![Sums::NONE; *n]).collect();
    let of_classes = |field: &Field| vec![0; field.classes.unwrap_or(0) as usize];
    let mut classes: Vec<Vec<u64>> = fields.iter().map(of_classes).collect();
    let mut rows = vec![(usize::MAX, 0usize, 0usize); fields.len()];
    let mut bytes = 0;
    walk(source, readers, |sample, read| {
        for (at, column) in read?.columns.iter().enumerate() {
            let (field, values) = (&column.field, &column.values);
            let checked = field.check(values);
            checked.map_err(|reason| crate::source::unusable(&**source, sample, reason))?;
            let (count, run) = strides[at];
            let numbers: Vec<f64> = field.kind.numbers(values).collect();
            for (channel, sums) in sums[at].iter_mut().enumerate() {
                let own = numbers.chunks(run.max(1)).skip(channel).step_by(count);
                sums.add(own.flatten().copied());
            }
            if field.classes.is_some() {
                for number in &numbers {
                    classes[at][*number as usize] += 1;
                }
            }
            if field.varies() {
                let of_sample = values.len() / field.row_bytes().max(1);
                let (least, all, most) = rows[at];
                rows[at] = (least.min(of_sample), all + of_sample, most.max(of_sample));
            }
            bytes += values.len();
        }
        progress(sample + 1, bytes);
        Ok(())
    })?;
    let samples = source.len();
    let of_field = |(at, field): (usize, &Field)| {
        let (least, all, most) = rows[at];
        FieldStats {
            field: field.clone(),
            channels: sums[at].iter().map(Sums::numbers).collect(),
            classes: std::mem::take(&mut classes[at]),
            rows: (field.varies() && samples > 0)
                .then(|| (least, all as f64 / samples as f64, most)),
        }
    };
    Ok(fields.iter().enumerate().map(of_field).collect())
}

/// How many channels a field has, and how many neighbouring numbers are of the same.
fn split(field: &Field, channels: Channels) -> (usize, usize) {
    match (channels, &field.shape[..]) {
        (Channels::Together, _) | (_, []) => (1, 1),
        (Channels::First, [first, rest @ ..]) => (*first, rest.iter().product()),
        (Channels::Last, [.., last]) => (*last, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use crate::batch::testing::Numbers as Source0;
    use crate::packed::{Packed, Settings, Writer};

    #[test]
    fn by_hand() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pack");
        let fields = [
            Field::new("map", Kind::F32, &[2, 2]),
            Field::new("label", Kind::U8, &[]).classes(3),
        ];
        let mut writer = Writer::create(&path, &fields, Settings::default()).unwrap();
        for (map, label) in [
            ([1.0f32, 2.0, 1e6, 1e6], 2),
            ([3.0, 6.0, 1e6 + 2.0, 1e6], 0),
        ] {
            let map = map.map(f32::to_le_bytes);
            writer.push("one", &[map.as_flattened(), &[label]]).unwrap();
        }
        writer.finish().unwrap();
        let source: Arc<dyn Source> = Arc::new(Packed::open(&path).unwrap());
        let stats = |channels| stats(&source, channels, 2, &mut |_, _| {}).unwrap();
        let first = stats(Channels::First);
        let [upper, lower] = first[0].channels[..] else {
            panic!("{first:?}");
        };
        assert_eq!(
            (upper.count, upper.min, upper.max, upper.mean),
            (4, 1.0, 6.0, 3.0)
        );
        assert!((upper.deviation - 3.5f64.sqrt()).abs() < 1e-12, "{upper:?}");
        assert_eq!((lower.mean, lower.max), (1e6 + 0.5, 1e6 + 2.0));
        assert!((lower.deviation - 0.75f64.sqrt()).abs() < 1e-9, "{lower:?}");
        assert_eq!(first[1].classes, [1, 0, 1]);
        let last = stats(Channels::Last);
        assert_eq!(
            (last[0].channels[1].min, last[0].channels[1].max),
            (2.0, 1e6)
        );
        assert_eq!(stats(Channels::Together)[0].channels[0].count, 8);
    }

    #[test]
    fn rows_are_counted_and_bad_samples_are_named() {
        let source: Arc<dyn Source> = Arc::new(Source0::of(6));
        let found = stats(&source, Channels::Together, 1, &mut |_, _| {}).unwrap();
        assert_eq!(found[1].rows, Some((0, 1.0, 2)));
        assert_eq!(found[0].channels[0].mean, 2.5);
        let source: Arc<dyn Source> = Arc::new(Source0::of(20));
        let error = stats(&source, Channels::Together, 2, &mut |_, _| {}).unwrap_err();
        assert_eq!(error.to_string(), "sample 13, the number 13: unlucky");
    }
}
