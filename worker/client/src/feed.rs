//! Which samples a rank takes, batch by batch. Batches may be prepared ahead: they are asked for before they
//! are handed out.
//!
//! Under `sync` they follow from (clock, rank), whoever else is there. Otherwise the coordinator leases chunks
//! to the group. Where all ranks ask for batches at the same step, its rank 0 leases and tells the others
//! ([`Feed::next`]). Where each prepares batches as it likes, each asks for itself ([`Feed::next_apart`]): the
//! coordinator gives a chunk that an incarnation has, and that the one who asks has not seen, again.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use tradewind_common::batch::{BatchStep, Batches};
use tradewind_common::data::{CHUNKS_HELD_MAX, Chunk, Chunking, DataSets, FORGOTTEN_MAX};
use tradewind_common::shares::{first_step, sync_share};
use tradewind_common::spec::RunSpec;
use tradewind_common::{Clock, GroupId, Rank};

use crate::coordinator::MembershipError;
use crate::order::{permutation, permutation_of_set};
use crate::ranks::{Broken, Ranks};

/// Where chunks come from: finished and held chunk numbers in, the next chunk out.
pub type Lease<'a> = &'a mut dyn FnMut(Vec<u64>, Vec<u64>) -> Result<Chunk, MembershipError>;

/// Why there is no next batch.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// The group broke.
    #[error(transparent)]
    Group(#[from] Broken),
    /// No chunk could be leased.
    #[error(transparent)]
    Lease(#[from] MembershipError),
    /// An epoch is too short for a single global batch.
    #[error(
        "{what} has {samples} samples, fewer than one batch of {batch} for each of {ranks} ranks; lower train.batch or what train.batch_ramp ends with{or_sets}", what = of_sets(*sets, ["the training split", "a set of training data"]), or_sets = of_sets(*sets, ["", ", or loader.sets"])
    )]
    TooFew {
        /// Sets that the split is cut into.
        sets: u32,
        /// Samples in the shortest of them.
        samples: u64,
        /// Samples per rank.
        batch: u32,
        /// Ranks that share a step.
        ranks: u32,
    },
}

/// Whose batches, and from where on.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The group.
    pub group: GroupId,
    /// The rank in it, as configured.
    pub rank: Rank,
    /// The first clock.
    pub start: Clock,
    /// Where the run's data begin under `sync`.
    pub origin: (Clock, u64),
}

/// The batches of one rank.
pub struct Feed {
    plan: Plan,
    place: Place,
    /// Under `sync`, in steps: of the next batch to be handed out, and to be asked for.
    due: Clock,
    clock: Clock,
    order: Order,
    leased: Option<Leased>,
    /// Chunks with the number of steps that they still have to come.
    held: VecDeque<(u64, u64)>,
    finished: Vec<u64>,
    /// Of those that somebody was told of the last ones, which are told again: a coordinator that comes after
    /// another one may not have heard of them.
    told: VecDeque<u64>,
    /// Sets that are about to be copied.
    wanted: BTreeSet<u32>,
    /// The epoch and the set of the batch at which that was found.
    wanted_at: Option<(u64, u32)>,
}

/// Checks that an epoch holds at least one batch of the ranks that share a step with `group`.
pub fn check_batch(spec: &RunSpec, group: GroupId) -> Result<(), FeedError> {
    let sizes = &spec.group_sizes;
    let ranks = match spec.consistency.waits_for_all() {
        true => sizes.iter().sum(),
        false => sizes[group.0 as usize],
    };
    let (sets, batch) = (spec.sets.count, spec.batches().largest());
    let samples = spec.epoch_samples / u64::from(sets);
    if u64::from(ranks) * u64::from(batch) <= samples {
        return Ok(());
    }
    Err(FeedError::TooFew {
        sets,
        samples,
        batch,
        ranks,
    })
}

/// One of two words: of data that are one set, and of several sets.
fn of_sets(sets: u32, [one, several]: [&str; 2]) -> &str {
    match sets {
        1 => one,
        _ => several,
    }
}

struct Plan {
    seed: u64,
    sizes: Vec<u32>,
    batch: u32,
    batch_ramp: Vec<BatchStep>,
    local_steps: u32,
    chunking: Chunking,
    sets: DataSets,
    sync: bool,
}

/// A chunk that batches are taken from.
struct Leased {
    chunk: Chunk,
    /// Samples per rank and step: the same in all of it.
    batch: u64,
    /// Where the next batch of the group begins.
    next: u64,
}

/// The permutation of the epoch at hand, or of one of its sets.
#[derive(Default)]
struct Order {
    epoch: Option<u64>,
    set: u32,
    samples: Vec<u32>,
}

impl Plan {
    fn batches(&self) -> Batches<'_> {
        Batches {
            first: self.batch,
            ramp: &self.batch_ramp,
        }
    }
}

impl Feed {
    /// The batches of `place`.
    pub fn new(spec: &RunSpec, place: Place) -> Result<Self, FeedError> {
        let plan = Plan {
            seed: spec.seed,
            sizes: spec.group_sizes.clone(),
            batch: spec.batch,
            batch_ramp: spec.batch_ramp.clone(),
            local_steps: spec.local_steps,
            chunking: spec.chunking(),
            sets: spec.sets,
            sync: spec.consistency.waits_for_all(),
        };
        check_batch(spec, place.group)?;
        let start = first_step(place.start, plan.local_steps);
        Ok(Self {
            plan,
            place,
            due: start,
            clock: start,
            order: Order::default(),
            leased: None,
            held: VecDeque::new(),
            finished: Vec::new(),
            told: VecDeque::new(),
            wanted: BTreeSet::new(),
            wanted_at: None,
        })
    }

    /// The samples of the next batch to be prepared, by number in the training split.
    pub fn next(&mut self, ranks: &dyn Ranks, lease: Lease<'_>) -> Result<Vec<usize>, FeedError> {
        match self.plan.sync {
            true => Ok(self.share()),
            false => self.leased(ranks, |feed| feed.next_chunk(ranks, lease)),
        }
    }

    /// Whether a batch may be asked for ahead of its need: a group holds a bounded number of chunks, and each is
    /// held until its last step is applied. The same on all ranks of the group that ask at the same steps.
    pub fn may_ask(&self, ranks: &dyn Ranks) -> bool {
        let size = u64::from(ranks.size());
        let begun = self.leased.as_ref();
        let more = begun.is_some_and(|Leased { chunk, batch, next }| {
            *next + *batch * size <= chunk.positions.end
        });
        self.plan.sync || more || self.held.len() < CHUNKS_HELD_MAX
    }

    /// The same without a word to the other ranks, which may ask for more or fewer batches ahead.
    pub fn next_apart(
        &mut self,
        ranks: &dyn Ranks,
        lease: Lease<'_>,
    ) -> Result<Vec<usize>, FeedError> {
        match self.plan.sync {
            true => Ok(self.share()),
            false => self.leased(ranks, |feed| Ok(feed.lease(lease)?)),
        }
    }

    /// The epoch of the batch that was asked for last; `None` before the first.
    pub fn epoch(&self) -> Option<u64> {
        self.order.epoch
    }

    /// The samples of sets that the group takes from now on, to be copied ahead of their use: those of the set of the
    /// batch that was asked for last, then of its own sets. Each set is told once, and none where all data are one.
    pub fn take_wanted(&mut self) -> Vec<Range<usize>> {
        let epoch = self.order.epoch.filter(|_| self.plan.sets.count > 1);
        let at = epoch.map(|epoch| (epoch, self.order.set));
        if at == self.wanted_at {
            return Vec::new();
        }
        self.wanted_at = at;
        let Some((epoch, set)) = at else {
            return Vec::new();
        };
        let Plan { seed, sets, .. } = self.plan;
        let own = sets.of_group(seed, self.place.group, epoch, self.plan.sizes.len());
        let chunking = &self.plan.chunking;
        std::iter::once(set)
            .chain(own)
            .filter(|set| self.wanted.insert(*set))
            .map(|set| {
                let samples = chunking.set(set);
                samples.start as usize..samples.end as usize
            })
            .collect()
    }

    /// Of the batches that were asked for and not handed out, the first is now.
    pub fn handed_out(&mut self) {
        self.due = self.due.tick();
    }

    /// The group goes on at `clock`, if it is not further: under `sync` the next batch is that of
    /// this clock, and those before it are left out. Returns how many of those that were asked for
    /// and not handed out are.
    pub fn go_on_at(&mut self, clock: Clock) -> u64 {
        if !self.plan.sync {
            return 0;
        }
        let clock = first_step(clock, self.plan.local_steps);
        let left_out = clock.min(self.clock).0.saturating_sub(self.due.0);
        self.due = self.due.max(clock);
        self.clock = self.clock.max(clock);
        left_out
    }

    /// The batch that was handed out first has been applied, or skipped, or is in the values of a
    /// group between two exchanges.
    pub fn done(&mut self) {
        if let Some((chunk, left)) = self.held.front_mut() {
            *left -= 1;
            if *left == 0 {
                self.finished.push(*chunk);
                self.held.pop_front();
            }
        }
    }

    /// Chunks of which every step has been applied, and that nobody was told of.
    pub fn take_finished(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.finished)
    }

    fn share(&mut self) -> Vec<usize> {
        let Place {
            group,
            rank,
            origin,
            ..
        } = self.place;
        let who = (self.clock, group, rank);
        let (plan, batches) = (&self.plan, self.plan.batches());
        let (origin, passed) = origin;
        let origin = (first_step(origin, plan.local_steps), passed);
        let samples = plan.chunking.epoch_samples;
        let share = sync_share(&plan.sizes, batches, samples, origin, who);
        let share = share.expect("checked when the feed was made");
        self.clock = self.clock.tick();
        self.order.pick(&self.plan, share.epoch, share.positions)
    }

    fn leased(
        &mut self,
        ranks: &dyn Ranks,
        mut chunk: impl FnMut(&mut Self) -> Result<Chunk, FeedError>,
    ) -> Result<Vec<usize>, FeedError> {
        let size = u64::from(ranks.size());
        loop {
            if let Some(Leased { chunk, batch, next }) = &mut self.leased
                && *next + *batch * size <= chunk.positions.end
            {
                let begin = *next + u64::from(ranks.rank().0) * *batch;
                *next += *batch * size;
                let positions = begin..begin + *batch;
                return Ok(self.order.pick(&self.plan, chunk.epoch, positions));
            }
            let chunk = chunk(self)?;
            let begins = self.plan.chunking.begins(&chunk);
            let batch = u64::from(self.plan.batches().at(begins));
            match (chunk.positions.end - chunk.positions.start) / (batch * size) {
                // What is left of a chunk, and fills no batch of this group, is dropped; of the last
                // one of an epoch that may be all.
                0 => self.finished.push(chunk.number),
                steps => self.held.push_back((chunk.number, steps)),
            }
            let next = chunk.positions.start;
            self.leased = Some(Leased { chunk, batch, next });
        }
    }

    fn lease(&mut self, lease: Lease<'_>) -> Result<Chunk, MembershipError> {
        let held = self.held.iter().map(|(number, _)| *number).collect();
        self.told.extend(self.finished.drain(..));
        let more = self.told.len().saturating_sub(FORGOTTEN_MAX as usize);
        self.told.drain(..more);
        let chunk = lease(self.told.iter().copied().collect(), held)?;
        // Of one that is leased once more it is not said again.
        self.told.retain(|number| *number != chunk.number);
        Ok(chunk)
    }

    fn next_chunk(&mut self, ranks: &dyn Ranks, lease: Lease<'_>) -> Result<Chunk, FeedError> {
        let mut told = [0i64; 5];
        let mut failure = None;
        if ranks.rank() == Rank(0) {
            match self.lease(lease) {
                Ok(chunk) => {
                    let Chunk {
                        number,
                        epoch,
                        positions,
                    } = chunk;
                    told = [
                        1,
                        number as i64,
                        epoch as i64,
                        positions.start as i64,
                        positions.end as i64,
                    ];
                }
                Err(error) => failure = Some(error),
            }
        } else {
            self.finished.clear();
        }
        ranks.broadcast(&mut told)?;
        match (failure, told) {
            (Some(error), _) => Err(error.into()),
            (None, [1, number, epoch, begin, end]) => Ok(Chunk {
                number: number as u64,
                epoch: epoch as u64,
                positions: begin as u64..end as u64,
            }),
            _ => Err(FeedError::Group(Broken {
                message: "rank 0 could not lease data; its log says why".into(),
            })),
        }
    }
}

impl Order {
    fn pick(&mut self, plan: &Plan, epoch: u64, positions: Range<u64>) -> Vec<usize> {
        let chunking = &plan.chunking;
        let set = chunking.set_at(positions.start);
        let of_set = chunking.set(set);
        let begin = of_set.start as usize;
        if (self.epoch, self.set) != (Some(epoch), set) {
            let samples = (of_set.end - of_set.start) as usize;
            self.samples = match chunking.sets {
                1 => permutation(plan.seed, epoch, samples),
                _ => permutation_of_set(plan.seed, epoch, set, samples),
            };
            (self.epoch, self.set) = (Some(epoch), set);
        }
        let positions = positions.start as usize - begin..positions.end as usize - begin;
        self.samples[positions]
            .iter()
            .map(|sample| begin + *sample as usize)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tradewind_common::Incarnation;
    use tradewind_common::data::Ledger;

    use super::*;
    use crate::ranks::Alone;
    use crate::testing::spec;

    /// Two groups of one rank on 103 samples in six sets.
    fn of_sets(deal_epochs: u32) -> RunSpec {
        RunSpec {
            seed: 3,
            group_sizes: vec![1, 1],
            epoch_samples: 103,
            chunk_samples: 4,
            sets: DataSets {
                count: 6,
                deal_epochs,
            },
            ..spec()
        }
    }

    /// The only rank of a group, from the beginning.
    fn place(group: u32) -> Place {
        Place {
            group: GroupId(group),
            rank: Rank(0),
            start: Clock(0),
            origin: (Clock(0), 0),
        }
    }

    /// Samples by epoch and group.
    type Taken = BTreeMap<(u64, u32), Vec<usize>>;

    /// The batches of groups that take turns as `turns` says, as a coordinator leases.
    fn taken(spec: &RunSpec, turns: &[u32]) -> Taken {
        taken_and_wanted(spec, turns).0
    }

    /// The same, and by group the ranges of samples that are wanted.
    fn taken_and_wanted(spec: &RunSpec, turns: &[u32]) -> (Taken, [Vec<Range<usize>>; 2]) {
        let mut ledger = Ledger::new(spec.chunking());
        let mut feeds = [0, 1].map(|group| Feed::new(spec, place(group)).unwrap());
        let mut taken = Taken::new();
        let mut wanted = [vec![], vec![]];
        for group in turns {
            let feed = &mut feeds[*group as usize];
            let batch = feed.next(&Alone, &mut |finished, held| {
                let owner = (GroupId(*group), Incarnation(1));
                ledger.finish(owner, &finished, |_| u64::from(spec.batch));
                let first = |epoch| spec.sets.of_group(spec.seed, owner.0, epoch, 2).collect();
                Ok(ledger.lease(owner, &held, first).unwrap())
            });
            let batch = batch.unwrap();
            feed.handed_out();
            feed.done();
            let of = (feed.epoch().unwrap(), *group);
            let wants = feed.take_wanted();
            let wanted = &mut wanted[*group as usize];
            wanted.extend(wants);
            let is_wanted = |sample: &usize| wanted.iter().any(|range| range.contains(sample));
            assert!(batch.iter().all(is_wanted), "{batch:?} of {wanted:?}");
            taken.entry(of).or_default().extend(batch);
        }
        (taken, wanted)
    }

    #[test]
    fn who_asks_ahead_only_while_it_may_is_never_refused() {
        for chunk_samples in [3, 4, 7, 12] {
            let spec = RunSpec {
                chunk_samples,
                group_sizes: vec![1],
                epoch_samples: 103,
                batch: 3,
                ..spec()
            };
            let mut ledger = Ledger::new(spec.chunking());
            let mut feed = Feed::new(&spec, place(0)).unwrap();
            let (mut asked, mut ahead) = (0u64, 0);
            for step in 0..100 {
                while asked == step || feed.may_ask(&Alone) {
                    let batch = feed.next(&Alone, &mut |finished, held| {
                        let owner = (GroupId(0), Incarnation(1));
                        ledger.finish(owner, &finished, |_| 3);
                        let lease = ledger.lease(owner, &held, |_| vec![]);
                        Ok(lease.expect("it was asked whether it may"))
                    });
                    assert_eq!(batch.unwrap().len(), 3);
                    asked += 1;
                }
                ahead = ahead.max(asked - step);
                feed.handed_out();
                feed.done();
            }
            // As far ahead as four chunks reach.
            assert_eq!(ahead, 4 * (chunk_samples / 3), "{chunk_samples}");
        }
    }

    #[test]
    fn a_group_wants_its_own_sets_at_once_and_others_when_it_helps_with_them() {
        let spec = of_sets(0);
        let sets = |wanted: &[Range<usize>]| -> Vec<u32> {
            let set = |range: &Range<usize>| spec.chunking().set_at(range.start as u64);
            wanted.iter().map(set).collect()
        };
        let (_, [first, none]) = taken_and_wanted(&spec, &[0]);
        let own = sets(&first);
        let is_own = |set: &u32| spec.sets.owner(*set, 0, 2) == GroupId(0);
        assert!(own.len() == 3 && own.iter().all(is_own), "{own:?}");
        assert!(none.is_empty());
        // Alone it comes to all of them, each told once though two epochs pass.
        let (_, [all, _]) = taken_and_wanted(&spec, &[0; 2 * 103]);
        let mut all = sets(&all);
        assert_eq!(all[..3], own);
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn groups_take_the_samples_of_their_sets_and_together_all_of_them() {
        let spec = of_sets(1);
        let turns: Vec<u32> = (0..3 * 103).map(|turn| turn % 2).collect();
        let taken = taken(&spec, &turns);
        let chunking = spec.chunking();
        for epoch in 0..2 {
            let mut all = Vec::<usize>::new();
            for group in 0..2 {
                let samples = &taken[&(epoch, group)];
                let mine = |sample: &&usize| {
                    let set = chunking.set_at(**sample as u64);
                    spec.sets.owner(set, epoch, 2) == GroupId(group)
                };
                let mine = samples.iter().filter(mine).count();
                assert!(mine + 4 >= samples.len(), "{mine} of {}", samples.len());
                all.extend(samples);
            }
            all.sort_unstable();
            assert_eq!(all, (0..103).collect::<Vec<_>>(), "epoch {epoch}");
        }
        assert_ne!(
            taken[&(0, 0)],
            taken[&(1, 1)],
            "the same sets in another order"
        );
    }

    #[test]
    fn a_group_that_stays_away_leaves_its_sets_to_the_other() {
        let taken = taken(&of_sets(0), &[0; 103]);
        let mut all = taken[&(0, 0)].clone();
        all.sort_unstable();
        assert_eq!(all, (0..103).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_finished_is_told_again_to_a_coordinator_that_has_forgotten_it() {
        let spec = of_sets(0);
        let mut feed = Feed::new(&spec, place(0)).unwrap();
        let mut ledger = Ledger::new(spec.chunking());
        let written = ledger.clone();
        let owner = (GroupId(0), Incarnation(1));
        let mut taken = Vec::new();
        for step in 0..103 {
            // Nothing was written down of eleven chunks.
            if step == 40 {
                ledger = written.clone();
                ledger.take_over();
            }
            let batch = feed.next(&Alone, &mut |finished, held| {
                ledger.finish(owner, &finished, |_| 1);
                ledger.believe(owner, &held);
                ledger.settle();
                Ok(ledger.lease(owner, &held, |_| vec![]).unwrap())
            });
            taken.extend(batch.unwrap());
            feed.handed_out();
            feed.done();
        }
        taken.sort_unstable();
        assert_eq!(taken, (0..103).collect::<Vec<_>>());
    }

    #[test]
    fn a_set_that_has_no_batch_is_refused() {
        let spec = RunSpec {
            batch: 18,
            ..of_sets(0)
        };
        let error = check_batch(&spec, GroupId(0)).unwrap_err().to_string();
        assert_eq!(
            error,
            "a set of training data has 17 samples, fewer than one batch of 18 for each of 1 ranks; lower train.batch or what train.batch_ramp ends with, or loader.sets"
        );
    }
}
