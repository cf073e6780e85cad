//! What a run has decided that others must hear: its generation, and what goes out, in the order in which
//! it came up.

use std::collections::VecDeque;

use tradewind_common::{Generation, GroupId, RunId};

use crate::ReplyTo;
use crate::answer::{Answer, Refused};
use crate::event::Event;
use crate::output::Output;
use crate::saved::ManifestData;

/// What has come of a run's inputs since it was last taken.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Something has changed that has to be written down before it is acted on.
    pub(crate) dirty: bool,
    /// Data have been leased, which may be written down later.
    pub(crate) leased: bool,
    /// What the run wants done, oldest first.
    pub(crate) outputs: VecDeque<Output>,
}

/// The generation of a run and its outputs. The parts of a run append what they decide.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    run: RunId,
    generation: Generation,
    outputs: VecDeque<Output>,
    order_due: bool,
    dirty: bool,
    leased: bool,
    /// Something is not written down.
    unwritten: bool,
}

impl Outbox {
    /// That of a run in this generation, of which servers have nothing to be told yet.
    pub(super) fn new(run: RunId, generation: Generation) -> Self {
        Self {
            run,
            generation,
            outputs: VecDeque::new(),
            order_due: false,
            dirty: false,
            leased: false,
            unwritten: true,
        }
    }

    /// The run's name.
    pub(super) fn run(&self) -> &RunId {
        &self.run
    }

    /// The present generation.
    pub(super) fn generation(&self) -> Generation {
        self.generation
    }

    /// The generation that the next change begins.
    pub(super) fn next_generation(&self) -> Generation {
        self.generation.next()
    }

    /// A new generation of membership and holders, which servers must be told; answers it.
    pub(super) fn change(&mut self) -> Generation {
        self.generation = self.generation.next();
        self.order();
        self.generation
    }

    /// Goes on past a generation of a former run of the same name.
    pub(super) fn begin_past(&mut self, generation: Generation) {
        self.generation = self.generation.max(generation);
    }

    /// Something has to be written down.
    pub(super) fn touch(&mut self) {
        self.dirty = true;
    }

    /// Something has changed of which servers must be told.
    pub(super) fn order(&mut self) {
        self.order_due = true;
        self.dirty = true;
    }

    /// Data have been leased.
    pub(super) fn lease(&mut self) {
        self.leased = true;
    }

    /// Tells people.
    pub(super) fn tell(&mut self, mut event: Event) {
        event.run = Some(self.run.clone());
        self.outputs.push_back(Output::Event(event));
    }

    /// Answers a call.
    pub(super) fn reply(&mut self, to: ReplyTo, answer: Result<Answer, Refused>) {
        self.outputs.push_back(Output::Reply(to, answer));
    }

    /// Answers several calls alike.
    pub(super) fn reply_all(
        &mut self,
        to: impl IntoIterator<Item = ReplyTo>,
        answer: Result<Answer, Refused>,
    ) {
        let replies = to.into_iter().map(|to| Output::Reply(to, answer.clone()));
        self.outputs.extend(replies);
    }

    /// A life of a group is over: its ranks are to hear of it.
    pub(super) fn is_over(&mut self, group: GroupId) {
        let run = self.run.clone();
        self.outputs.push_back(Output::Over(run, group));
    }

    /// Has a snapshot's manifest written.
    pub(super) fn write_manifest(&mut self, manifest: ManifestData) {
        self.outputs.push_back(Output::Manifest(Box::new(manifest)));
    }

    /// Has a snapshot deleted, or what there is of it.
    pub(super) fn delete_snapshot(&mut self, number: u64) {
        let run = self.run.clone();
        self.outputs.push_back(Output::Delete { run, number });
        self.dirty = true;
    }

    /// Whether servers must be told something; from now on they are.
    pub(super) fn take_order_due(&mut self) -> bool {
        std::mem::take(&mut self.order_due)
    }

    /// Whether something was not written down when this was last asked; from now on it is.
    pub(super) fn take_unwritten(&mut self) -> bool {
        std::mem::take(&mut self.unwritten)
    }

    /// What has come up since this was last asked.
    pub(super) fn take_changes(&mut self) -> Changes {
        self.unwritten |= self.dirty || self.leased;
        Changes {
            dirty: std::mem::take(&mut self.dirty),
            leased: std::mem::take(&mut self.leased),
            outputs: std::mem::take(&mut self.outputs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventKind;

    #[test]
    fn a_change_is_a_generation_that_servers_hear_of() {
        let run = RunId::new("r").unwrap();
        let mut outbox = Outbox::new(run.clone(), Generation(4));
        assert!(!outbox.take_order_due() && !outbox.take_changes().dirty);
        assert_eq!(outbox.next_generation(), Generation(5));
        assert_eq!(outbox.change(), Generation(5));
        outbox.tell(Event::new(EventKind::Disk, "first"));
        outbox.delete_snapshot(7);
        let mut changes = outbox.take_changes();
        assert!(changes.dirty && !changes.leased);
        let [Output::Event(event), Output::Delete { number: 7, .. }] =
            changes.outputs.make_contiguous()
        else {
            panic!("{:?}", changes.outputs);
        };
        assert_eq!(event.run, Some(run));
        assert!(outbox.take_order_due() && !outbox.take_order_due());
        assert!(outbox.take_changes().outputs.is_empty());
    }
}
