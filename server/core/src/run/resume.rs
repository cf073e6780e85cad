//! A run goes on from a snapshot, on the servers and with the groups that there are now.

use std::sync::Arc;

use tradewind_common::data::{Chunking, DataPosition, Ledger};
use tradewind_common::holders::Primary;
use tradewind_common::loss::Loss;
use tradewind_common::placement::Placement;
use tradewind_common::shares::{first_step, sync_position};
use tradewind_common::spec::{ConsistencySpec, RunSpec};
use tradewind_common::{Clock, Incarnation};

use super::{Phase, Run, Snapshots};
use crate::event::{Event, EventKind};
use crate::fleet::Fleet;
use crate::optimizer;
use crate::order::Restore;
use crate::saved::{ManifestData, Saved};

/// Groups had lives after the snapshot that nobody has written down; theirs are passed over.
const LIVES_MARGIN: u64 = 1_000;

/// The first thing in which a run differs from its snapshot that must be the same.
pub(crate) fn differs(saved: &RunSpec, spec: &RunSpec) -> Option<&'static str> {
    let kind = |spec: &RunSpec| {
        let kept = optimizer::from_spec(spec.optimizer).slots();
        (std::mem::discriminant(&spec.optimizer), kept)
    };
    // A snapshot of before the field has several steps where they were local.
    let local = |spec: &RunSpec| spec.local || spec.local_steps > 1;
    let differs = [
        (saved.tensors != spec.tensors, "tensors"),
        (saved.bucket_bytes != spec.bucket_bytes, "bucket_bytes"),
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
    let mut fields = differs.into_iter().filter(|(differs, _)| *differs);
    fields.next().map(|(_, field)| field)
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
        let mut run = Self::new(name, spec, placement, fleet, snapshots, now_ms);
        run.phase = Phase::Restoring;
        // Past every lineage of which anything was recorded: the run may have gone on after the snapshot.
        run.generation = manifest.generation.max(saved.recorded).next();
        for shard in run.shards() {
            let holders = &mut run.holders[shard.0 as usize];
            let since = run.generation;
            let heir = holders.primary.take();
            holders.heir = heir.map(|heir| Primary { since, ..heir });
            holders.copies.clear();
            let restore = Restore {
                shard,
                newest: manifest.number,
                only: true,
            };
            run.restoring.insert(shard, restore);
        }
        let lives = manifest.groups.values().map(|group| group.incarnation);
        let last = lives.max().unwrap_or_default().max(manifest.lives_before);
        run.lives_before = Incarnation(last.0 + LIVES_MARGIN);
        run.clock_seen = manifest.clock;
        run.lost_earlier = Loss {
            updates: manifest.lost,
            samples: manifest.lost_samples,
        };
        let position = position(manifest);
        let chunking = Chunking {
            epoch_samples: run.spec.epoch_samples,
            chunk_samples: run.spec.chunk_samples,
        };
        let leased = manifest.spec.consistency != ConsistencySpec::Sync;
        run.ledger = if leased && manifest.ledger.chunking() == chunking {
            manifest.ledger.clone()
        } else {
            Ledger::from_position(chunking, position)
        };
        let start = run.clock_seen.map_or(Clock(0), Clock::tick);
        run.origin = (start, position.passed(run.spec.epoch_samples));
        run.snapshots = Snapshots::resumed(snapshots, manifest.number, &saved.numbers);
        run.order_due = true;
        for damaged in &saved.damaged {
            let text = format!("a snapshot of run {} is passed over: {damaged}", run.name);
            run.tell(Event::new(EventKind::DamagedSnapshot, text));
        }
        run
    }
}

/// How far the values of a snapshot have come through the data.
fn position(manifest: &ManifestData) -> DataPosition {
    let spec = &manifest.spec;
    if spec.consistency != ConsistencySpec::Sync {
        return manifest.ledger.position();
    }
    let decided = manifest.files.iter().map(|file| file.clock_next).max();
    let next = manifest.at_clock.or(decided).unwrap_or_default();
    let (origin, passed) = manifest.origin;
    let passed = sync_position(
        &spec.group_sizes,
        spec.batches(),
        spec.epoch_samples,
        (first_step(origin, spec.local_steps), passed),
        first_step(next, spec.local_steps),
    );
    DataPosition::after(passed.unwrap_or_default(), spec.epoch_samples)
}
