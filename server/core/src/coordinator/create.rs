//! Runs begin, or go on from a snapshot.

use std::sync::Arc;

use tradewind_common::RunId;
use tradewind_common::placement::Placement;
use tradewind_common::spec::RunSpec;

use super::{Coordinator, Output};
use crate::ReplyTo;
use crate::answer::{Answer, RUNS_MAX, Refused};
use crate::run::{Run, resume};
use crate::saved::Saved;

impl Coordinator {
    /// The next join of the run resumes it.
    pub fn resume(&mut self, run: RunId, saved: Saved) -> Result<(), Refused> {
        if self.runs.contains_key(&run) {
            return Err(Refused::RunExists(run));
        }
        if !self.snapshots {
            return Err(Refused::NoFolder);
        }
        let known = self.resuming.contains_key(&run);
        if !known && self.runs.len() + self.resuming.len() >= RUNS_MAX {
            return Err(Refused::TooManyRuns);
        }
        self.resuming.insert(run, saved);
        self.journal.touch();
        Ok(())
    }

    /// As [`resume`](Self::resume); answered when that is written down: whoever has heard of it may
    /// join at a successor.
    pub fn ask_to_resume(&mut self, run: RunId, saved: Saved, to: ReplyTo) {
        let answer = self.resume(run, saved).map(|()| Answer::Resumes);
        self.journal.reply(to, answer);
    }

    /// The run that a rank joins; the first one creates it.
    pub(super) fn run_to_join(&mut self, name: &RunId, spec: RunSpec) -> Result<&mut Run, Refused> {
        if !self.runs.contains_key(name) {
            let run = self.create(name, spec)?;
            return Ok(self.runs.entry(name.clone()).or_insert(run));
        }
        let run = self.runs.get_mut(name).expect("looked up above");
        match run.difference(&spec) {
            None => Ok(run),
            Some(field) => Err(Refused::Differs { field }),
        }
    }

    fn create(&mut self, name: &RunId, mut spec: RunSpec) -> Result<Run, Refused> {
        let (registered, servers) = (self.fleet.up().count(), self.fleet.expected());
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
        let (fleet, snapshots, now_ms) = (&self.fleet, self.snapshots, self.journal.now_ms());
        let mut run = match saved {
            Some(saved) => Run::resumed(saved, spec, placement, fleet, snapshots, now_ms),
            None => Run::new(name.clone(), spec, placement, fleet, snapshots, now_ms),
        };
        if saved.is_none() {
            self.journal.push(Output::DropMarks(name.clone()));
        }
        run.begin_past(self.passed);
        self.resuming.remove(name);
        Ok(run)
    }
}
