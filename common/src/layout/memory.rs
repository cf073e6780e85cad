//! Where the flat vector's tensors stand in a rank's memory. It has gaps, of less than [`ALIGN_BYTES`] behind
//! each tensor, which never leave the rank.

use std::ops::Range;

use super::{ALIGN_BYTES, Layout};

/// A rank's memory for a flat vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// In order; together they are the whole vector.
    stretches: Vec<Stretch>,
}

/// Elements that are neighbours in memory, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Range of the flat vector.
    pub elements: Range<usize>,
    /// As long, of the memory.
    pub memory: Range<usize>,
}

impl Memory {
    /// For the tensors of `layout`: each begins at a multiple of [`ALIGN_BYTES`].
    pub fn of(layout: &Layout) -> Self {
        let mut stretches: Vec<Stretch> = Vec::new();
        for tensor in &layout.tensors {
            let elements = tensor.elements.clone();
            let end = stretches.last().map_or(0, |last| last.memory.end);
            let start = end.next_multiple_of(ALIGN_BYTES / size_of::<f32>());
            let memory = start..start + elements.len();
            match stretches.last_mut() {
                Some(open) if end == start => {
                    (open.elements.end, open.memory.end) = (elements.end, memory.end);
                }
                _ => stretches.push(Stretch { elements, memory }),
            }
        }
        Self { stretches }
    }

    /// Its length, with its gaps, in elements.
    pub fn len(&self) -> usize {
        self.stretches.last().map_or(0, |last| last.memory.end)
    }

    /// Whether there is nothing to hold, which no [`Layout`] allows.
    pub fn is_empty(&self) -> bool {
        self.stretches.is_empty()
    }

    /// Where a range of the flat vector stands, in order.
    pub fn stretches(&self, elements: &Range<usize>) -> impl Iterator<Item = Stretch> {
        let (begin, end) = (elements.start, elements.end);
        let ended = |stretch: &Stretch| stretch.elements.end <= begin;
        let first = self.stretches.partition_point(ended);
        let reached = self.stretches[first..].iter();
        let reached = reached.take_while(move |stretch| stretch.elements.start < end);
        reached.map(move |stretch| {
            let elements = stretch.elements.start.max(begin)..stretch.elements.end.min(end);
            let start = stretch.memory.start + elements.start - stretch.elements.start;
            Stretch {
                memory: start..start + elements.len(),
                elements,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{TensorKind, TensorSpec};

    #[test]
    fn ranges_are_found_in_memory() {
        let tensor = |(name, elements): (&str, u64)| TensorSpec {
            name: name.into(),
            shape: vec![elements],
            kind: TensorKind::Parameter,
        };
        let layout = Layout::new(&[("a", 10), ("b", 64), ("c", 3)].map(tensor), 40).unwrap();
        let memory = Memory::of(&layout);
        let check = |elements: Range<usize>, want: &[(Range<usize>, Range<usize>)]| {
            let found = memory.stretches(&elements);
            let found: Vec<_> = found.map(|s| (s.elements, s.memory)).collect();
            assert_eq!(found, want, "{elements:?}");
        };
        check(0..3, &[(0..3, 0..3)]);
        check(1..5, &[(1..3, 1..3), (3..5, 64..66)]);
        // No gap behind b.
        check(60..70, &[(60..70, 121..131)]);
        check(0..77, &[(0..3, 0..3), (3..77, 64..138)]);
        assert_eq!((layout.elements(), memory.len()), (77, 138));
    }
}
