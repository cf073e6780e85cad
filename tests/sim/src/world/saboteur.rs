//! Rules broken on purpose, at one shard of one server.

mod twisted;

use std::collections::BTreeMap;
use std::sync::Arc;
use tradewind_common::policy::staleness::{self, Drop};

use tradewind_common::holders::Role;
use tradewind_common::pieces::norm;
use tradewind_common::policy::{MergeSpec, MomentumSpec, StalenessSpec};
use tradewind_common::spec::{ConsistencySpec, RunSpec};
use tradewind_common::staleness::StalenessBound;
use tradewind_common::{BlockId, Clock, GroupId};
use tradewind_core::ReplyTo;
use tradewind_core::askers::{Fresh, Wants};
use tradewind_core::consistency::{Bounded, Sync, Window};
use tradewind_core::decided::Decided;
use tradewind_core::log::{Applied, Confirm, LogEntry, Record};
use tradewind_core::momentum::{ClosedLoop, Lowered};
use tradewind_core::shard::{Action, Answer, Output, Push, Reply, Shard};
use tradewind_core::state::BlockState;
use tradewind_core::view::View;

use crate::scenario::{MOMENTUM_TOTAL, Sabotage};
use twisted::{AllButOne, AppliesLate, CountsSkips, LowerMore, MeasureLater, ScaleMore};

/// Stands between the network and a shard.
pub(super) struct Saboteur {
    sabotage: Option<Sabotage>,
    /// The run's budget.
    samples: u64,
    forgetful: Forgetful,
    /// Versions answered last.
    answered: BTreeMap<(GroupId, BlockId), u64>,
    askers: BTreeMap<ReplyTo, GroupId>,
}

/// A shard with the policy that a sabotage wants.
pub(super) fn policy(shard: Shard, sabotage: Option<Sabotage>, spec: &RunSpec) -> Shard {
    match (sabotage, spec.consistency) {
        (Some(Sabotage::AdmitsOneTooMany), ConsistencySpec::Bounded { staleness_bound }) => {
            let bound = StalenessBound::Finite(staleness_bound + 1);
            shard.with_consistency(Box::new(Bounded { bound }))
        }
        (Some(Sabotage::SyncDoesNotWait), _) => shard.with_consistency(Box::new(AllButOne)),
        (Some(Sabotage::OneBackupTooMany), _) => {
            let backup_groups = spec.policies.backup_groups as usize + 1;
            shard.with_consistency(Box::new(Sync { backup_groups }))
        }
        (Some(Sabotage::CountsSkips), _) => {
            let backup_groups = spec.policies.backup_groups as usize;
            shard.with_consistency(Box::new(CountsSkips(Sync { backup_groups })))
        }
        (Some(Sabotage::AppliesLate), _) => {
            let backup_groups = spec.policies.backup_groups as usize;
            shard.with_consistency(Box::new(AppliesLate(Sync { backup_groups })))
        }
        (Some(Sabotage::MergesTooSoon), _) => {
            let bound = spec.consistency.bound();
            shard.with_consistency(Box::new(Bounded { bound }))
        }
        (Some(Sabotage::WaitsForEver), _) => match spec.policies.merge {
            Some(merge) => {
                let wait_ms_max = u64::MAX;
                let bound = spec.consistency.bound();
                let merge = MergeSpec {
                    wait_ms_max,
                    ..merge
                };
                shard.with_consistency(Box::new(Window::new(bound, merge)))
            }
            None => shard,
        },
        (Some(Sabotage::CompensatesNothing), _) => shard.with_delay(Box::new(staleness::None {})),
        (Some(Sabotage::LowersTooMuch), _) => {
            let total = MOMENTUM_TOTAL;
            shard.with_momentum(Box::new(LowerMore(Lowered { total })))
        }
        (Some(Sabotage::MeasuresTooLate), _) => match spec.policies.momentum {
            MomentumSpec::ClosedLoop(policy) => {
                let total = spec.optimizer.capabilities().momentum().unwrap_or(0.0);
                let decay = spec.optimizer.capabilities().momentum_decay();
                let measured = ClosedLoop::new(total, policy.gain, decay);
                shard.with_momentum(Box::new(MeasureLater(measured)))
            }
            _ => shard,
        },
        (Some(Sabotage::ScalesTooMuch), _) => shard.with_delay(Box::new(ScaleMore)),
        (Some(Sabotage::DropsTooLate), _) => match spec.policies.staleness {
            StalenessSpec::Drop(Drop { beyond }) => {
                let beyond = beyond + 1;
                shard.with_delay(Box::new(Drop { beyond }))
            }
            _ => shard,
        },
        _ => shard,
    }
}

/// Values as if nothing had ever been trained.
pub(super) fn forget_training(states: &mut [BlockState]) {
    for state in states {
        state.values = Arc::new(vec![0.0; state.values.len()]);
        forget_slots(state);
        (state.version, state.samples_applied) = (0, 0);
        state.decided.clear();
    }
}

fn forget_slots(state: &mut BlockState) {
    for slot in &mut state.slots {
        *slot = Arc::new(vec![0.0; slot.len()]);
    }
}

impl Saboteur {
    pub(super) fn new(sabotage: Option<Sabotage>, samples: u64) -> Self {
        Self {
            sabotage,
            samples,
            forgetful: Forgetful::default(),
            answered: BTreeMap::new(),
            askers: BTreeMap::new(),
        }
    }

    /// A copy that is about to take over.
    pub(super) fn before_order(&mut self, shard: &mut Shard, role: Role) {
        let forget: fn(&mut BlockState) = match self.sabotage {
            Some(Sabotage::ForgetsOnTakingOver) => |state| state.decided.clear(),
            Some(Sabotage::ForgetsMoments) => forget_slots,
            _ => return,
        };
        let takes_over = matches!(role, Role::Primary(_) | Role::Heir(_))
            && matches!(shard.role(), Some(Role::Copy(_) | Role::Candidate));
        if !takes_over {
            return;
        }
        let states = shard.blocks().filter_map(|(_, block)| block.state());
        let mut states: Vec<_> = states.collect();
        states.iter_mut().for_each(forget);
        let lineage = shard.lineage();
        shard.restore(states, lineage);
    }

    /// A frame goes in, unless it is answered here.
    pub(super) fn push(
        &mut self,
        shard: &mut Shard,
        view: &View,
        mut push: Push,
        to: ReplyTo,
        now_us: u64,
    ) -> Option<Output> {
        match self.sabotage {
            Some(Sabotage::FenceBroken) => {
                if let Some((life, _)) = view.live.get(&push.group) {
                    push.incarnation = *life;
                }
            }
            Some(Sabotage::ForgetsDecided) => self.forgetful.push(&mut push, to),
            Some(Sabotage::TakesPartsForTensors) => {
                if let Action::Contribute(Some(gradient)) = &mut push.action {
                    let part = norm(&gradient.values);
                    let norms = gradient.norms.iter_mut();
                    norms.for_each(|norms| norms.gradient = part);
                }
            }
            Some(Sabotage::IgnoresHeld) => {
                self.askers.insert(to, push.group);
                if let Wants::Difference { holds: Some(holds) } = &mut push.wants {
                    let last = self.answered.get(&(push.group, push.block));
                    *holds = last.copied().unwrap_or(*holds);
                }
            }
            Some(Sabotage::ServesWithoutAsking) => {
                if let Some(reply) = read(shard, view, &push, self.samples) {
                    let result = Ok(reply);
                    return Some(Output::Reply { to, result });
                }
            }
            _ => {}
        }
        shard.handle_push(push, to, now_us);
        None
    }

    /// What the shard wants done.
    pub(super) fn outputs(&mut self, shard: &mut Shard) -> Vec<Output> {
        let mut outputs: Vec<_> = std::iter::from_fn(|| shard.poll_output()).collect();
        match self.sabotage {
            Some(Sabotage::ForgetsDecided) => {
                outputs.iter_mut().for_each(|o| self.forgetful.output(o));
            }
            Some(Sabotage::AcksBeforeReplication) => {
                // Not of whole blocks: a copy that is filled would be taken for full before the way to it is there, and
                // a run that is created wait for it for ever.
                let is_update = |record: &Record| matches!(record.entry, LogEntry::Update(_));
                let confirm = |output: &Output| match output {
                    Output::Record { to, record } if is_update(record) => Some(Confirm {
                        copy: *to,
                        log: record.log,
                        fill: record.fill,
                        seq: record.seq,
                    }),
                    _ => None,
                };
                let sent: Vec<Confirm> = outputs.iter().filter_map(confirm).collect();
                sent.into_iter().for_each(|c| shard.handle_confirm(c));
                outputs.extend(std::iter::from_fn(|| shard.poll_output()));
            }
            Some(Sabotage::KeepsMomentumToItself) => {
                passed_on(&mut outputs, |applied| applied.momentum = None);
            }
            Some(Sabotage::KeepsWeightsToItself) => {
                passed_on(&mut outputs, |applied| applied.weight = 1.0);
            }
            Some(Sabotage::KeepsScalesToItself) => {
                passed_on(&mut outputs, |applied| applied.scales.clear());
            }
            Some(Sabotage::IgnoresHeld) => outputs.iter().for_each(|o| self.note(o)),
            _ => {}
        }
        outputs
    }

    fn note(&mut self, output: &Output) {
        if let Output::Reply {
            to,
            result: Ok(reply),
        } = output
            && let Some(group) = self.askers.get(to)
        {
            self.answered.insert((*group, reply.block), reply.version);
        }
    }
}

/// Changes the updates that copies are sent.
fn passed_on(outputs: &mut [Output], change: impl Fn(&mut Applied)) {
    for output in outputs {
        if let Output::Record { record, .. } = output
            && let LogEntry::Update(update) = &mut record.entry
            && let Some(applied) = &mut update.applied
        {
            change(applied);
        }
    }
}

/// The answer to a bare pull, if all that it tells is confirmed: what a primary may have told
/// before, but not whether it still is one.
fn read(shard: &Shard, view: &View, push: &Push, samples: u64) -> Option<Reply> {
    let primary = matches!(shard.role(), Some(Role::Primary(_)));
    let known = view.incarnation(push.group) == Some(push.incarnation);
    let may = primary && known && view.ready() && shard.unconfirmed() == 0;
    let (_, block) = shard.blocks().find(|(id, _)| *id == push.block)?;
    let state = block
        .state()
        .filter(|_| may && push.action == Action::Pull)?;
    Some(Reply {
        block: push.block,
        clock: push.clock,
        next: Clock(0),
        answer: Answer::Read,
        version: state.version,
        lag: 0,
        waited_us: 0,
        samples_applied: state.samples_applied,
        stop: state.samples_applied >= samples,
        lineage: shard.lineage(),
        length: state.values.len(),
        fresh: Fresh::Values(state.values),
    })
}

/// Passes a repeat of what was decided on as the group's next clock, so that the shard applies it;
/// the answer is given the old clock back and says that nothing happened. Only versions and values
/// tell.
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
