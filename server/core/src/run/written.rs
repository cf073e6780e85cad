//! A run as it is written down, and as a later coordinator reads it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tradewind_common::data::Ledger;
use tradewind_common::holders::Holders;
use tradewind_common::loss::Loss;
use tradewind_common::placement::Placement;
use tradewind_common::spec::RunSpec;
use tradewind_common::{Clock, Generation, GroupId, Incarnation, RunId, ShardId};

use super::admission::Admission;
use super::data::DataLeases;
use super::group::Group;
use super::holders::{Departing, ShardHolders, WrittenHolders};
use super::losses::{ByLineage, Losses};
use super::membership::Membership;
use super::outbox::Outbox;
use super::phase::{Phase, Progress};
use super::reports::Reports;
use super::roster::{Drained, Roster};
use super::snapshots::Snapshots;
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

impl Run {
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
            groups: self.membership.groups().clone(),
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
            losses: Losses::written(written.losses, written.lost_earlier),
            snapshots: written.snapshots,
            out: Outbox::new(written.name.clone(), written.generation),
            identity: Identity {
                name: written.name,
                spec: written.spec,
                placement: written.placement,
            },
        }
    }
}
