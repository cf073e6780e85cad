//! A contribution that comes into being while it is exchanged, bucket by bucket.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use tokio::sync::watch;
use tradewind_common::{BlockId, Layout};

/// Values on their way up, in main memory.
#[derive(Clone, Copy, Debug)]
pub enum Values<'a> {
    /// As they are.
    F32(&'a [f32]),
    /// The upper halves of f32, already encoded, with error feedback, by whoever has made them.
    Bf16(&'a [u16]),
}

impl<'a> Values<'a> {
    fn part(self, range: Range<usize>) -> Self {
        match self {
            Self::F32(values) => Self::F32(&values[range]),
            Self::Bf16(values) => Self::Bf16(&values[range]),
        }
    }

    fn len(self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::Bf16(values) => values.len(),
        }
    }
}

/// Memory that is lent until an exchange has ended, and does not change until then.
pub trait Lent: Send + Sync {
    /// What it holds.
    fn values(&self) -> Values<'_>;
}

impl Lent for Vec<f32> {
    fn values(&self) -> Values<'_> {
        Values::F32(self)
    }
}

/// What of each bucket a rank sends: the same at every exchange.
#[derive(Debug)]
pub struct Plan {
    layout: Arc<Layout>,
    /// The blocks of the slice in each bucket, as ranges of the bucket.
    own: Vec<Vec<Range<usize>>>,
    /// Of each block of the slice: its bucket, and its range of what is kept of it.
    blocks: Vec<Option<(usize, Range<usize>)>>,
}

impl Plan {
    /// For a slice of `layout`.
    pub fn new(layout: &Arc<Layout>, slice: &[BlockId]) -> Self {
        let slice: BTreeSet<&BlockId> = slice.iter().collect();
        let mut own = vec![Vec::new(); layout.buckets.len()];
        let mut blocks = vec![None; layout.blocks.len()];
        for (at, bucket) in layout.buckets.iter().enumerate() {
            let mut kept = 0;
            for index in bucket.blocks.clone() {
                let block = &layout.blocks[index];
                if slice.contains(&block.id) {
                    let start = block.elements.start - bucket.elements.start;
                    let length = block.elements.len();
                    own[at].push(start..start + length);
                    blocks[index] = Some((at, kept..kept + length));
                    kept += length;
                }
            }
        }
        Self {
            layout: layout.clone(),
            own,
            blocks,
        }
    }

    /// The ranges of a bucket that the rank sends: its blocks, in order.
    ///
    /// # Panics
    /// If there is no such bucket.
    pub fn own(&self, bucket: usize) -> &[Range<usize>] {
        &self.own[bucket]
    }
}

/// One contribution. Buckets are given in any order, from any thread; blocks are sent in the order
/// that all groups keep, the flat one, so a bucket that is early waits for those before it.
pub struct Parts {
    plan: Arc<Plan>,
    /// Of each bucket the slice's blocks one after the other; `None` is a skip.
    parts: Vec<OnceLock<Option<Arc<dyn Lent>>>>,
    /// So many buckets from the first on are there.
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

    /// A bucket's values are final; `None` skips its blocks. Copies what the rank sends of it.
    ///
    /// # Panics
    /// If there is no such bucket, it was given before, or has another length.
    pub fn give(&self, bucket: usize, values: Option<&[f32]>) {
        let part = values.map(|values| {
            let want = self.plan.layout.buckets[bucket].elements.len();
            assert_eq!(values.len(), want, "values of the whole bucket");
            let own = self.plan.own[bucket].iter();
            let own = own.flat_map(|range| &values[range.clone()]);
            Arc::new(own.copied().collect::<Vec<f32>>()) as Arc<dyn Lent>
        });
        self.lend(bucket, part);
    }

    /// As [`give`](Self::give), of the slice's blocks of a bucket, one after the other, without a
    /// copy.
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
        let (bucket, _) = self.place_of(block);
        let mut ready = self.ready.subscribe();
        let open = ready.wait_for(|ready| *ready > *bucket).await;
        open.expect("its sender is borrowed");
    }

    /// The values of a block that is ready; `None` if it is skipped.
    ///
    /// # Panics
    /// If its bucket is not there.
    pub(crate) fn values(&self, block: BlockId) -> Option<Values<'_>> {
        let (bucket, range) = self.place_of(block);
        let part = self.parts[*bucket].get().expect("the bucket is there");
        part.as_ref().map(|part| part.values().part(range.clone()))
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

    fn place_of(&self, block: BlockId) -> &(usize, Range<usize>) {
        let place = self.plan.blocks.get(block.0 as usize);
        place
            .and_then(Option::as_ref)
            .expect("a block of the slice")
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use tradewind_common::{Rank, TensorKind, TensorSpec};

    use super::*;

    /// In flat order: a bucket of 4 values in 2 blocks, one of 3 in 2 blocks, one of statistics of 2.
    /// The slice is rank 1's of 2: blocks 1, 2 and 4.
    fn plan() -> Arc<Plan> {
        let tensor = |name: &str, elements, kind| TensorSpec {
            name: name.into(),
            shape: vec![elements],
            kind,
        };
        let specs = [
            tensor("first", 3, TensorKind::Parameter),
            tensor("mean", 2, TensorKind::Buffer),
            tensor("last", 4, TensorKind::Parameter),
        ];
        let layout = Arc::new(Layout::new(&specs, 4, 8).unwrap());
        let slice = layout.slice(Rank(1), 2);
        assert_eq!(slice, [1, 2, 4].map(BlockId));
        Arc::new(Plan::new(&layout, &slice))
    }

    fn is_ready(parts: &Parts, block: u32) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let ready = pin!(parts.ready(BlockId(block)));
        ready.poll(&mut context) == Poll::Ready(())
    }

    fn check(given: &[usize], want: [bool; 3]) {
        let parts = Parts::new(&plan());
        let lengths = [4, 3, 2];
        for bucket in given {
            parts.give(*bucket, Some(&vec![1.0; lengths[*bucket]]));
        }
        assert_eq!([1, 2, 4].map(|b| is_ready(&parts, b)), want, "{given:?}");
    }

    #[test]
    fn blocks_wait_for_all_that_is_sent_before_them() {
        check(&[], [false, false, false]);
        check(&[0], [true, false, false]);
        check(&[1], [false, false, false]);
        check(&[1, 0], [true, true, false]);
        check(&[2, 0], [true, false, false]);
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
    fn the_slice_of_a_bucket_is_kept() {
        let parts = Parts::new(&plan());
        parts.give(0, Some(&[1.0, 2.0, 3.0, 4.0]));
        parts.give(1, Some(&[5.0, 6.0, 7.0]));
        parts.give(2, None);
        let check = |block, want: Option<&[f32]>| match parts.values(BlockId(block)) {
            Some(Values::F32(values)) => assert_eq!(Some(values), want),
            Some(Values::Bf16(_)) => panic!("nothing was encoded"),
            None => assert_eq!(None, want),
        };
        check(1, Some(&[3.0, 4.0]));
        check(2, Some(&[5.0]));
        check(4, None);
        assert_eq!(parts.skipped(), 1);
    }
}
