//! A server of the simulated world: the real shard, and the ways in which it can be sabotaged.

use std::collections::BTreeMap;

use tradewind_common::spec::ConsistencySpec;
use tradewind_common::staleness::StalenessBound;
use tradewind_common::{BlockId, Clock, GroupId, Layout, ServerId};
use tradewind_server::core::ReplyTo;
use tradewind_server::core::askers::Wants;
use tradewind_server::core::block::Decided;
use tradewind_server::core::consistency::{Bounded, Consistency, Standing};
use tradewind_server::core::coordinator::Order;
use tradewind_server::core::shard::{Action, Answer, Output, Push, Shard};
use tradewind_server::core::view::{Acknowledge, View};

use super::scenario::Sabotage;

/// A server with at most one shard, since the world has one run.
pub struct Server {
    id: ServerId,
    sabotage: Option<Sabotage>,
    shard: Option<Shard>,
    view: View,
    forgetful: Forgetful,
    /// Versions answered last.
    answered: BTreeMap<(GroupId, BlockId), u64>,
    askers: BTreeMap<ReplyTo, GroupId>,
}

impl Server {
    /// A server without a shard.
    pub fn new(id: ServerId, sabotage: Option<Sabotage>) -> Self {
        Self {
            id,
            sabotage,
            shard: None,
            view: View::default(),
            forgetful: Forgetful::default(),
            answered: BTreeMap::new(),
            askers: BTreeMap::new(),
        }
    }

    /// Its shard, once the first order has come.
    pub fn shard(&mut self) -> Option<&mut Shard> {
        self.shard.as_mut()
    }

    /// The view that it follows.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Obeys an order of the coordinator; the first one makes the shard.
    pub fn order(&mut self, order: Order, layout: &Layout, now_us: u64) -> Acknowledge {
        let shard = self.shard.get_or_insert_with(|| {
            let owned = order.placement.shard(self.id);
            let shard = Shard::new(order.spec.clone(), layout, owned);
            match (self.sabotage, order.spec.consistency) {
                (
                    Some(Sabotage::AdmitsOneTooMany),
                    ConsistencySpec::Bounded { staleness_bound },
                ) => shard.with_consistency(Box::new(Bounded {
                    bound: StalenessBound::Finite(staleness_bound + 1),
                })),
                (Some(Sabotage::SyncDoesNotWait), _) => shard.with_consistency(Box::new(AllButOne)),
                _ => shard,
            }
        });
        if order.view.generation > self.view.generation {
            self.view = order.view.clone();
        }
        shard.handle_view(order.view, now_us)
    }

    /// Hands a frame to the shard, if there is one.
    pub fn push(&mut self, mut push: Push, to: ReplyTo, now_us: u64) {
        let Some(shard) = &mut self.shard else { return };
        match self.sabotage {
            Some(Sabotage::FenceBroken) => {
                if let Some((life, _)) = self.view.live.get(&push.group) {
                    push.incarnation = *life;
                }
            }
            Some(Sabotage::ForgetsDecided) => self.forgetful.push(&mut push, to),
            Some(Sabotage::IgnoresHeld) => {
                self.askers.insert(to, push.group);
                if let Wants::Difference { holds: Some(holds) } = &mut push.wants {
                    let last = self.answered.get(&(push.group, push.block));
                    *holds = last.copied().unwrap_or(*holds);
                }
            }
            _ => {}
        }
        shard.handle_push(push, to, now_us);
    }

    /// What the shard wants done.
    pub fn outputs(&mut self) -> Vec<Output> {
        let Some(shard) = &mut self.shard else {
            return Vec::new();
        };
        let mut outputs: Vec<_> = std::iter::from_fn(|| shard.poll_output()).collect();
        if self.sabotage == Some(Sabotage::ForgetsDecided) {
            outputs.iter_mut().for_each(|o| self.forgetful.output(o));
        }
        for output in &outputs {
            if let Output::Reply {
                to,
                result: Ok(reply),
            } = output
                && let Some(group) = self.askers.get(to)
            {
                self.answered.insert((*group, reply.block), reply.version);
            }
        }
        outputs
    }
}

/// A sync policy that leaves out the last of several groups if it has not arrived.
struct AllButOne;

impl Consistency for AllButOne {
    fn decide(&self, standing: &[Standing]) -> Option<Vec<GroupId>> {
        let clock = standing.iter().map(|s| s.next).min()?;
        let due = || standing.iter().filter(|s| s.next == clock);
        let arrived: Vec<_> = due().filter(|s| s.arrived).map(|s| s.group).collect();
        (!arrived.is_empty() && arrived.len() + 1 >= due().count()).then_some(arrived)
    }
}

/// Stands between the network and a shard, and passes a repeat of what was decided on as the
/// group's next clock, so that the shard applies it; the answer is given the old clock back and
/// says that nothing happened. Only versions and values tell.
#[derive(Default)]
struct Forgetful {
    frames: BTreeMap<(GroupId, BlockId), Remembered>,
    askers: BTreeMap<ReplyTo, GroupId>,
}

/// The place of a group at a block, in the clocks of the group.
#[derive(Default)]
struct Remembered {
    /// How far the shard's clocks are ahead of it.
    added: u64,
    pushed: Option<Clock>,
    last: Option<Decided>,
}

impl Forgetful {
    fn push(&mut self, push: &mut Push, to: ReplyTo) {
        if !matches!(push.action, Action::Contribute(_)) {
            return;
        }
        self.askers.insert(to, push.group);
        let at = self.frames.entry((push.group, push.block)).or_default();
        at.pushed = at.pushed.max(Some(push.clock));
        if at.last.map(|last| last.clock) == Some(push.clock) && at.pushed == Some(push.clock) {
            at.added += 1;
        }
        push.clock.0 += at.added;
    }

    fn output(&mut self, output: &mut Output) {
        let Output::Reply {
            to,
            result: Ok(reply),
        } = output
        else {
            return;
        };
        let Answer::Decided(decided, repeat) = &mut reply.answer else {
            return;
        };
        let key = (self.askers[to], reply.block);
        let at = self.frames.entry(key).or_default();
        reply.clock.0 -= at.added;
        decided.clock.0 -= at.added;
        match at.last {
            Some(last) if last.clock == decided.clock => (*decided, *repeat) = (last, true),
            _ => at.last = Some(*decided),
        }
    }
}
