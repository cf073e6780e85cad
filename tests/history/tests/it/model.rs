//! A parameter server in a few lines: requests and answers that are late or lost, repeats, groups that
//! start again, shards that go back to a snapshot and say what that lost.

use std::collections::{BTreeMap, BTreeSet};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tradewind_history::{
    Action, Answer, History, Life, Loss, Operation, Policy, Run, Verdict, Version,
};

/// Samples of every contribution.
pub const SAMPLES: u64 = 4;

/// Until an answer that has not come is asked for again.
const TIMEOUT_US: u64 = 900;

/// What is modelled.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub seed: u64,
    pub groups: u32,
    pub blocks: u32,
    pub policy: Policy,
    pub merged: bool,
    /// Contributions of each group.
    pub clocks: u64,
    /// Mean time between two restores of some shard, and between two new lives of some group; 0 for
    /// none.
    pub restore_us: u64,
    pub restart_us: u64,
    /// Of a request, and of an answer, to be lost.
    pub loss: f64,
}

impl Plan {
    /// What a seed makes of it: all policies, with and without faults.
    pub fn random(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let policy = match seed % 3 {
            0 => Policy::Async,
            1 => Policy::Bounded(rng.random_range(0..4)),
            _ => Policy::Async,
        };
        Self {
            seed,
            groups: rng.random_range(1..5),
            blocks: rng.random_range(1..5),
            policy,
            merged: seed % 3 == 2 && seed.is_multiple_of(2),
            clocks: rng.random_range(5..40),
            restore_us: [0, 3_000, 10_000][rng.random_range(0..3)],
            restart_us: [0, 4_000][rng.random_range(0..2)],
            loss: [0.0, 0.05, 0.2][rng.random_range(0..3)],
        }
    }

    /// Shards go back to snapshots, and few messages are lost besides.
    pub fn lossy(seed: u64) -> Self {
        Self {
            groups: 2,
            clocks: 60,
            merged: false,
            restore_us: 5_000,
            restart_us: 0,
            loss: 0.002,
            ..Self::random(seed)
        }
    }

    pub fn history(self) -> History {
        Model::new(self).run()
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Step(u32),
    Arrive(usize),
    Decide(usize),
    Answered(usize),
    Timeout(usize),
    Restore,
    Snapshot(u32),
    Restart,
    Read,
}

#[derive(Clone, Default)]
struct Block {
    of: Version0,
    counts: Vec<f64>,
    samples: u64,
    /// By group: life, clock, verdict, delay.
    decided: BTreeMap<u32, (u64, u64, Verdict, u64)>,
    /// Heard since values were restored.
    heard: BTreeSet<u32>,
    /// By group, the attempts at its next contribution.
    waiting: BTreeMap<u32, Vec<usize>>,
}

type Version0 = (u64, u64);

struct Group {
    life: u64,
    start: u64,
    clock: u64,
    skips: bool,
    due: BTreeSet<u32>,
    held: Vec<Version0>,
    /// Exchanges that it still makes, in whatever life.
    left: u64,
    done: bool,
}

/// One frame.
struct Attempt {
    /// Among the history's operations.
    operation: usize,
    lineage: u64,
    ready: Option<Answer>,
}

struct Model {
    plan: Plan,
    rng: ChaCha8Rng,
    now_us: u64,
    queue: BTreeMap<(u64, u64), Event>,
    sequence: u64,
    blocks: Vec<Block>,
    saved: Vec<Block>,
    groups: Vec<Group>,
    attempts: Vec<Attempt>,
    lineages: u64,
    clock_seen: u64,
    history: History,
}

impl Model {
    fn new(plan: Plan) -> Self {
        let shards = (0..plan.blocks).map(|block| block % 2).collect();
        let block = Block {
            counts: vec![0.0; plan.groups as usize],
            ..Block::default()
        };
        let blocks = vec![block; plan.blocks as usize];
        let group = |_| Group {
            life: 1,
            start: 0,
            clock: 0,
            skips: false,
            due: BTreeSet::new(),
            held: vec![(0, 0); plan.blocks as usize],
            left: plan.clocks,
            done: false,
        };
        let mut model = Self {
            plan,
            rng: ChaCha8Rng::seed_from_u64(plan.seed ^ 0x7121),
            now_us: 0,
            queue: BTreeMap::new(),
            sequence: 0,
            saved: blocks.clone(),
            blocks,
            groups: (0..plan.groups).map(group).collect(),
            attempts: Vec::new(),
            lineages: 0,
            clock_seen: 0,
            history: History::new(Run {
                groups: plan.groups,
                shards,
                policy: plan.policy,
                merged: plan.merged,
                replication: 2,
                samples: SAMPLES,
            }),
        };
        for group in 0..plan.groups {
            model.lives(group);
            model.after(1, Event::Step(group));
        }
        for shard in 0..2 {
            model.after(700, Event::Snapshot(shard));
        }
        model.after(50, Event::Read);
        model.next(plan.restore_us, Event::Restore);
        model.next(plan.restart_us, Event::Restart);
        model
    }

    fn run(mut self) -> History {
        while let Some(((at_us, _), event)) = self.queue.pop_first() {
            self.now_us = at_us;
            if self.groups.iter().all(|group| group.done) {
                break;
            }
            self.happen(event);
        }
        self.history
    }

    fn after(&mut self, us: u64, event: Event) {
        self.sequence += 1;
        self.queue.insert((self.now_us + us, self.sequence), event);
    }

    /// About so long from now, if ever.
    fn next(&mut self, mean_us: u64, event: Event) {
        if mean_us > 0 {
            let us = self.rng.random_range(1..2 * mean_us);
            self.after(us, event);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Step(group) => self.step(group),
            Event::Arrive(attempt) => self.arrive(attempt),
            Event::Decide(block) => self.decide(block),
            Event::Answered(attempt) => self.answered(attempt),
            Event::Timeout(attempt) => self.timeout(attempt),
            Event::Restore => self.restore(),
            Event::Restart => self.restart(),
            Event::Snapshot(shard) => {
                for block in self.blocks_of(shard) {
                    self.saved[block] = self.blocks[block].clone();
                }
                self.next(700, Event::Snapshot(shard));
            }
            Event::Read => {
                let group = self.rng.random_range(0..self.plan.groups);
                let block = self.rng.random_range(0..self.plan.blocks);
                self.send(group, block, Action::Pull);
                self.next(100, Event::Read);
            }
        }
    }

    fn blocks_of(&self, shard: u32) -> Vec<usize> {
        let shards = self.history.run.shards.iter().enumerate();
        let own = shards.filter(|(_, of)| **of == shard);
        own.map(|(block, _)| block).collect()
    }

    fn step(&mut self, id: u32) {
        let skips = self.rng.random_bool(0.1);
        let group = &mut self.groups[id as usize];
        if group.done || !group.due.is_empty() {
            return;
        }
        if group.left == 0 {
            group.done = true;
            let mut lives = self.history.lives.iter_mut().rev();
            let life = lives.find(|life| life.group == id).expect("it lived");
            life.to_us = Some(self.now_us);
            for block in 0..self.blocks.len() {
                self.decide(block);
            }
            return;
        }
        group.left -= 1;
        group.skips = skips;
        group.due = (0..self.plan.blocks).collect();
        for block in 0..self.plan.blocks {
            self.contribute(id, block);
        }
    }

    fn contribute(&mut self, group: u32, block: u32) {
        let action = match self.groups[group as usize].skips {
            true => Action::Skip,
            false => Action::Contribute,
        };
        let attempt = self.send(group, block, action);
        self.after(TIMEOUT_US, Event::Timeout(attempt));
    }

    fn send(&mut self, group: u32, block: u32, action: Action) -> usize {
        let of = &self.groups[group as usize];
        let pulls = action == Action::Pull;
        let held = of.held[block as usize];
        self.history.operations.push(Operation {
            number: self.history.operations.len() as u64 + 1,
            start_us: self.now_us,
            group,
            incarnation: if pulls { 0 } else { of.life },
            clock: if pulls { 0 } else { of.clock },
            block,
            action,
            computed_on: (action == Action::Contribute).then_some(Version {
                lineage: held.0,
                version: held.1,
            }),
            answer: None,
        });
        let attempt = self.attempts.len();
        self.attempts.push(Attempt {
            operation: self.history.operations.len() - 1,
            lineage: self.blocks[block as usize].of.0,
            ready: None,
        });
        if !self.rng.random_bool(self.plan.loss) {
            let us = self.rng.random_range(1..150);
            self.after(us, Event::Arrive(attempt));
        }
        attempt
    }

    fn operation(&self, attempt: usize) -> &Operation {
        &self.history.operations[self.attempts[attempt].operation]
    }

    fn arrive(&mut self, attempt: usize) {
        let Operation {
            group,
            incarnation,
            clock,
            block: at,
            action,
            ..
        } = self.operation(attempt).clone();
        let block = &mut self.blocks[at as usize];
        let dead = block.of.0 != self.attempts[attempt].lineage;
        let of = &self.groups[group as usize];
        if dead || (incarnation > 0 && incarnation != of.life) || of.done {
            return;
        }
        if action == Action::Pull {
            return self.answer(attempt, Verdict::Read, (0, false));
        }
        let last = block.decided.get(&group).copied();
        let last = last.filter(|(life, ..)| *life == incarnation);
        let next = last.map_or(of.start, |(_, clock, ..)| clock + 1);
        if clock < next {
            if let Some((_, last, verdict, delay)) = last
                && last == clock
            {
                self.answer(attempt, verdict, (delay, true));
            }
            return;
        }
        self.clock_seen = self.clock_seen.max(clock);
        let block = &mut self.blocks[at as usize];
        block.heard.insert(group);
        block.waiting.entry(group).or_default().push(attempt);
        if self.plan.merged {
            let us = self.rng.random_range(1..100);
            self.after(us, Event::Decide(at as usize));
        } else {
            self.decide(at as usize);
        }
    }

    /// Whether a group's clock may be applied.
    fn admits(&self, block: &Block, clock: u64) -> bool {
        let Policy::Bounded(bound) = self.plan.policy else {
            return true;
        };
        let slowest = self.groups.iter().enumerate().filter_map(|(id, group)| {
            let id = id as u32;
            let silent = block.of.0 > 0 && !block.heard.contains(&id);
            let last = block
                .decided
                .get(&id)
                .filter(|(life, ..)| *life == group.life);
            let waiting = block.waiting.get(&id).and_then(|all| all.last());
            let waits = waiting.map(|attempt| self.operation(*attempt).clock);
            let stands = waits.unwrap_or(last.map_or(group.start, |(_, clock, ..)| clock + 1));
            (!silent && !group.done).then_some(stands)
        });
        slowest.min().is_none_or(|slowest| clock <= slowest + bound)
    }

    fn decide(&mut self, at: usize) {
        loop {
            let block = &self.blocks[at];
            let waiting = block.waiting.iter();
            let ready = waiting.filter(|(_, attempts)| {
                let clock = self.operation(attempts[0]).clock;
                self.admits(block, clock)
            });
            let mut ready: Vec<u32> = ready.map(|(group, _)| *group).collect();
            if !self.plan.merged {
                ready.truncate(1);
            }
            if ready.is_empty() {
                return;
            }
            self.update(at, &ready);
        }
    }

    fn update(&mut self, at: usize, groups: &[u32]) {
        let mut decided = Vec::new();
        let before = self.blocks[at].of;
        for group in groups {
            let attempts = self.blocks[at].waiting.remove(group).expect("it waits");
            let operation = self.operation(attempts[0]).clone();
            let drops = self.rng.random_bool(0.05);
            let computed_on = operation.computed_on;
            let of = computed_on.filter(|of| of.lineage == before.0);
            let delay = of.map_or(0, |of| before.1 - of.version);
            let verdict = match operation.action {
                Action::Skip => Verdict::Skipped,
                _ if drops => Verdict::Dropped,
                _ => Verdict::Applied,
            };
            decided.push((*group, operation, verdict, delay, attempts));
        }
        let applied = decided.iter().filter(|d| d.2 == Verdict::Applied).count();
        let block = &mut self.blocks[at];
        for (group, operation, verdict, delay, _) in &decided {
            let last = (operation.incarnation, operation.clock, *verdict, *delay);
            block.decided.insert(*group, last);
            if *verdict == Verdict::Applied {
                block.counts[*group as usize] += 1.0 / applied as f64;
                block.samples += SAMPLES;
            }
        }
        block.of.1 += u64::from(applied > 0);
        for (_, _, verdict, delay, attempts) in decided {
            for attempt in attempts {
                self.answer(attempt, verdict, (delay, false));
            }
        }
    }

    /// The answer leaves with the values as they are.
    fn answer(&mut self, attempt: usize, verdict: Verdict, (delay, repeated): (u64, bool)) {
        let block = &self.blocks[self.operation(attempt).block as usize];
        let answer = Answer {
            end_us: 0,
            verdict,
            repeated,
            of: Version {
                lineage: block.of.0,
                version: block.of.1,
            },
            delay,
            samples: block.samples,
            digest: format!("{:?}", block.counts),
            counts: Some(block.counts.clone()),
        };
        self.attempts[attempt].ready = Some(answer);
        if !self.rng.random_bool(self.plan.loss) {
            let us = self.rng.random_range(1..150);
            self.after(us, Event::Answered(attempt));
        }
    }

    fn answered(&mut self, attempt: usize) {
        let operation = self.operation(attempt).clone();
        let (id, block) = (operation.group, operation.block);
        let group = &mut self.groups[id as usize];
        // Nobody listens any more.
        if operation.incarnation > 0 && operation.incarnation != group.life {
            return;
        }
        let Some(mut answer) = self.attempts[attempt].ready.take() else {
            return;
        };
        answer.end_us = self.now_us;
        let of = (answer.of.lineage, answer.of.version);
        let at = self.attempts[attempt].operation;
        self.history.operations[at].answer = Some(answer);
        if operation.action == Action::Pull {
            return;
        }
        if operation.clock == group.clock && group.due.remove(&block) {
            let goes_on = group.due.is_empty();
            // Who does not know that the answer came asks again.
            let same = self.blocks[block as usize].of.0 == of.0;
            if same && !goes_on && self.rng.random_bool(0.03) {
                self.send(id, block, operation.action);
                let again = self.history.operations.last_mut().expect("just sent");
                again.start_us += 1;
            }
            let group = &mut self.groups[id as usize];
            group.held[block as usize] = of;
            if goes_on {
                group.clock += 1;
                let us = self.rng.random_range(1..(200 << (id % 3)));
                self.after(us, Event::Step(id));
            }
        }
    }

    fn timeout(&mut self, attempt: usize) {
        let operation = self.operation(attempt);
        let group = &self.groups[operation.group as usize];
        let current = (operation.incarnation, operation.clock) == (group.life, group.clock);
        let (group, block) = (operation.group, operation.block);
        if current && self.groups[group as usize].due.contains(&block) {
            self.contribute(group, block);
        }
    }

    fn restore(&mut self) {
        let shard = self.rng.random_range(0..2);
        self.lineages += self.rng.random_range(1..5);
        let blocks = self.blocks_of(shard);
        let (mut updates, mut samples) = (0, 0);
        for &at in &blocks {
            let mut saved = self.saved[at].clone();
            let now = &self.blocks[at];
            updates += now.of.1 - saved.of.1;
            samples = samples.max(now.samples - saved.samples);
            saved.of.0 = self.lineages;
            saved.heard.clear();
            saved.waiting.clear();
            self.blocks[at] = saved.clone();
            self.saved[at] = saved;
        }
        // Some answers of the dead had left; the others never will.
        for attempt in 0..self.attempts.len() {
            let operation = self.operation(attempt);
            let of_shard = blocks.contains(&(operation.block as usize));
            if of_shard && operation.answer.is_none() && self.rng.random_bool(0.5) {
                self.attempts[attempt].ready = None;
            }
        }
        // Those that had left are still told of the old lineage: they must be there first.
        for attempt in 0..self.attempts.len() {
            let of_shard = blocks.contains(&(self.operation(attempt).block as usize));
            if of_shard && self.attempts[attempt].ready.is_some() {
                self.answered(attempt);
            }
        }
        if updates > 0 {
            self.history.losses.push(Loss {
                shard,
                lineage: self.lineages,
                updates,
                samples,
                too_high_max: 0,
            });
        }
        self.next(self.plan.restore_us, Event::Restore);
    }

    fn lives(&mut self, id: u32) {
        let group = &self.groups[id as usize];
        self.history.lives.push(Life {
            group: id,
            incarnation: group.life,
            start_clock: group.start,
            from_us: self.now_us,
            to_us: None,
        });
    }

    fn restart(&mut self) {
        let id = self.rng.random_range(0..self.plan.groups);
        let start = self.clock_seen + 1;
        let now_us = self.now_us;
        let group = &mut self.groups[id as usize];
        if !group.done {
            group.life += 1;
            (group.start, group.clock) = (start, start);
            group.due.clear();
            let mut lives = self.history.lives.iter_mut().rev();
            let life = lives.find(|life| life.group == id).expect("it lived");
            life.to_us = Some(now_us);
            for block in &mut self.blocks {
                block.waiting.remove(&id);
            }
            self.lives(id);
            self.after(10, Event::Step(id));
            for block in 0..self.blocks.len() {
                if !self.plan.merged {
                    self.decide(block);
                }
            }
        }
        self.next(self.plan.restart_us, Event::Restart);
    }
}
