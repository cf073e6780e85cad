//! Histories of the model pass; random changes of them are refused.

use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;
use tradewind_history::{
    Action, Answer, History, Operation, Policy, Report, Verdict, Version, check,
};

use crate::model::Plan;

const SEEDS: u64 = 600;

#[test]
fn what_is_right_passes() {
    let mut all = Report::default();
    for seed in 0..SEEDS {
        let plan = Plan::random(seed);
        let history = plan.history();
        history.fits().unwrap();
        let report = check(&history).unwrap_or_else(|violation| panic!("{plan:?}: {violation}"));
        all.applied += report.applied;
        all.unknown += report.unknown;
        all.restores += report.restores;
        all.told += report.told;
        all.missing.0 += report.missing.0;
        all.missing.1 += report.missing.1;
    }
    println!("{all:?}");
    assert!(
        all.unknown > SEEDS && all.restores > SEEDS && all.told > SEEDS,
        "{all:?}"
    );
    // What is known of losses is not much less than what there is.
    assert!(all.missing.0 * 10 > all.told * 9, "{all:?}");
}

/// Changes a history so that it is wrong; `None` if it has nothing that could be changed so.
type Change = fn(History, &mut ChaCha8Rng) -> Option<History>;

/// Each change, and how many of a thousand changed histories must be refused: all of them, where nothing
/// that overlaps can explain what was changed.
const CHANGES: [(&str, Change, usize); 16] = [
    ("an update is lost after it was answered", dropped, 1_000),
    ("an update was answered and never made", never_made, 1_000),
    ("an update is made twice", doubled, 1_000),
    ("a read is stale", stale, 1_000),
    (
        "two versions have each other's digest",
        digests_swapped,
        1_000,
    ),
    (
        "two versions have each other's values",
        values_swapped,
        1_000,
    ),
    ("a group has another's count", miscounted, 1_000),
    ("a loss is not told", loss_untold, 1_000),
    ("a loss is told too low", loss_too_low, 1_000),
    ("a loss is told too high", loss_too_high, 1_000),
    ("a repeat has another verdict", other_verdict, 1_000),
    ("a repeat is called the first", not_repeated, 1_000),
    ("a former lineage answers", old_lineage, 1_000),
    ("a delay is another", other_delay, 850),
    ("a former life is answered", fenced, 950),
    ("the bound is passed", unbounded, 900),
];

#[test]
fn what_is_wrong_is_refused() {
    for (name, change, least) in CHANGES {
        let (mut changed, mut found) = (0, 0);
        for seed in 0..SEEDS {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let Some(history) = change(Plan::random(seed).history(), &mut rng) else {
                continue;
            };
            history.fits().unwrap();
            changed += 1;
            match check(&history) {
                Err(_) => found += 1,
                Ok(report) if least == 1_000 => panic!("{name}: seed {seed} passes: {report:?}"),
                Ok(_) => {}
            }
        }
        println!("{name}: {found} of {changed} are refused");
        assert!(changed >= 50, "{name}: {changed} only");
        assert!(
            found * 1_000 >= changed * least,
            "{name}: {found} of {changed}"
        );
    }
}

/// The operation and its answer, of those that `wanted` says.
fn pick(
    history: &History,
    rng: &mut ChaCha8Rng,
    wanted: impl Fn(&Operation, &Answer) -> bool,
) -> Option<usize> {
    let all = history.operations.iter().enumerate();
    let all = all.filter(|(_, o)| o.answer.as_ref().is_some_and(|a| wanted(o, a)));
    let all: Vec<usize> = all.map(|(at, _)| at).collect();
    all.choose(rng).copied()
}

/// An applied contribution of a run whose updates are one each, in the last lineage of its block: what
/// is changed from there on is not taken back by a restore. Something of the lineage was told before
/// it was sent, unless that is the first: otherwise it could have begun with other values.
fn applied(history: &History, rng: &mut ChaCha8Rng) -> Option<usize> {
    let last = |block: u32| {
        let of = history.operations.iter().filter(|o| o.block == block);
        of.filter_map(|o| Some(o.answer.as_ref()?.of.lineage)).max()
    };
    pick(history, rng, |o, a| {
        a.verdict == Verdict::Applied
            && !a.repeated
            && !history.run.merged
            && Some(a.of.lineage) == last(o.block)
            && (a.of.lineage == 0 || told_before(history, o, a))
    })
}

/// Whether something of an answer's lineage was told before that was asked for.
fn told_before(history: &History, operation: &Operation, answer: &Answer) -> bool {
    let of_block = history
        .operations
        .iter()
        .filter(|o| o.block == operation.block);
    let mut answers = of_block.filter_map(|o| o.answer.as_ref());
    answers.any(|a| a.of.lineage == answer.of.lineage && a.end_us < operation.start_us)
}

/// Has all states of a contribution's block count its group differently from a version on.
fn shift(history: &mut History, at: usize, own: bool, by: i64) -> bool {
    let of = history.operations[at].clone();
    let from = of.answer.as_ref().unwrap().of;
    let mut any = false;
    for (other, operation) in history.operations.iter_mut().enumerate() {
        let Some(answer) = &mut operation.answer else {
            continue;
        };
        let later = match own {
            true => answer.of >= from,
            false => answer.of > from,
        };
        if operation.block != of.block || answer.of.lineage != from.lineage || !later {
            continue;
        }
        any |= other != at;
        answer.of.version = answer.of.version.saturating_add_signed(by);
        answer.samples = answer.samples.saturating_add_signed(4 * by);
        answer.counts.as_mut().unwrap()[of.group as usize] += by as f64;
        answer.digest = format!("{:?}", answer.counts.as_ref().unwrap());
    }
    any
}

fn dropped(mut history: History, rng: &mut ChaCha8Rng) -> Option<History> {
    let at = applied(&history, rng)?;
    shift(&mut history, at, false, -1).then_some(history)
}

fn never_made(mut history: History, rng: &mut ChaCha8Rng) -> Option<History> {
    let at = applied(&history, rng)?;
    shift(&mut history, at, true, -1);
    Some(history)
}

fn doubled(mut history: History, rng: &mut ChaCha8Rng) -> Option<History> {
    let at = applied(&history, rng)?;
    shift(&mut history, at, true, 1);
    Some(history)
}

fn tells(history: &mut History, at: usize, other: &Answer) {
    let answer = history.operations[at].answer.as_mut().unwrap();
    answer.of = other.of;
    answer.samples = other.samples;
    answer.counts.clone_from(&other.counts);
    answer.digest.clone_from(&other.digest);
}

/// What a pull could not be told any more: an older state than somebody was told before it.
fn past(history: &History, at: usize, old: impl Fn(Version, Version) -> bool) -> Option<Answer> {
    let pull = &history.operations[at];
    let known = history.operations.iter().filter(|o| o.block == pull.block);
    let known = known.filter_map(|o| o.answer.as_ref());
    let mut known: Vec<&Answer> = known.filter(|a| a.end_us < pull.start_us).collect();
    known.sort_by_key(|answer| answer.of);
    let newest = known.last()?.of;
    known.into_iter().find(|a| old(a.of, newest)).cloned()
}

fn stale(mut history: History, rng: &mut ChaCha8Rng) -> Option<History> {
    let at = pick(&history, rng, |o, _| o.action == Action::Pull)?;
    let old = |a: Version, newest: Version| a.lineage == newest.lineage && a < newest;
    let past = past(&history, at, old)?;
    tells(&mut history, at, &past);
    Some(history)
}

fn old_lineage(mut history: History, rng: &mut ChaCha8Rng) -> Option<History> {
    let at = pick(&history, rng, |o, _| o.action == Action::Pull)?;
    let past = past(&history, at, |a, newest| a.lineage < newest.lineage)?;
    tells(&mut history, at, &past);
    Some(history)
}

/// Two answers of a block with other versions of a lineage.
fn two(history: &History, rng: &mut ChaCha8Rng) -> Option<(usize, usize)> {
    let first = pick(history, rng, |_, _| true)?;
    let (block, of) = (
        history.operations[first].block,
        history.operations[first].answer.as_ref()?.of,
    );
    // Somebody else was told the same, so that the change shows.
    let second = pick(history, rng, |o, a| {
        o.block == block && a.of.lineage == of.lineage && a.of.version != of.version
    })?;
    Some((first, second))
}

fn digests_swapped(mut history: History, rng: &mut ChaCha8Rng) -> Option<History> {
    let (first, second) = two(&history, rng)?;
    let digest = |at: usize| {
        history.operations[at]
            .answer
            .as_ref()
            .unwrap()
            .digest
            .clone()
    };
    let digests = [digest(second), digest(first)];
    let of = |at: usize| history.operations[at].answer.as_ref().unwrap().of;
    let alone = |at: usize| {
        let block = history.operations[at].block;
        let same = history.operations.iter().filter(|o| {
            o.block == block && o.answer.as_ref().is_some_and(|answer| answer.of == of(at))
        });
        same.count() == 1
    };
    if alone(first) && alone(second) {
        return None;
    }
    for (at, digest) in [first, second].into_iter().zip(digests) {
        history.operations[at].answer.as_mut().unwrap().digest = digest;
    }
    Some(history)
}

fn values_swapped(mut history: History, rng: &mut ChaCha8Rng) -> Option<History> {
    let (first, second) = two(&history, rng)?;
    let answer = |at: usize| history.operations[at].answer.clone().unwrap();
    let answers = [answer(second), answer(first)];
    for (at, other) in [first, second].into_iter().zip(answers) {
        let answer = history.operations[at].answer.as_mut().unwrap();
        (answer.counts, answer.digest) = (other.counts, other.digest);
    }
    Some(history)
}

/// One contribution counts for another group, in every state that has it.
fn miscounted(mut history: History, rng: &mut ChaCha8Rng) -> Option<History> {
    if history.run.groups == 1 {
        return None;
    }
    let at = applied(&history, rng)?;
    let of = history.operations[at].clone();
    let from = of.answer.as_ref().unwrap().of;
    let groups = history.run.groups as usize;
    let other = (of.group as usize + 1) % groups;
    for operation in &mut history.operations {
        let Some(answer) = &mut operation.answer else {
            continue;
        };
        if operation.block == of.block && answer.of.lineage == from.lineage && answer.of >= from {
            let counts = answer.counts.as_mut().unwrap();
            counts[of.group as usize] -= 1.0;
            counts[other] += 1.0;
            answer.digest = format!("{counts:?}");
        }
    }
    Some(history)
}

/// A history in which all that was lost had been told to somebody, so that nothing explains less or more,
/// and one of its losses.
fn certain(rng: &mut ChaCha8Rng) -> Option<(History, usize)> {
    let history = Plan::lossy(rng.random()).history();
    let report = check(&history).expect("it is right");
    let certain = report.missing == (report.told, report.told);
    let all: Vec<usize> = (0..history.losses.len()).collect();
    let at = all.choose(rng).filter(|_| certain)?;
    Some((history, *at))
}

fn loss_untold(_: History, rng: &mut ChaCha8Rng) -> Option<History> {
    let (mut history, at) = certain(rng)?;
    history.losses.remove(at);
    Some(history)
}

fn loss_too_low(_: History, rng: &mut ChaCha8Rng) -> Option<History> {
    let (mut history, at) = certain(rng)?;
    history.losses[at].updates = history.losses[at].updates.checked_sub(1)?;
    Some(history)
}

fn loss_too_high(_: History, rng: &mut ChaCha8Rng) -> Option<History> {
    let (mut history, at) = certain(rng)?;
    history.losses[at].updates += 1;
    Some(history)
}

fn other_verdict(mut history: History, rng: &mut ChaCha8Rng) -> Option<History> {
    let repeats: Vec<_> = history
        .operations
        .iter()
        .filter(|o| o.answer.is_some())
        .collect();
    let first = |o: &Operation, a: &Answer| {
        repeats.iter().any(|other| {
            let key = |o: &Operation| (o.group, o.incarnation, o.clock, o.block);
            let of = other.answer.as_ref().unwrap().of.lineage;
            key(other) == key(o) && other.number != o.number && of == a.of.lineage
        })
    };
    let at = pick(&history, rng, |o, a| {
        o.action == Action::Contribute && a.repeated && first(o, a)
    })?;
    let answer = history.operations[at].answer.as_mut().unwrap();
    answer.verdict = match answer.verdict {
        Verdict::Applied => Verdict::Dropped,
        _ => Verdict::Applied,
    };
    Some(history)
}

fn not_repeated(mut history: History, rng: &mut ChaCha8Rng) -> Option<History> {
    let answered: Vec<_> = history
        .operations
        .iter()
        .filter(|o| o.answer.is_some())
        .collect();
    let before = |o: &Operation, a: &Answer| {
        answered.iter().any(|other| {
            let key = |o: &Operation| (o.group, o.incarnation, o.clock, o.block);
            let answer = other.answer.as_ref().unwrap();
            key(other) == key(o) && answer.of.lineage == a.of.lineage && answer.end_us < o.start_us
        })
    };
    let at = pick(&history, rng, |o, a| a.repeated && before(o, a))?;
    history.operations[at].answer.as_mut().unwrap().repeated = false;
    Some(history)
}

fn other_delay(mut history: History, rng: &mut ChaCha8Rng) -> Option<History> {
    let at = pick(&history, rng, |o, a| {
        let of = o.computed_on.map(|of| of.lineage);
        a.verdict == Verdict::Applied && of == Some(a.of.lineage)
    })?;
    if history.run.merged {
        return None;
    }
    let by = if rng.random_bool(0.5) { 1 } else { -1 };
    let answer = history.operations[at].answer.as_mut().unwrap();
    answer.delay = answer.delay.checked_add_signed(by)?;
    Some(history)
}

/// An operation of a group's latest life is said to be of the one before.
fn fenced(mut history: History, rng: &mut ChaCha8Rng) -> Option<History> {
    let at = pick(&history, rng, |o, _| o.incarnation > 1)?;
    history.operations[at].incarnation -= 1;
    Some(history)
}

/// The run says that it has a bound that nobody kept.
fn unbounded(mut history: History, _: &mut ChaCha8Rng) -> Option<History> {
    if history.run.policy != Policy::Async || history.run.groups < 3 {
        return None;
    }
    history.run.policy = Policy::Bounded(0);
    Some(history)
}

/// Twice as many operations are twice as many steps: a sort takes a little more.
#[test]
fn the_work_grows_with_the_history() {
    let steps = |clocks| {
        let plan = Plan {
            clocks,
            restore_us: 10_000,
            ..Plan::random(3)
        };
        let history = plan.history();
        let report = check(&history).unwrap();
        (report.operations as f64, report.steps as f64)
    };
    let (few, many) = (steps(500), steps(4_000));
    println!("{few:?} {many:?}");
    let growth = (many.1 / few.1) / (many.0 / few.0);
    assert!(many.0 > 7.0 * few.0 && growth < 1.4, "{few:?} {many:?}");
}
