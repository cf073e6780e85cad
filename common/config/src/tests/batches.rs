//! `train.batch` and `train.batch_ramp`.

use super::{GOOD, parse};
use tradewind_common::batch::BatchStep;

#[test]
fn ramps() {
    let config = parse(GOOD, &["train.batch_ramp=[[100, 16], [300, 48]]"]).unwrap();
    let want = [(100, 16), (300, 48)].map(|(samples, batch)| BatchStep { samples, batch });
    assert_eq!(config.train.batch_ramp, want);
    assert_eq!(config.train.chunk_samples, 96, "two of the largest steps");
    let resolved = config.resolved();
    assert!(
        resolved.contains("batch_ramp = [[100, 16], [300, 48]]\n"),
        "{resolved}"
    );
    let again = parse(resolved, &[]).unwrap();
    assert_eq!(again.train, config.train);
    assert!(parse(GOOD, &[]).unwrap().train.batch_ramp.is_empty());

    let uneven = ["cluster.groups=[4, 3]", "train.batch_ramp=[[100, 16]]"];
    let chunk = parse(GOOD, &uneven).unwrap().train.chunk_samples;
    assert_eq!(chunk, 3 * 4 * 16, "steps of both");

    let refused = |overrides: &[&str], want: &str| {
        let text = parse(GOOD, overrides).unwrap_err().to_string();
        assert!(text.contains(want), "{text}");
    };
    for (value, want) in [
        ("[[100]]", "= [[100]]; it takes a list of pairs of integers"),
        ("[100, 16]", "= [100, 16]; it takes a list of pairs"),
        ("[[100, 16, 3]]", "it takes a list of pairs"),
        ("[[0, 16]]", "each [1 to 10^12, 2 to 1000000], or []"),
        ("[[100, 16], [100, 32]]", "behind the one before it"),
        ("[[100, 12]]", "goes from batches of 8 to 12"),
    ] {
        refused(&[&format!("train.batch_ramp={value}")], want);
    }
    refused(
        &["train.batch_ramp=[[100, 16]]", "train.chunk_samples=8"],
        "train.chunk_samples = 8 is less than one step of the largest group, 16 samples",
    );
}
