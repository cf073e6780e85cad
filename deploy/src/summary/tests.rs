use super::*;
use crate::events::tests::event;

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

/// Two groups of which one is always late.
#[test]
fn samples_of_dropped_gradients_are_not_applied() {
    let mut records = crate::report::loss::tests::run(2, 3);
    for record in &mut records {
        record.samples = 8;
        record.samples_applied = 8 * (record.clock + 1);
        record.dropped = u64::from(record.group);
    }
    assert_eq!(applied(&records), 24);
    assert_eq!(applied(&[]), 0);
}
