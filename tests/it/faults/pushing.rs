//! Groups that push for as long as they are let.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use tokio::runtime::Handle;
use tradewind_common::spec::RunSpec;
use tradewind_proto::v1::StatusReply;
use tradewind_tests::cluster::client::Client;
use tradewind_tests::cluster::fleet::Fleet;
use tradewind_tests::cluster::member::{Joining, Member, read};
use tradewind_tests::cluster::until;

use super::watch::{assert_copies_agree, holders, status};
use super::{RUN, after, gradient, initial, layout};

/// A group of one rank that holds its lease and may push.
pub(super) async fn member(fleet: &Fleet, group: u32, spec: &RunSpec) -> Member {
    let joining = Joining::join(fleet, (RUN, group), spec).await.keeping();
    let elements = spec.check().unwrap().elements();
    joining.begin(&initial(elements)).await
}

/// Its next exchange.
pub(super) async fn push(group: u32, member: &mut Member) {
    let gradient = gradient(group, member.clock(), member.values.len());
    member.push(&gradient, 4).await.unwrap();
}

/// So many exchanges.
pub(super) async fn pushes(group: u32, member: &mut Member, times: u32) {
    for _ in 0..times {
        push(group, member).await;
    }
}

/// A group that pushes on a thread of its own. Every exchange must end well.
pub(super) struct Pushing {
    group: u32,
    clock: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Member>>,
}

impl Pushing {
    pub(super) fn start(group: u32, mut member: Member) -> Self {
        let clock = Arc::new(AtomicU64::new(member.clock()));
        let stop = Arc::<AtomicBool>::default();
        let (told, over) = (clock.clone(), stop.clone());
        let runtime = Handle::current();
        let thread = std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                runtime.block_on(push(group, &mut member));
                told.store(member.clock(), Ordering::Relaxed);
            }
            member
        });
        Self {
            group,
            clock,
            stop,
            thread: Some(thread),
        }
    }

    /// Its clock as last heard.
    pub(super) fn clock(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    /// Waits until it has made so many exchanges more.
    pub(super) async fn goes_on(&self, exchanges: u64) {
        self.reaches(self.clock() + exchanges).await;
    }

    /// Waits until it has this clock.
    pub(super) async fn reaches(&self, to: u64) {
        let what = format!("group {} to go on", self.group);
        until(&what, async || {
            let ended = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
            assert!(!ended, "group {} has ended", self.group);
            (self.clock() >= to).then_some(())
        })
        .await;
    }

    /// Has it finish the exchange that is under way.
    pub(super) async fn stop(mut self) -> Member {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it is stopped once");
        let join = tokio::task::spawn_blocking(|| thread.join());
        join.await.unwrap().expect("every exchange ended well")
    }
}

impl Drop for Pushing {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Waits until all of them have made so many exchanges more.
pub(super) async fn all_go_on(groups: &[Pushing], exchanges: u64) {
    for group in groups {
        group.goes_on(exchanges).await;
    }
}

/// Stops the groups, none of which was given up: each with the clocks that were answered.
pub(super) async fn all_stop(groups: Vec<Pushing>) -> Vec<(u32, Range<u64>)> {
    let mut pushed = Vec::new();
    for (group, pushing) in (0..).zip(groups) {
        let member = pushing.stop().await;
        assert!(!member.lost());
        pushed.push((group, 0..member.clock()));
    }
    pushed
}

/// Stops the groups: every update that was answered counts once, copies agree, and nothing was restored. The status then.
pub(super) async fn each_counts_once(
    fleet: &Fleet,
    client: &Client,
    spec: &RunSpec,
    groups: Vec<Pushing>,
) -> StatusReply {
    let pushed = all_stop(groups).await;
    let layout = layout(spec);
    let all = after(layout.elements(), &pushed);
    assert_eq!(read(fleet, RUN, &layout).await, all);
    let updates: u64 = pushed.iter().map(|(_, clocks)| clocks.end).sum();
    assert_copies_agree(fleet, updates).await;
    let status = status(client).await;
    assert_eq!(status.lost_updates, 0);
    assert_eq!(holders(&status, 1).lineage, 0, "nothing was restored");
    status
}
