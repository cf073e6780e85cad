//! One primary of a shard: what it has decided, what has left it as an answer, and how far its
//! successor has followed it (rule 4).

use std::collections::{BTreeMap, BTreeSet};

use tradewind_common::{BlockId, Clock, Generation, GroupId, Incarnation, ServerId, TensorKind};
use tradewind_core::ReplyTo;
use tradewind_core::shard::{Answer, Reply, Shard};
use tradewind_core::view::View;

use super::block::{Place, Record};
use super::history::find;
use super::terms::{PassedOn, Terms, Traffic};
use super::{Rule, Violation};
use crate::values::Life;

/// A frame that waits for its answer: stream, block, clock, and whether it is a contribution.
type Asked = (ReplyTo, BlockId, Clock, bool);

/// One primary of a shard.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) server: ServerId,
    pub(super) lineage: Generation,
    pub(super) parent: Option<Generation>,
    pub(super) ready: bool,
    pub(super) creator: Option<Life>,
    pub(super) records: BTreeMap<BlockId, Record>,
    /// How far its parent's history is its own.
    pub(super) fork: BTreeMap<BlockId, usize>,
    /// How far what is in answers goes: every successor has to have it.
    pub(super) floor: BTreeMap<BlockId, usize>,
    /// With which step the lineage began, where it was restored.
    pub(super) began: BTreeMap<BlockId, usize>,
    /// What had been answered of a block, by whomever, when a frame came.
    asked: BTreeMap<Asked, usize>,
    /// Creations that its creator has asked for while it was that.
    pub(super) creates: BTreeSet<(ReplyTo, BlockId)>,
    /// Where momentum is measured, that of the next update, if it is known.
    explicit: Option<f64>,
}

impl Log {
    pub(super) fn new(
        server: ServerId,
        lineage: Generation,
        records: BTreeMap<BlockId, Record>,
    ) -> Self {
        Self {
            server,
            lineage,
            parent: None,
            ready: false,
            creator: None,
            records,
            fork: BTreeMap::new(),
            floor: BTreeMap::new(),
            began: BTreeMap::new(),
            asked: BTreeMap::new(),
            creates: BTreeSet::new(),
            explicit: Some(0.0),
        }
    }

    /// The same primary begins once more: what it had measured is gone.
    pub(super) fn begins_again(&mut self) {
        self.explicit = None;
        for record in self.records.values_mut() {
            record.began = record.now().map_or(0, |now| now.version);
        }
    }

    /// A copy of `parent`'s has taken over, and has this. How many decisions it lacks, none of
    /// which may have been answered.
    pub(super) fn fork(
        server: ServerId,
        (since, parent): (Generation, &Self),
        shard: &Shard,
        ready: bool,
    ) -> Result<(Self, u64), Violation> {
        let mut log = Self::new(server, parent.lineage, BTreeMap::new());
        (log.parent, log.explicit) = (Some(since), None);
        log.began = parent.began.clone();
        let mut lacks = 0;
        for (id, block) in shard.blocks() {
            let record = &parent.records[&id];
            let floor = parent.floor.get(&id).copied();
            let Some(state) = block.state() else {
                if ready && !record.history.is_empty() {
                    let text = format!("server {server} took over without block {id}");
                    return Err(Violation::new(Rule::NoFreshStart, text));
                }
                log.records
                    .insert(id, Record::new(id, record.kind, record.length));
                continue;
            };
            let Some(step) = find(&record.history, &state) else {
                let fresh = state.version == 0 && state.decided.is_empty();
                let rule = match fresh && record.history.len() > 1 {
                    true => Rule::NoFreshStart,
                    false => Rule::NothingLost,
                };
                let text = format!(
                    "server {server} took over with block {id} as it never was: {state:?} instead \
                     of {:?}",
                    record.now()
                );
                return Err(Violation::new(rule, text));
            };
            if let Some(difference) = record.history[step].differs(&state) {
                let text =
                    format!("server {server} took over block {id} with other bits: {difference}");
                return Err(Violation::new(Rule::NothingLost, text));
            }
            if floor > Some(step) {
                let text = format!(
                    "server {server} took over block {id} at step {step}, but {floor:?} was \
                     answered: {:?}",
                    record.history.get(step + 1)
                );
                return Err(Violation::new(Rule::NothingLost, text));
            }
            lacks += (record.history.len() - 1 - step) as u64;
            let mut record = record.at(step);
            record.taken_over();
            log.records.insert(id, record);
            log.fork.insert(id, step);
            log.floor.extend(floor.map(|floor| (id, floor)));
        }
        Ok((log, lacks))
    }

    /// Follows a view; answers what a new primary of restored values has to expect.
    pub(super) fn follow(
        &mut self,
        (view, ended): (&View, &[Life]),
        attaching: bool,
        terms: &Terms,
    ) -> Result<(), Violation> {
        // Of a run that is over nobody is told to.
        let nobody = Some((GroupId(0), Incarnation(0)));
        if self.ready && !view.ready() && view.creator != nobody {
            let text = format!("server {} was ready and is told to create", self.server);
            return Err(Violation::new(Rule::NoFreshStart, text));
        }
        self.ready = view.ready();
        self.creator = view.creator;
        for record in self.records.values_mut() {
            record.follow((view, ended), attaching, terms)?;
        }
        Ok(())
    }

    /// A frame comes while `answered` is the last step of its block that anybody was told.
    pub(super) fn asked(&mut self, asked: Asked, answered: Option<usize>) {
        if let Some(answered) = answered {
            self.asked.entry(asked).or_insert(answered);
        }
    }

    /// Looks at a block after something has been handed to its shard. How much was decided.
    pub(super) fn observe(
        &mut self,
        shard: &Shard,
        id: BlockId,
        passed_on: &[PassedOn],
        (traffic, terms): (&Traffic, &Terms),
    ) -> Result<u64, Violation> {
        let Some((_, block)) = shard.blocks().find(|(of, _)| *of == id) else {
            return Ok(0);
        };
        let parameters = self.records.values();
        let parameters = parameters.filter(|record| record.kind == TensorKind::Parameter);
        let parameters = parameters.count();
        let record = self.records.get_mut(&id).expect("a block of the shard");
        let Some(state) = block.state() else {
            if record.history.is_empty() {
                return Ok(0);
            }
            let text = format!("block {id} has lost its values on server {}", self.server);
            return Err(Violation::new(Rule::NoFreshStart, text));
        };
        if record.history.is_empty() {
            let Some(creator) = self.creator.filter(|_| !self.ready) else {
                let text = format!("block {id} was created when the run was ready");
                return Err(Violation::new(Rule::NoFreshStart, text));
            };
            record.created(&state, creator, terms)?;
        }
        for (group, place) in record.live.clone() {
            if place.attaching
                && let Some(stands) = block.standing(group)
            {
                let life = (group, place.incarnation);
                let decided = state.decided.get(&group).filter(|(of, last)| {
                    *of == place.incarnation && last.clock.tick() == stands.next
                });
                let heard = match decided {
                    Some((_, last)) if last.clock >= place.next => Some(last.clock),
                    _ if stands.arrived || stands.next > place.next => Some(stands.next),
                    _ => None,
                };
                if let Some(clock) = heard {
                    record.attach(life, clock, traffic)?;
                }
            }
        }
        let from = record.history.len();
        let decided = record.observe(&state, passed_on, (traffic, terms))?;
        let before = (self.explicit, parameters);
        self.explicit = record.measure(from, before, passed_on, (traffic, terms))?;
        Ok(decided)
    }

    /// The step that an answer tells: the first one that has all that is in it. Fails where a
    /// repeat gets another verdict than the first time, and where more had been answered before it
    /// was asked for.
    pub(super) fn told(
        &self,
        (to, life): (ReplyTo, Life),
        reply: &Reply,
    ) -> Result<usize, Violation> {
        let record = &self.records[&reply.block];
        let (group, server) = (life.0, self.server);
        let from = match reply.answer {
            Answer::Decided(decided, _) => {
                let first = record.decided.get(&(group, decided.clock));
                let same = first.filter(|first| first.decided == decided);
                if same.is_none() {
                    let text = format!(
                        "block {}, group {group}, on server {server}: first {first:?}, then \
                         {decided:?}",
                        reply.block
                    );
                    return Err(Violation::new(Rule::ExactlyOnce, text));
                }
                same.map_or(0, |first| first.step)
            }
            Answer::Read | Answer::Created => 0,
        };
        let history = record.history.iter().enumerate();
        let mut later = history.skip(from);
        let Some((number, _)) = later.find(|(_, step)| step.version == reply.version) else {
            let text = format!("block {} never was as {reply:?} says", reply.block);
            return Err(Violation::new(Rule::ExactlyOnce, text));
        };
        let contributes = matches!(reply.answer, Answer::Decided(..));
        let before = self.asked.get(&(to, reply.block, reply.clock, contributes));
        let reached = |before: &usize| {
            let before = record.history.get(*before);
            before.is_some_and(|before| before.version <= reply.version)
        };
        if reply.answer == Answer::Created || before.is_none_or(reached) {
            return Ok(number);
        }
        let text = format!(
            "server {server} answered {reply:?}, though step {before:?} had been answered by then"
        );
        Err(Violation::new(Rule::NothingLost, text))
    }

    /// Where a live group stands at a block.
    pub(super) fn place(&self, block: BlockId, group: GroupId) -> Option<Place> {
        self.records.get(&block)?.live.get(&group).copied()
    }
}
