//! Rules broken on purpose: the checkers find every one of them, within few seeds.

use tradewind_common::policy::momentum::{ClosedLoop, Lowered};
use tradewind_common::policy::staleness::{Compensate, Drop, Scale};
use tradewind_common::policy::{MomentumSpec, StalenessSpec};
use tradewind_common::spec::ConsistencySpec::{Async, Bounded, Sync};
use tradewind_common::spec::OptimizerSpec;
use tradewind_sim::checker::Rule;
use tradewind_sim::scenario::OPTIMIZERS;
use tradewind_sim::seeds::first_failure;
use tradewind_sim::{Sabotage, Scenario};

/// Seeds within which a broken rule is found.
const SEEDS: u64 = 500;

fn found(sabotage: Sabotage, rules: &[Rule], scenario: impl Fn(u64) -> Scenario) {
    let broken = |seed| scenario(seed).with_sabotage(sabotage);
    let (took, failure) = first_failure(0..SEEDS, broken).expect("a broken rule goes unseen");
    println!("{sabotage:?}: {took} seeds: {failure}");
    assert!(rules.contains(&failure.violation.rule), "{failure}");
    let again = format!("TRADEWIND_SEED={}", failure.seed);
    assert!(failure.to_string().contains(&again), "{failure}");
}

fn asynchronous(seed: u64) -> Scenario {
    Scenario::random(seed, Async)
}

fn bounded(seed: u64) -> Scenario {
    Scenario::random(seed, Bounded { staleness_bound: 1 })
}

#[test]
fn admitting_one_too_many() {
    found(Sabotage::AdmitsOneTooMany, &[Rule::Staleness], bounded);
}

#[test]
fn a_sync_that_does_not_wait() {
    let sync = |seed| Scenario::random(seed, Sync);
    found(Sabotage::SyncDoesNotWait, &[Rule::Synchronous], sync);
}

#[test]
fn dropping_too_late() {
    let drop = |seed| asynchronous(seed).with_staleness(StalenessSpec::Drop(Drop { beyond: 4 }));
    found(Sabotage::DropsTooLate, &[Rule::ExactlyOnce], drop);
}

#[test]
fn scaling_too_much() {
    let scale = |seed| asynchronous(seed).with_staleness(StalenessSpec::Scale(Scale {}));
    found(Sabotage::ScalesTooMuch, &[Rule::ExactlyOnce], scale);
}

#[test]
fn compensating_nothing() {
    let compensate = StalenessSpec::Compensate(Compensate { lambda: 0.015_625 });
    let compensated = |seed| asynchronous(seed).with_staleness(compensate);
    found(
        Sabotage::CompensatesNothing,
        &[Rule::ExactlyOnce],
        compensated,
    );
}

#[test]
fn lowering_momentum_too_much() {
    let lowered = |seed| asynchronous(seed).with_momentum(MomentumSpec::Lowered(Lowered {}));
    found(Sabotage::LowersTooMuch, &[Rule::ExactlyOnce], lowered);
}

#[test]
fn measuring_momentum_at_another_version() {
    let measured = |seed| {
        let loops = MomentumSpec::ClosedLoop(ClosedLoop { gain: 0.015_625 });
        let mut measured = asynchronous(seed).with_momentum(loops);
        (measured.servers, measured.replication) = (measured.servers.max(2), 2);
        measured
    };
    found(Sabotage::MeasuresTooLate, &[Rule::ExactlyOnce], measured);
}

#[test]
fn not_telling_copies_the_momentum() {
    let copies = |seed| {
        let lowered = asynchronous(seed).with_momentum(MomentumSpec::Lowered(Lowered {}));
        lowered.with_failing_servers(2)
    };
    let told = Sabotage::KeepsMomentumToItself;
    found(told, &[Rule::NothingLost], copies);
}

#[test]
fn not_telling_copies_what_a_gradient_counts() {
    let copies = |seed| {
        let scaled = asynchronous(seed).with_staleness(StalenessSpec::Scale(Scale {}));
        scaled.with_failing_servers(2)
    };
    let told = Sabotage::KeepsWeightsToItself;
    found(told, &[Rule::NothingLost], copies);
}

#[test]
fn not_waiting_for_one_group_more() {
    let backups = |seed| asynchronous(seed).with_backups();
    found(Sabotage::OneBackupTooMany, &[Rule::Synchronous], backups);
}

#[test]
fn taking_a_skip_for_a_gradient() {
    let backups = |seed| asynchronous(seed).with_backups();
    found(Sabotage::CountsSkips, &[Rule::Synchronous], backups);
}

#[test]
fn applying_what_comes_too_late() {
    let backups = |seed| asynchronous(seed).with_backups();
    let rules = [Rule::Synchronous, Rule::ExactlyOnce];
    found(Sabotage::AppliesLate, &rules, backups);
}

#[test]
fn merging_too_soon() {
    let windows = |seed| asynchronous(seed).with_windows();
    found(Sabotage::MergesTooSoon, &[Rule::Window], windows);
}

#[test]
fn windows_that_never_close() {
    let windows = |seed| asynchronous(seed).with_windows();
    found(Sabotage::WaitsForEver, &[Rule::Liveness], windows);
}

#[test]
fn letting_a_fenced_life_in() {
    let dying = |seed| asynchronous(seed).with_dying_ranks();
    found(Sabotage::FenceBroken, &[Rule::ExactlyOnce], dying);
}

#[test]
fn applying_a_repeat_again() {
    found(Sabotage::ForgetsDecided, &[Rule::ExactlyOnce], asynchronous);
}

#[test]
fn a_difference_to_what_a_group_does_not_hold() {
    let differences = |seed| asynchronous(seed).with_differences();
    found(Sabotage::IgnoresHeld, &[Rule::ExactlyOnce], differences);
}

#[test]
fn acknowledging_before_replication() {
    let copies = |seed| asynchronous(seed).with_failing_servers(2);
    found(
        Sabotage::AcksBeforeReplication,
        &[Rule::NothingLost],
        copies,
    );
}

#[test]
fn forgetting_what_was_decided_when_taking_over() {
    let copies = |seed| asynchronous(seed).with_failing_servers(2);
    let rules = [Rule::ExactlyOnce, Rule::NothingLost];
    found(Sabotage::ForgetsOnTakingOver, &rules, copies);
}

#[test]
fn forming_again_without_fencing() {
    let dying = |seed| asynchronous(seed).with_dying_ranks();
    // Where values are still created, a life that was not fenced leaves a shard without them.
    let rules = [Rule::ExactlyOnce, Rule::Liveness];
    found(Sabotage::FormsWithoutFencing, &rules, dying);
}

#[test]
fn serving_a_pull_from_a_primary_that_is_cut_off() {
    let copies = |seed| {
        asynchronous(seed)
            .with_failing_servers(2)
            .with_dying_ranks()
    };
    found(Sabotage::ServesWithoutAsking, &[Rule::NothingLost], copies);
}

#[test]
fn creating_over_trained_state() {
    let alone = |seed| asynchronous(seed).with_failing_servers(1);
    let rules = [
        Rule::NoFreshStart,
        Rule::ExactlyOnce,
        Rule::NothingLost,
        Rule::Snapshots,
    ];
    found(Sabotage::CreatesOverTrained, &rules, alone);
}

/// A base whose steps follow from the norms of tensors.
fn layerwise(seed: u64) -> Scenario {
    let layerwise = |(optimizer, _): &(OptimizerSpec, f64)| optimizer.capabilities().layerwise();
    let mut all = (0..OPTIMIZERS.len()).filter(|number| layerwise(&OPTIMIZERS[*number]));
    let number = all.nth(seed as usize % 2).expect("LARS and LARC");
    asynchronous(seed).with_optimizer(number)
}

#[test]
fn not_telling_copies_what_norms_make_of_a_step() {
    let copies = |seed| layerwise(seed).with_failing_servers(2);
    let told = Sabotage::KeepsScalesToItself;
    found(told, &[Rule::NothingLost], copies);
}

#[test]
fn taking_a_part_for_the_whole_tensor() {
    let parts = Sabotage::TakesPartsForTensors;
    found(parts, &[Rule::ExactlyOnce], layerwise);
}

#[test]
fn forgetting_moments_when_taking_over() {
    let copies = |seed| asynchronous(seed).with_failing_servers(2);
    found(Sabotage::ForgetsMoments, &[Rule::NothingLost], copies);
}

/// A base where faults come together, on replication 2.
fn together(seed: u64) -> Scenario {
    asynchronous(seed).with_combined_faults(2)
}

#[test]
fn forgetting_who_had_everything_before_an_heir_has_taken_over() {
    let rules = [Rule::NothingLost, Rule::Liveness];
    found(Sabotage::ForgetsCandidates, &rules, together);
}

#[test]
fn telling_no_loss() {
    found(Sabotage::TellsNoLoss, &[Rule::LossesTold], together);
}

#[test]
fn following_any_log() {
    found(Sabotage::FollowsAnyLog, &[Rule::BadInput], together);
}

#[test]
fn telling_twice_the_loss() {
    found(Sabotage::TellsLossTwice, &[Rule::LossesTold], together);
}

#[test]
fn answering_before_it_is_written_down_who_is_primary() {
    let rules = [Rule::NothingLost, Rule::LossesTold, Rule::ExactlyOnce];
    found(Sabotage::AnswersAsHeir, &rules, together);
}

#[test]
fn acting_on_what_is_not_written_down() {
    let failing = |seed| together(seed).with_failing_coordinator();
    let rules = [Rule::NothingLost, Rule::ExactlyOnce, Rule::Liveness];
    found(Sabotage::ActsBeforeWriting, &rules, failing);
}

#[test]
fn waiting_for_nobody() {
    found(Sabotage::Impatient, &[Rule::NothingLost], together);
}

#[test]
fn keeping_copies_that_confirm_nothing() {
    found(Sabotage::KeepsMuteCopies, &[Rule::Liveness], together);
}

#[test]
fn counting_only_once_what_is_lost() {
    let one_copy = |seed| asynchronous(seed).with_combined_faults(1);
    found(Sabotage::CountsOnce, &[Rule::LossesTold], one_copy);
}

#[test]
fn recording_too_late_what_was_answered() {
    found(Sabotage::MarksTooLate, &[Rule::LossesTold], together);
}

#[test]
fn restoring_what_an_old_listing_shows() {
    let disk = |seed| {
        asynchronous(seed)
            .with_combined_faults(1)
            .with_failing_disk()
    };
    // What an old listing shows is an older snapshot, or none at all.
    let rules = [Rule::Snapshots, Rule::Liveness];
    found(Sabotage::ReadsByListing, &rules, disk);
}

#[test]
fn leaving_out_of_what_has_changed_who_has_gone() {
    let dying = |seed| asynchronous(seed).with_dying_ranks();
    found(Sabotage::ForgetsDepartures, &[Rule::ExactlyOnce], dying);
}

#[test]
fn leaving_out_of_what_has_changed_who_has_formed_again() {
    let dying = |seed| asynchronous(seed).with_dying_ranks();
    found(Sabotage::ForgetsLives, &[Rule::ExactlyOnce], dying);
}

#[test]
fn following_what_has_changed_since_another_view() {
    found(Sabotage::FollowsAnyBase, &[Rule::ExactlyOnce], together);
}
