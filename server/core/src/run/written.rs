//! A run as it is written down, and as a later coordinator reads it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tradewind_common::data::{Ledger, LedgerChange};
use tradewind_common::holders::Holders;
use tradewind_common::loss::Loss;
use tradewind_common::placement::Placement;
use tradewind_common::spec::RunSpec;
use tradewind_common::{Clock, Generation, GroupId, Incarnation, RunId, ShardId};

use super::admission::Admission;
use super::bases::Bases;
use super::data::DataLeases;
use super::group::Group;
use super::holders::{Departing, ShardHolders, WrittenHolders};
use super::losses::{ByLineage, Losses};
use super::membership::Membership;
use super::outbox::Outbox;
use super::phase::{Phase, Progress};
use super::reports::Reports;
use super::roster::{Drained, Roster, RosterChange};
use super::snapshots::{Snapshots, SnapshotsChange};
use super::{Identity, Run};
use crate::order::Restore;
use crate::shared;

/// What of a run is written down; what callers and servers say again, and times, are not.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WrittenRun {
    name: RunId,
    #[serde(with = "shared")]
    spec: Arc<RunSpec>,
    #[serde(with = "shared")]
    placement: Arc<Placement>,
    generation: Generation,
    phase: Phase,
    formed: bool,
    ready_at: Option<Generation>,
    holders: Vec<Holders>,
    #[serde(default)]
    interrupted: BTreeMap<ShardId, Holders>,
    #[serde(default)]
    departing: Departing,
    restoring: BTreeMap<ShardId, Restore>,
    clock_seen: Option<Clock>,
    #[serde(default)]
    losses: ByLineage,
    #[serde(default)]
    lost_earlier: Loss,
    groups: BTreeMap<GroupId, Group>,
    attached: Vec<u32>,
    drained: Drained,
    lives_before: Incarnation,
    ledger: Ledger,
    origin: (Clock, u64),
    snapshots: Snapshots,
}

/// What has become of a run since it was written down.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum RunChange {
    /// It has begun.
    Begun(Box<WrittenRun>),
    /// Something in it has changed.
    Changed(Box<Changed>),
}

/// What has changed in a run since it was written down. It grows with what has happened, not with the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Changed {
    generation: Generation,
    phase: Phase,
    formed: bool,
    ready_at: Option<Generation>,
    clock_seen: Option<Clock>,
    lives_before: Incarnation,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    holders: Option<WrittenHolders>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    losses: Option<ByLineage>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    groups: BTreeMap<GroupId, Group>,
    #[serde(flatten)]
    roster: RosterChange,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ledger: Option<LedgerChange>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    snapshots: Option<SnapshotsChange>,
}

impl WrittenRun {
    /// Makes a change.
    pub(crate) fn change(&mut self, changed: Changed) {
        (self.generation, self.phase) = (changed.generation, changed.phase);
        (self.formed, self.ready_at) = (changed.formed, changed.ready_at);
        (self.clock_seen, self.lives_before) = (changed.clock_seen, changed.lives_before);
        if let Some(holders) = changed.holders {
            (self.holders, self.interrupted) = (holders.holders, holders.interrupted);
            (self.departing, self.restoring) = (holders.departing, holders.restoring);
        }
        if let Some(losses) = changed.losses {
            self.losses = losses;
        }
        self.groups.extend(changed.groups);
        changed.roster.make(&mut self.attached, &mut self.drained);
        if let Some(ledger) = changed.ledger {
            self.ledger.change(ledger);
        }
        if let Some(snapshots) = changed.snapshots {
            self.snapshots.change(snapshots);
        }
    }
}

impl Run {
    /// What has become of it since this was last asked, if anything has; from now on it is written down.
    pub(crate) fn take_change(&mut self) -> Option<RunChange> {
        // A server that has come back is no longer missed, which is news of the fleet and not of the run.
        let holders = self.holders.take_change();
        let groups = self.membership.groups().any_unwritten();
        if !(self.out.take_unwritten() | groups | holders.is_some()) {
            return None;
        }
        let begun = !std::mem::replace(&mut self.is_written, true);
        let changed = Changed {
            generation: self.generation(),
            phase: self.phase().clone(),
            formed: self.admission.is_formed(),
            ready_at: self.progress.ready_at(),
            clock_seen: self.reports.clock_seen(),
            lives_before: self.membership.lives_before(),
            holders,
            losses: self.losses.take_change(),
            groups: self.membership.groups_mut().take_unwritten(),
            roster: self.roster.take_change(),
            ledger: self.data.take_change(),
            snapshots: self.snapshots.take_change(),
        };
        Some(match begun {
            true => RunChange::Begun(Box::new(self.to_write())),
            false => RunChange::Changed(Box::new(changed)),
        })
    }

    /// What of it is to be written down.
    pub(crate) fn to_write(&self) -> WrittenRun {
        let holders = self.holders.written();
        WrittenRun {
            name: self.name().clone(),
            spec: self.spec().clone(),
            placement: self.placement().clone(),
            generation: self.generation(),
            phase: self.phase().clone(),
            formed: self.admission.is_formed(),
            ready_at: self.progress.ready_at(),
            holders: holders.holders,
            interrupted: holders.interrupted,
            departing: holders.departing,
            restoring: holders.restoring,
            clock_seen: self.reports.clock_seen(),
            losses: self.losses.by_lineage().clone(),
            lost_earlier: self.losses.earlier(),
            groups: self.membership.groups().to_write(),
            attached: self.roster.attached().to_vec(),
            drained: self.roster.drained().clone(),
            lives_before: self.membership.lives_before(),
            ledger: self.data.ledger().clone(),
            origin: self.data.origin(),
            snapshots: self.snapshots.clone(),
        }
    }

    /// Takes a run over from a former coordinator: every rank has one lease to show up, and calls
    /// that waited are made again.
    pub(crate) fn recover(written: WrittenRun, snapshots: bool, now_ms: u64) -> Self {
        let lease_ms = written.spec.lease_ms;
        let interval_ms = written.spec.faults.snapshot_ms;
        let mut run = Self::read(written, now_ms);
        run.membership.recover(now_ms, lease_ms);
        run.data.take_over(now_ms, lease_ms);
        run.snapshots.recover(snapshots, interval_ms, now_ms);
        run.write_manifest();
        run
    }

    fn read(written: WrittenRun, now_ms: u64) -> Self {
        let holders = WrittenHolders {
            holders: written.holders,
            interrupted: written.interrupted,
            departing: written.departing,
            restoring: written.restoring,
        };
        Self {
            progress: Progress::new(written.phase, written.ready_at),
            roster: Roster::new(written.spec.clone(), written.attached, written.drained),
            membership: Membership::new(written.groups, written.lives_before),
            admission: Admission::since(written.formed, now_ms),
            data: DataLeases::written(written.ledger, written.origin),
            holders: ShardHolders::read(holders),
            reports: Reports::since(written.clock_seen),
            bases: Bases::since(written.generation),
            losses: Losses::written(written.losses, written.lost_earlier),
            snapshots: written.snapshots,
            out: Outbox::new(written.name.clone(), written.generation),
            is_written: false,
            identity: Identity {
                name: written.name,
                spec: written.spec,
                placement: written.placement,
            },
        }
    }
}
