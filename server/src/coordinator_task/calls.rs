//! What a message comes to.

use super::message::Reply;
use super::{CoordinatorTask, Message};
use crate::status;
use tradewind_core::ReplyTo;
use tradewind_core::answer::Answer;
use tradewind_core::refusal::Refusal;
use tradewind_core::run::Beaten;

impl CoordinatorTask {
    pub(super) fn handle(&mut self, message: Message) {
        let now_ms = self.origin.now_ms();
        let core = &mut self.core;
        match message {
            Message::Register(id, server, orders, reply) => {
                let registered = core.register(id, server, now_ms);
                if registered.is_ok() {
                    self.servers.insert(id, orders);
                    self.next_bond += 1;
                    self.bonds.insert(id, self.next_bond);
                }
                let _ = reply.send(registered.map(|()| self.next_bond));
            }
            Message::ServerBeat(id, incarnation, reply) => {
                self.heard.server(id, now_ms);
                let _ = reply.send(core.server_beat(id, incarnation, now_ms));
            }
            Message::ServerLost(id, incarnation, bond) => {
                if self.bonds.get(&id) == Some(&bond) {
                    core.server_lost(id, incarnation, now_ms);
                }
            }
            Message::Report(server, run, report, reply) => {
                let _ = reply.send(core.report(server, &run, *report, now_ms));
            }
            Message::Followed(server, run, generation, reply) => {
                let _ = reply.send(core.followed(server, &run, generation));
            }
            Message::Captured(server, (run, shard, number), result, reply) => {
                let taken = core.captured(server, &run, shard, number, result, now_ms);
                let _ = reply.send(taken);
            }
            Message::Written(run, number, result) => core.written(&run, number, result, now_ms),
            Message::Join(run, spec, join, reply) => {
                let to = self.wait(reply);
                self.core.join(run, *spec, join, to, now_ms);
            }
            Message::AwaitReady(run, caller, created, reply) => {
                let to = self.wait(reply);
                self.core.await_ready(&run, caller, created, to, now_ms);
            }
            Message::Heartbeat(run, caller, (stream, beat), reply) => {
                self.heard.rank(now_ms);
                let beaten = core.heartbeat(&run, caller, beat, now_ms);
                if beaten.is_ok() {
                    self.beats.heard(&run, caller, stream);
                }
                let _ = reply.send(beaten.map(|present| Beaten {
                    generation: self.written(&run, present.generation),
                    ..present
                }));
            }
            Message::Check(run, caller, reply) => {
                let checked = core.check(&run, caller);
                let _ = reply.send(checked.map(|present| self.written(&run, present)));
            }
            Message::RankLost(run, caller, stream) => {
                if self.beats.ended(&run, caller, stream) {
                    core.rank_lost(&run, caller, now_ms);
                }
            }
            Message::Holding(run, reply) => {
                let known = self.holdings.get(&run).cloned();
                let _ = reply.send(known.ok_or_else(|| Refusal::UnknownRun(run).into()));
            }
            Message::Placement(run, reply) => {
                let _ = reply.send(status::placed(core, &run));
            }
            Message::LeaseChunk(run, owner, finished, holds, reply) => {
                let _ = reply.send(core.lease_chunk(&run, owner, &finished, &holds));
            }
            Message::Leave(run, caller, finished, reply) => {
                let left = core.leave(&run, caller, &finished, now_ms);
                self.unsaid.push((reply, left));
            }
            Message::Attach(run, sizes, reply) => {
                let to = self.wait(reply);
                self.core.attach(&run, &sizes, to, now_ms);
            }
            Message::Drain(run, groups, reply) => {
                let to = self.wait(reply);
                self.core.ask_to_leave(&run, &groups, to, now_ms);
            }
            Message::Revoke(run, who, reply) => {
                let to = self.wait(reply);
                self.core.revoke(&run, who, to, now_ms);
            }
            Message::KeepsRevoked(id, count, reply) => {
                let _ = reply.send(core.keeps_revoked(id, count, now_ms));
            }
            Message::Remove(run, reply) => {
                let to = self.wait(reply);
                self.core.remove(&run, to, now_ms);
            }
            Message::Resume(run, saved, reply) => {
                let to = self.wait(reply);
                self.core.ask_to_resume(run, *saved, to);
            }
            Message::Snapshot(run, reply) => {
                let to = self.wait(reply);
                self.core.snapshot(&run, to, now_ms);
            }
            Message::Status(run, reply) => {
                let _ = reply.send(status::status(core, &run, now_ms));
            }
            Message::Idle(reply) => {
                let _ = reply.send(Ok(core.is_idle()));
            }
            Message::Fleet(reply) => {
                let runs = core.runs().map(|run| run.name().clone());
                let _ = reply.send(Ok((runs.collect(), core.fleet().rows(now_ms))));
            }
        }
    }

    fn wait(&mut self, reply: Reply<Answer>) -> ReplyTo {
        self.next_reply += 1;
        let to = ReplyTo(self.next_reply);
        self.waiting.insert(to, reply);
        to
    }
}
