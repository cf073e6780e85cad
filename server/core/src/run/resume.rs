//! A run goes on from a snapshot, on the servers and with the groups that there are now.

use std::collections::BTreeMap;
use std::sync::Arc;

use tradewind_common::Incarnation;
use tradewind_common::loss::Loss;
use tradewind_common::placement::Placement;
use tradewind_common::spec::RunSpec;

use super::Run;
use super::bases::Bases;
use super::data::DataLeases;
use super::losses::Losses;
use super::membership::Membership;
use super::outbox::Outbox;
use super::phase::{Phase, Progress};
use super::reports::Reports;
use super::snapshots::Snapshots;
use crate::event::{Event, EventKind};
use crate::fleet::Fleet;
use crate::optimizer;
use crate::saved::Saved;

/// Groups had lives after the snapshot that nobody has written down; theirs are passed over.
const LIVES_MARGIN: u64 = 1_000;

/// The first thing in which a run differs from its snapshot that must be the same.
pub(crate) fn differs(saved: &RunSpec, spec: &RunSpec) -> Option<String> {
    let kind = |spec: &RunSpec| {
        let kept = optimizer::from_spec(spec.optimizer).slots();
        (std::mem::discriminant(&spec.optimizer), kept)
    };
    // A snapshot of before the field has several steps where they were local.
    let local = |spec: &RunSpec| spec.local || spec.local_steps > 1;
    let differs = [
        (saved.block_bytes != spec.block_bytes, "block_bytes"),
        (
            kind(saved) != kind(spec),
            "kind of optimizer, or whether it has momentum",
        ),
        (
            local(saved) != local(spec),
            "kind of what groups push, with local steps or without, of which its optimizer keeps sums",
        ),
    ];
    let besides = || differs.into_iter().find(|(differs, _)| *differs);
    let besides = || besides().map(|(_, field)| field.into());
    saved.other_tensor(spec).or_else(besides)
}

impl Run {
    /// The run of a snapshot, with a specification that fits it: every shard is restored first.
    pub(crate) fn resumed(
        saved: &Saved,
        spec: Arc<RunSpec>,
        placement: Placement,
        fleet: &Fleet,
        snapshots: bool,
        now_ms: u64,
    ) -> Self {
        let manifest = &saved.manifest;
        let name = manifest.run.clone();
        // Past every lineage of which anything was recorded: the run may have gone on after the snapshot.
        let generation = manifest.generation.max(saved.recorded).next();
        let lives = manifest.groups.values().map(|group| group.incarnation);
        let last = lives.max().unwrap_or_default().max(manifest.lives_before);
        let reports = Reports::since(manifest.clock);
        let mut run = Self {
            progress: Progress::new(Phase::Restoring, None),
            membership: Membership::new(BTreeMap::new(), Incarnation(last.0 + LIVES_MARGIN)),
            data: DataLeases::resumed(manifest, &spec, reports.next_clock()),
            reports,
            bases: Bases::since(generation),
            losses: Losses::resumed(Loss {
                updates: manifest.lost,
                samples: manifest.lost_samples,
            }),
            snapshots: Snapshots::resumed(snapshots, manifest.number, &saved.numbers),
            out: Outbox::new(name.clone(), generation),
            ..Self::new(name, spec, placement, fleet, snapshots, now_ms)
        };
        run.holders.resume(manifest.number, generation);
        run.out.order();
        for damaged in &saved.damaged {
            let text = format!("a snapshot of run {} is passed over: {damaged}", run.name());
            run.out.tell(Event::new(EventKind::DamagedSnapshot, text));
        }
        run
    }
}
