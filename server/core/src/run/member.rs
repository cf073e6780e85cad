//! One rank of a group as the coordinator knows it.

use serde::{Deserialize, Serialize};
use tradewind_common::lease::Lease;
use tradewind_common::{Clock, Rank};

use super::calls::Beat;
use super::rows::RankRow;
use crate::ReplyTo;

/// A rank that is in its group, or waits there for the others.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Member {
    /// Names its process.
    life: u64,
    store_address: String,
    created: bool,
    /// It knows that it has joined: it has called in the group's life.
    entered: bool,
    #[serde(skip)]
    clock: Clock,
    /// 0 while it is not known.
    #[serde(skip)]
    steps_per_second: f64,
    #[serde(skip)]
    lease: Lease,
    #[serde(skip)]
    joining: Option<ReplyTo>,
    #[serde(skip)]
    awaiting: Option<ReplyTo>,
}

impl Member {
    /// A process that has not said anything yet.
    pub(super) fn new(life: u64) -> Self {
        Self {
            life,
            store_address: String::new(),
            created: false,
            entered: false,
            clock: Clock(0),
            steps_per_second: 0.0,
            lease: Lease::default(),
            joining: None,
            awaiting: None,
        }
    }

    /// Names its process.
    pub(super) fn life(&self) -> u64 {
        self.life
    }

    /// Where it serves a rendezvous store.
    pub(super) fn store_address(&self) -> &str {
        &self.store_address
    }

    pub(super) fn clock(&self) -> Clock {
        self.clock
    }

    pub(super) fn steps_per_second(&self) -> f64 {
        self.steps_per_second
    }

    /// Whether it has said that it has created its values.
    pub(super) fn has_created(&self) -> bool {
        self.created
    }

    /// Whether it knows that it has joined.
    pub(super) fn has_entered(&self) -> bool {
        self.entered
    }

    /// Whether it is this process, and has not heard that it has joined.
    pub(super) fn asks_again(&self, life: u64) -> bool {
        self.life == life && !self.entered
    }

    /// It is this process, at this address.
    pub(super) fn is_process(&mut self, life: u64, store_address: String) {
        self.life = life;
        self.store_address = store_address;
    }

    /// Somebody waits for it to have joined; answers who waited before.
    pub(super) fn wait_to_join(&mut self, to: ReplyTo) -> Option<ReplyTo> {
        self.joining.replace(to)
    }

    /// It asks to push, and whether it has `created`; answers who waited for that before.
    pub(super) fn wait_to_push(
        &mut self,
        created: bool,
        to: ReplyTo,
        now_ms: u64,
    ) -> Option<ReplyTo> {
        self.created |= created;
        self.entered = true;
        self.lease.renew(now_ms);
        self.awaiting.replace(to)
    }

    /// Its heartbeat. That it has entered is not worth a write of its own: after a recovery the next
    /// beat says it again.
    pub(super) fn beat(&mut self, beat: Beat, now_ms: u64) {
        self.entered = true;
        self.lease.renew(now_ms);
        self.clock = self.clock.max(beat.clock);
        self.steps_per_second = beat.steps_per_second;
    }

    pub(super) fn grant(&mut self, now_ms: u64, lease_ms: u64) {
        self.lease = Lease::grant(now_ms, lease_ms);
    }

    pub(super) fn forgive(&mut self, gap_ms: u64) {
        self.lease.forgive(gap_ms);
    }

    pub(super) fn is_expired(&self, now_ms: u64) -> bool {
        self.lease.expired(now_ms)
    }

    /// When its lease runs out.
    pub(super) fn lease_until_ms(&self) -> u64 {
        self.lease.until_ms()
    }

    /// Whether somebody waits for it to have joined.
    pub(super) fn is_joining(&self) -> bool {
        self.joining.is_some()
    }

    /// Time left on its lease, milliseconds.
    pub(super) fn lease_left_ms(&self, now_ms: u64) -> u64 {
        self.lease.until_ms().saturating_sub(now_ms)
    }

    /// Who waits for it to have joined; nobody does then.
    pub(super) fn take_joining(&mut self) -> Option<ReplyTo> {
        self.joining.take()
    }

    /// Who waits to push; nobody does then.
    pub(super) fn take_awaiting(&mut self) -> Option<ReplyTo> {
        self.awaiting.take()
    }

    /// The callers that wait for an answer.
    pub(super) fn take_waiting(&mut self) -> impl Iterator<Item = ReplyTo> + use<> {
        let joining = self.joining.take().into_iter();
        joining.chain(self.awaiting.take())
    }

    /// For the status page, with so much time left on its lease.
    pub(super) fn row(&self, rank: Rank, lease_left_ms: u64) -> RankRow {
        RankRow {
            rank,
            life: self.life,
            clock: self.clock,
            lease_left_ms,
        }
    }
}
