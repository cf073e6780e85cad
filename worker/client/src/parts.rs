//! A contribution that comes into being while it is exchanged, bucket by bucket.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use tokio::sync::watch;
use tradewind_common::layout::Bucket;
use tradewind_common::{BlockId, Layout, TensorKind};

/// Values on their way up, in main memory.
#[derive(Clone, Debug)]
pub enum Values<'a> {
    /// As they are.
    F32(Cow<'a, [f32]>),
    /// The upper halves of f32, already encoded, with error feedback, by whoever has made them.
    Bf16(Cow<'a, [u16]>),
}

impl<'a> From<&'a [f32]> for Values<'a> {
    fn from(values: &'a [f32]) -> Self {
        Self::F32(values.into())
    }
}

impl<'a> From<&'a [u16]> for Values<'a> {
    fn from(encoded: &'a [u16]) -> Self {
        Self::Bf16(encoded.into())
    }
}

impl Values<'_> {
    fn part(self, range: Range<usize>) -> Self {
        match self {
            Self::F32(values) => Self::F32(part(values, range)),
            Self::Bf16(encoded) => Self::Bf16(part(encoded, range)),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::Bf16(encoded) => encoded.len(),
        }
    }

    /// # Panics
    /// If they are not of one form.
    fn and(self, later: Self) -> Self {
        match (self, later) {
            (Self::F32(values), Self::F32(later)) => Self::F32([values, later].concat().into()),
            (Self::Bf16(encoded), Self::Bf16(later)) => {
                Self::Bf16([encoded, later].concat().into())
            }
            (Self::F32(_), Self::Bf16(_)) | (Self::Bf16(_), Self::F32(_)) => {
                panic!("all buckets are encoded or none")
            }
        }
    }
}

fn part<T: Clone>(values: Cow<'_, [T]>, range: Range<usize>) -> Cow<'_, [T]> {
    match values {
        Cow::Borrowed(values) => values[range].into(),
        Cow::Owned(values) => values[range].to_vec().into(),
    }
}

/// Memory that is lent until an exchange has ended, and does not change until then.
pub trait Lent: Send + Sync {
    /// What it holds.
    fn values(&self) -> Values<'_>;
}

impl Lent for Vec<f32> {
    fn values(&self) -> Values<'_> {
        self.as_slice().into()
    }
}

/// What a rank sends of each of its group's buckets, and of the model's buffers: the same at every
/// exchange.
#[derive(Debug)]
pub struct Plan {
    /// Ranges of the flat vector: the buckets' and then, if there are any, the buffers'.
    sources: Vec<Range<usize>>,
    buckets: usize,
    /// What the slice has of each, as ranges of it; adjoining ones are one.
    own: Vec<Vec<Range<usize>>>,
    /// Of each block of the slice, where it is.
    blocks: Vec<Vec<Place>>,
}

/// A part of a block: what is kept of one source has it in this range.
#[derive(Debug)]
struct Place {
    source: usize,
    kept: Range<usize>,
}

impl Plan {
    /// For a slice of `layout`, in a group that averages in `buckets`.
    pub fn new(layout: &Layout, buckets: &[Bucket], slice: &[BlockId]) -> Self {
        let mut sources: Vec<_> = buckets.iter().map(|b| b.elements.clone()).collect();
        sources.push(layout.of_kind(TensorKind::Buffer));
        sources.retain(|source| !source.is_empty());
        let mut own: Vec<Vec<Range<usize>>> = vec![Vec::new(); sources.len()];
        let mut kept = vec![0; sources.len()];
        let mut blocks: Vec<Vec<Place>> = layout.blocks.iter().map(|_| Vec::new()).collect();
        for id in slice {
            let block = &layout.block(*id).expect("a block of the layout").elements;
            let first = sources.partition_point(|source| source.end <= block.start);
            for (at, source) in sources.iter().enumerate().skip(first) {
                let begin = block.start.max(source.start);
                let end = block.end.min(source.end);
                if begin >= end {
                    break;
                }
                let range = begin - source.start..end - source.start;
                blocks[id.0 as usize].push(Place {
                    source: at,
                    kept: kept[at]..kept[at] + range.len(),
                });
                kept[at] += range.len();
                match own[at].last_mut() {
                    Some(run) if run.end == range.start => run.end = range.end,
                    _ => own[at].push(range),
                }
            }
        }
        Self {
            sources,
            buckets: buckets.len(),
            own,
            blocks,
        }
    }

    /// How many buckets there are, the buffers counted as one.
    pub fn parts(&self) -> usize {
        self.sources.len()
    }

    /// The ranges of a bucket that the rank sends, in order.
    ///
    /// # Panics
    /// If there is no such bucket.
    pub fn own(&self, bucket: usize) -> &[Range<usize>] {
        &self.own[bucket]
    }

    /// What the rank keeps of a bucket and does not send where these buckets are skipped: ranges of what
    /// it has of it, one after the other.
    pub fn withheld(&self, bucket: usize, skipped: impl Fn(usize) -> bool) -> Vec<Range<usize>> {
        let with_others = self.blocks.iter().filter(|places| places.len() > 1);
        let withheld = with_others.filter(|places| places.iter().any(|at| skipped(at.source)));
        let places = withheld.flatten().filter(|at| at.source == bucket);
        places.map(|at| at.kept.clone()).collect()
    }
}

/// One contribution. Buckets are given in any order, from any thread; blocks are sent in the order
/// that all groups keep, the flat one, so a bucket that is early waits for those before it.
pub struct Parts {
    plan: Arc<Plan>,
    /// Of each bucket, and of the buffers, what the slice has, one after the other; `None` is a skip.
    parts: Vec<OnceLock<Option<Arc<dyn Lent>>>>,
    /// So many of them from the first on are there.
    ready: watch::Sender<usize>,
}

impl Parts {
    /// Nothing is there yet.
    pub fn new(plan: &Arc<Plan>) -> Self {
        Self {
            plan: plan.clone(),
            parts: plan.own.iter().map(|_| OnceLock::new()).collect(),
            ready: watch::Sender::new(0),
        }
    }

    /// A bucket's values are final; `None` skips the blocks that have part of it. Copies what the rank
    /// sends of it.
    ///
    /// # Panics
    /// If there is no such bucket, it was given before, or has another length.
    pub fn give(&self, bucket: usize, values: Option<&[f32]>) {
        let part = values.map(|values| {
            let want = self.plan.sources[bucket].len();
            assert_eq!(values.len(), want, "values of the whole bucket");
            let own = self.plan.own[bucket].iter();
            let own = own.flat_map(|range| &values[range.clone()]);
            Arc::new(own.copied().collect::<Vec<f32>>()) as Arc<dyn Lent>
        });
        self.lend(bucket, part);
    }

    /// As [`give`](Self::give), of all buffers; nothing where the model has none.
    pub fn give_buffers(&self, values: Option<&[f32]>) {
        if self.plan.sources.len() > self.plan.buckets {
            self.give(self.plan.buckets, values);
        }
    }

    /// As [`give`](Self::give), of what the slice has of a bucket, one after the other, without a copy.
    ///
    /// # Panics
    /// As `give`.
    pub fn lend(&self, bucket: usize, part: Option<Arc<dyn Lent>>) {
        if let Some(part) = &part {
            let want: usize = self.plan.own[bucket].iter().map(Range::len).sum();
            let got = part.values().len();
            assert_eq!(got, want, "the slice's part of the bucket");
        }
        let given = self.parts[bucket].set(part);
        assert!(given.is_ok(), "a bucket is given once");
        self.ready.send_if_modified(|ready| {
            let before = *ready;
            *ready = self.first_missing(before);
            *ready > before
        });
    }

    fn first_missing(&self, from: usize) -> usize {
        let mut rest = self.parts.iter().skip(from);
        let missing = rest.position(|part| part.get().is_none());
        missing.map_or(self.parts.len(), |at| from + at)
    }

    /// How many of the buckets that are there are skipped.
    pub fn skipped(&self) -> usize {
        let given = self.parts.iter().filter_map(OnceLock::get);
        given.filter(|part| part.is_none()).count()
    }

    /// Waits until a block of the slice may be sent. May be dropped and called again.
    pub(crate) async fn ready(&self, block: BlockId) {
        let last = self.places(block).last().expect("blocks are not empty");
        let mut ready = self.ready.subscribe();
        let open = ready.wait_for(|ready| *ready > last.source).await;
        open.expect("its sender is borrowed");
    }

    /// The values of a block that is ready; `None` if any of it is skipped. Copied only where the block
    /// has parts of several buckets.
    ///
    /// # Panics
    /// If a bucket that it has part of is not there.
    pub(crate) fn values(&self, block: BlockId) -> Option<Values<'_>> {
        let part = |place: &Place| {
            let part = self.parts[place.source].get();
            let part = part.expect("the bucket is there").as_ref()?;
            Some(part.values().part(place.kept.clone()))
        };
        let parts = self.places(block).iter().map(part);
        parts.reduce(|sum, part| Some(sum?.and(part?))).flatten()
    }

    /// Waits until all is there; what of it is f32 and not skipped, in flat order.
    #[cfg(any(test, feature = "testing"))]
    pub async fn whole(&self) -> Vec<f32> {
        let mut ready = self.ready.subscribe();
        let all = ready.wait_for(|ready| *ready == self.parts.len()).await;
        drop(all.expect("its sender is borrowed"));
        let parts = self.parts.iter().filter_map(|part| part.get()?.as_ref());
        let values = parts.map(|part| match part.values() {
            Values::F32(values) => values.to_vec(),
            Values::Bf16(_) => Vec::new(),
        });
        values.flatten().collect()
    }

    fn places(&self, block: BlockId) -> &[Place] {
        let places = self.plan.blocks.get(block.0 as usize);
        places
            .filter(|places| !places.is_empty())
            .expect("a block of the slice")
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use tradewind_common::TensorSpec;

    use super::*;

    /// In flat order: blocks of 3, 3 and 2 values in buckets of 4 and 4, and one of statistics of 2. The
    /// slice is all but the first.
    fn plan() -> Arc<Plan> {
        let tensor = |name: &str, elements, kind| TensorSpec {
            name: name.into(),
            shape: vec![elements],
            kind,
        };
        let specs = [
            tensor("first", 4, TensorKind::Parameter),
            tensor("mean", 2, TensorKind::Buffer),
            tensor("last", 4, TensorKind::Parameter),
        ];
        let layout = Layout::new(&specs, 12).unwrap();
        let ends = layout.blocks.iter().map(|block| block.elements.end);
        assert_eq!(ends.collect::<Vec<_>>(), [2, 5, 8, 10]);
        let buckets = layout.buckets(16);
        assert_eq!(buckets.len(), 2);
        Arc::new(Plan::new(&layout, &buckets, &[1, 2, 3].map(BlockId)))
    }

    fn is_ready(parts: &Parts, block: u32) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let ready = pin!(parts.ready(BlockId(block)));
        ready.poll(&mut context) == Poll::Ready(())
    }

    fn check(given: &[usize], want: [bool; 3]) {
        let parts = Parts::new(&plan());
        let lengths = [4, 4, 2];
        for bucket in given {
            parts.give(*bucket, Some(&vec![1.0; lengths[*bucket]]));
        }
        assert_eq!([1, 2, 3].map(|b| is_ready(&parts, b)), want, "{given:?}");
    }

    #[test]
    fn blocks_wait_for_all_that_is_sent_before_them() {
        check(&[], [false, false, false]);
        // The first block of the slice has a value of the second bucket.
        check(&[0], [false, false, false]);
        check(&[1], [false, false, false]);
        check(&[1, 0], [true, true, false]);
        check(&[2, 0], [false, false, false]);
        check(&[2, 0, 1], [true, true, true]);
        check(&[2, 1, 0], [true, true, true]);
    }

    #[test]
    fn what_waits_is_woken() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let parts = Parts::new(&plan());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| runtime.block_on(parts.ready(BlockId(2))));
            parts.give(1, None);
            parts.give(0, None);
            waits.join().unwrap();
        });
    }

    #[test]
    fn a_block_is_put_together_or_skipped_with_any_of_its_buckets() {
        let check = |given: [Option<&[f32]>; 3], want: [Option<&[f32]>; 3], skipped| {
            let parts = Parts::new(&plan());
            parts.give(0, given[0]);
            parts.give(1, given[1]);
            parts.give_buffers(given[2]);
            for (block, want) in (1..).zip(want) {
                match parts.values(BlockId(block)) {
                    Some(Values::F32(values)) => assert_eq!(Some(&*values), want, "{block}"),
                    Some(Values::Bf16(_)) => panic!("nothing was encoded"),
                    None => assert_eq!(None, want, "{block}"),
                }
            }
            assert_eq!(parts.skipped(), skipped);
        };
        let first: &[f32] = &[1.0, 2.0, 3.0, 4.0];
        let (second, buffers): (&[f32], &[f32]) = (&[5.0, 6.0, 7.0, 8.0], &[9.0, 10.0]);
        let (across, within): (&[f32], &[f32]) = (&[3.0, 4.0, 5.0], &[6.0, 7.0, 8.0]);
        check(
            [Some(first), Some(second), None],
            [Some(across), Some(within), None],
            1,
        );
        check(
            [None, Some(second), Some(buffers)],
            [None, Some(within), Some(buffers)],
            1,
        );
        check([Some(first), None, None], [None, None, None], 2);
        assert_eq!(
            plan().withheld(0, |bucket| bucket == 1),
            vec![Range { start: 0, end: 2 }]
        );
        assert_eq!(
            plan().withheld(1, |bucket| bucket == 0),
            vec![Range { start: 0, end: 1 }]
        );
        assert!(plan().withheld(1, |bucket| bucket == 2).is_empty());
    }
}
