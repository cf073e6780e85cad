//! Where a run stands: whether it has values, who creates them, and whether it goes on.

use serde::{Deserialize, Serialize};
use tradewind_common::{Generation, GroupId, Incarnation};

use crate::answer::Refused;

/// Who creates the initial values, or that they exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// No group has gathered yet.
    Forming,
    /// This incarnation creates; shards know it since this generation.
    Creating(GroupId, Incarnation, Generation),
    /// The run is resumed: its shards restore a snapshot.
    Restoring,
    /// Every shard is complete; no creation is accepted any more (rule 6).
    Ready,
    /// The run cannot go on, and why.
    Failed(String),
    /// The run was not to go on without what was lost, and why; it can be resumed.
    Stopped(String),
}

impl Phase {
    /// The word of the status page.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Forming => "forming",
            Self::Creating(..) => "creating",
            Self::Restoring => "restoring",
            Self::Ready => "ready",
            Self::Failed(_) => "failed",
            Self::Stopped(_) => "stopped",
        }
    }
}

/// The incarnation of a group that creates, and since when shards know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Creator {
    /// Which.
    pub(super) group: GroupId,
    /// Which life of it.
    pub(super) incarnation: Incarnation,
    /// The generation that made it the creator.
    pub(super) since: Generation,
}

/// How far a run has come from its beginning to its end.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    phase: Phase,
    /// The generation that made the run ready.
    ready_at: Option<Generation>,
}

impl Progress {
    /// A run in this phase, which the generation `ready_at` has made ready.
    pub(super) fn new(phase: Phase, ready_at: Option<Generation>) -> Self {
        Self { phase, ready_at }
    }

    pub(super) fn phase(&self) -> &Phase {
        &self.phase
    }

    pub(super) fn ready_at(&self) -> Option<Generation> {
        self.ready_at
    }

    pub(super) fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    /// Whether the run restores the snapshot that it is resumed from.
    pub(super) fn is_resuming(&self) -> bool {
        self.phase == Phase::Restoring
    }

    /// Whether what shards hold has been trained, and cannot be created again.
    pub(super) fn is_trained(&self) -> bool {
        matches!(self.phase, Phase::Ready | Phase::Restoring)
    }

    /// Whether nobody has been chosen yet to create.
    pub(super) fn lacks_creator(&self) -> bool {
        self.phase == Phase::Forming
    }

    /// Who creates.
    pub(super) fn creator(&self) -> Option<Creator> {
        match self.phase {
            Phase::Creating(group, incarnation, since) => Some(Creator {
                group,
                incarnation,
                since,
            }),
            Phase::Forming
            | Phase::Restoring
            | Phase::Ready
            | Phase::Failed(_)
            | Phase::Stopped(_) => None,
        }
    }

    /// The one incarnation that shards let create; `None` where nobody's creation is to be waited for.
    pub(super) fn may_create(&self) -> Option<(GroupId, Incarnation)> {
        match &self.phase {
            Phase::Creating(group, life, _) => Some((*group, *life)),
            // Nobody: group 0 has no life 0.
            Phase::Failed(_) | Phase::Stopped(_) if self.ready_at.is_some() => None,
            Phase::Forming | Phase::Restoring | Phase::Failed(_) | Phase::Stopped(_) => {
                Some((GroupId(0), Incarnation(0)))
            }
            Phase::Ready => None,
        }
    }

    /// Whether somebody who follows this generation knows that the run is ready.
    pub(super) fn knows_ready(&self, generation: Generation) -> bool {
        self.ready_at.is_some_and(|at| generation >= at)
    }

    /// Whether the run does not go on.
    pub(super) fn is_over(&self) -> bool {
        self.over().is_some()
    }

    /// What every call is told, if the run does not go on.
    pub(super) fn over(&self) -> Option<Refused> {
        match &self.phase {
            Phase::Failed(reason) => Some(Refused::Failed(reason.clone())),
            Phase::Stopped(reason) => Some(Refused::Stopped(reason.clone())),
            Phase::Forming | Phase::Creating(..) | Phase::Restoring | Phase::Ready => None,
        }
    }

    /// Refuses what is asked of a run that does not go on.
    pub(super) fn may_go_on(&self) -> Result<(), Refused> {
        self.over().map_or(Ok(()), Err)
    }

    /// This incarnation creates.
    pub(super) fn let_create(&mut self, creator: Creator) {
        let Creator {
            group,
            incarnation,
            since,
        } = creator;
        self.phase = Phase::Creating(group, incarnation, since);
    }

    /// A group is out of the view: if it was to create, another one is chosen.
    pub(super) fn is_out(&mut self, group: GroupId) {
        if self.creator().is_some_and(|creator| creator.group == group) {
            self.phase = Phase::Forming;
        }
    }

    /// Values are there, and a generation says so.
    pub(super) fn become_ready(&mut self, at: Generation) {
        self.phase = Phase::Ready;
        self.ready_at = Some(at);
    }

    /// The run does not go on, as `phase` says.
    pub(super) fn end(&mut self, phase: Phase) {
        self.phase = phase;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_incarnation_creates_until_it_is_out_or_the_run_is_ready() {
        let mut progress = Progress::new(Phase::Forming, None);
        let nobody = Some((GroupId(0), Incarnation(0)));
        assert!(progress.lacks_creator() && progress.may_create() == nobody);
        let creator = Creator {
            group: GroupId(1),
            incarnation: Incarnation(3),
            since: Generation(2),
        };
        progress.let_create(creator);
        progress.is_out(GroupId(0));
        assert_eq!(progress.creator(), Some(creator));
        assert_eq!(progress.may_create(), Some((GroupId(1), Incarnation(3))));
        progress.is_out(GroupId(1));
        assert!(progress.lacks_creator());
        progress.let_create(creator);
        progress.become_ready(Generation(4));
        assert!(progress.is_trained() && progress.may_create().is_none());
        assert!(progress.knows_ready(Generation(4)) && !progress.knows_ready(Generation(3)));
        progress.end(Phase::Failed("why".into()));
        assert!(progress.is_over() && progress.may_create().is_none());
        assert_eq!(progress.may_go_on(), Err(Refused::Failed("why".into())));
    }

    #[test]
    fn nobody_creates_in_a_run_that_ended_before_it_was_ready() {
        let progress = Progress::new(Phase::Stopped("why".into()), None);
        let nobody = Some((GroupId(0), Incarnation(0)));
        assert_eq!(progress.may_create(), nobody);
    }
}
