//! What a snapshot's manifest says: the whole of a run but its values.

use tradewind_common::{Clock, GroupId};

use super::super::{Group, Run};
use crate::output::Output;
use crate::saved::{ManifestData, SavedGroup};

impl Run {
    /// All parts of the snapshot that is being taken are there: it is whole once this is on disk.
    pub(super) fn write_manifest(&mut self) {
        let taking = self.snapshots.taking.as_mut().expect("one is being taken");
        taking.writing = true;
        self.dirty = true;
        let manifest = self.manifest();
        self.outputs.extend(manifest.map(Output::Manifest));
    }

    /// That of the snapshot whose parts are all there.
    pub(super) fn manifest(&self) -> Option<Box<ManifestData>> {
        let taking = self.snapshots.taking.as_ref().filter(|t| t.writing)?;
        let files = || taking.files.values();
        let decided = files().filter_map(|file| file.clock_next.0.checked_sub(1));
        let least = files().map(|file| file.samples.0).min();
        let most = files().map(|file| file.samples.1).max();
        let saved = |(id, group): (&GroupId, &Group)| {
            let saved = SavedGroup {
                incarnation: group.incarnation,
                clock: group.clock(),
            };
            (*id, saved)
        };
        Some(Box::new(ManifestData {
            run: self.name.clone(),
            number: taking.number,
            generation: self.generation,
            spec: self.spec.as_ref().clone(),
            clock: self.clock_known().max(decided.max().map(Clock)),
            at_clock: taking.at_clock,
            origin: self.origin,
            groups: self.groups.iter().map(saved).collect(),
            lives_before: self.lives_before,
            samples: (least.unwrap_or(0), most.unwrap_or(0)),
            files: files().cloned().collect(),
            shards: self.placement.shards().iter().map(|s| s.0).collect(),
            ledger: taking.ledger.clone(),
            lost: self.lost().updates,
            lost_samples: self.lost().samples,
        }))
    }
}
