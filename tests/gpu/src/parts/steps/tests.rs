use super::*;

const PLAN: Plan = Plan {
    name: "bf16",
    precision: "bf16",
    wire: "bf16",
    tuned: false,
    pixels: 8,
    batch: 10,
    classes: 2,
    warmup: 1,
    steps: 1,
    overlaps: &[1],
    to_plain: 1.05,
};

fn measured(figures: &[(&str, f64)]) -> Measured {
    let figures = figures.iter();
    figures
        .map(|(name, value)| ((*name).to_owned(), *value))
        .collect()
}

#[test]
fn figures_follow_from_the_medians_of_rounds() {
    let rounds = |seconds: [f64; 3]| seconds.map(|s| measured(&[("step_seconds", s)])).into();
    let mut plain: Vec<Measured> = rounds([0.8, 9.0, 1.0]);
    for round in &mut plain {
        round.insert("resident_step_seconds".into(), 0.9);
    }
    let rounds = Rounds::from([
        ("bf16_plain".into(), plain),
        ("bf16_pytorch_ddp".into(), rounds([2.0, 2.0, 2.0])),
        ("bf16_overlap_1".into(), rounds([1.2, 0.1, 7.0])),
        ("f32_overlap_1".into(), rounds([5.0, 5.0, 5.0])),
    ]);
    let found = medians(&PLAN, &rounds, "overlap_1").unwrap();
    let want = measured(&[
        ("idle_fraction", 1.0 - 0.9 / 1.2),
        ("samples_per_second", 10.0 / 1.2),
        ("step_seconds", 1.2),
        ("step_to_ddp", 0.6),
        ("step_to_plain", 1.2),
    ]);
    assert_eq!(found, want);
    assert!(medians(&PLAN, &rounds, "overlap_0").is_none());
}

#[test]
fn overlap_1_is_judged_where_it_hides_its_exchange() {
    let check = |figure: &str, value: f64, exchange: f64, want: &[&str]| {
        let mut found = measured(&[
            ("step_seconds", 0.1),
            ("exchange_seconds", exchange),
            ("step_to_plain", 1.04),
            ("idle_fraction", 0.02),
            ("skipped_steps", 0.0),
        ]);
        found.insert(figure.to_owned(), value);
        assert_eq!(faults(&PLAN, &found), want, "{figure} {value} {exchange}");
    };
    check("step_to_plain", 1.05, 0.05, &[]);
    let slow = "bf16, overlap 1: step_to_plain is 1.060, and may be 1.05";
    check("step_to_plain", 1.06, 0.05, &[slow]);
    check("step_to_plain", 1.06, 0.11, &[]);
    let slow = "bf16, overlap 1: step_to_ddp is 1.030, and may be 1.02";
    check("step_to_ddp", 1.03, 0.05, &[slow]);
    let idle = "bf16, overlap 1: idle_fraction is 0.040, and may be 0.03";
    check("idle_fraction", 0.04, 0.05, &[idle]);
    let skipped = "bf16, overlap 1: skipped_steps is 1.000, and may be 0";
    check("skipped_steps", 1.0, 0.05, &[skipped]);
}

#[test]
fn a_round_is_begun_only_where_it_ends_in_time() {
    let check = |rounds, seconds, limit, want| {
        let fits = another_fits(rounds, Duration::from_secs(seconds), limit);
        assert_eq!(fits, want, "{rounds} {seconds} {limit:?}");
    };
    check(1, 70, Some(200), true);
    check(2, 140, Some(200), false);
    check(1, 97, Some(129), false);
    check(1, 97, None, true);
}
