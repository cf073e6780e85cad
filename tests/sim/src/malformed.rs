//! Frames and records that a shard has to refuse without any effect (rule 7).

use rand::Rng;
use tradewind_common::holders::Role;
use tradewind_common::pieces::Norms;
use tradewind_common::schedule::Seen;
use tradewind_common::{BlockId, Clock, Generation, GroupId, Incarnation, ServerId, ShardId};
use tradewind_core::askers::Wants;
use tradewind_core::block::Gradient;
use tradewind_core::log::{Confirm, LogEntry, Record};
use tradewind_core::refusal::Refusal;
use tradewind_core::shard::{Action, Output, Push, Shard};
use tradewind_core::view::View;

use crate::checker::{Checker, Rule, Violation};

/// Draws one, for a block of `server` at which a group is live, or for a run that is not ready;
/// `None` if there is neither.
pub fn draw(
    checker: &Checker,
    place: (ServerId, ShardId),
    view: &View,
    rng: &mut impl Rng,
) -> Option<Push> {
    let blocks = checker.blocks(place.1);
    if blocks.is_empty() {
        return None;
    }
    let (block, length) = blocks[rng.random_range(0..blocks.len())];
    let Some((group, _)) = view.live.first_key_value() else {
        let action = [Action::Pull, Action::Create(vec![0.0; length])];
        let action = action[rng.random_range(0..2)].clone();
        let nobody = (GroupId(0), Incarnation(u64::MAX), Clock(0));
        // Once everybody has left a ready run, only the creation is refused.
        let refused = !view.ready() || action != Action::Pull;
        return refused.then(|| frame(nobody, block, action));
    };
    let (incarnation, clock, attaching) = checker.place(place, block, *group)?;
    let one = Norms {
        values: 1.0,
        gradient: 1.0,
    };
    let good = Gradient {
        values: vec![1.0; length],
        samples: 1,
        pulled_version: 0,
        lineage: checker.lineage(place)?,
        seen: Seen::default(),
        norms: vec![one; checker.norms_wanted(block)],
    };
    let here = (*group, incarnation, clock);
    let contribute = |gradient| Action::Contribute(Some(gradient));
    let with = |change: &dyn Fn(&mut Gradient)| {
        let mut gradient = good.clone();
        change(&mut gradient);
        frame(here, block, contribute(gradient))
    };
    let speaker = |group, incarnation, clock| {
        let action = contribute(good.clone());
        frame((group, incarnation, clock), block, action)
    };
    Some(match rng.random_range(0..14) {
        0 => frame(here, BlockId(u32::MAX), contribute(good)),
        1 => speaker(GroupId(u32::MAX), incarnation, clock),
        2 => speaker(*group, Incarnation(incarnation.0 - 1), clock),
        3 => speaker(*group, incarnation.next(), clock),
        4 if !attaching && !checker.leaves_behind() => speaker(*group, incarnation, clock.tick()),
        5 => with(&|g| g.values.push(0.0)),
        6 => with(&|g| g.values.truncate(length - 1)),
        7 => with(&|g| g.values[length - 1] = f32::NAN),
        8 => with(&|g| g.values[0] = f32::INFINITY),
        9 => with(&|g| g.samples = 0),
        10 => with(&|g| g.pulled_version = u64::MAX),
        11 => with(&|g| g.norms.push(one)),
        12 => with(&|g| match g.norms.last_mut() {
            Some(last) => last.gradient = f64::NAN,
            None => g.samples = 0,
        }),
        _ => frame(here, block, Action::Create(vec![0.0; length])),
    })
}

fn frame(who: (GroupId, Incarnation, Clock), block: BlockId, action: Action) -> Push {
    let (group, incarnation, clock) = who;
    Push {
        group,
        incarnation,
        clock,
        block,
        wants: Wants::Values,
        action,
    }
}

/// A record that says nothing, of a log that no order has named to a copy; `None` to whoever is none.
pub fn record(shard: &Shard, rng: &mut impl Rng) -> Option<Record> {
    let Some(Role::Copy(since)) = shard.role() else {
        return None;
    };
    let later = [1, 1_000, u64::MAX / 2][rng.random_range(0..3)];
    Some(Record {
        log: Generation(shard.generation().0 + later),
        fill: [since, Generation(0)][rng.random_range(0..2)],
        previous: 0,
        seq: rng.random_range(1..3),
        entry: LogEntry::Probe,
    })
}

/// Whether a copy has refused a record and kept what it had.
pub fn check_record(
    record: &Record,
    result: &Result<Confirm, Refusal>,
    unchanged: bool,
) -> Result<(), Violation> {
    if result.is_err() && unchanged {
        return Ok(());
    }
    let text = format!("{record:?} came to {result:?}; digest unchanged: {unchanged}");
    Err(Violation::new(Rule::BadInput, text))
}

/// Whether the only output is a refusal, and nothing has changed.
pub fn check(push: &Push, outputs: &[Output], unchanged: bool) -> Result<(), Violation> {
    let refused = matches!(outputs, [Output::Reply { result: Err(_), .. }]);
    if refused && unchanged {
        return Ok(());
    }
    let text = format!("{push:?} came to {outputs:?}; digest unchanged: {unchanged}");
    Err(Violation::new(Rule::BadInput, text))
}
