//! An exchange by bucket, during backward, changes when blocks travel and nothing else: the same
//! bits come out.

use super::plain::{Keys, SYNC, complete, divided};

fn check(groups: &[u32], keys: Keys<'_>) {
    let digest = |per_bucket| {
        let run = divided(groups, keys).key("exchange.per_bucket", per_bucket);
        let ended = complete(run);
        assert!(ended.records().iter().all(|r| r.buckets_skipped == 0));
        let digest = ended.summary()["params_digest"].clone();
        assert!(digest.is_string());
        digest
    };
    assert_eq!(digest("true"), digest("false"), "{groups:?} {keys:?}");
}

#[test]
fn bits_are_those_of_an_exchange_after_backward() {
    let momentum = ("optimizer.momentum", "0.9");
    for groups in [&[2][..], &[1, 3]] {
        check(groups, &[SYNC, ("cluster.servers", "2"), momentum]);
    }
    for policy in ["\"bounded\"", "\"async\""] {
        check(&[2], &[("train.consistency", policy), momentum]);
    }
    let compressed = [
        SYNC,
        ("exchange.up", "\"int8\""),
        ("exchange.down", "\"bf16\""),
    ];
    check(&[1, 1], &compressed);
}
