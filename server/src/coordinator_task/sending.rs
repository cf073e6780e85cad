//! What the coordinator has decided goes to whoever it concerns.

use tradewind_common::ServerId;
use tradewind_process::{supervise, supervise_blocking};

use super::{CoordinatorTask, Message};
use crate::telemetry;
use tradewind_core::order::ServerMessage;
use tradewind_core::output::Output;

impl CoordinatorTask {
    pub(super) fn drain(&mut self) {
        for (reply, left) in self.unsaid.drain(..) {
            let _ = reply.send(left);
        }
        while let Some(output) = self.core.poll_output() {
            match output {
                Output::Reply(to, answer) => {
                    if let Some(reply) = self.waiting.remove(&to) {
                        let _ = reply.send(answer);
                    }
                }
                Output::Order(order) => {
                    self.order(order.server, ServerMessage::Order(order));
                }
                Output::Over(run, group) => self.beats.look(run, group),
                Output::Runs(server, runs) => self.order(server, ServerMessage::Runs(runs)),
                Output::Revoked(server, all) => {
                    self.order(server, ServerMessage::Revoked(all));
                }
                Output::Event(event) => {
                    telemetry::event(event.kind.word());
                    if let (Some(run), Some(shard), Some(updates)) =
                        (&event.run, event.shard, event.lost_updates)
                    {
                        telemetry::lost(run, shard, updates);
                    }
                    tracing::info!(kind = event.kind.word(), "{}", event.text);
                    if let Some(disk) = &self.disk {
                        disk.event(&event);
                    }
                }
                Output::Manifest(manifest) => {
                    let (Some(disk), own) = (self.disk.clone(), self.own.clone()) else {
                        continue;
                    };
                    supervise("the writing of a manifest", async move {
                        let (run, number) = (manifest.run.clone(), manifest.number);
                        let write = move || disk.write_manifest(*manifest);
                        let written = tokio::task::spawn_blocking(write).await;
                        let written = written.unwrap_or_else(|error| Err(error.to_string()));
                        if let Some(own) = own.upgrade() {
                            let _ = own.send(Message::Written(run, number, written)).await;
                        }
                    });
                }
                // Before the orders that follow let anything be recorded.
                Output::DropMarks(run) => {
                    if let Some(disk) = &self.disk {
                        disk.drop_marks(&run);
                    }
                }
                Output::Delete { run, number } => {
                    if let Some(disk) = self.disk.clone() {
                        let delete = move || disk.delete(&run, number);
                        supervise_blocking("the deletion of a snapshot", delete);
                    }
                }
            }
        }
    }

    fn order(&mut self, server: ServerId, told: ServerMessage) {
        let put = self.servers.get(&server).map(|orders| orders.put(told));
        if put == Some(false) {
            // Its stream has ended; it registers anew and is told everything.
            self.servers.remove(&server);
        }
    }
}
