//! What groups were answered by real servers, judged by a checker that knows nothing of them.
//!
//! A history that breaks a rule stays in the temporary folder that the panic names;
//! `tradewind-history FILE` judges it again.

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rand::Rng;
use tradewind_history::{History, Report, Violation, check};
use tradewind_recorded::{Plan, Recorded, Start};

const SECONDS: Duration = Duration::from_secs(1);

/// Runs that are recorded at once, of all tests. They pause more than they work: so many keep a core
/// and a half busy.
const AT_ONCE: usize = 12;

/// Places that no run has.
static FREE: Mutex<usize> = Mutex::new(AT_ONCE);
static FREED: Condvar = Condvar::new();

/// A run's place among those that are recorded at once, until it is dropped.
struct Place;

impl Place {
    fn wait() -> Self {
        let free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        let free = FREED.wait_while(free, |free| *free == 0);
        *free.unwrap_or_else(PoisonError::into_inner) -= 1;
        Self
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        *FREE.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        FREED.notify_one();
    }
}

/// Checks all cases beside each other.
fn each<C: Send>(cases: impl IntoIterator<Item = C>, check: impl Fn(C) + Sync) {
    thread::scope(|scope| {
        for case in cases {
            let check = &check;
            scope.spawn(move || check(case));
        }
    });
}

fn plan(seed: u64) -> Plan {
    Plan {
        seed,
        groups: 3,
        blocks: 6,
        servers: 3,
        replication: 2,
        bound: None,
        snapshot_ms: 2_000,
        patience_ms: 60_000,
        descriptors: None,
    }
}

/// Records a run while `what` happens to it.
fn record(plan: Plan, what: impl FnOnce(&mut Recorded)) -> History {
    let _place = Place::wait();
    let folder = tempfile::tempdir().unwrap();
    let mut recorded = Recorded::start(plan, folder.path());
    recorded.goes_on(5);
    what(&mut recorded);
    recorded.goes_on(5);
    recorded.end()
}

/// Judges a history; one that breaks a rule is kept, and where is said.
fn judged(history: &History) -> Result<Report, Violation> {
    history.fits().unwrap();
    let judged = check(history);
    if judged.is_err() {
        let (file, path) = tempfile::NamedTempFile::new().unwrap().keep().unwrap();
        history.write(file).unwrap();
        println!("the history is kept: {}", path.display());
    }
    println!("{judged:?}");
    judged
}

#[track_caller]
fn holds(history: &History) -> Report {
    judged(history).unwrap_or_else(|violation| panic!("{violation}"))
}

#[test]
fn answers_without_faults() {
    each([(None, 1), (Some(1), 2)], |(bound, replication)| {
        let plan = Plan {
            bound,
            replication,
            ..plan(1)
        };
        let history = record(plan, |run| {
            run.goes_on(20);
            run.restart_group(1);
            run.goes_on(20);
        });
        let report = holds(&history);
        let least = 3 * 40 * u64::from(plan.blocks) * 3 / 4;
        assert!(report.applied > least, "{report:?}");
        assert_eq!((report.restores, report.told), (0, 0));
        assert_eq!(history.lives.len(), 4, "three groups, one of them twice");
    });
}

#[test]
fn a_server_that_dies_loses_nothing_that_was_answered() {
    each([(2, None), (3, Some(2))], |(seed, bound)| {
        let plan = Plan {
            bound,
            ..plan(seed)
        };
        let history = record(plan, |run| {
            let victim = run.rng().random_range(0..3);
            run.servers.kill(victim);
            run.goes_on(10);
            run.servers.begin(victim, Start::StandingIn);
        });
        let report = holds(&history);
        assert_eq!((report.restores, report.told), (0, 0), "{report:?}");
        assert!(report.unknown + report.applied > 0);
    });
}

/// All servers die at once, and come back with their folder: shards go back to their last snapshot.
/// Groups go on, or die with them.
fn all_die(replication: u32, groups_too: bool) {
    let plan = Plan {
        replication,
        ..plan(4)
    };
    let history = record(plan, |run| {
        run.goes_on(20);
        run.pause(2 * SECONDS);
        (0..3).for_each(|server| run.servers.kill(server));
        if groups_too {
            (0..3).for_each(|group| run.restart_group(group));
        }
        (0..3).for_each(|server| run.servers.begin(server, Start::StandingIn));
        run.goes_on(10);
    });
    let report = holds(&history);
    assert!(report.restores > 0 && report.told > 0, "{report:?}");
}

#[test]
fn what_a_restore_has_lost_was_told() {
    each([1, 2], |replication| all_die(replication, false));
}

#[test]
fn what_a_restore_has_lost_was_told_though_groups_begin_anew() {
    each([1, 2], |replication| all_die(replication, true));
}

/// With one copy a server that is silent for too long is replaced, and goes on answering who has not heard
/// of that when it wakes.
#[test]
fn what_is_lost_with_a_server_that_slept_was_told() {
    each(20..22, |seed| {
        let plan = Plan {
            replication: 1,
            patience_ms: 4_000,
            ..plan(seed)
        };
        let history = record(plan, |run| {
            run.pause(2 * SECONDS);
            // The first one hosts the coordinator.
            let sleeper = run.rng().random_range(1..3);
            run.servers.stop(sleeper, true);
            run.pause(8 * SECONDS);
            run.goes_on(10);
            run.servers.stop(sleeper, false);
            run.pause(3 * SECONDS);
            run.goes_on(10);
        });
        let report = holds(&history);
        assert!(report.restores > 0, "{report:?}");
    });
}

/// Faults of all kinds at random, two within a lease now and then; nobody is asked whether it is a
/// safe moment.
fn random_faults(run: &mut Recorded) {
    for _ in 0..8 {
        let pause_ms = run.rng().random_range(200..3_000);
        run.pause(Duration::from_millis(pause_ms));
        let servers = run.servers.count();
        let victim = run.rng().random_range(0..servers);
        match run.rng().random_range(0..10) {
            0..=3 => run.servers.kill(victim),
            4..=6 => run.servers.stop(victim, true),
            7 => (0..servers).for_each(|server| run.servers.kill(server)),
            _ => {
                let group = run.rng().random_range(0..3);
                run.restart_group(group);
            }
        }
        for server in 0..servers {
            if !run.servers.is_well(server) && run.rng().random_bool(0.5) {
                come_back(run, server);
            }
        }
    }
    for server in 0..run.servers.count() {
        come_back(run, server);
    }
}

/// A server that is stopped goes on; one that is dead begins its next life.
fn come_back(run: &mut Recorded, server: u32) {
    run.servers.stop(server, false);
    if !run.servers.is_well(server) {
        run.servers.begin(server, Start::StandingIn);
    }
}

#[test]
fn what_random_faults_have_lost_was_told() {
    let seeds = |replication| (10..14).map(move |seed| (seed, replication));
    each([1, 2].into_iter().flat_map(seeds), |(seed, replication)| {
        let plan = Plan {
            replication,
            ..plan(seed)
        };
        println!("seed {seed}, replication {replication}");
        holds(&record(plan, random_faults));
    });
}
