use super::*;

const FLAT: Scaling = Scaling::None;

/// A rate of 2 whose warm-up lasts 100, at `at` of 1100 samples or updates.
fn rate(unit: Unit, decay: &Decay, scaling: Scaling, (at, samples): (u64, u64)) -> f64 {
    let schedule = Schedule {
        learning_rate: 2.0,
        unit,
        warmup: 100,
        decay: decay.clone(),
        scaling,
    };
    assert_eq!(schedule.problems(), []);
    let seen = match unit {
        Unit::Samples => Seen {
            samples: at,
            updates: 7,
        },
        Unit::Updates { .. } => Seen {
            samples: 7,
            updates: at,
        },
    };
    schedule.rate(seen, samples, 1100)
}

#[test]
fn closed_forms() {
    let close = |got: f64, want: f64, what: &str| {
        assert!((got - want).abs() < 1e-12, "{what}: {got}, not {want}");
    };
    let step = Decay::Step {
        milestones: vec![150, 600, 601],
        gamma: 0.1,
        factors: vec![],
    };
    let factors = Decay::Step {
        milestones: vec![150, 600],
        gamma: 0.1,
        factors: vec![0.25, 0.5],
    };
    let cosine = Decay::Cosine { floor: 0.1 };
    let line = Decay::Polynomial {
        power: 1.0,
        floor: 0.0,
    };
    let square = Decay::Polynomial {
        power: 2.0,
        floor: 0.2,
    };
    let cases = [
        (&Decay::Constant, 100, 2.0),
        (&Decay::Constant, 5000, 2.0),
        (&step, 100, 2.0),
        (&step, 149, 2.0),
        (&step, 150, 0.2),
        (&step, 600, 0.02),
        (&step, 601, 0.002),
        (&step, 9999, 0.002),
        (&factors, 149, 2.0),
        (&factors, 150, 0.5),
        (&factors, 600, 0.25),
        (&factors, 9999, 0.25),
        (&cosine, 100, 2.0),
        (&cosine, 600, 2.0 * 0.55),
        (&cosine, 1100, 0.2),
        (&cosine, 9999, 0.2),
        (&line, 100, 2.0),
        (&line, 350, 1.5),
        (&line, 1100, 0.0),
        (&line, 9999, 0.0),
        (&square, 100, 2.0),
        (&square, 600, 2.0 * (0.2 + 0.8 * 0.25)),
        (&square, 1100, 0.4),
    ];
    for (decay, at, want) in cases {
        for unit in [Unit::Samples, Unit::Updates { end: 1100 }] {
            let got = rate(unit, decay, FLAT, (at, 10));
            close(got, want, &format!("{decay:?} at {at} {unit:?}"));
        }
        // The warm-up is the same before all of them: an update has what it brings the count to.
        for (at, samples, want) in [(0, 10, 0.2), (45, 10, 1.1), (95, 10, 2.0), (50, 1, 1.02)] {
            let got = rate(Unit::Samples, decay, FLAT, (at, samples));
            close(got, want, &format!("warm-up, {decay:?} at {at}"));
        }
        for (at, want) in [(0, 0.02), (45, 0.92), (99, 2.0)] {
            let got = rate(Unit::Updates { end: 1100 }, decay, FLAT, (at, 10));
            close(got, want, &format!("warm-up in updates, {decay:?} at {at}"));
        }
    }
}

#[test]
fn the_rate_follows_the_samples_of_an_update() {
    let check = |scaling, samples, want: f64| {
        for at in [200, 5000] {
            let got = rate(Unit::Samples, &Decay::Constant, scaling, (at, samples));
            assert!((got - want).abs() < 1e-12, "{scaling:?} {samples}: {got}");
        }
    };
    check(Scaling::None, 512, 2.0);
    for reference in [128, 32] {
        let linear = Scaling::Linear { reference };
        let sqrt = Scaling::Sqrt { reference };
        let over = 512.0 / reference as f64;
        check(linear, 512, 2.0 * over);
        check(sqrt, 512, 2.0 * over.sqrt());
        check(linear, reference, 2.0);
        check(sqrt, reference, 2.0);
    }
}

/// Under the linear rule an update is Σ samples · g · rate / reference, however contributions are
/// merged: one of 64 samples makes the step of two of 32.
#[test]
fn linear_scaling_gives_each_sample_its_weight() {
    let scaling = Scaling::Linear { reference: 64 };
    let of = |samples| rate(Unit::Samples, &Decay::Constant, scaling, (200, samples));
    assert_eq!(of(64), of(32) + of(32));
}

#[test]
fn what_cannot_be_followed_is_named() {
    let check = |change: &dyn Fn(&mut Schedule), want: &str| {
        let mut schedule = Schedule::constant(1.0);
        change(&mut schedule);
        let told: Vec<String> = schedule
            .problems()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert!(told[0].contains(want), "{told:?}");
    };
    let step = |milestones: &[u64], gamma| Decay::Step {
        milestones: milestones.to_vec(),
        gamma,
        factors: vec![],
    };
    let factors = |factors: &[f64]| Decay::Step {
        milestones: vec![5, 6],
        gamma: 0.1,
        factors: factors.to_vec(),
    };
    let polynomial = |power, floor| Decay::Polynomial { power, floor };
    check(&|s| s.learning_rate = f64::NAN, "learning_rate is NaN");
    check(
        &|s| s.decay = step(&[], 0.1),
        "schedule.milestones is empty",
    );
    check(
        &|s| s.decay = step(&[5, 5], 0.1),
        "schedule.milestones do not increase",
    );
    check(&|s| s.decay = step(&[5], 1.5), "schedule.gamma is 1.5");
    check(
        &|s| s.decay = factors(&[0.5]),
        "schedule.factors has 1 numbers, and schedule.milestones has 2",
    );
    check(
        &|s| s.decay = factors(&[0.5, 1.5]),
        "schedule.factors is [0.5, 1.5], which is not a list of numbers, 0 to 1",
    );
    check(
        &|s| s.decay = polynomial(0.0, 0.0),
        "schedule.power is no power",
    );
    check(
        &|s| s.decay = Decay::Cosine { floor: 2.0 },
        "schedule.floor is 2",
    );
    check(
        &|s| s.decay = polynomial(f64::NAN, 0.0),
        "schedule.power is NaN",
    );
    check(
        &|s| s.decay = polynomial(1.0, -0.1),
        "schedule.floor is -0.1",
    );
    check(
        &|s| {
            s.decay = Decay::Cosine { floor: 0.0 };
            s.warmup = 10;
            s.unit = Unit::Updates { end: 10 };
        },
        "schedule.end_updates is not more than",
    );
    check(
        &|s| s.scaling = Scaling::Sqrt { reference: 0 },
        "schedule.reference_batch is 0",
    );
    let several = Schedule {
        learning_rate: -1.0,
        decay: step(&[2, 1], 2.0),
        ..Schedule::constant(1.0)
    };
    assert_eq!(several.problems().len(), 3, "all at once");
    let mut open = Schedule::constant(1.0);
    open.unit = Unit::Updates { end: 0 };
    assert_eq!(open.problems(), [], "a constant rate has no end");
}

/// As records have them since the first version.
#[test]
fn records_keep_their_form() {
    let schedule = Schedule {
        learning_rate: 0.5,
        unit: Unit::Updates { end: 9 },
        warmup: 3,
        decay: Decay::Step {
            milestones: vec![4, 5],
            gamma: 0.25,
            factors: vec![],
        },
        scaling: Scaling::Sqrt { reference: 64 },
    };
    let text = r#"{"learning_rate":0.5,"unit":{"Updates":{"end":9}},"warmup":3,"decay":{"kind":"step","milestones":[4,5],"gamma":0.25},"scaling":{"Sqrt":{"reference":64}}}"#;
    assert_eq!(serde_json::to_string(&schedule).unwrap(), text);
    assert_eq!(serde_json::from_str::<Schedule>(text).unwrap(), schedule);
    let constant = r#"{"learning_rate":1.0,"unit":"Samples","warmup":0,"decay":{"kind":"constant"},"scaling":"None"}"#;
    let read: Schedule = serde_json::from_str(constant).unwrap();
    assert_eq!(read, Schedule::constant(1.0));
}
