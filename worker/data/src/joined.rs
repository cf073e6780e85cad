//! Several sources as one.

use std::ops::Range;
use std::path::PathBuf;

use crate::{DataError, Field, Room, Rows, Source};

/// Sources of the same fields one after the other, their samples numbered through.
pub struct Joined {
    sources: Vec<Box<dyn Source>>,
    /// The number of the first sample of each source, and at last how many there are.
    firsts: Vec<usize>,
    fields: Vec<Field>,
}

impl Joined {
    /// Joins sources, of which those without samples have no part.
    ///
    /// # Errors
    /// Sources whose fields differ, by more than the most rows of those that vary; no source.
    pub fn new(sources: Vec<Box<dyn Source>>) -> Result<Self, DataError> {
        let Some(first) = sources.first() else {
            return Err(DataError::Asked("there is no source to join".into()));
        };
        let mut fields = first.fields().to_vec();
        let mut firsts = vec![0];
        for source in &sources {
            if !joined(&mut fields, source.fields()) {
                let listed = |fields: &[Field]| {
                    let fields: Vec<_> = fields.iter().map(described).collect();
                    fields.join(", ")
                };
                let (at, with) = (place(&**first), listed(first.fields()));
                let (other, differing) = (place(&**source), listed(source.fields()));
                let text = format!(
                    "{at} has the fields {with}, and {other} has {differing}: they cannot be joined"
                );
                return Err(DataError::Asked(text));
            }
            firsts.push(firsts[firsts.len() - 1] + source.len());
        }
        Ok(Self {
            sources,
            firsts,
            fields,
        })
    }

    /// The source of a sample, and its number there.
    fn place(&self, sample: usize) -> (usize, usize) {
        assert!(sample < self.len(), "{sample} of {} samples", self.len());
        let source = self.firsts.partition_point(|first| *first <= sample) - 1;
        (source, sample - self.firsts[source])
    }
}

/// With the classes.
fn described(field: &Field) -> String {
    let classes = field
        .classes
        .map_or_else(String::new, |classes| format!(" < {classes}"));
    format!("{field}{classes}")
}

/// Where a source is: by its first sample.
fn place(source: &dyn Source) -> String {
    match source.is_empty() {
        true => "a source without samples".into(),
        false => source.name(0),
    }
}

/// Raises the most rows to those of `others`; whether the fields are the same else.
fn joined(fields: &mut [Field], others: &[Field]) -> bool {
    let same = fields.len() == others.len();
    same && fields.iter_mut().zip(others).all(|(field, other)| {
        if let (Rows::Varying { most }, Rows::Varying { most: others }) =
            (&mut field.rows, other.rows)
        {
            *most = others.max(*most);
        }
        field.is_like(other)
    })
}

impl Source for Joined {
    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn len(&self) -> usize {
        self.firsts[self.sources.len()]
    }

    fn name(&self, sample: usize) -> String {
        let (source, sample) = self.place(sample);
        self.sources[source].name(sample)
    }

    fn read(&self, sample: usize, rooms: &mut [Room<'_>]) -> Result<(), DataError> {
        let (source, within) = self.place(sample);
        self.sources[source]
            .read(within, rooms)
            .map_err(|error| match error {
                DataError::Sample { name, reason, .. } => DataError::Sample {
                    number: sample,
                    name,
                    reason,
                },
                other => other,
            })
    }

    fn files(&self, samples: Range<usize>) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for (source, first) in self.sources.iter().zip(&self.firsts) {
            let begin = samples.start.max(*first);
            let end = samples.end.min(first + source.len());
            if begin < end {
                files.extend(source.files(begin - first..end - first));
            }
        }
        files
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::testing::Numbers;
    use crate::{Kind, Memory, read_batch};

    #[test]
    fn samples_are_numbered_through() {
        let sources: Vec<Box<dyn Source>> = vec![
            Box::new(Numbers::of(3)),
            Box::new(Numbers::of(0)),
            Box::new(Numbers::of(20)),
        ];
        let joined = Joined::new(sources).unwrap();
        assert_eq!(
            (joined.len(), joined.fields()),
            (23, Numbers::new().fields())
        );
        assert_eq!(joined.name(2), "the number 2");
        assert_eq!(joined.name(3), "the number 0");
        let batch = read_batch(&joined, &[22, 1, 4], &mut Memory {}).unwrap();
        let numbers: Vec<_> = Kind::I32.numbers(&batch.columns[0].values).collect();
        assert_eq!(numbers, [19.0, 1.0, 1.0]);
        let error = read_batch(&joined, &[16], &mut Memory {}).unwrap_err();
        assert_eq!(error.to_string(), "sample 16, the number 13: unlucky");
    }

    #[test]
    fn only_the_most_rows_may_differ() {
        let with = |change: &dyn Fn(&mut [Field])| {
            let mut other = Numbers::new();
            change(&mut other.0);
            Joined::new(vec![Box::new(Numbers::new()), Box::new(other)])
        };
        let more = with(&|fields| fields[1].rows = Rows::Varying { most: 9 });
        assert_eq!(more.unwrap().fields()[1].rows, Rows::Varying { most: 9 });
        let fewer = with(&|fields| fields[1].rows = Rows::Varying { most: 1 });
        assert_eq!(fewer.unwrap().fields()[1].rows, Rows::Varying { most: 2 });
        let refused = |change: &dyn Fn(&mut [Field])| {
            let Err(error) = with(change) else {
                panic!("they were joined")
            };
            error.to_string()
        };
        let text = refused(&|fields| fields[0].classes = Some(3));
        let want = "the number 0 has the fields number i32 [], rows u8 [≤ 2, 2], and the number 0 has number i32 [] < 3, rows u8 [≤ 2, 2]: they cannot be joined";
        assert_eq!(text, want);
        refused(&|fields| fields[0].name = "other".into());
        refused(&|fields| fields[0].kind = Kind::F32);
        refused(&|fields| fields[0].shape = vec![1]);
        refused(&|fields| fields[1].rows = Rows::One);
        assert!(Joined::new(vec![]).is_err());
    }
}
