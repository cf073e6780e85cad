//! What goes into shards and comes out of them: frames, records, confirmations, parts of snapshots.

use tradewind_common::{BlockId, ServerId, ShardId};
use tradewind_core::ReplyTo;
use tradewind_core::log::{Confirm, Entry, Record};
use tradewind_core::mark::Mark;
use tradewind_core::order::{Capture, NotCaptured, ShardFile};
use tradewind_core::pending::PENDING_MAX;
use tradewind_core::refusal::Refusal;
use tradewind_core::shard::{Output, Push};

use super::World;
use super::disk::{self, File, Written};
use super::event::{Address, Done, Event, Life, Up};
use super::server::{CaptureState, plain_report, running};
use crate::checker::{Rule, Violation};
use crate::malformed;
use crate::party::Party;
use crate::scenario::Sabotage;

impl World {
    pub(super) fn frame(
        &mut self,
        life: Life,
        from: Address,
        id: ShardId,
        stream: u64,
        push: Push,
    ) -> Result<(), Violation> {
        let now_us = self.now_us;
        self.streams.insert(ReplyTo(stream), from);
        let Some(server) = running(&mut self.servers, life) else {
            return Ok(());
        };
        let (known, view) = (!server.shards.is_empty(), server.view.clone());
        let Some(held) = server.shards.get_mut(&id) else {
            let refusal = if known {
                Refusal::NotPrimary(id)
            } else {
                Refusal::UnknownRun(self.common.run.clone())
            };
            self.reply(life, id, from, stream, Err(refusal));
            return Ok(());
        };
        let block = push.block;
        let to = ReplyTo(stream);
        self.checker.pushed((life.server, id), (to, now_us), &push);
        let answered = held.saboteur.push(&mut held.shard, &view, push, to, now_us);
        if let Some(output) = answered {
            self.checker.after(
                (life.server, id),
                &held.shard,
                (&[block], now_us),
                std::slice::from_ref(&output),
            )?;
            return self.emit(life, id, output);
        }
        self.drain_shard(life, id, &[block])
    }

    /// Does what a shard wants done, after something was handed to it that concerns these blocks.
    pub(super) fn drain_shard(
        &mut self,
        life: Life,
        id: ShardId,
        blocks: &[BlockId],
    ) -> Result<(), Violation> {
        let up = self
            .servers
            .get_mut(&life.server)
            .and_then(|s| s.up.as_mut());
        let held = up.and_then(|up| up.shards.get_mut(&id));
        let held = held.expect("something was handed to it");
        let outputs = held.saboteur.outputs(&mut held.shard);
        let unconfirmed = held.shard.unconfirmed();
        let wanted_us = held.shard.poll_timeout();
        let sooner = wanted_us.filter(|at_us| held.timeout_us.is_none_or(|set| *at_us < set));
        held.timeout_us = sooner.or(held.timeout_us);
        if self.checker.after(
            (life.server, id),
            &held.shard,
            (blocks, self.now_us),
            &outputs,
        )? {
            self.progress_us = self.now_us;
        }
        if let Some(at_us) = sooner {
            let at_us = at_us.max(self.now_us);
            self.at(at_us, Event::Server(life, Done::Timeout(id)));
        }
        // Each copy may owe that much, and states besides.
        if unconfirmed > 4 * PENDING_MAX as u64 {
            let text = format!("shard {id} keeps {unconfirmed} records");
            return Err(Violation::new(Rule::Bounds, text));
        }
        for output in outputs {
            self.emit(life, id, output)?;
        }
        Ok(())
    }

    /// A shard wanted to be asked again by now, or has changed its mind.
    pub(super) fn timeout(&mut self, life: Life, id: ShardId) -> Result<(), Violation> {
        let now_us = self.now_us;
        let Some(server) = self.running(life) else {
            return Ok(());
        };
        let Some(held) = server.shards.get_mut(&id) else {
            return Ok(());
        };
        held.timeout_us = None;
        held.shard.handle_timeout(now_us);
        let all: Vec<BlockId> = self.common.placement.blocks(id).collect();
        self.drain_shard(life, id, &all)
    }

    pub(super) fn emit(
        &mut self,
        life: Life,
        id: ShardId,
        output: Output,
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
                    self.mark((life.server, reply.block), mark);
                    let waited = self.report.waited_us.entry(from.group).or_default();
                    *waited = (*waited).max(reply.waited_us);
                }
                self.reply(life, id, from, to.0, result);
            }
            Output::Report(seen) => {
                let report = Box::new(plain_report(id, seen));
                self.report_up(life, Up::Report(report));
            }
            Output::Record { to, record } => self.send_record(life, id, to, record),
            Output::Captured { number, result } => match result {
                Ok(states) => return self.write_part(life, id, number, states),
                Err(not) => self.captured(life, id, number, Err(not)),
            },
            Output::Milestone { .. } => unreachable!("no world asks for any"),
        }
        Ok(())
    }

    fn reply(
        &mut self,
        life: Life,
        id: ShardId,
        to: Address,
        stream: u64,
        result: Result<tradewind_core::shard::Reply, Refusal>,
    ) {
        let event = Event::Reply(to, (life, id), stream, result);
        self.send(Party::Server(life.server), Party::Group(to.group), event);
    }

    /// A record comes on a way. One that is refused ends it.
    pub(super) fn record(
        &mut self,
        life: Life,
        from: Life,
        id: ShardId,
        way: u64,
        record: Record,
    ) -> Result<(), Violation> {
        let Some(server) = running(&mut self.servers, life) else {
            return Ok(());
        };
        let Some(held) = server.shards.get_mut(&id) else {
            self.refuse_way(from, id, life.server, way);
            return Ok(());
        };
        let repeated = had(&record, held.last_record);
        let confirm = held.shard.handle_record(record.clone());
        match confirm {
            Ok(confirm) => {
                held.last_record = Some((confirm.log, confirm.fill, confirm.seq));
                self.report.counts.records_repeated += u64::from(repeated);
                if !repeated {
                    self.checker.copied(life.server, id, &record, &held.shard)?;
                }
                self.drain_shard(life, id, &[])?;
                if !self.is_mute(life.server) {
                    self.send_confirm(life, from, id, way, confirm);
                }
            }
            Err(refusal) => {
                self.report.counts.records_refused += 1;
                let who = life.server;
                self.say(|| format!("server {who} refuses a record of shard {id}: {refusal}"));
                if matches!(
                    refusal,
                    Refusal::WrongLength { .. } | Refusal::Malformed { .. }
                ) {
                    let text = format!("server {} refused {record:?}: {refusal}", life.server);
                    return Err(Violation::new(Rule::NothingLost, text));
                }
                self.refuse_way(from, id, life.server, way);
            }
        }
        Ok(())
    }

    pub(super) fn confirm(
        &mut self,
        life: Life,
        id: ShardId,
        confirm: Confirm,
    ) -> Result<(), Violation> {
        let Some(server) = self.running(life) else {
            return Ok(());
        };
        let Some(held) = server.shards.get_mut(&id) else {
            return Ok(());
        };
        held.shard.handle_confirm(confirm);
        self.drain_shard(life, id, &[])
    }

    /// A part of a snapshot was ordered; one that was taken already is reported again.
    pub(super) fn begin_capture(&mut self, life: Life, id: ShardId, capture: Capture) {
        let server = self.running(life).expect("it obeys");
        let held = server.shards.get_mut(&id).expect("it is held");
        match &held.capture {
            Some(known) if known.number == capture.number => {
                if let Some(result) = known.result.clone() {
                    self.captured(life, id, capture.number, result);
                }
            }
            Some(known) if known.number > capture.number => {}
            _ => {
                held.capture = Some(CaptureState {
                    number: capture.number,
                    at_clock: capture.at_clock,
                    result: None,
                });
                held.shard.handle_capture(capture.number, capture.at_clock);
            }
        }
    }

    fn write_part(
        &mut self,
        life: Life,
        id: ShardId,
        number: u64,
        states: Vec<tradewind_core::state::BlockState>,
    ) -> Result<(), Violation> {
        let server = self.running(life).expect("it has just spoken");
        let capture = server
            .shards
            .get(&id)
            .and_then(|held| held.capture.as_ref());
        // One that another has followed does not count any more.
        let Some(capture) = capture.filter(|capture| capture.number == number) else {
            return Ok(());
        };
        let at_clock = capture.at_clock;
        let saved = self
            .checker
            .captured((life.server, id), number, &states, at_clock)?;
        let about = disk::about(number, id, &states);
        let file = File {
            states,
            saved,
            about,
            damaged: false,
        };
        let takes_us = self.disk.takes_us(self.now_us);
        let written = Done::Written(id, number, Box::new(file));
        self.after(takes_us, Event::Server(life, written));
        Ok(())
    }

    /// A part of a snapshot is on disk now, or could not be written.
    pub(super) fn part_written(&mut self, life: Life, id: ShardId, number: u64, file: File) {
        if self.running(life).is_none() {
            return self.disk.tear((number, id), file, self.now_us);
        }
        let result = match self.disk.writes(self.now_us) {
            Written::Yes => {
                let about = file.about.clone();
                self.disk.write((number, id), file, self.now_us);
                Ok(about)
            }
            Written::ButFailed | Written::No => Err(NotCaptured::Failed("the disk fails".into())),
        };
        self.captured(life, id, number, result);
    }

    fn captured(
        &mut self,
        life: Life,
        id: ShardId,
        number: u64,
        result: Result<ShardFile, NotCaptured>,
    ) {
        let Some(server) = self.running(life) else {
            return;
        };
        let held = server.shards.get_mut(&id);
        if let Some(capture) = held.and_then(|held| held.capture.as_mut())
            && capture.number == number
        {
            capture.result = Some(result.clone());
        }
        self.report_up(life, Up::Captured(id, number, result));
    }

    /// Hands a shard a frame that it has to refuse, and looks whether anything changed (rule 7).
    pub(super) fn malformed(&mut self) -> Result<(), Violation> {
        let every_us = self.scenario.malformed_every_us;
        let next_us = self.draw_mischief(1, 2 * every_us);
        self.after(next_us, Event::Malformed);
        let id = ServerId(self.draw_mischief(0, self.servers.len() as u64 - 1) as u32);
        let which = self.draw_mischief(0, self.servers.len() as u64 - 1) as u32;
        let Some(up) = self.servers.get_mut(&id).and_then(|s| s.up.as_mut()) else {
            return Ok(());
        };
        let shard = ShardId(which);
        let view = up.view.clone();
        let Some(held) = up.shards.get_mut(&shard) else {
            return Ok(());
        };
        let before = held.shard.digest();
        if let Some(record) = malformed::record(&held.shard, &mut self.mischief) {
            self.report.counts.rogue += 1;
            let result = held.shard.handle_record(record.clone());
            if self.scenario.sabotage == Some(Sabotage::FollowsAnyLog) {
                held.shard.restore(Vec::new(), held.lineage);
            }
            let unchanged = held.shard.digest() == before;
            return malformed::check_record(&record, &result, unchanged);
        }
        let place = (id, shard);
        let Some(push) = malformed::draw(&self.checker, place, &view, &mut self.mischief) else {
            return Ok(());
        };
        held.shard
            .handle_push(push.clone(), ReplyTo(u64::MAX), self.now_us);
        let outputs: Vec<_> = std::iter::from_fn(|| held.shard.poll_output()).collect();
        let unchanged = held.shard.digest() == before;
        self.report.counts.malformed += 1;
        malformed::check(&push, &outputs, unchanged)
    }
}

/// Whether a copy that has come so far had a record.
fn had(
    record: &Record,
    last: Option<(
        tradewind_common::Generation,
        tradewind_common::Generation,
        u64,
    )>,
) -> bool {
    let probe = matches!(record.entry, Entry::Probe);
    !probe
        && last.is_some_and(|(log, fill, seq)| {
            (log, fill) == (record.log, record.fill) && record.seq <= seq
        })
}
