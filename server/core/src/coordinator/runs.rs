//! The runs that there are, and those that go on from a snapshot when they are joined.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tradewind_common::placement::Placement;
use tradewind_common::spec::RunSpec;
use tradewind_common::{RunId, ServerId};

use super::{Journal, Output, Owed};
use crate::answer::{RUNS_MAX, Refused};
use crate::durable::Change;
use crate::fleet::Fleet;
use crate::refusal::Refusal;
use crate::run::{LostServer, Run, WrittenRun, resume};
use crate::saved::{Passed, Saved};

/// What of them is written down.
#[derive(Clone, Debug, Default)]
pub(super) struct WrittenRuns {
    pub(super) runs: BTreeMap<RunId, WrittenRun>,
    pub(super) resuming: BTreeMap<RunId, Saved>,
    pub(super) passed: Passed,
}

/// The runs of a fleet.
#[derive(Debug)]
pub(super) struct Runs {
    runs: BTreeMap<RunId, Run>,
    /// Those that go on from a snapshot when they are joined.
    resuming: BTreeMap<RunId, Saved>,
    /// How far those came that were forgotten.
    passed: Passed,
    /// Whether there is a folder for snapshots.
    snapshots: bool,
    /// Those that were forgotten and are written down.
    gone: BTreeSet<RunId>,
    /// Those that go on from a snapshot have changed.
    others_resume: bool,
}

impl Runs {
    /// None yet.
    pub(super) fn new(snapshots: bool) -> Self {
        Self {
            runs: BTreeMap::new(),
            resuming: BTreeMap::new(),
            passed: Passed::default(),
            snapshots,
            gone: BTreeSet::new(),
            others_resume: false,
        }
    }

    /// Takes over those of a former coordinator.
    pub(super) fn recover(written: WrittenRuns, snapshots: bool, now_ms: u64) -> Self {
        let recover = |(name, run)| (name, Run::recover(run, snapshots, now_ms));
        Self {
            runs: written.runs.into_iter().map(recover).collect(),
            resuming: written.resuming,
            passed: written.passed,
            ..Self::new(snapshots)
        }
    }

    /// What of them has changed since this was last asked; from now on it is written down.
    pub(super) fn take_changes(&mut self, change: &mut Change) {
        change.gone = std::mem::take(&mut self.gone);
        let taken = |(name, run): (&RunId, &mut Run)| Some((name.clone(), run.take_change()?));
        change.runs = self.runs.iter_mut().filter_map(taken).collect();
        let resume = std::mem::take(&mut self.others_resume);
        change.resuming = resume.then(|| self.resuming.clone());
        change.passed = (!change.gone.is_empty()).then_some(self.passed);
    }

    /// What of them is to be written down.
    pub(super) fn to_write(&self) -> WrittenRuns {
        let runs = self.runs.iter();
        let write = |(name, run): (&RunId, &Run)| (name.clone(), run.to_write());
        WrittenRuns {
            runs: runs.map(write).collect(),
            resuming: self.resuming.clone(),
            passed: self.passed,
        }
    }

    /// Whether there is a folder for their snapshots.
    pub(super) fn have_folder(&self) -> bool {
        self.snapshots
    }

    pub(super) fn get(&self, name: &RunId) -> Result<&Run, Refused> {
        let unknown = || Refusal::UnknownRun(name.clone()).into();
        self.runs.get(name).ok_or_else(unknown)
    }

    pub(super) fn get_mut(&mut self, name: &RunId) -> Result<&mut Run, Refused> {
        let unknown = || Refusal::UnknownRun(name.clone()).into();
        self.runs.get_mut(name).ok_or_else(unknown)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Run> {
        self.runs.values()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Run> {
        self.runs.values_mut()
    }

    /// The next join of the run resumes it.
    pub(super) fn resume(&mut self, name: RunId, saved: Saved) -> Result<(), Refused> {
        if self.runs.contains_key(&name) {
            return Err(Refused::RunExists(name));
        }
        if !self.snapshots {
            return Err(Refused::NoFolder);
        }
        let known = self.resuming.contains_key(&name);
        if !known && self.runs.len() + self.resuming.len() >= RUNS_MAX {
            return Err(Refused::TooManyRuns);
        }
        self.resuming.insert(name, saved);
        self.others_resume = true;
        Ok(())
    }

    /// The run that a rank joins; the first one creates it, on the servers of the fleet.
    pub(super) fn joined(
        &mut self,
        name: &RunId,
        spec: RunSpec,
        fleet: &Fleet,
        journal: &mut Journal,
    ) -> Result<&mut Run, Refused> {
        if !self.runs.contains_key(name) {
            let run = self.create(name, spec, fleet, journal)?;
            return Ok(self.runs.entry(name.clone()).or_insert(run));
        }
        let run = self.runs.get_mut(name).expect("looked up above");
        match run.difference(&spec) {
            None => Ok(run),
            Some(field) => Err(Refused::Differs { field }),
        }
    }

    fn create(
        &mut self,
        name: &RunId,
        mut spec: RunSpec,
        fleet: &Fleet,
        journal: &mut Journal,
    ) -> Result<Run, Refused> {
        let (registered, servers) = (fleet.up().count(), fleet.expected());
        if registered < servers as usize {
            return Err(Refused::ServersMissing {
                registered,
                expected: servers as usize,
            });
        }
        let saved = self.resuming.get(name);
        if let Some(saved) = saved {
            // Its blocks stay what they are.
            spec.bucket_bytes = saved.manifest.spec.bucket_bytes;
        }
        let layout = spec.check()?;
        let replication = spec.faults.replication;
        if replication > servers {
            return Err(Refused::Replication {
                replication,
                servers,
            });
        }
        if let Some(field) = saved.and_then(|s| resume::differs(&s.manifest.spec, &spec)) {
            return Err(Refused::ResumeDiffers { field });
        }
        let others = self.resuming.len() - usize::from(saved.is_some());
        if self.runs.len() + others >= RUNS_MAX {
            return Err(Refused::TooManyRuns);
        }
        let (spec, placement) = (Arc::new(spec), Placement::by_bytes(&layout, servers));
        let (snapshots, now_ms) = (self.snapshots, journal.now_ms());
        let mut run = match saved {
            Some(saved) => Run::resumed(saved, spec, placement, fleet, snapshots, now_ms),
            None => Run::new(name.clone(), spec, placement, fleet, snapshots, now_ms),
        };
        if saved.is_none() {
            journal.push(Output::DropMarks(name.clone()));
        }
        run.begin_past(self.passed);
        self.others_resume |= self.resuming.remove(name).is_some();
        Ok(run)
    }

    /// Forgets a run that is over, or that nobody has joined since it was to go on.
    pub(super) fn remove(&mut self, name: &RunId) -> Result<(), Refused> {
        match self.get(name) {
            Ok(run) if !run.is_idle() => return Err(Refused::StillTrains(name.clone())),
            Ok(run) => self.passed = run.passed().max(self.passed),
            Err(unknown) if !self.resuming.contains_key(name) => return Err(unknown),
            Err(_) => {}
        }
        self.runs.remove(name);
        self.gone.insert(name.clone());
        self.others_resume |= self.resuming.remove(name).is_some();
        Ok(())
    }

    /// A life of a server is gone.
    pub(super) fn server_lost(&mut self, lost: LostServer, fleet: &Fleet, now_ms: u64) {
        for run in self.runs.values_mut() {
            run.server_lost(lost, fleet);
            // Another life of it is about to register, and may be placed itself.
            if !lost.dead {
                run.place(None, fleet, now_ms);
            }
        }
    }

    /// Time has passed; whether the fleet has given somebody up meanwhile.
    pub(super) fn tick(&mut self, given_up: bool, fleet: &Fleet, now_ms: u64) {
        for run in self.runs.values_mut() {
            if given_up || run.is_unsettled() {
                run.place(None, fleet, now_ms);
            }
            run.tick(now_ms);
        }
    }

    /// Tells a server which runs there are.
    pub(super) fn tell(&self, server: ServerId, journal: &mut Journal) {
        let runs = self.runs.keys().cloned().collect();
        journal.push(Output::Runs(server, runs));
    }

    /// Collects what runs want done, in the order in which it came up.
    pub(super) fn collect(&mut self, journal: &mut Journal) {
        for run in self.runs.values_mut() {
            journal.collect(run.take_changes());
        }
    }

    /// Notes the runs that all servers have to hear of.
    pub(super) fn owe_orders(&mut self, owed: &mut Owed) {
        for run in self.runs.values_mut() {
            if run.take_order_due() {
                owed.all(run.name());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tradewind_common::Incarnation;
    use tradewind_common::spec::ConsistencySpec;

    use super::*;
    use crate::order::Server;
    use crate::tests::spec;

    #[test]
    fn a_run_begins_past_those_that_were_forgotten() {
        let name = RunId::new("r").unwrap();
        let (mut journal, mut fleet) = (Journal::default(), Fleet::new(1, 100));
        let server = Server {
            incarnation: Incarnation(1),
            address: "a".into(),
            host: "h".into(),
        };
        fleet.register(ServerId(0), server, 0);
        let mut runs = Runs::new(false);
        let join = |runs: &mut Runs, journal: &mut Journal| {
            let run = runs.joined(&name, spec(&[1], ConsistencySpec::Async), &fleet, journal);
            run.map(|run| run.generation())
        };
        assert!(runs.remove(&name).is_err());
        let first = join(&mut runs, &mut journal);
        assert_eq!(join(&mut runs, &mut journal), first, "it is the same run");
        runs.passed.generation = first.unwrap().next();
        assert_eq!(runs.remove(&name), Ok(()));
        assert_eq!(join(&mut runs, &mut journal), Ok(runs.passed.generation));
    }
}
