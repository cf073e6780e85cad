use super::*;
use crate::events::fixture::event;

#[test]
fn faults_are_counted_and_what_was_mended_is_told() {
    let happened = [
        ("run_ready", "the run is ready"),
        ("process_died", "rank 0 of group 0 was killed"),
        (
            "process_restarted",
            "rank 0 of group 0 was killed; restarted",
        ),
        ("process_died", "server 1 was killed"),
        ("promoted", "server 0 answers for shard 1"),
    ];
    let events = happened.map(|(kind, text)| event(0.0, kind, text));
    let lost = tradewind_common::loss::Loss {
        updates: 3,
        samples: 8,
    };
    let found = faults(&events, Some(lost));
    let kinds: Vec<_> = found.counts.iter().map(|(k, n)| (k.as_str(), *n)).collect();
    let want = [
        ("process_died", 2),
        ("process_restarted", 1),
        ("promoted", 1),
    ];
    assert_eq!(kinds, want);
    assert_eq!(found.recovered, [happened[2].1, happened[4].1]);
    assert_eq!(found.lost, Some(lost));
}

#[test]
fn quantiles_of_added_histograms() {
    let check = |histograms: &[&[u64]], want: Option<(u64, u64, u64)>| {
        let got = delay(histograms.iter().copied()).map(|d| (d.p50, d.p99, d.max));
        assert_eq!(got, want, "{histograms:?}");
    };
    check(&[], None);
    check(&[&[0, 0]], None);
    check(&[&[5]], Some((0, 0, 0)));
    check(&[&[1, 1], &[0, 1, 1]], Some((1, 2, 2)));
    check(&[&[98, 1, 0, 1]], Some((0, 1, 3)));
}

#[test]
fn waiting_for_data_is_told_apart_from_computing() {
    // Of both groups 100 steps of 0.1 s, which group 1 begins 0.32 s after each other.
    let mut records = tradewind_common::record::fixture::run(2, 100);
    for record in &mut records {
        record.data_seconds = 0.001 * (record.clock + 1) as f64;
    }
    let found = group(1, 2, &records);
    assert!((found.data_seconds - 5.05).abs() < 1e-9);
    assert_eq!((found.data_p50, found.data_p99), (0.05, 0.099));
    let took = 99.0 * 0.32 + 0.001 + 0.1 + 0.01 + 0.02;
    assert!((found.utilization - 10.0 / took).abs() < 1e-6, "{found:?}");
    assert!((train_seconds(&records) - took).abs() < 1e-5);

    // Of rows that were merged the mean counts, as often as there were exchanges.
    let own = |clocks: std::ops::Range<u64>| {
        let own = records
            .iter()
            .filter(|r| r.group == 1 && clocks.contains(&r.clock));
        own.cloned().reduce(StepRecord::and).unwrap()
    };
    let merged = group(1, 2, &[own(0..98), own(98..99), own(99..100)]);
    assert!((merged.data_p50 - 0.0495).abs() < 1e-9, "{merged:?}");
    assert_eq!((merged.data_p99, merged.clocks), (0.099, 100));
    let none = group(7, 1, &records);
    assert_eq!((none.data_p50, none.utilization), (0.0, 0.0));
}

/// Two groups of which one is always late.
#[test]
fn samples_of_dropped_gradients_are_not_applied() {
    let mut records = tradewind_common::record::fixture::run(2, 3);
    for record in &mut records {
        record.samples = 8;
        record.samples_applied = 8 * (record.clock + 1);
        record.dropped = u64::from(record.group);
    }
    assert_eq!(applied(&records), 24);
    assert_eq!(applied(&[]), 0);
}

/// What ended a rank whose process returned this.
fn cause(status: u8) -> Cause {
    let text = format!(r#"{{"role":"worker","exit_status":{status},"reason":"it ended"}}"#);
    serde_json::from_str(&text).unwrap()
}

#[test]
fn a_run_that_lost_something_has_a_status_of_its_own_and_says_so_last() {
    let lost = Lost {
        updates: 312,
        samples: 640,
    };
    let config = tradewind_config::Config::parse(
        include_str!("../../../configs/climate-forecast.toml"),
        "c.toml",
        std::path::Path::new("/"),
        &[],
    );
    let config = config.unwrap();
    let check = |(status, ended): (RunOutcome, Option<u8>),
                 lost: Option<Lost>,
                 events: &[Event],
                 want: Exit,
                 says: &str| {
        let inputs = Inputs {
            status,
            failure: ended.map(cause),
            wall_seconds: 2.0,
            records: &[],
            events,
            snapshot: Some(4),
            resumed_from: None,
            cluster: None,
            lost,
            evaluation: None,
        };
        let summary = Summary::new(&config, inputs);
        assert_eq!(summary.exit(), want);
        let json = serde_json::to_value(&summary).unwrap();
        assert_eq!(json["exit_status"], want.number());
        assert_eq!(json["faults"]["lost"], serde_json::to_value(lost).unwrap());
        let closing = crate::closing::closing(&summary, std::path::Path::new("/runs/r"));
        let said = says.split('…').all(|part| closing.contains(part));
        assert!(said, "{says:?} is not in {closing:?}");
        let about = closing.contains("lost");
        assert_eq!(about, says.contains("lost"), "{closing:?}");
    };
    let (completed, failed) = ((RunOutcome::Completed, None), |of| {
        (RunOutcome::Failed, Some(of))
    });
    let none = Some(Lost::default());
    check(completed, none, &[], Exit::Done, "completed: ");
    check(
        completed,
        Some(lost),
        &[],
        Exit::DoneWithLosses,
        "completed with losses: …; 312 updates of blocks (640 samples) that were acknowledged are lost; see ",
    );
    check(
        failed(7),
        Some(lost),
        &[],
        Exit::Lost,
        "stopped at a loss: …(640 samples)…are lost; everything in /runs/r is as it was: `--resume` goes on from snapshot 4 and accepts the loss; see /runs/r/summary.json",
    );
    check(failed(4), none, &[], Exit::Failed, "failed: ");
    check(
        failed(1),
        Some(lost),
        &[],
        Exit::Failed,
        "failed: …are lost; see",
    );
    let interrupted = (RunOutcome::Interrupted, None);
    check(interrupted, none, &[], Exit::Interrupted, "interrupted: ");
    // Nobody could be asked at the end, but it had been said.
    let told = [event(0.0, "updates_lost", "shard 0 has lost 3 updates")];
    check(
        completed,
        None,
        &told,
        Exit::DoneWithLosses,
        "updates that were acknowledged are lost",
    );
    check(completed, None, &[], Exit::Done, "completed: ");
}

#[test]
fn restores_and_damage_that_was_passed_over_are_counted() {
    let kinds = ["restored", "damaged_snapshot", "restored", "promoted"];
    let events = kinds.map(|kind| event(0.0, kind, "it happened"));
    let found = faults(&events, None);
    assert_eq!((found.restored, found.damaged_snapshots), (2, 1));
}
