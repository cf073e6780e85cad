//! Histories written by hand, each with one thing wrong: which rule it breaks, and which operations
//! are named.
//!
//! A line is an operation: its number, when it was sent and answered, then either `pull`, or group,
//! life and clock, the verdict, with `!` if it had been decided before, then lineage:version and the
//! counts; then, if that is known, on which version the gradient was computed and its delay. One
//! that was not answered has no end and no more. `life` says from when to when one was surely live,
//! `loss` of which shard, in which lineage, how many updates.

use tradewind_history::{
    Action, Answer, History, Life, Loss, Operation, Policy, Rule, Run, Verdict, Version, check,
};

/// Two groups, one block of shard 0, and one more shard.
fn history(policy: Policy, text: &str) -> History {
    let mut history = History::new(Run {
        groups: 2,
        shards: vec![0, 1],
        policy,
        merged: false,
        replication: 2,
        samples: 0,
    });
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["life", who, when] => {
                let ((group, incarnation, start_clock), (from_us, to_us)) =
                    (who_of(who), span(when));
                history.lives.push(Life {
                    group,
                    incarnation,
                    start_clock,
                    from_us,
                    to_us,
                });
            }
            ["loss", shard, lineage, updates] => history.losses.push(Loss {
                shard: number(shard) as u32,
                lineage: number(lineage),
                updates: number(updates),
                samples: 0,
                too_high_max: 0,
            }),
            _ => history.operations.push(operation(&words)),
        }
    }
    history
}

fn number(word: &str) -> u64 {
    word.parse()
        .unwrap_or_else(|_| panic!("{word:?} is no number"))
}

/// `5..9` or `5..`
fn span(word: &str) -> (u64, Option<u64>) {
    let (from, to) = word.split_once("..").expect("a span");
    (
        number(from),
        Some(to).filter(|to| !to.is_empty()).map(number),
    )
}

/// `group.life@clock`
fn who_of(word: &str) -> (u32, u64, u64) {
    let (group, rest) = word.split_once('.').expect("a group");
    let (life, clock) = rest.split_once('@').expect("a clock");
    (number(group) as u32, number(life), number(clock))
}

fn version(word: &str) -> Version {
    let (lineage, version) = word.split_once(':').expect("a version");
    Version {
        lineage: number(lineage),
        version: number(version),
    }
}

fn operation(words: &[&str]) -> Operation {
    let (start_us, end_us) = span(words[1]);
    let pulls = words[2] == "pull";
    let who = if !pulls {
        who_of(words[2])
    } else {
        Default::default()
    };
    let told = if pulls { &words[2..] } else { &words[3..] };
    let on = told.iter().position(|word| *word == "on");
    let delay = told.iter().position(|word| *word == "delay");
    let verdict = told.first().map(|word| match word.trim_end_matches('!') {
        "applied" => Verdict::Applied,
        "dropped" => Verdict::Dropped,
        "skipped" => Verdict::Skipped,
        "pull" => Verdict::Read,
        other => panic!("{other}"),
    });
    let answer = end_us.map(|end_us| Answer {
        end_us,
        verdict: verdict.expect("an answer has a verdict"),
        repeated: told[0].ends_with('!'),
        of: version(told[1]),
        delay: delay.map_or(0, |at| number(told[at + 1])),
        samples: 0,
        digest: told[2].to_owned(),
        counts: Some(
            told[2]
                .split(',')
                .map(|count| count.parse().unwrap())
                .collect(),
        ),
    });
    Operation {
        number: number(words[0]),
        start_us,
        group: who.0,
        incarnation: who.1,
        clock: who.2,
        block: 0,
        action: match verdict {
            _ if pulls => Action::Pull,
            Some(Verdict::Skipped) => Action::Skip,
            _ => Action::Contribute,
        },
        computed_on: on.map(|at| version(told[at + 1])),
        answer,
    }
}

#[track_caller]
fn refused(name: &str, text: &str, rule: Rule, operations: &[u64]) {
    under(Policy::Async, name, text, rule, operations);
}

#[track_caller]
fn under(policy: Policy, name: &str, text: &str, rule: Rule, operations: &[u64]) {
    let history = history(policy, text);
    history.fits().unwrap();
    let Err(violation) = check(&history) else {
        panic!("{name} passes");
    };
    assert_eq!(
        (violation.rule, &violation.operations[..]),
        (rule, operations),
        "{name}: {violation}"
    );
    for number in operations {
        let named = format!("operation {number} ");
        assert!(violation.text.contains(&named), "{name}: {violation}");
    }
}

#[track_caller]
fn passes(name: &str, text: &str) {
    let history = history(Policy::Async, text);
    if let Err(violation) = check(&history) {
        panic!("{name}: {violation}");
    }
}

#[test]
fn what_was_answered_is_there() {
    refused(
        "an update that was answered is gone for whoever asks next",
        "1 0..9 0.1@0 applied 0:1 1,0
         2 10..19 1.1@0 applied 0:1 0,1",
        Rule::Digest,
        &[1, 2],
    );
    refused(
        "it is gone, and others have come",
        "1 0..9 0.1@0 applied 0:1 1,0
         2 10..19 1.1@0 applied 0:2 0,2
         3 10.. 1.1@1",
        Rule::Monotone,
        &[1, 2],
    );
    refused(
        "nobody but its group was told, whose next answer lacks it",
        "1 0..9 0.1@0 applied 0:1 1,0
         2 10..30 0.1@1 applied 0:3 1,2
         3 1..40 1.1@0 applied 0:2 1,1
         4 41..45 1.1@1 applied 0:3 1,2",
        Rule::Applied,
        &[1, 2],
    );
    refused(
        "it was answered applied, and is not in the answer",
        "1 0..9 1.1@0 applied 0:1 1,0
         2 0.. 0.1@0",
        Rule::Applied,
        &[1],
    );
    // The second contribution of group 0 made version 3 by its delay, or version 4.
    let delayed = |delay, counts| {
        format!(
            "1 0..9 0.1@0 applied 0:1 1,0 on 0:0 delay 0
             2 1..20 1.1@0 applied 0:2 1,1 on 0:0 delay 1
             3 10..30 0.1@1 applied 0:4 2,2 on 0:1 delay {delay}
             4 21..40 1.1@1 applied 0:4 2,2
             5 22..50 pull 0:3 {counts}"
        )
    };
    passes("version 3 has it", &delayed(1, "2,1"));
    refused(
        "version 3 lacks it",
        &delayed(1, "1,2"),
        Rule::Applied,
        &[3, 5],
    );
    passes("version 3 has another", &delayed(2, "1,2"));
    refused(
        "version 3 has it already",
        &delayed(2, "2,1"),
        Rule::Future,
        &[5, 3],
    );
}

#[test]
fn nothing_is_there_twice_or_too_early() {
    refused(
        "a contribution counts twice",
        "1 0..9 0.1@0 applied 0:2 2,0",
        Rule::Doubled,
        &[1],
    );
    refused(
        "a repeat was applied once more",
        "1 0..9 0.1@0 applied 0:1 1,0
         2 10..19 0.1@0 applied! 0:1 1,0
         3 20..29 0.1@1 applied 0:3 3,0",
        Rule::Doubled,
        &[1, 3],
    );
    refused(
        "what was dropped is there all the same",
        "1 0..9 0.1@0 dropped 0:0 0,0
         2 10..19 0.1@1 applied 0:2 2,0",
        Rule::Doubled,
        &[2],
    );
    refused(
        "somebody has a contribution before it was sent",
        "1 0..9 pull 0:1 1,0
         2 10..19 0.1@0 applied 0:1 1,0",
        Rule::Future,
        &[1],
    );
    refused(
        "a group has contributed nothing",
        "1 0..9 0.1@0 applied 0:2 1,1",
        Rule::Doubled,
        &[1],
    );
    passes(
        "what was not answered may be there",
        "1 0.. 1.1@0
         2 0..9 0.1@0 applied 0:2 1,1
         3 10..19 1.1@1 applied 0:3 1,2",
    );
    passes(
        "a former life that hung sends late, in vain",
        "1 0..9 0.2@1 applied 0:1 1,0
         2 20.. 0.1@0
         3 30..39 0.2@2 applied 0:2 2,0",
    );
    refused(
        "what was not answered is there twice",
        "1 0.. 1.1@0
         2 0..9 0.1@0 applied 0:2 1,1
         3 10..19 1.1@1 applied 0:4 1,3",
        Rule::Doubled,
        &[3],
    );
    refused(
        "it comes after its group was answered the next one",
        "1 0.. 1.1@0
         2 0..9 1.1@1 applied 0:1 0,1
         3 10..19 pull 0:2 0,2",
        Rule::Doubled,
        &[3],
    );
}

#[test]
fn states_are_vector_clocks() {
    refused(
        "counts do not add up to the version",
        "1 0..9 0.1@0 applied 0:2 1,0",
        Rule::Sum,
        &[1],
    );
    refused(
        "a count is no number of contributions",
        "1 0..9 0.1@0 applied 0:1 0.5,0.5",
        Rule::Counts,
        &[1],
    );
    refused(
        "two versions have each other's values",
        "1 0..9 0.1@0 applied 0:1 1,0
         2 0..9 1.1@0 applied 0:2 1,1
         3 20..29 pull 0:2 2,0",
        Rule::Digest,
        &[2, 3],
    );
    refused(
        "a value goes back",
        "1 0..9 0.1@0 applied 0:1 1,0
         2 10..19 0.1@1 applied 0:2 2,0
         3 20..29 1.1@0 applied 0:3 1,2
         4 20.. 1.1@1",
        Rule::Monotone,
        &[2, 3],
    );
}

#[test]
fn answers_follow_each_other() {
    refused(
        "a read is stale",
        "1 0..9 0.1@0 applied 0:1 1,0
         2 10..19 pull 0:0 0,0",
        Rule::Stale,
        &[1, 2],
    );
    passes(
        "a read that was asked for before may be",
        "1 0..9 0.1@0 applied 0:1 1,0
         2 9..19 pull 0:0 0,0",
    );
    refused(
        "a former lineage answers",
        "1 0..9 0.1@0 applied 0:1 1,0
         2 10..19 pull 4:1 1,0
         3 20..29 pull 0:1 1,0",
        Rule::OldLineage,
        &[2, 3],
    );
    refused(
        "a repeat has another verdict",
        "1 0..9 0.1@0 applied 0:1 1,0
         2 10..19 0.1@0 dropped! 0:1 1,0",
        Rule::Once,
        &[1, 2],
    );
    refused(
        "a repeat has another delay",
        "1 0..9 0.1@0 applied 0:1 1,0 delay 0
         2 10..19 0.1@0 applied! 0:1 1,0 delay 1",
        Rule::Once,
        &[1, 2],
    );
    refused(
        "a repeat was decided anew",
        "1 0..9 0.1@0 applied 0:1 1,0
         2 10..19 0.1@0 applied 0:1 1,0",
        Rule::Once,
        &[1, 2],
    );
    refused(
        "a delay leads beyond the version that was answered",
        "1 0..9 0.1@0 applied 0:1 1,0 on 0:0 delay 1",
        Rule::Delay,
        &[1],
    );
    refused(
        "a pull is applied",
        "1 0..9 0.1@0 skipped 0:0 0,0
         2 10..19 0.1@1 applied 0:1 1,0
         3 20..29 0.1@2 skipped! 0:1 1,0
         4 20..29 0.1@2 applied 0:1 1,0",
        Rule::Once,
        &[3, 4],
    );
    refused(
        "a former life is answered",
        "life 0.1@0 0..10
         life 0.2@1 20..
         1 0..9 0.1@0 applied 0:1 1,0
         2 21..29 0.1@1 applied 0:2 2,0",
        Rule::Fenced,
        &[2],
    );
}

#[test]
fn clocks_keep_the_bound() {
    let lives = "life 0.1@0 0..
         life 1.1@0 0..\n";
    let three = "1 1..9 0.1@0 applied 0:1 1,0
         2 10..19 0.1@1 applied 0:2 2,0
         3 20..29 0.1@2 applied 0:3 3,0";
    let text = format!("{lives}{three}");
    let bounded = Policy::Bounded(1);
    under(
        bounded,
        "a live group has sent nothing",
        &text,
        Rule::Staleness,
        &[3],
    );
    // Group 1 had sent its first contribution, which was applied later.
    let text = format!("{text}\n4 1..99 1.1@0 applied 0:4 3,1");
    let late = "what was sent is not in the answer";
    under(bounded, late, &text, Rule::Staleness, &[3, 4]);
    for dead in ["life 1.1@0 0..25", "life 1.1@0 21..", ""] {
        let text = format!("life 0.1@0 0..\n{dead}\n{three}");
        let history = history(bounded, &text);
        assert_eq!(check(&history).err(), None, "{dead}");
    }
}

/// Five updates by group 0, then lineage 7, which begins with the second of them.
const RESTORED: &str = "1 0..9 0.1@0 applied 0:1 1,0
    2 10..19 0.1@1 applied 0:2 2,0
    3 20..29 0.1@2 applied 0:3 3,0
    4 30..39 0.1@3 applied 0:4 4,0
    5 40..49 0.1@4 applied 0:5 5,0
    6 60..69 pull 7:2 2,0
    7 70..79 0.1@5 applied 7:3 3,0\n";

#[test]
fn what_is_missing_was_told() {
    let restored = |more: &str| format!("{RESTORED}{more}");
    refused("nobody told", RESTORED, Rule::LossNotTold, &[5, 6]);
    refused(
        "0 were told",
        &restored("loss 0 7 0"),
        Rule::LossNotTold,
        &[5, 6],
    );
    refused(
        "of another shard",
        &restored("loss 1 7 3"),
        Rule::LossNotTold,
        &[5, 6],
    );
    refused(
        "two were told",
        &restored("loss 0 7 2"),
        Rule::LossTooLow,
        &[5, 6],
    );
    passes("three were told", &restored("loss 0 7 3"));
    passes("in two records", &restored("loss 0 7 2\nloss 0 7 1"));
    let high = history(Policy::Async, &restored("loss 0 7 4"));
    assert_eq!(check(&high).unwrap_err().rule, Rule::LossTooHigh);
    let unasked = "1 0..9 0.1@0 applied 0:1 1,0\nloss 0 0 1";
    passes(
        "a lineage that is the first has lost nothing that counts",
        unasked,
    );
    // What was never answered may have been lost with the rest.
    let open = restored("8 41.. 1.1@0\n");
    passes("one more was in flight", &format!("{open}loss 0 7 4"));
    passes("it had not arrived", &format!("{open}loss 0 7 3"));
    let two = history(Policy::Async, &format!("{open}loss 0 7 5"));
    assert_eq!(check(&two).unwrap_err().rule, Rule::LossTooHigh);
    // It was sent after the old lineage was over.
    let late = restored("8 75.. 1.1@0\nloss 0 7 4");
    let late = check(&history(Policy::Async, &late));
    assert_eq!(late.unwrap_err().rule, Rule::LossTooHigh);
    // Nobody has heard of the lineage: anything may be missing in it.
    passes("nobody asked", &restored("loss 0 7 3\nloss 0 9 3"));
}

/// With which version a lineage began follows from what was decided in it first.
#[test]
fn the_beginning_of_a_lineage_is_known() {
    let told = |updates| {
        format!(
            "1 0..9 0.1@0 applied 0:1 1,0
             2 10..19 1.1@0 applied 0:2 1,1
             3 20..29 0.1@1 applied 0:3 2,1
             4 40..49 0.1@2 applied 7:2 2,0
             loss 0 7 {updates}"
        )
    };
    passes("one is there, two are lost", &told(2));
    refused("three are not", &told(1), Rule::LossTooLow, &[3, 4]);
    let high = history(Policy::Async, &told(3));
    assert_eq!(check(&high).unwrap_err().rule, Rule::LossTooHigh);
    refused(
        "it begins with more than there was",
        "1 0..9 0.1@0 applied 0:1 1,0
         2 20..29 0.1@1 applied 7:3 3,0",
        Rule::Doubled,
        &[2],
    );
}

#[test]
fn every_rule_has_its_own_name() {
    let mut names: Vec<_> = Rule::ALL.iter().map(|rule| rule.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Rule::ALL.len());
}

#[test]
fn what_cannot_be_read_is_named() {
    let run =
        r#"{"record": "run", "groups": 2, "shards": [0], "policy": "async", "replication": 1}"#;
    let pull = r#"{"record": "operation", "number": 3, "start_us": 5, "group": 0, "incarnation": 0,
        "clock": 0, "block": 0, "action": "pull"}"#
        .replace('\n', " ");
    let read = |text: &str| match History::read(text.as_bytes()) {
        Ok(_) => "it is read".to_owned(),
        Err(error) => error.to_string(),
    };
    let check = |text: &str, want: &str| {
        let got = read(text);
        assert!(got.contains(want), "{got:?} instead of {want:?}");
    };
    check(&format!("{run}\n\n{pull}"), "it is read");
    check("", "it is empty");
    check(&pull, "line 1 comes before the record of the run");
    check(&format!("{run}\n{run}"), "it is of two runs");
    check(&format!("{run}\n{{"), "line 2 of the history is no record");
    check(
        &format!("{run}\n{pull}\n{pull}"),
        "operation 3 is there twice",
    );
    let other = |from: &str, to: &str| format!("{run}\n{}", pull.replace(from, to));
    check(
        &other(r#""block": 0"#, r#""block": 1"#),
        "operation 3: block 1 of 1",
    );
    check(
        &other(r#""group": 0"#, r#""group": 2"#),
        "operation 3: group 2 of 2",
    );
    let answered = |answer: &str| {
        let answer = format!(r#""action": "pull", "answer": {{"verdict": "read", {answer}}}"#);
        other(r#""action": "pull""#, &answer)
    };
    let of = r#""lineage": 0, "version": 0"#;
    check(
        &answered(&format!(r#""end_us": 4, {of}"#)),
        "operation 3 is answered before it is asked",
    );
    check(
        &answered(&format!(r#""end_us": 6, {of}, "counts": [1]"#)),
        "operation 3 has 1 counts for 2 groups",
    );
    let loss = r#"{"record": "loss", "shard": 4, "lineage": 1, "updates": 1}"#;
    check(&format!("{run}\n{loss}"), "a loss of shard 4");
}

/// What is written is what is read.
#[test]
fn a_history_survives_its_file() {
    let text = format!("life 0.1@0 0..70\n{RESTORED}loss 0 7 3\n8 90.. 1.1@0");
    let history = history(Policy::Bounded(3), &text);
    let mut file = Vec::new();
    history.write(&mut file).unwrap();
    assert_eq!(History::read(&file[..]).unwrap(), history);
}
