//! Holders that change at random while records are lost: what was answered stays, and is decided
//! once (rules 2 and 4).

use std::collections::BTreeMap;

use tradewind_common::spec::ConsistencySpec::Async;
use tradewind_common::{BlockId, ServerId};

use super::holders::Stage;
use super::shard::{WEIGHT, gradient, push};
use super::spec;
use crate::decided::Decided;
use crate::refusal::Refusal;
use crate::shard::Answer;
use crate::view::View;

const SERVERS: u32 = 4;
const BOTH: &[(u32, u64)] = &[(0, 0), (1, 0)];

/// SplitMix64 (Steele et al. 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

struct World {
    stage: Stage,
    random: Random,
    view: View,
    /// What every group was answered last, and of which clock its next contribution is.
    answered: BTreeMap<(u32, BlockId), (u64, Option<Decided>)>,
    asked: Vec<(u32, u64, BlockId)>,
    failovers: u32,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut stage = Stage::ready(spec(&[1, 1], Async), &[1, 2], BOTH);
        stage.add(1);
        stage.add(2);
        let blocks: Vec<_> = stage
            .lengths()
            .into_iter()
            .map(|(block, _)| block)
            .collect();
        let groups = (0..2).flat_map(|group| blocks.iter().map(move |block| (group, *block)));
        let mut world = Self {
            view: View::default(),
            random: Random(seed),
            answered: groups.map(|of| (of, (0, None))).collect(),
            asked: Vec::new(),
            failovers: 0,
            stage,
        };
        world.view = world.stage.next_view(BOTH, &[], None);
        world.tell_all();
        world
    }

    fn primary(&self) -> u32 {
        self.stage.holders.primary.unwrap().server.0
    }

    fn tell(&mut self, server: u32) {
        self.stage.tell(server, &self.view.clone());
    }

    fn tell_all(&mut self) {
        (0..SERVERS)
            .filter(|s| self.stage.knows(*s))
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|s| self.tell(s));
    }

    /// A group sends its next contribution, or what it sent before, to whom it takes for the
    /// primary.
    fn ask(&mut self, group: u32, block: BlockId, server: u32) {
        let (next, last) = self.answered[&(group, block)];
        let clock = next - u64::from(last.is_some() && self.random.one_in(4));
        let length = if block == WEIGHT { 3 } else { 2 };
        let frame = push(group, clock, block, gradient(&vec![1.0; length], 1));
        self.asked.push((group, clock, block));
        self.stage
            .push_at(server, frame, self.asked.len() as u64 - 1);
    }

    fn take_answers(&mut self) {
        for (to, reply) in self.stage.answers() {
            let (group, clock, block) = self.asked[to as usize];
            let reply = match reply {
                Ok(reply) => reply,
                Err(Refusal::NotPrimary(_) | Refusal::Superseded(_)) => continue,
                // A former primary knows less than what the present one has answered.
                Err(Refusal::ClockAhead { .. } | Refusal::ClockPassed { .. }) => continue,
                Err(other) => panic!("{other}"),
            };
            let Answer::Decided(decided, _) = reply.answer else {
                panic!("{reply:?}")
            };
            assert_eq!(decided.clock.0, clock);
            let (next, last) = self.answered.get_mut(&(group, block)).unwrap();
            if let Some(before) = last.filter(|last| last.clock == decided.clock) {
                assert_eq!(before, decided, "one verdict");
            }
            if clock == *next {
                (*next, *last) = (clock + 1, Some(decided));
            }
        }
    }

    /// The coordinator believes its primary, if it speaks of copies as they are.
    fn take_reports(&mut self) {
        let primary = self.primary();
        for (by, seen) in std::mem::take(&mut self.stage.reports) {
            for copy in &mut self.stage.holders.copies {
                copy.full |= by == primary
                    && seen.generation == self.view.generation
                    && seen.full.contains(&(copy.server, copy.since));
            }
        }
    }

    /// The primary dies, or is only taken for dead; or a copy is removed. All come back.
    fn change(&mut self) {
        let full = self.stage.holders.copies.iter().find(|copy| copy.full);
        let copies = self.stage.holders.copies.len();
        match full.map(|copy| copy.server.0) {
            Some(heir) if self.random.one_in(2) => {
                let former = self.primary();
                if self.random.one_in(2) {
                    self.stage.lose(former);
                }
                self.stage.promote(heir);
                self.failovers += 1;
                self.check_nothing_is_lost();
            }
            _ if copies > 1 => {
                let index = self.random.below(copies);
                let server = self.stage.holders.copies[index].server.0;
                self.stage.remove(server);
                if self.random.one_in(2) {
                    self.stage.lose(server);
                }
            }
            _ => {
                let held = self.stage.holders.clone();
                let free = (0..SERVERS).find(|s| held.role(ServerId(*s)).is_none());
                self.stage.add(free.unwrap());
            }
        }
        self.view = self.stage.next_view(BOTH, &[], None);
    }

    /// Whoever is promoted has what was answered, and each contribution once.
    fn check_nothing_is_lost(&mut self) {
        let primary = self.primary();
        for state in self.stage.states(primary) {
            let mut updates = 0;
            for (group, (_, last)) in &state.decided {
                updates += last.clock.0 + 1;
                let (next, _) = self.answered[&(group.0, state.id)];
                assert!(last.clock.0 + 1 >= next, "{group} at {}", state.id);
            }
            assert_eq!(state.version, updates, "block {}", state.id);
            if state.id == WEIGHT {
                assert_eq!(*state.values, [1.0 - updates as f32; 3]);
            }
        }
    }

    fn step(&mut self) {
        let server = self.random.below(SERVERS as usize) as u32;
        if !self.stage.knows(server) {
            return;
        }
        match self.random.below(40) {
            0..=9 => {
                let of = self.random.below(self.answered.len());
                let (group, block) = *self.answered.keys().nth(of).unwrap();
                let server = if self.random.one_in(5) {
                    server
                } else {
                    self.primary()
                };
                self.ask(group, block, server);
            }
            10..=34 => {
                if let Some((by, Err(Refusal::Gap { .. }))) = self.stage.deliver_next(server) {
                    self.link(by, server);
                }
            }
            // What was on its way is lost.
            35 => {
                self.stage.wire(server).clear();
                for by in 0..SERVERS {
                    self.link(by, server);
                }
            }
            36 | 37 => self.tell(server),
            38 => self.tell(self.primary()),
            _ if self.random.one_in(3) => self.change(),
            _ => {}
        }
        self.take_answers();
        self.take_reports();
    }

    fn link(&mut self, by: u32, to: u32) {
        if self.stage.knows(by) {
            self.stage.at(by).handle_link(ServerId(to));
            self.stage.collect(by);
        }
    }

    /// Nothing is lost any more, and everybody hears everything.
    fn settle(&mut self) {
        self.tell_all();
        for copy in self.stage.holders.copies.clone() {
            self.stage.wire(copy.server.0).clear();
            self.link(self.primary(), copy.server.0);
        }
        self.stage.settle();
        for (group, block) in self.answered.keys().copied().collect::<Vec<_>>() {
            let before = self.answered[&(group, block)].0;
            while self.answered[&(group, block)].0 == before {
                self.ask(group, block, self.primary());
                self.stage.settle();
                self.take_answers();
            }
        }
        self.check_nothing_is_lost();
        self.stage.assert_equal();
        let digest = self.stage.at(self.primary()).unconfirmed();
        assert_eq!(digest, 0);
    }
}

#[test]
fn what_was_answered_outlives_its_primary() {
    let mut failovers = 0;
    for seed in 0..150 {
        let run = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            for _ in 0..1500 {
                world.step();
            }
            world.settle();
            world.failovers
        });
        failovers += run.unwrap_or_else(|_| panic!("seed {seed}"));
    }
    assert!(failovers > 150, "{failovers}");
}
