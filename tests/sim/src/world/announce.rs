//! What comes out of a coordinator: answers, orders, news, snapshots to be finished.

use std::sync::Arc;

use tradewind_common::Incarnation;
use tradewind_core::answer::{Answer, Refused};
use tradewind_core::event::EventKind;
use tradewind_core::order::Order;
use tradewind_core::output::Output;

use super::World;
use super::event::{Address, Event};
use crate::group::{Directory, Primary};
use crate::party::Party;
use crate::scenario::Sabotage;

impl World {
    pub(super) fn answer(
        &mut self,
        n: u64,
        (to, number, asked_in): (Address, u64, Incarnation),
        answer: Result<Option<Answer>, Refused>,
    ) {
        let directory = self.coordinators[&n].directory.clone();
        let event = Event::Answered(to, (number, asked_in), answer, directory);
        self.send(Party::Coordinator, Party::Group(to.group), event);
    }

    /// Who answers for the shards, as it is written down.
    fn publish_directory(&mut self, n: u64) {
        let Some(host) = self.coordinators.get_mut(&n) else {
            return;
        };
        let run = host.core.run(&self.common.run);
        let directory = run.map(|run| {
            let primary = |holders: &tradewind_common::holders::Holders| {
                holders.primary.map(|primary| Primary {
                    server: primary.server,
                    since: primary.since,
                })
            };
            Directory {
                generation: run.generation(),
                primaries: run.holders().map(primary).collect(),
            }
        });
        let directory = directory.unwrap_or_default();
        if directory.generation > host.directory.generation {
            host.directory = Arc::new(directory);
        }
    }

    pub(super) fn drain_coordinator(&mut self, n: u64) {
        self.publish_directory(n);
        while let Some(output) = self
            .coordinators
            .get_mut(&n)
            .and_then(|host| host.core.poll_output())
        {
            match output {
                Output::Reply(to, answer) => {
                    let host = self.coordinators.get_mut(&n).expect("it has just spoken");
                    let plan = host.attaching.remove(&to);
                    if let (Some(plan), Ok(Answer::Attached(id))) = (plan, &answer) {
                        self.attached(*id, plan);
                    } else if let Some(from) = host.calls.remove(&to) {
                        self.answer(n, from, answer.map(Some));
                    }
                }
                // Runs are not removed here.
                Output::Runs(..) => {}
                Output::Order(mut order) => {
                    self.twist_order(&mut order);
                    self.fake_acknowledgements(n, &order);
                    let host = &self.coordinators[&n];
                    if let Some(bond) = host.bonds.get(&order.server).copied() {
                        self.send_order(n, bond, order);
                    }
                }
                Output::DropMarks(_) => self.marks.clear(),
                Output::Event(event) => {
                    self.say(|| format!("coordinator {n}: {}", event.text));
                    self.report.counts.lost += event.lost_updates.unwrap_or(0);
                    self.count_event(event.kind);
                    if let Some(recording) = &mut self.recording {
                        recording.told(&event);
                    }
                    // What is written down holds, whoever hears of it.
                    if matches!(event.kind, EventKind::RunStopped | EventKind::RunFailed) {
                        self.broken = self.failed(event.text).err();
                    }
                }
                Output::Manifest(manifest) => {
                    let takes_us = self.disk.takes_us(self.now_us);
                    self.after(takes_us, Event::Finish(n, manifest));
                }
                Output::Delete { number, .. } => {
                    let takes_us = self.disk.takes_us(self.now_us);
                    self.after(takes_us, Event::Delete(number));
                }
            }
        }
    }

    fn count_event(&mut self, kind: EventKind) {
        let counts = &mut self.report.counts;
        match kind {
            EventKind::CopyFull => counts.filled += 1,
            EventKind::Snapshot => counts.snapshots += 1,
            EventKind::SnapshotFailed => counts.snapshots_failed += 1,
            EventKind::DamagedSnapshot => counts.passed_over += 1,
            EventKind::GroupFormed => counts.reformed += 1,
            EventKind::GroupAttached => counts.attached += 1,
            _ => {}
        }
    }

    /// Broken on purpose: the servers are taken to know what they have only been sent.
    fn fake_acknowledgements(&mut self, n: u64, order: &Order) {
        if self.scenario.sabotage != Some(Sabotage::FormsWithoutFencing) {
            return;
        }
        let now_ms = self.now_ms();
        let Some(up) = self.servers.get(&order.server).and_then(|s| s.up.as_ref()) else {
            return;
        };
        let mut reports = Vec::new();
        for (shard, held) in &up.shards {
            let mut seen = held.last_seen.clone();
            seen.generation = order.view.generation;
            reports.push(super::server::plain_report(*shard, seen));
        }
        let host = self.coordinators.get_mut(&n).expect("it has just spoken");
        for report in reports {
            let _ = host.core.report(order.server, &order.run, report, now_ms);
        }
    }
}
