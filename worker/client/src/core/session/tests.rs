use super::*;

const SEEN: Seen = Seen {
    samples: 70,
    updates: 7,
};

fn session() -> Session {
    let identity = Identity {
        run: RunId::new("r").unwrap(),
        group: GroupId(1),
        incarnation: Incarnation(3),
    };
    let slice = [(0, 0), (1, 1), (2, 0)].map(|(b, s)| (BlockId(b), ShardId(s)));
    Session::new(identity, Clock(5), slice)
}

fn answer(block: u32, clock: u64, version: u64) -> Answer {
    of_kind(Kind::Decided, block, clock, version)
}

fn of_kind(kind: Kind, block: u32, clock: u64, version: u64) -> Answer {
    Answer {
        block: BlockId(block),
        clock: Clock(clock),
        kind,
        next: Clock(0),
        version,
        lineage: Generation(version / 100),
        values: true,
        delay: Some(version % 3),
        dropped: version % 4 == 1,
        lag: 0,
        waited_us: 0,
        samples_applied: 10 * version,
        stop: version > 20,
    }
}

fn due(session: &Session, shard: u32) -> Vec<(u32, u64, u64)> {
    let frames = session.frames(ShardId(shard));
    frames
        .map(|f| (f.block.0, f.clock.0, f.pulled_version))
        .collect()
}

#[test]
fn only_the_unanswered_is_sent_again_and_the_clock_ticks_once() {
    let mut session = session();
    session.begin(Purpose::Pull, Seen::default());
    for block in 0..3 {
        assert!(session.answer(&of_kind(Kind::Read, block, 0, 7)));
    }
    assert!(session.finish().is_some());
    assert_eq!(session.clock(), Clock(5), "a pull is no exchange");

    session.begin(Purpose::Gradient { samples: 8 }, SEEN);
    assert_eq!(due(&session, 0), [(0, 5, 7), (2, 5, 7)]);
    assert!(session.answer(&answer(0, 5, 8)));
    assert!(!session.answer(&answer(0, 5, 9)), "a repeat is passed over");
    assert!(
        !session.answer(&answer(2, 4, 8)),
        "so is an answer to an older exchange"
    );
    assert_eq!(due(&session, 0), [(2, 5, 7)]);
    assert_eq!(session.finish(), None);
    assert!(session.answer(&answer(1, 5, 21)));
    assert!(session.answer(&answer(2, 5, 8)));
    let summary = session.finish().unwrap();
    assert_eq!(
        (summary.updates, summary.samples_applied, summary.stop),
        (21, 210, true)
    );
    assert_eq!(
        (summary.dropped, summary.delay),
        (1, Some(2)),
        "one block was left out"
    );
    let (samples, updates) = (210, 21);
    assert_eq!(summary.seen(), Seen { samples, updates });
    assert_eq!(session.clock(), Clock(6));

    session.begin(Purpose::Skip, SEEN);
    assert_eq!(due(&session, 1), [(1, 6, 21)]);
}

/// Begins an exchange and has all its blocks answered with `version`. What its gradient was
/// said to be computed on.
fn exchange(session: &mut Session, purpose: Purpose, version: u64) -> u64 {
    session.begin(purpose, Seen::default());
    let clock = session.current.unwrap().clock;
    let frames: Vec<_> = due(session, 0).into_iter().chain(due(session, 1)).collect();
    let computed_on = frames[0].2;
    for (block, ..) in frames {
        let kind = purpose.answer();
        assert!(session.answer(&of_kind(kind, block, clock.0, version)));
        let rest = due(session, 0).into_iter().chain(due(session, 1));
        rest.for_each(|(.., on)| assert_eq!(on, computed_on, "while answers come"));
    }
    assert!(session.finish().is_some());
    computed_on
}

#[test]
fn a_gradient_names_the_values_that_it_was_computed_on() {
    let gradient = Purpose::Gradient { samples: 8 };
    let check = |overlap: bool, want: [u64; 4]| {
        let mut session = session().with_overlap(overlap);
        exchange(&mut session, Purpose::Pull, 7);
        let contributions = [(gradient, 10), (gradient, 13), (Purpose::Skip, 15)];
        let mut got: Vec<u64> = contributions
            .into_iter()
            .map(|(purpose, version)| exchange(&mut session, purpose, version))
            .collect();
        got.push(exchange(&mut session, gradient, 20));
        assert_eq!(got, want, "overlap {overlap}");
        // Whoever pulls afresh goes on from there.
        exchange(&mut session, Purpose::Pull, 30);
        assert_eq!(exchange(&mut session, gradient, 31), 30);
    };
    check(false, [7, 10, 13, 15]);
    check(true, [7, 7, 10, 13]);
}

#[test]
fn a_gradient_names_the_lineage_of_the_values_that_it_was_computed_on() {
    let gradient = Purpose::Gradient { samples: 8 };
    let check = |overlap: bool, want: [(u64, u64); 4]| {
        let mut session = session().with_overlap(overlap);
        exchange(&mut session, Purpose::Pull, 150);
        // The shard is restored while the second exchange is answered: versions jump back.
        let got = [160, 210, 220, 230].map(|version| {
            session.begin(gradient, Seen::default());
            let frame = session.frame(BlockId(0)).unwrap();
            let clock = session.clock().0;
            for block in 0..3 {
                assert!(session.answer(&answer(block, clock, version)));
            }
            assert!(session.finish().is_some());
            (frame.pulled_version, frame.lineage.0)
        });
        assert_eq!(got, want, "overlap {overlap}");
    };
    check(false, [(150, 1), (160, 1), (210, 2), (220, 2)]);
    check(true, [(150, 1), (150, 1), (160, 1), (210, 2)]);
}

#[test]
fn a_late_answer_to_a_pull_is_not_taken_for_the_first_verdict() {
    let mut session = Session {
        clock: Clock(0),
        ..session()
    };
    let read = |block| of_kind(Kind::Read, block, 0, 0);
    session.begin(Purpose::Pull, Seen::default());
    for block in 0..3 {
        assert!(session.answer(&read(block)));
    }
    assert!(session.finish().is_some());
    session.begin(Purpose::Gradient { samples: 8 }, Seen::default());
    assert!(!session.answer(&read(1)));
    assert!(session.answer(&answer(1, 0, 1)));
}

#[test]
fn a_group_that_is_left_behind_goes_on_with_the_others() {
    let mut session = session();
    session.begin(Purpose::Gradient { samples: 8 }, SEEN);
    for (block, next) in [(0, 6), (1, 9), (2, 8)] {
        let told = Answer {
            next: Clock(next),
            ..answer(block, 5, 7)
        };
        assert!(session.answer(&told));
    }
    let summary = session.finish().unwrap();
    assert_eq!((summary.next, session.clock()), (Clock(9), Clock(6)));
    session.go_on_at(summary.next);
    assert_eq!(session.clock(), Clock(9));
    session.go_on_at(Clock(0));
    session.begin(Purpose::Skip, SEEN);
    assert_eq!(due(&session, 1), [(1, 9, 7)], "nobody goes back");
}
