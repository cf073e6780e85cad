use std::path::Path;

use tokio::sync::watch::channel;
use tradewind_folder::found::FoundRun;

use super::*;
use crate::fixture::{folder, lines, rows, with_faults};
use crate::observe::Observer;
use crate::standing::tests::standing as live;
use crate::stream::Sight;

/// What is seen of a run in a folder, when its servers have told this, `seconds` after its first exchange.
fn sight(path: &Path, standing: Option<Standing>, seconds: f64) -> Sight {
    let place = FoundRun::find(Some(path)).unwrap();
    let now = 1.7e9 + seconds;
    let (_to, standing) = channel(standing.map(|standing| (now, standing.into())));
    Observer::new(place, standing).look(now)
}

fn names<T: Copy + std::fmt::Debug>(of: impl IntoIterator<Item = T>) -> Vec<T> {
    of.into_iter().collect()
}

#[test]
fn a_run_that_has_ended_is_shown_as_its_folder_has_it() {
    let root = tempfile::tempdir().unwrap();
    with_faults(root.path());
    let sight = sight(root.path(), None, 1000.0);
    let look = &sight.look;
    assert_eq!(
        (look.state, look.over, look.sentence.as_str()),
        (RunState::Completed, true, "")
    );
    assert_eq!(
        (look.samples, look.facts.budget, look.rows, look.updates),
        (9600, 12000, 300, 299)
    );
    assert_eq!(
        (look.samples_per_second, look.seconds_left),
        (None, None),
        "it trains no longer"
    );
    // The third group was the last by far, and says how the run fares in the end.
    let own = rows().into_iter().rev().filter_map(|row| row.loss).take(32);
    let last: Vec<f64> = own.collect();
    let mean = last.iter().sum::<f64>() / 32.0;
    assert!((look.loss.unwrap() - mean).abs() < 1e-12);
    assert_eq!(look.validation.as_ref().unwrap().value, 0.75);
    assert_eq!(look.facts.how, "bounded, 3 groups, 6 ranks, 2 servers");
    assert_eq!(look.facts.staleness_bound, Some(3));
    assert_eq!(
        names(
            look.groups
                .iter()
                .map(|row| (row.group, row.size, row.silent))
        ),
        [(0, 2, false), (1, 2, false), (2, 2, false)]
    );
    let ranks = look.groups[2]
        .ranks
        .iter()
        .map(|row| (row.rank, row.life, row.pid));
    assert_eq!(
        names(ranks),
        [(0, Some(1), Some(4_000_004)), (1, Some(2), Some(4_000_005))]
    );
    let servers = look
        .servers
        .iter()
        .map(|row| (row.server, row.state, row.life));
    assert_eq!(
        names(servers),
        [(0, "ended", Some(1)), (1, "ended", Some(2))]
    );
    assert_eq!(look.servers[0].primary_of, [0, 1]);
    assert_eq!(
        (&look.servers[1].copy_of[..], &look.shards[0].copies[..]),
        (&[0][..], &[1][..])
    );
    assert_eq!(look.shards[1].version_min, Some(296));
    assert_eq!(look.delays, [0, 300]);
    let kinds = sight.events.iter().map(|told| told.event.kind.as_str());
    let want = [
        "run_ready",
        "snapshot",
        "process_died",
        "promoted",
        "process_restarted",
        "process_died",
        "group_reforms",
    ];
    assert_eq!(
        names(kinds),
        want,
        "and nothing of another run on its servers"
    );
    // Every second of six ranks is in one part. The third group was away for 40 s with both of its ranks.
    let part = |what| {
        look.time
            .iter()
            .find(|part| part.what == what)
            .unwrap()
            .rank_seconds
    };
    let all: f64 = look.time.iter().map(|part| part.rank_seconds).sum();
    assert!((part("computing") - 6.0 * 100.0 * 0.1).abs() < 1e-6);
    assert!(
        part("no step") > 80.0 && part("for nothing") == 0.0,
        "{:?}",
        look.time
    );
    assert!((look.goodput.unwrap() - part("computing") / all).abs() < 1e-9);
    let points: u64 = sight.joined.iter().map(|point| point.exchanges).sum();
    assert_eq!((points, sight.groups.len()), (300, 3));
}

#[test]
fn who_is_silent_is_said() {
    let root = tempfile::tempdir().unwrap();
    folder(root.path());
    let mut own = rows();
    // The third group never came back from where it was away.
    own.retain(|row| row.group != 2 || row.clock < 50);
    let last = own.iter().map(|row| row.wall).fold(0.0, f64::max) - 1.7e9;
    std::fs::write(root.path().join("metrics.jsonl"), lines(own)).unwrap();
    let check = |seconds: f64, state: RunState, sentence: &str, silent: &[bool]| {
        let look = sight(root.path(), Some(live()), last + seconds).look;
        assert_eq!((look.state, look.sentence.as_str()), (state, sentence));
        assert_eq!(names(look.groups.iter().map(|row| row.silent)), silent);
        assert!(!look.over);
    };
    check(
        0.1,
        RunState::Training,
        "2 groups are silent",
        &[true, false, true],
    );
    let silent = "no exchange has ended for 15 s; one takes 200 ms lately";
    check(15.0, RunState::Silent, silent, &[true; 3]);
}

#[test]
fn a_state_is_a_word_and_says_what_to_do() {
    let root = tempfile::tempdir().unwrap();
    folder(root.path());
    let check = |change: &dyn Fn(&mut Standing), state: RunState, sentence: &str| {
        let mut standing = live();
        change(&mut standing);
        let look = sight(root.path(), Some(standing), 1.0).look;
        assert_eq!((look.state, look.sentence.as_str()), (state, sentence));
    };
    check(&|_| (), RunState::Starting, "the first steps are under way");
    let restoring = |standing: &mut Standing| standing.phase = Some("restoring".into());
    check(
        &restoring,
        RunState::Starting,
        "servers read the newest snapshot",
    );
    let failed = |standing: &mut Standing| standing.failure = Some("the loss is not finite".into());
    check(&failed, RunState::Failed, "the loss is not finite");
    let gone = "its launcher is gone; `tradewind run CONFIG --resume` goes on from a snapshot";
    check(
        &|standing| standing.abandoned = true,
        RunState::Abandoned,
        gone,
    );
    let ending = "groups leave, a last snapshot is taken, and the summary is written";
    let ends =
        |standing: &mut Standing| standing.ending = Some(standing::Ending { snapshot: None });
    check(&ends, RunState::Ending, ending);
    assert_eq!(sight(root.path(), None, 1.0).look.state, RunState::Starting);
}

#[test]
fn servers_are_shown_with_what_they_hold() {
    let root = tempfile::tempdir().unwrap();
    folder(root.path());
    let look = sight(root.path(), Some(live()), 1.0).look;
    let rows = look
        .servers
        .iter()
        .map(|row| (row.server, row.state, row.lease_left_ms));
    assert_eq!(
        names(rows),
        [
            (0, "up", Some(9100)),
            (1, "up", Some(9100)),
            (2, "gone", None)
        ]
    );
    assert_eq!(look.servers[1].primary_of, [0]);
    assert_eq!(
        (&look.servers[0].copy_of[..], &look.shards[0].filling[..]),
        (&[0][..], &[2][..])
    );
    assert_eq!(
        look.shards[1].waits_for,
        ["server 2, incarnation 1 (silent for 12 s)"]
    );
    assert_eq!(look.lost.unwrap().samples, 40);
    // The coordinator knows two groups, the configuration a third.
    let states = look.groups.iter().map(|row| row.state.as_deref());
    assert_eq!(names(states), [Some("live"), Some("gathering"), None]);
}

#[test]
fn another_run_in_the_same_folder_begins_anew() {
    let root = tempfile::tempdir().unwrap();
    let at = root.path().join("r");
    with_faults(&at);
    let (_to, standing) = channel(None);
    let mut observer = Observer::new(FoundRun::find(Some(&at)).unwrap(), standing);
    let first = observer.look(1.7e9);
    assert_eq!((first.look.rows, first.life), (300, 0));
    std::fs::rename(&at, root.path().join("r-1")).unwrap();
    folder(&at);
    let second = observer.look(1.7e9);
    assert_eq!(
        (second.look.rows, second.look.state, second.life),
        (0, RunState::Starting, 1)
    );
    assert!(second.events.is_empty());
}
