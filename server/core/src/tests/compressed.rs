//! A shard that answers with differences: what a group makes of its answers.

use tradewind_common::policy::StalenessSpec;
use tradewind_common::policy::staleness::Drop;
use tradewind_common::spec::ConsistencySpec::{Async, Sync};
use tradewind_common::spec::RunSpec;
use tradewind_common::{BlockId, Compression, GroupId, Incarnation};

use super::holders::Stage;
use super::shard::{MEAN, WEIGHT, follow, gradient, only, push, ready_as, replies, view};
use super::spec;
use crate::ReplyTo;
use crate::askers::{Fresh, Wants};
use crate::shard::{Action, Push, Reply, Shard};

/// Half of the three values of a block are two.
const LOSSY: [Compression; 3] = [
    Compression::Bf16,
    Compression::Int8,
    Compression::TopK { fraction: 0.5 },
];

fn compressed(down: Compression) -> RunSpec {
    RunSpec {
        down,
        ..spec(&[1, 1, 1], Async)
    }
}

/// One group's side of a block.
#[derive(Clone, Debug)]
struct Taker {
    group: u32,
    life: u64,
    block: BlockId,
    clock: u64,
    holds: Option<u64>,
    values: Vec<f32>,
}

impl Taker {
    fn new(group: u32) -> Self {
        Self {
            group,
            life: 5,
            block: WEIGHT,
            clock: 0,
            holds: None,
            values: Vec::new(),
        }
    }

    fn frame(&self, action: Action) -> Push {
        let clock = match action {
            Action::Contribute(_) => self.clock,
            Action::Pull | Action::Create(_) => 0,
        };
        Push {
            incarnation: Incarnation(self.life),
            wants: Wants::Difference { holds: self.holds },
            ..push(self.group, clock, self.block, action)
        }
    }

    /// Asks, without taking the answer in.
    fn ask(&self, shard: &mut Shard, action: Action) -> Reply {
        shard.handle_push(self.frame(action), ReplyTo(0), 0);
        only(shard).unwrap()
    }

    /// Takes an answer in; whether it was whole.
    fn take(&mut self, reply: &Reply) -> bool {
        self.holds = Some(reply.version);
        match &reply.fresh {
            Fresh::Nothing => panic!("values were asked for"),
            Fresh::Values(values) => {
                self.values = values.to_vec();
                true
            }
            Fresh::Difference(form, encoded) => {
                form.decode_add(encoded, &mut self.values).unwrap();
                false
            }
        }
    }

    fn pull(&mut self, shard: &mut Shard) -> bool {
        let reply = self.ask(shard, Action::Pull);
        self.take(&reply)
    }

    /// Exchanges; whether the answer was whole.
    fn push(&mut self, shard: &mut Shard, values: &[f32]) -> bool {
        let reply = self.ask(shard, gradient(values, 1));
        self.clock += 1;
        self.take(&reply)
    }
}

/// What the shard has, asked as nobody.
fn read(shard: &mut Shard, block: BlockId) -> Reply {
    let nobody = Taker {
        life: 0,
        block,
        holds: Some(1),
        ..Taker::new(0)
    };
    nobody.ask(shard, Action::Pull)
}

fn values(shard: &mut Shard) -> Vec<f32> {
    read(shard, WEIGHT).fresh.values().to_vec()
}

fn off(shard: &mut Shard, taker: &Taker) -> f32 {
    let values = values(shard);
    let distances = values.iter().zip(&taker.values).map(|(x, y)| (x - y).abs());
    distances.fold(0.0, f32::max)
}

#[test]
fn what_a_group_holds_follows_the_shard() {
    for down in LOSSY {
        let mut shard = ready_as(compressed(down), &[(0, 0)]);
        let mut taker = Taker::new(0);
        assert!(taker.pull(&mut shard));
        let mut worst = 0f32;
        for round in 1..20 {
            let round = round as f32;
            let step = [0.7 / round, -0.013, 0.11 * round];
            assert!(!taker.push(&mut shard, &step), "{down}");
            worst = worst.max(off(&mut shard, &taker));
        }
        assert!(worst > 0.0, "{down} leaves something out");
        // Updates that change nothing still make versions.
        for _ in 0..8 {
            assert!(!taker.push(&mut shard, &[0.0; 3]), "{down}");
        }
        assert!(off(&mut shard, &taker) <= 1e-6, "{down}: it arrives later");
    }
}

#[test]
fn after_a_lost_answer_values_come_whole() {
    for down in LOSSY {
        let mut shard = ready_as(compressed(down), &[(0, 0), (1, 0)]);
        let (mut taker, mut other) = (Taker::new(0), Taker::new(1));
        taker.pull(&mut shard);
        other.pull(&mut shard);
        let step = || gradient(&[0.3, 0.7, -1.1], 1);
        let lost = taker.ask(&mut shard, step());
        assert!(matches!(lost.fresh, Fresh::Difference(..)));
        other.push(&mut shard, &[0.1, 0.2, 0.3]);
        let again = taker.ask(&mut shard, step());
        assert!(taker.take(&again), "{down}");
        assert_eq!(off(&mut shard, &taker), 0.0, "{down}: as they are");
        taker.clock += 1;
        assert!(!taker.push(&mut shard, &[0.1; 3]), "{down}: and go on");
    }
}

/// The frame of a broken stream is answered after its repeat, or the other way round: whichever
/// answer the group takes in, the next one fits.
#[test]
fn a_repeat_is_whole_and_either_answer_may_be_taken() {
    for (down, first_arrives) in LOSSY.into_iter().flat_map(|f| [(f, true), (f, false)]) {
        let mut shard = ready_as(compressed(down), &[(0, 0)]);
        let mut taker = Taker::new(0);
        taker.pull(&mut shard);
        let step = || gradient(&[0.3, 0.7, -1.1], 1);
        let first = taker.ask(&mut shard, step());
        let second = taker.ask(&mut shard, step());
        let (mut by_first, mut by_second) = (taker.clone(), taker);
        assert!(!by_first.take(&first), "{down}");
        assert!(by_second.take(&second), "{down}");
        assert_eq!(by_first.values, by_second.values, "{down}");
        let mut taker = if first_arrives { by_first } else { by_second };
        taker.clock += 1;
        for _ in 0..8 {
            assert!(!taker.push(&mut shard, &[0.0; 3]), "{down}");
        }
        assert!(off(&mut shard, &taker) <= 1e-6, "{down}");
    }
}

/// A frame that waits is sent twice, and both answers leave at once.
#[test]
fn askers_of_one_decision_get_one_state() {
    for down in LOSSY {
        let spec = RunSpec {
            consistency: Sync,
            ..compressed(down)
        };
        let mut shard = ready_as(spec, &[(0, 0), (1, 0)]);
        let mut taker = Taker::new(0);
        taker.pull(&mut shard);
        let frame = taker.frame(gradient(&[0.3, 0.7, -1.1], 1));
        shard.handle_push(frame.clone(), ReplyTo(1), 0);
        shard.handle_push(frame, ReplyTo(2), 0);
        let other = Taker::new(1).frame(gradient(&[0.1, 0.2, 0.3], 1));
        shard.handle_push(other, ReplyTo(3), 0);
        let answers = replies(&mut shard).into_iter();
        let own = answers.filter(|(to, _)| *to < 3);
        let taken: Vec<_> = own
            .map(|(_, reply)| {
                let mut taker = taker.clone();
                (taker.take(&reply.unwrap()), taker.values)
            })
            .collect();
        let [(false, first), (true, second)] = &taken[..] else {
            panic!("{down}: {taken:?}")
        };
        assert_eq!(first, second, "{down}");
    }
}

#[test]
fn nobody_gets_everything_and_leaves_no_trace() {
    for down in LOSSY {
        let mut shard = ready_as(compressed(down), &[(0, 0)]);
        let mut taker = Taker::new(0);
        taker.pull(&mut shard);
        taker.push(&mut shard, &[0.3, 0.7, -1.1]);
        // It names group 0 and says that it holds version 1, as the group does.
        let seen = read(&mut shard, WEIGHT);
        let Fresh::Values(seen) = seen.fresh else {
            panic!("{down}: {seen:?}")
        };
        assert_ne!(*seen, taker.values, "{down}: the group holds roundings");
        assert!(!taker.push(&mut shard, &[0.1; 3]), "{down}");
        for _ in 0..8 {
            taker.push(&mut shard, &[0.0; 3]);
        }
        assert!(off(&mut shard, &taker) <= 1e-6, "{down}");
    }
}

#[test]
fn buffers_come_whole() {
    for down in LOSSY {
        let mut shard = ready_as(compressed(down), &[(0, 0)]);
        let mut taker = Taker {
            block: MEAN,
            ..Taker::new(0)
        };
        assert!(taker.pull(&mut shard));
        for round in 1..4 {
            assert!(taker.push(&mut shard, &[0.3, 0.7 * round as f32]), "{down}");
            let seen = read(&mut shard, MEAN);
            assert_eq!(seen.fresh.values(), taker.values, "{down}");
        }
    }
}

#[test]
fn an_answer_without_values_leaves_what_is_held() {
    for down in LOSSY {
        let mut shard = ready_as(compressed(down), &[(0, 0)]);
        let mut taker = Taker::new(0);
        taker.pull(&mut shard);
        taker.push(&mut shard, &[0.3, 0.7, -1.1]);
        let quiet = Push {
            wants: Wants::Nothing,
            ..taker.frame(gradient(&[0.1; 3], 1))
        };
        shard.handle_push(quiet, ReplyTo(0), 0);
        assert_eq!(only(&mut shard).unwrap().fresh, Fresh::Nothing);
        taker.clock += 1;
        for _ in 0..8 {
            assert!(!taker.push(&mut shard, &[0.0; 3]), "{down}");
        }
        assert!(off(&mut shard, &taker) <= 1e-6, "{down}");
    }
}

#[test]
fn a_life_begins_with_values_as_they_are() {
    for down in LOSSY {
        let mut shard = ready_as(compressed(down), &[(0, 0), (1, 0)]);
        let (mut taker, mut other) = (Taker::new(0), Taker::new(1));
        for taker in [&mut taker, &mut other] {
            taker.pull(&mut shard);
            taker.push(&mut shard, &[0.3, 0.7, -1.1]);
        }
        // Group 0 leaves, and comes back; group 1 comes back without having been away.
        follow(&mut shard, view(3, &[(1, 0)], &[], None));
        let mut back = view(4, &[(0, 1)], &[1], None);
        back.joined.insert(GroupId(1), Incarnation(6));
        follow(&mut shard, back);
        taker.clock = 1;
        // What it says it holds are versions of its former life.
        for (taker, life) in [(&mut taker, 5), (&mut other, 6)] {
            taker.life = life;
            assert!(taker.pull(&mut shard), "{down}, group {}", taker.group);
            assert_eq!(off(&mut shard, taker), 0.0, "{down}, group {}", taker.group);
        }
        assert!(!taker.push(&mut shard, &[0.1; 3]), "{down}");
        // It is admitted: what it holds as one that has joined still counts.
        let mut admitted = view(5, &[(0, 1)], &[], None);
        let start = (Incarnation(6), tradewind_common::Clock(9));
        admitted.live.insert(GroupId(1), start);
        follow(&mut shard, admitted);
        other.clock = 9;
        assert!(!other.push(&mut shard, &[0.1; 3]), "{down}");
    }
}

/// A gradient that was computed on a version.
fn computed_on(version: u64, values: &[f32]) -> Action {
    let mut action = gradient(values, 1);
    if let Action::Contribute(Some(gradient)) = &mut action {
        gradient.pulled_version = version;
    }
    action
}

/// What a group holds at a version is what its former primary made of it. The next one has other
/// values of that version, and if it answers with them nobody knows whether that arrives.
#[test]
fn versions_of_a_former_primary_are_not_what_the_next_one_sent() {
    const LIVE: [(u32, u64); 2] = [(0, 0), (1, 0)];
    for (down, arrives) in LOSSY.into_iter().flat_map(|f| [(f, true), (f, false)]) {
        let mut spec = compressed(down);
        spec.policies.staleness = StalenessSpec::Drop(Drop { beyond: 1 });
        let mut stage = Stage::ready(spec, &[1], &LIVE);
        let mut taker = Taker::new(0);
        for action in [Action::Pull, computed_on(0, &[0.3, 0.7, -1.1])] {
            stage.push(taker.frame(action), 0);
            stage.settle();
            taker.take(&stage.answer().unwrap());
        }
        taker.clock = 1;
        stage.promote(1);
        stage.order(&LIVE, &[], None);
        let shard = stage.at(1);
        assert!(off(shard, &taker) > 0.0, "{down}: it holds roundings");

        // It comes too late, so the version stays.
        let late = || computed_on(0, &[1.0; 3]);
        let first = taker.ask(shard, late());
        assert_eq!(first.version, 1);
        if arrives {
            taker.take(&first);
        } else {
            let other = Taker::new(1);
            let reply = other.ask(shard, computed_on(1, &[0.1, 0.2, 0.3]));
            assert_eq!(reply.version, 2);
            let again = taker.ask(shard, late());
            taker.take(&again);
        }
        taker.clock += 1;
        for _ in 0..8 {
            let present = read(shard, WEIGHT).version;
            let reply = taker.ask(shard, computed_on(present, &[0.0; 3]));
            taker.take(&reply);
            taker.clock += 1;
        }
        let off = off(shard, &taker);
        assert!(off <= 1e-6, "{down}, {arrives}: off by {off}");
        let last = taker.ask(shard, computed_on(taker.holds.unwrap(), &[0.1; 3]));
        assert!(!taker.take(&last), "{down}: differences again");
    }
}

/// A frame that was sent to a server when it was primary before comes when it is that again.
#[test]
fn a_late_frame_does_not_tell_a_new_primary_what_is_held() {
    const LIVE: [(u32, u64); 1] = [(0, 0)];
    for down in LOSSY {
        let mut stage = Stage::ready(compressed(down), &[1], &LIVE);
        let mut taker = Taker::new(0);
        stage.push(taker.frame(Action::Pull), 0);
        stage.settle();
        taker.take(&stage.answer().unwrap());
        let frame = taker.frame(gradient(&[0.3, 0.7, -1.1], 1));
        stage.push(frame.clone(), 0);
        stage.settle();
        assert!(!taker.take(&stage.answer().unwrap()), "{down}");
        taker.clock = 1;
        stage.promote(1);
        stage.order(&LIVE, &[], None);
        stage.push(frame, 0);
        assert_eq!(stage.answer().unwrap().version, 1, "nobody reads it");
        let shard = stage.at(1);
        for _ in 0..8 {
            taker.push(shard, &[0.0; 3]);
        }
        assert!(off(shard, &taker) <= 1e-6, "{down}");
    }
}

#[test]
fn without_compression_values_come_whole() {
    let mut shard = ready_as(compressed(Compression::None), &[(0, 0)]);
    let mut taker = Taker::new(0);
    assert!(taker.pull(&mut shard));
    for _ in 0..3 {
        assert!(taker.push(&mut shard, &[0.3, 0.7, -1.1]));
        assert_eq!(off(&mut shard, &taker), 0.0);
    }
}
