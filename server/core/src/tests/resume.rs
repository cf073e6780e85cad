//! Runs that go on from a snapshot: scripts as [`super::harness`] reads them.

use tradewind_common::optimizer::{Adam, Sgd};
use tradewind_common::shares::{first_step, sync_share};
use tradewind_common::spec::{ConsistencySpec, OptimizerSpec, RunSpec};
use tradewind_common::{Clock, Generation, GroupId, Incarnation, Rank, RunId};

use super::harness::{Harness, check, play, run_of};
use crate::answer::Refused;
use crate::saved::{ManifestData, Saved};

/// A run of one server, of which a snapshot was taken in the middle.
fn stopped(consistency: ConsistencySpec) -> ManifestData {
    let mut spec = run_of(&[1]);
    spec.consistency = consistency;
    let mut harness = Harness::new(spec, 1, true);
    play(
        &mut harness,
        "
        join 0.0 a => view 2 + 0@1 by 0@1
        ack 0 complete => 0.0 joined as 1, view 2 + 0@1 by 0@1 | capture 1:0 at now
        captured 0 => manifest 1
        written => view 4 0@1:0 + by nobody
        ack 0 =>
        lease 0@1 => 0@1 chunk 0
        lease 0@1 done 0 => 0@1 chunk 1
        beat 0.0@1 18 => 0.0@1 at 4
        ",
    );
    let shot = harness.happen("shot x");
    assert!(shot.ends_with("at 20") || consistency == ConsistencySpec::Async);
    assert_eq!(harness.happen("captured 0"), "manifest 2");
    let manifest = harness.manifests.pop().unwrap();
    let anybody = (GroupId(9), Incarnation(9));
    let next = manifest
        .ledger
        .clone()
        .lease(anybody, &[], |_| vec![0])
        .unwrap();
    assert_eq!(next.number, 1, "chunk 0 is finished, chunk 1 was out");
    manifest
}

/// A fleet that shall resume it.
fn resuming(spec: RunSpec, servers: u32, manifest: ManifestData) -> Harness {
    resuming_after(Generation(0), spec, servers, manifest)
}

/// Something was recorded of this lineage.
fn resuming_after(
    recorded: Generation,
    spec: RunSpec,
    servers: u32,
    manifest: ManifestData,
) -> Harness {
    let mut harness = Harness::new(spec, servers, true);
    let saved = Saved {
        manifest,
        numbers: vec![1, 2, 3],
        damaged: vec!["snapshot 3: torn".into()],
        recorded,
    };
    let run = RunId::new("r").unwrap();
    harness.coordinator.resume(run, saved).unwrap();
    harness.write_down();
    harness
}

#[test]
fn a_run_goes_on_where_its_snapshot_was_taken() {
    let manifest = stopped(ConsistencySpec::Async);
    play(
        &mut resuming(run_of(&[1, 1]), 2, manifest),
        "
        join 1.0 a => view 6 + 1@1002 by none yet | restore 0=2 | restore 1=2
        ack 0 =>
        events => server_up server_up damaged_snapshot group_formed
        ack 0 complete restored 2 => view 7 + 1@1002 by none yet | 0:0@5^5 1:->1@5 | restore 1=2
        ack 1 complete restored 2 => 1.0 joined as 1002 from 20 at 19, view 9 + 1@1002 by nobody | 0:0@5^5 1:1@5^5
        join 0.0 a => view 10 + 0@1002 1@1002 by nobody
        ack 0 =>
        ack 1 => 0.0 joined as 1002 from 20 at 19, view 11 0@1002:19 1@1002:19 + by nobody
        lease 0@1002 => 0@1002 chunk 1
        lease 1@1002 => 1@1002 chunk 2
        holders => 0:0@5^5 1:1@5^5
        ack 0 =>
        ack 1 =>
        shot x => view 11 0@1002:19 1@1002:19 + by nobody | capture 4:0 at now | capture 4:1 at now
        captured 0 =>
        captured 1 => manifest 4
        written => x snapshot 4
        shot y => view 11 0@1002:19 1@1002:19 + by nobody | capture 5:0 at now | capture 5:1 at now
        captured 0 =>
        captured 1 => manifest 5
        written => y snapshot 5, delete 1
        ",
    );
}

#[test]
fn a_resumed_run_that_loses_a_server_at_once_restores_again() {
    let manifest = stopped(ConsistencySpec::Async);
    check(
        || resuming(run_of(&[1]), 2, manifest.clone()),
        "
        join 0.0 a => view 6 + 0@1002 by none yet | restore 0=2 | restore 1=2
        ack 0 complete restored 2 => view 7 + 0@1002 by none yet | 0:0@5^5 1:->1@5 | restore 1=2
        up 1 life 2 => view 9 + 0@1002 by none yet | 0:0@5^5 1:->1@9 | restore 1=2
        ack 0 =>
        ack 1 =>
        ack 1 complete restored 2 => 0.0 joined as 1002 from 20 at 19, view 12 0@1002:19 + by nobody | 0:0@5^5 1:1@9^9
        ",
    );
}

/// The run went on after its snapshot, and shards were restored: of two lineages the later one has the
/// greater number.
#[test]
fn lineages_begin_past_all_that_were_recorded() {
    let manifest = stopped(ConsistencySpec::Async);
    play(
        &mut resuming_after(Generation(40), run_of(&[1]), 1, manifest),
        "
        join 0.0 a => view 42 + 0@1002 by none yet | restore 0=2
        ack 0 complete restored 2 lacks 3 => 0.0 joined as 1002 from 20 at 19, view 45 0@1002:19 + by nobody | 0:0@41^41
        ",
    );
}

#[test]
fn what_must_be_the_same_is_checked() {
    let manifest = stopped(ConsistencySpec::Async);
    let refused = |change: &dyn Fn(&mut RunSpec)| {
        let mut spec = run_of(&[1]);
        change(&mut spec);
        let mut harness = resuming(spec, 1, manifest.clone());
        let said = harness.happen("join 0.0 a");
        said.contains("ResumeDiffers")
    };
    let adam = OptimizerSpec::Adam(Adam {
        beta1: 0.9,
        beta2: 0.9,
        epsilon: 1e-8,
        weight_decay: 0.0,
    });
    assert!(refused(&|spec| spec.optimizer = adam));
    // A velocity that nobody has saved.
    let heavy = OptimizerSpec::Sgd(Sgd {
        momentum: 0.9,
        nesterov: false,
        weight_decay: 0.0,
    });
    assert!(refused(&|spec| spec.optimizer = heavy));
    // A velocity of gradients would be taken for one of what whole exchanges came to.
    assert!(refused(&|spec| spec.local = true));
    assert!(refused(&|spec| spec.block_bytes += 4));
    assert!(refused(&|spec| spec.tensors[0].name = "other".into()));
    assert!(!refused(&|spec| spec.schedule.learning_rate = 0.5));
    assert!(!refused(&|spec| spec.samples += 100));

    let mut harness = resuming(run_of(&[1]), 1, manifest.clone());
    harness.happen("join 0.0 a");
    let saved = Saved {
        manifest,
        numbers: vec![],
        damaged: vec![],
        recorded: Generation(0),
    };
    let run = RunId::new("r").unwrap();
    let again = harness.coordinator.resume(run.clone(), saved);
    assert_eq!(again, Err(Refused::RunExists(run)));
}

/// Blocks that are in a snapshot stay what they are, whatever they would be in a new run.
#[test]
fn a_run_keeps_the_blocks_of_its_snapshot() {
    let mut manifest = stopped(ConsistencySpec::Async);
    manifest.spec.bucket_bytes = Some(8);
    let mut desk = resuming(run_of(&[1]), 1, manifest);
    desk.happen("join 0.0 a");
    let run = desk.coordinator.run(&RunId::new("r").unwrap()).unwrap();
    assert_eq!(run.spec().bucket_bytes, Some(8));
    // A rank that comes again says nothing of it either.
    let again = desk.happen("join 0.0 b");
    assert!(!again.contains("Differs"), "{again}");
}

#[test]
fn data_of_sync_go_on_exactly() {
    for local_steps in [1, 3] {
        let mut manifest = stopped(ConsistencySpec::Sync);
        manifest.spec.local_steps = local_steps;
        let spec = manifest.spec.clone();
        let mut harness = resuming(spec.clone(), 1, manifest);
        harness.happen("join 0.0 a");
        // The values are as before clock 20; clocks go on past 19, the highest that was known.
        let joined = harness.happen("ack 0 complete restored 2");
        let passed = 20 * u64::from(local_steps);
        let want = format!("0.0 joined as 1002 from {passed} at 20");
        assert!(joined.starts_with(&want), "{joined}");
        let share = |origin, step| {
            let who = (step, GroupId(0), Rank(0));
            sync_share(
                &spec.group_sizes,
                spec.batches(),
                spec.epoch_samples,
                origin,
                who,
            )
        };
        let resumed = first_step(Clock(20), local_steps);
        for later in 0..100 {
            let step = Clock(resumed.0 + later);
            assert_eq!(share((resumed, passed), step), share((Clock(0), 0), step));
        }
    }
}

#[test]
fn other_chunks_begin_where_the_old_ones_ended() {
    let manifest = stopped(ConsistencySpec::Async);
    let mut spec = run_of(&[1]);
    spec.chunk_samples = 7;
    let mut harness = resuming(spec, 1, manifest);
    play(
        &mut harness,
        "
        join 0.0 a => view 6 + 0@1002 by none yet | restore 0=2
        ack 0 complete restored 2 => 0.0 joined as 1002 from 20 at 19, view 9 0@1002:19 + by nobody | 0:0@5^5
        lease 0@1002 => 0@1002 chunk 3
        ",
    );
}

#[test]
fn a_run_that_nobody_has_gone_on_with_can_be_forgotten() {
    let manifest = stopped(ConsistencySpec::Async);
    let mut harness = resuming(run_of(&[1]), 1, manifest);
    assert_eq!(harness.happen("remove"), "removed");
    let joined = harness.happen("join 0.0 a");
    assert!(!joined.contains("restore"), "it begins anew: {joined}");
}
