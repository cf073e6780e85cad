//! Nothing that was decided leaves before it is written down.

use std::collections::HashMap;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Interval;
use tradewind_common::data::FORGOTTEN_MAX;
use tradewind_common::{Generation, RunId};
use tradewind_proto::holding::Holding;

use super::{CoordinatorTask, MAILBOX_MAX, Message};
use crate::durable::{Saved, Saving};
use crate::status;

/// How long leases of data may stay unwritten, milliseconds.
const LEASES_UNSAVED_MS: u64 = 250;

impl CoordinatorTask {
    /// Begins to look whether this is still the coordinator, which one that decides nothing would not
    /// hear; nothing without a disk.
    pub(super) fn look(&mut self) -> Option<JoinHandle<Saved>> {
        let disk = self.disk.clone()?;
        let address = self.address.clone();
        let fleet = self.core.fleet();
        let heard = (self.heard).anybody(fleet.expected(), fleet.lease_ms(), self.ticked_ms);
        self.signs += u64::from(heard);
        let sign = heard.then_some(self.signs);
        let look = move || {
            if let Some(sign) = sign {
                disk.give_sign(sign);
            }
            disk.look(&address)
        };
        Some(tokio::task::spawn_blocking(look))
    }

    /// Writes down what was decided, before anybody hears of it. Leases of data alone are written
    /// now and then: a successor asks groups for the last of them.
    ///
    /// Beats, and what else needs nothing written down, are answered meanwhile: a slow disk is no
    /// reason to take anybody for dead.
    pub(super) async fn save(
        &mut self,
        inbox: &mut mpsc::Receiver<Message>,
        ticks: &mut Interval,
    ) -> Saved {
        loop {
            let saved = self.save_once(inbox, ticks).await;
            self.unsaved |= self.core.take_dirty();
            if saved != Saved::Yes || !self.unsaved {
                return saved;
            }
        }
    }

    async fn save_once(
        &mut self,
        inbox: &mut mpsc::Receiver<Message>,
        ticks: &mut Interval,
    ) -> Saved {
        self.unsaved |= self.core.take_dirty();
        self.leases += u64::from(self.core.take_leased());
        let now_ms = self.origin.now_ms();
        let late = now_ms.saturating_sub(self.saved_ms) >= LEASES_UNSAVED_MS;
        let leases = self.leases > 0 && (late || self.leases >= FORGOTTEN_MAX);
        let due = self.unsaved || leases;
        if !due {
            return Saved::Yes;
        }
        (self.leases, self.saved_ms) = (0, now_ms);
        let Some(disk) = self.disk.clone() else {
            // Nobody follows: what has changed need not be remembered.
            drop(self.core.take_change());
            if std::mem::take(&mut self.unsaved) {
                self.holdings.replace(self.present_holdings());
            }
            return Saved::Yes;
        };
        let what = match disk.takes_changes() && !self.all_unsaved {
            true => Saving::Change(Box::new(self.core.take_change())),
            false => Saving::All(Box::new(self.core.take_durable())),
        };
        let holdings = self.present_holdings();
        let mut saving = tokio::task::spawn_blocking(move || disk.save(&what));
        let saved = loop {
            tokio::select! {
                saved = &mut saving => break saved,
                // What runs out meanwhile is written next.
                _ = ticks.tick() => self.tick(),
                Some(message) = inbox.recv(), if self.later.len() < MAILBOX_MAX => {
                    let lease = matches!(message, Message::LeaseChunk(..));
                    let too_many = lease && self.leases >= FORGOTTEN_MAX;
                    if message.needs_no_disk() && !too_many {
                        self.handle(message);
                        self.leases += u64::from(self.core.take_leased());
                    } else {
                        self.later.push_back(message);
                    }
                }
            }
        };
        let saved = saved.unwrap_or_else(|panicked| Saved::NotNow(panicked.to_string()));
        self.unsaved |= matches!(saved, Saved::NotNow(_));
        self.all_unsaved = saved != Saved::Yes;
        if saved == Saved::Yes {
            self.unsaved = false;
            self.holdings.replace(holdings);
        }
        saved
    }

    pub(super) fn present_holdings(&self) -> HashMap<RunId, Holding> {
        let runs = self.core.runs().map(|run| run.name());
        let holding = |run: &RunId| Some((run.clone(), status::holding(&self.core, run).ok()?));
        runs.filter_map(holding).collect()
    }

    /// The generation that others may hear of.
    pub(super) fn written(&self, run: &RunId, present: Generation) -> Generation {
        self.holdings.generation(run).min(present)
    }
}
