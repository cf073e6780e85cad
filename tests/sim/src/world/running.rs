//! A server's process: its shards, and the orders that it obeys.
//!
//! What happens to it comes in through a method; what it wants done comes out, in order, and is carried
//! out by the world.

use std::collections::BTreeMap;

use tradewind_common::holders::Role;
use tradewind_common::{BlockId, Clock, Generation, GroupId, ServerId, ShardId};
use tradewind_core::ReplyTo;
use tradewind_core::log::{Confirm, Record};
use tradewind_core::mark::{Lacking, Mark, Shortfall};
use tradewind_core::order::{NotCaptured, Order, Restore, ShardFile, ShardReport};
use tradewind_core::pending::PENDING_MAX;
use tradewind_core::refusal::Refusal;
use tradewind_core::shard::{Output, Push, Reply};
use tradewind_core::state::BlockState;
use tradewind_core::view::{Acknowledge, OrderedView, Rights, View};

use super::beginning::Beginning;
use super::disk::{Disk, File, about};
use super::event::{Address, Life, Up};
use super::held::Held;
use super::marks::Marks;
use super::orders::{Next, Orders};
use super::recorder::Recorder;
use super::saboteur::forget_training;
use super::setup::Setup;
use super::ways::Wanted;
use super::witness::Witness;
use crate::checker::{Checker, Rule, Violation};
use crate::scenario::Sabotage;

/// A server's process.
pub(super) struct Running {
    life: Life,
    shards: BTreeMap<ShardId, Held>,
    view: View,
    pub(super) orders: Orders,
    pub(super) bond: Option<Bond>,
    /// Ranks by the streams that they opened.
    streams: BTreeMap<ReplyTo, Address>,
}

/// A server's connection with a coordinator.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bond {
    pub(super) number: u64,
    pub(super) coordinator: u64,
}

/// What a process finds around it while it acts, and who looks on.
pub(super) struct Around<'a> {
    pub(super) now_us: u64,
    pub(super) setup: &'a Setup,
    pub(super) disk: &'a Disk,
    pub(super) marks: &'a mut Marks,
    pub(super) checker: &'a mut Checker,
    pub(super) witness: &'a mut Witness,
    pub(super) recorder: &'a mut Recorder,
}

/// What a process wants done.
pub(super) enum Out {
    /// The coordinator is told something.
    Tell(Up),
    /// A rank is answered on a stream.
    Reply(Address, ShardId, u64, Result<Reply, Refusal>),
    /// A record leaves on a connection to a copy.
    Record(Life, ShardId, u64, Record),
    /// A copy confirms to a primary, on the connection that the record came on.
    Confirm(Life, ShardId, u64, Confirm),
    /// A copy refuses what a primary sends, and ends the connection.
    Refuse(Life, ShardId, u64),
    /// A copy has to be connected with.
    Open(ShardId, ServerId),
    /// A connection to a copy is not needed any more.
    End(u64),
    /// A shard is to be asked again by then.
    Timeout(ShardId, u64),
    /// A shard's part of a snapshot is to be written.
    Write(ShardId, u64, Box<File>),
}

/// What a process wants done, in order, unless a rule is broken.
pub(super) type Outs = Result<Vec<Out>, Violation>;

/// What an order has come to at a shard.
pub(super) enum Followed {
    /// The shard could not be restored; the coordinator is told so.
    NotRestored(ShardReport),
    /// The shard has this role now, and the coordinator is told what it has.
    Holds {
        report: ShardReport,
        /// The process is the shard's primary as the order says.
        leads: bool,
        /// It refuses whoever was primary before, and is to be that since then.
        fences: Option<Generation>,
    },
}

impl Running {
    pub(super) fn new(life: Life) -> Self {
        Self {
            life,
            shards: BTreeMap::new(),
            view: View::default(),
            orders: Orders::default(),
            bond: None,
            streams: BTreeMap::new(),
        }
    }

    pub(super) fn life(&self) -> Life {
        self.life
    }

    /// The shards that it holds.
    pub(super) fn shards(&self) -> impl Iterator<Item = (ShardId, &Held)> {
        self.shards.iter().map(|(id, held)| (*id, held))
    }

    pub(super) fn shard(&self, id: ShardId) -> Option<&Held> {
        self.shards.get(&id)
    }

    pub(super) fn shard_mut(&mut self, id: ShardId) -> Option<&mut Held> {
        self.shards.get_mut(&id)
    }

    /// What it follows, and a shard.
    pub(super) fn shard_in_view(&mut self, id: ShardId) -> Option<(&View, &mut Held)> {
        Some((&self.view, self.shards.get_mut(&id)?))
    }

    // Orders.

    /// What it does next about its orders.
    pub(super) fn next_order(&mut self) -> Option<Next> {
        let (shards, id) = (&self.shards, self.life.server);
        self.orders.next(|order| must_read(shards, id, order))
    }

    /// Begins to obey an order, and says so; `false` if it has followed a later one, or none from which this goes
    /// on: then it asks for all.
    pub(super) fn begin(
        &mut self,
        order: &Order,
        around: &mut Around<'_>,
        outs: &mut Vec<Out>,
    ) -> Result<bool, Violation> {
        if let OrderedView::Since(change) = &order.view
            && around.setup.breaks(Sabotage::FollowsAnyBase)
        {
            self.view.generation = self.view.generation.max(change.base);
        }
        let Ok(latest) = self.view.follow(&order.view) else {
            around.recorder.counts().orders_refused += 1;
            outs.push(Out::Tell(Up::Followed(None)));
            return Ok(false);
        };
        if !latest {
            return Ok(false);
        }
        outs.push(Out::Tell(Up::Followed(Some(order.view.generation()))));
        let changes = matches!(order.view, OrderedView::Since(_));
        around.recorder.counts().changes_followed += u64::from(changes);
        let whose = format!("server {}", self.life.server);
        around.witness.check_view(&whose, &self.view)?;
        if order.view.ready() && around.setup.scenario.folder && !around.disk.any_whole() {
            let text = "the run is ready, but there is no snapshot";
            return Err(Violation::new(Rule::NoFreshStart, text));
        }
        Ok(true)
    }

    /// A shard is not held here any more.
    pub(super) fn let_go(&mut self, id: ShardId, around: &mut Around<'_>) -> Outs {
        let mut outs = Vec::new();
        let Some(mut held) = self.shards.remove(&id) else {
            return Ok(outs);
        };
        let outputs = held.close();
        let (of, blocks) = ((self.life.server, id), (&[][..], around.now_us));
        around.checker.after(of, held.shard(), blocks, &outputs)?;
        around.checker.dropped(self.life.server, Some(id));
        for output in outputs {
            self.emit(id, output, around, &mut outs)?;
        }
        Ok(outs)
    }

    /// A shard follows an order that gives it this role, and is restored first if it must be.
    pub(super) fn follow(
        &mut self,
        (id, role): (ShardId, Role),
        order: &Order,
        around: &mut Around<'_>,
    ) -> Result<Followed, Violation> {
        let (server, holders) = (self.life.server, &order.holders[id.0 as usize]);
        let new = || Held::new(server, id, order, around.setup);
        let lineage = self.shards.entry(id).or_insert_with(new).lineage();
        let restore = order.restore.iter().find(|restore| restore.shard == id);
        if let (Role::Heir(since), Some(restore)) = (role, restore)
            && lineage < since
            && let Some(failure) = self.restore(*restore, since, around)?
        {
            let seen = Acknowledge {
                generation: order.view.generation(),
                ..Acknowledge::default()
            };
            return Ok(Followed::NotRestored(ShardReport {
                failure: Some(failure),
                ..plain_report(id, seen)
            }));
        }
        let held = self.shards.get_mut(&id).expect("entered above");
        if held.beginning.is_of(holders.lineage) {
            around.checker.recounts_lost((id, holders.lineage));
            if !around.setup.breaks(Sabotage::CountsOnce) {
                held.beginning.recount(around.marks);
            }
        }
        // One that is new here, or could not be restored for an order before, is told all.
        let told = match &order.view {
            OrderedView::Since(change) if change.check(held.shard().generation()).is_ok() => {
                order.view.clone()
            }
            _ => OrderedView::Whole(self.view.clone()),
        };
        let seen = held.follow((told, role), holders, around.now_us);
        let mut report = plain_report(id, seen);
        if role == Role::Heir(held.lineage()) || holders.lineage == held.lineage() {
            held.beginning.tell(&mut report);
        }
        let follows = held.shard().generation() == order.view.generation();
        let leads = held.leads();
        if leads && held.beginning.take_unmarked() {
            for (block, mark) in held.marks() {
                around.mark((server, block), mark);
            }
        }
        let checker = &mut around.checker;
        checker.ordered(server, id, held.shard(), &self.view)?;
        knows_all((server, id), held, around.witness)?;
        Ok(Followed::Holds {
            report,
            leads: leads && follows && matches!(role, Role::Primary(_)),
            fences: match role {
                Role::Heir(since) if follows => Some(since),
                Role::Primary(_) | Role::Heir(_) | Role::Copy(_) | Role::Candidate => None,
            },
        })
    }

    /// Does what a shard that has followed an order wants done, and what else the order asks of it.
    pub(super) fn serve(
        &mut self,
        (id, role): (ShardId, Role),
        order: &Order,
        around: &mut Around<'_>,
    ) -> Outs {
        let held = self.shards.get_mut(&id).expect("it is held");
        let changed = held.ways.follow(&wanted(order, id, role));
        let mut outs = Vec::from_iter(changed.gone.into_iter().map(Out::End));
        outs.extend(changed.new.into_iter().map(|to| Out::Open(id, to)));
        for capture in order.capture.iter().filter(|of| of.shard == id) {
            let held = self.shards.get_mut(&id).expect("it is held");
            if let Some(result) = held.begin_part(*capture) {
                outs.push(self.captured(id, capture.number, result));
            }
        }
        let all: Vec<BlockId> = around.setup.common.placement.blocks(id).collect();
        outs.extend(self.drain(id, &all, around)?);
        Ok(outs)
    }

    /// Reads a shard's values from a snapshot; why it could not.
    fn restore(
        &mut self,
        restore: Restore,
        lineage: Generation,
        around: &mut Around<'_>,
    ) -> Result<Option<String>, Violation> {
        let id = restore.shard;
        let blocks: Vec<BlockId> = around.setup.common.placement.blocks(id).collect();
        let upto = (restore.newest, restore.only);
        let by_listing = around.setup.breaks(Sabotage::ReadsByListing);
        let found = around
            .disk
            .newest(upto, &blocks, (around.now_us, by_listing));
        let found = match found {
            Ok(found) => found,
            Err(failure) => return Ok(Some(failure)),
        };
        let (witness, obeyed) = (&around.witness, self.orders.obeyed());
        witness.check_restore((id, lineage), obeyed, found.number)?;
        let newer = around.disk.newer((found.number, restore.newest));
        if !newer.is_empty() {
            let (number, named) = (found.number, &found.damaged);
            let text = format!(
                "shard {id} is restored from snapshot {number}, though {newer:?} are whole; named are \
                 {named:?}"
            );
            return Err(Violation::new(Rule::Snapshots, text));
        }
        let mut states = found.states;
        if around.setup.breaks(Sabotage::CreatesOverTrained) {
            forget_training(&mut states);
        }
        if around.setup.breaks(Sabotage::ForgetsOnTakingOver) {
            states.iter_mut().for_each(|state| state.decided.clear());
        }
        let checker = &mut around.checker;
        checker.restores(id, lineage, found.saved);
        checker.counts_lost((id, lineage), &states);
        let from = (found.number, found.damaged);
        let shortfall = Shortfall::of(&states, lineage);
        let beginning = Beginning::restored(from, shortfall, around.marks);
        let held = self.shards.get_mut(&id).expect("it is held");
        held.restore(states, beginning);
        // Whoever it was before, it is not any more.
        checker.dropped(self.life.server, Some(id));
        Ok(None)
    }

    // What goes into shards and comes out of them.

    /// A frame of a rank comes on a stream.
    pub(super) fn frame(
        &mut self,
        (from, id, stream): (Address, ShardId, u64),
        push: Push,
        around: &mut Around<'_>,
    ) -> Outs {
        let to = ReplyTo(stream);
        self.streams.insert(to, from);
        let known = !self.shards.is_empty();
        let Some(held) = self.shards.get_mut(&id) else {
            let refusal = match known {
                true => Refusal::NotPrimary(id),
                false => Refusal::UnknownRun(around.setup.common.run.clone()),
            };
            return Ok(vec![Out::Reply(from, id, stream, Err(refusal))]);
        };
        let (block, now_us, of) = (push.block, around.now_us, (self.life.server, id));
        around.checker.pushed(of, (to, now_us), &push);
        let Some(output) = held.push(&self.view, push, to, now_us) else {
            return self.drain(id, &[block], around);
        };
        let (blocks, outputs) = ((&[block][..], now_us), std::slice::from_ref(&output));
        around.checker.after(of, held.shard(), blocks, outputs)?;
        let mut outs = Vec::new();
        self.emit(id, output, around, &mut outs)?;
        Ok(outs)
    }

    /// A connection to a copy is there.
    pub(super) fn linked(&mut self, id: ShardId, to: ServerId, around: &mut Around<'_>) -> Outs {
        let held = self.shards.get_mut(&id).expect("it has connected");
        held.link(to);
        self.drain(id, &[], around)
    }

    /// A shard wanted to be asked again by now.
    pub(super) fn timeout(&mut self, id: ShardId, around: &mut Around<'_>) -> Outs {
        let Some(held) = self.shards.get_mut(&id) else {
            return Ok(Vec::new());
        };
        held.timeout(around.now_us);
        let all: Vec<BlockId> = around.setup.common.placement.blocks(id).collect();
        self.drain(id, &all, around)
    }

    /// A record of a primary comes on a connection; what is confirmed gets lost if the server is `mute`.
    pub(super) fn record(
        &mut self,
        (from, id, way): (Life, ShardId, u64),
        record: Record,
        mute: bool,
        around: &mut Around<'_>,
    ) -> Outs {
        let who = self.life.server;
        let Some(held) = self.shards.get_mut(&id) else {
            return Ok(vec![Out::Refuse(from, id, way)]);
        };
        let counts = around.recorder.counts();
        match held.record(record.clone()) {
            Ok(followed) => {
                counts.records_repeated += u64::from(followed.repeated);
                if !followed.repeated {
                    let checker = &mut around.checker;
                    checker.copied(who, id, &record, held.shard())?;
                }
                let mut outs = self.drain(id, &[], around)?;
                if !mute {
                    outs.push(Out::Confirm(from, id, way, followed.confirm));
                }
                Ok(outs)
            }
            Err(refusal) => {
                counts.records_refused += 1;
                let text = || format!("server {who} refuses a record of shard {id}: {refusal}");
                around.recorder.say(around.now_us, text);
                if matches!(
                    refusal,
                    Refusal::WrongLength { .. } | Refusal::Malformed { .. }
                ) {
                    let text = format!("server {who} refused {record:?}: {refusal}");
                    return Err(Violation::new(Rule::NothingLost, text));
                }
                Ok(vec![Out::Refuse(from, id, way)])
            }
        }
    }

    /// A copy confirms.
    pub(super) fn confirm(
        &mut self,
        id: ShardId,
        confirm: Confirm,
        around: &mut Around<'_>,
    ) -> Outs {
        let Some(held) = self.shards.get_mut(&id) else {
            return Ok(Vec::new());
        };
        held.confirm(confirm);
        self.drain(id, &[], around)
    }

    /// What a shard wants done, after something was handed to it that concerns these blocks.
    fn drain(&mut self, id: ShardId, blocks: &[BlockId], around: &mut Around<'_>) -> Outs {
        let held = self.shards.get_mut(&id);
        let held = held.expect("something was handed to it");
        let outputs = held.outputs();
        let sooner = held.take_timeout();
        let (of, blocks) = ((self.life.server, id), (blocks, around.now_us));
        if around.checker.after(of, held.shard(), blocks, &outputs)? {
            around.recorder.progresses(around.now_us);
        }
        let mut outs = Vec::new();
        outs.extend(sooner.map(|at_us| Out::Timeout(id, at_us.max(around.now_us))));
        let unconfirmed = held.shard().unconfirmed();
        // Each copy may owe that much, and states besides.
        if unconfirmed > 4 * PENDING_MAX as u64 {
            let text = format!("shard {id} keeps {unconfirmed} records");
            return Err(Violation::new(Rule::Bounds, text));
        }
        for output in outputs {
            self.emit(id, output, around, &mut outs)?;
        }
        Ok(outs)
    }

    fn emit(
        &mut self,
        id: ShardId,
        output: Output,
        around: &mut Around<'_>,
        outs: &mut Vec<Out>,
    ) -> Result<(), Violation> {
        match output {
            Output::Reply { to, result } => {
                let from = self.streams[&to];
                if let Ok(reply) = &result {
                    let mark = Mark {
                        lineage: reply.lineage,
                        version: reply.version,
                        samples: reply.samples_applied,
                    };
                    around.mark((self.life.server, reply.block), mark);
                    around.recorder.waited(from.group, reply.waited_us);
                }
                outs.push(Out::Reply(from, id, to.0, result));
            }
            Output::Report(seen) => {
                let report = Box::new(plain_report(id, seen));
                outs.push(Out::Tell(Up::Report(report)));
            }
            Output::Record { to, record } => {
                let way = self.shards.get(&id).and_then(|held| held.ways.linked(to));
                outs.extend(way.map(|(way, copy)| Out::Record(copy, id, way, record)));
            }
            Output::Captured { number, result } => match result {
                Ok(states) => outs.extend(self.part((id, number), states, around)?),
                Err(not) => outs.push(self.captured(id, number, Err(not))),
            },
            Output::Milestone { .. } => unreachable!("no world asks for any"),
        }
        Ok(())
    }

    /// A shard's part of a snapshot is there, to be written; not if another one counts by now.
    fn part(
        &mut self,
        (id, number): (ShardId, u64),
        states: Vec<BlockState>,
        around: &mut Around<'_>,
    ) -> Result<Option<Out>, Violation> {
        let at = self.shards.get(&id).and_then(|held| held.part_at(number));
        let Some(at_clock): Option<Option<Clock>> = at else {
            return Ok(None);
        };
        let of = (self.life.server, id);
        let saved = around.checker.captured(of, number, &states, at_clock)?;
        let about = about(number, id, &states);
        let file = File {
            states,
            saved,
            about,
            damaged: false,
        };
        Ok(Some(Out::Write(id, number, Box::new(file))))
    }

    /// What has come of a shard's part of a snapshot.
    pub(super) fn captured(
        &mut self,
        id: ShardId,
        number: u64,
        result: Result<ShardFile, NotCaptured>,
    ) -> Out {
        if let Some(held) = self.shards.get_mut(&id) {
            held.end_part(number, result.clone());
        }
        Out::Tell(Up::Captured(id, number, result))
    }
}

impl Around<'_> {
    /// Records what leaves, or is restored, where it survives processes.
    fn mark(&mut self, of: (ServerId, BlockId), mut mark: Mark) {
        if self.setup.breaks(Sabotage::MarksTooLate) {
            mark.version = mark.version.saturating_sub(1);
        }
        self.marks.record(of, mark);
    }
}

/// A shard knows what it would if it had been told all, and so does each of its blocks where it is primary.
fn knows_all(
    (server, id): (ServerId, ShardId),
    held: &Held,
    witness: &Witness,
) -> Result<(), Violation> {
    let (shard, view) = (held.shard(), held.shard().view());
    witness.check_view(&format!("shard {id} at server {server}"), view)?;
    if !held.leads() {
        return Ok(());
    }
    let live = view.live.iter();
    let live = live.map(|(group, (life, start))| (*group, Rights::Live(*life, *start)));
    let joined = view.joined.iter();
    let joined = joined.map(|(group, life)| (*group, Rights::Joined(*life)));
    let ordered: BTreeMap<GroupId, Rights> = joined.chain(live).collect();
    for (block, known) in shard.blocks() {
        if known.rights() != ordered {
            let text = format!(
                "block {block} at server {server} knows {:?}, but ordered was {ordered:?}",
                known.rights()
            );
            return Err(Violation::new(Rule::ExactlyOnce, text));
        }
    }
    Ok(())
}

/// Whether an order needs values that have to be read first.
fn must_read(shards: &BTreeMap<ShardId, Held>, of: ServerId, order: &Order) -> bool {
    order.restore.iter().any(|restore| {
        let held = shards.get(&restore.shard);
        let lineage = held.map_or(Generation(0), Held::lineage);
        let role = order.holders[restore.shard.0 as usize].role(of);
        matches!(role, Some(Role::Heir(since)) if lineage < since)
    })
}

/// The copies that whoever has this role connects with.
fn wanted(order: &Order, id: ShardId, role: Role) -> Wanted {
    let copies = match role {
        Role::Primary(_) => &order.holders[id.0 as usize].copies[..],
        Role::Copy(_) | Role::Heir(_) | Role::Candidate => &[],
    };
    let wanted = copies.iter().filter_map(|copy| {
        let server = order.servers.get(&copy.server)?;
        Some((copy.server, (copy.since, server.incarnation)))
    });
    wanted.collect()
}

/// A report that says nothing of snapshots.
pub(super) fn plain_report(shard: ShardId, seen: Acknowledge) -> ShardReport {
    ShardReport {
        shard,
        seen,
        restored: None,
        damaged: Vec::new(),
        lost: Lacking::default(),
        failure: None,
    }
}
