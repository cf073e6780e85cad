//! A history put in order: by time, by block and lineage, by block and group.

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::file::History;
use crate::record::{Action, Answer, Life, Operation, Run, Verdict};

/// Counts what the checker does, comparisons of its sorts included.
#[derive(Debug, Default)]
pub(super) struct Work(Cell<u64>);

impl Work {
    pub(super) fn add(&self, steps: usize) {
        self.0.set(self.0.get() + steps as u64);
    }

    pub(super) fn done(&self) -> u64 {
        self.0.get()
    }

    pub(super) fn sort<T, K: Ord>(&self, all: &mut [T], key: impl Fn(&T) -> K) {
        all.sort_by(|a, b| {
            self.add(1);
            key(a).cmp(&key(b))
        });
    }
}

/// An answered operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered<'h> {
    pub(super) operation: &'h Operation,
    pub(super) answer: &'h Answer,
}

impl Answered<'_> {
    /// The version that its contribution made, where that can be known: `merged` updates and values
    /// of another lineage hide it.
    pub(super) fn made(&self, merged: bool) -> Option<u64> {
        let computed_on = self.operation.computed_on?;
        let known = self.answer.verdict == Verdict::Applied
            && !merged
            && computed_on.lineage == self.answer.of.lineage;
        known.then(|| {
            let before = computed_on.version.saturating_add(self.answer.delay);
            before.saturating_add(1)
        })
    }
}

/// Orders what a group brings to a block.
pub(super) type Key = (u64, u64);

/// What a group brings to a block at a clock of one of its lives.
#[derive(Debug)]
pub(super) struct Contribution<'h> {
    pub(super) key: Key,
    pub(super) action: Action,
    /// In the order in which they were sent.
    pub(super) attempts: Vec<&'h Operation>,
}

/// What was asked of a block.
#[derive(Debug)]
pub(super) struct Block<'h> {
    /// By lineage, what was answered from it.
    pub(super) lineages: BTreeMap<u64, Vec<Answered<'h>>>,
    /// By group, in the order of their keys.
    pub(super) groups: Vec<Vec<Contribution<'h>>>,
}

/// All of it.
#[derive(Debug)]
pub(super) struct Index<'h> {
    pub(super) run: &'h Run,
    /// In the order in which they were sent.
    pub(super) operations: Vec<&'h Operation>,
    pub(super) blocks: Vec<Block<'h>>,
    /// By group, in order of their beginnings.
    pub(super) lives: Vec<Vec<&'h Life>>,
    pub(super) work: Work,
}

impl<'h> Index<'h> {
    pub(super) fn new(history: &'h History) -> Self {
        let work = Work::default();
        let groups = history.run.groups as usize;
        let mut operations: Vec<&Operation> = history.operations.iter().collect();
        work.sort(&mut operations, |o| (o.start_us, o.number));
        let mut blocks: Vec<_> = (0..history.run.shards.len())
            .map(|_| Block::new(groups))
            .collect();
        for &operation in &operations {
            work.add(1);
            let block: &mut Block<'_> = &mut blocks[operation.block as usize];
            if let Some(answer) = &operation.answer {
                let answered = Answered { operation, answer };
                let of = block.lineages.entry(answer.of.lineage).or_default();
                of.push(answered);
            }
        }
        let mut contributions: Vec<_> = operations
            .iter()
            .filter(|o| o.action != Action::Pull)
            .collect();
        work.sort(&mut contributions, |o| {
            (o.block, o.group, o.incarnation, o.clock, o.start_us)
        });
        for &operation in contributions {
            work.add(1);
            let block = &mut blocks[operation.block as usize];
            block.take(operation);
        }
        for block in &mut blocks {
            for answered in block.lineages.values_mut() {
                work.sort(answered, |a| (a.answer.of.version, a.answer.end_us));
            }
        }
        let mut lives: Vec<Vec<&Life>> = vec![Vec::new(); groups];
        for life in &history.lives {
            if let Some(of) = lives.get_mut(life.group as usize) {
                of.push(life);
            }
        }
        for of in &mut lives {
            work.sort(of, |life| life.from_us);
        }
        Self {
            run: &history.run,
            operations,
            blocks,
            lives,
            work,
        }
    }

    /// The life of a group that was surely live all that time, if one was.
    pub(super) fn live(&self, group: usize, from_us: u64, to_us: u64) -> Option<&'h Life> {
        let lives = self.lives.get(group)?;
        let begun = lives.partition_point(|life| match life.from_us.cmp(&from_us) {
            Ordering::Less => true,
            Ordering::Equal | Ordering::Greater => false,
        });
        let life = lives[..begun].last()?;
        life.to_us.is_none_or(|to| to > to_us).then_some(*life)
    }
}

impl<'h> Block<'h> {
    fn new(groups: usize) -> Self {
        Self {
            lineages: BTreeMap::new(),
            groups: (0..groups).map(|_| Vec::new()).collect(),
        }
    }

    /// Takes a contribution in; they come in the order of their keys.
    fn take(&mut self, operation: &'h Operation) {
        let key = (operation.incarnation, operation.clock);
        let of = &mut self.groups[operation.group as usize];
        match of.last_mut().filter(|last| last.key == key) {
            Some(known) => known.attempts.push(operation),
            None => of.push(Contribution {
                key,
                action: operation.action,
                attempts: vec![operation],
            }),
        }
    }
}

impl<'h> Contribution<'h> {
    pub(super) fn start_us(&self) -> u64 {
        self.attempts[0].start_us
    }

    /// Its attempts that were answered.
    pub(super) fn answered(&self) -> impl Iterator<Item = Answered<'h>> + '_ {
        let attempts = self.attempts.iter();
        attempts.filter_map(|operation| {
            let answer = operation.answer.as_ref()?;
            Some(Answered { operation, answer })
        })
    }

    /// When the first attempt was sent that was not answered, if one was not.
    pub(super) fn open_since(&self) -> Option<u64> {
        let mut open = self.attempts.iter().filter(|o| o.answer.is_none());
        open.next().map(|o| o.start_us)
    }

    /// When the last one was.
    pub(super) fn open_until(&self) -> Option<u64> {
        let open = self.attempts.iter().rev();
        open.filter(|o| o.answer.is_none())
            .map(|o| o.start_us)
            .next()
    }
}
