//! Processes that die, and what those who are left come to.

use std::process::{Child, Command, Stdio};

use super::*;

/// Tells a process of this test binary what it is to do, and where the other one listens.
const ROLE: &str = "TRADEWIND_TEST_ROLE";
const PLACE: &str = "TRADEWIND_TEST_PLACE";

/// Not a test of its own: the process of the tests below that dies.
#[test]
fn one_that_dies() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let place = std::env::var(PLACE).unwrap();
    match role.as_str() {
        // Rank 0, which serves the store: trains until it is killed.
        "serves" => {
            let store = Store::serve(HOST, LONG).unwrap();
            std::fs::write(format!("{place}.new"), store.port().to_string()).unwrap();
            std::fs::rename(format!("{place}.new"), &place).unwrap();
            trains(&store, 0, "0", 3, |_| {});
        }
        // Enters the forming of a group, where nobody else is yet, and is gone.
        "joins" => {
            let store = Store::connect(HOST, place.parse().unwrap(), LONG).unwrap();
            thread::spawn(|| {
                thread::sleep(SHORT / 4);
                tradewind_process::exit(1);
            });
            form(&store, 2, "again", 3, LONG, &Model::new()).unwrap();
        }
        role => panic!("no role {role}"),
    }
}

fn spawn(role: &str, place: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "group::c10d::tests::deaths::one_that_dies"])
        .env(ROLE, role)
        .env(PLACE, place)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn form(
    store: &Store,
    rank: u32,
    prefix: &str,
    size: u32,
    timeout: Duration,
    model: &Model,
) -> Result<C10d, GroupError> {
    let meet = Rendezvous {
        store,
        prefix,
        host: HOST,
        timeout,
        breaks: &|_| (),
    };
    super::form(rank, size, &meet, model)
}

/// Steps until the group breaks.
fn trains(
    store: &Store,
    rank: u32,
    prefix: &str,
    size: u32,
    stepped: impl Fn(&C10d),
) -> GroupError {
    let model = Model::new();
    let mut group = form(store, rank, prefix, size, LONG, &model).unwrap();
    let mut step = 0;
    loop {
        if let Err(error) = group.backward(&model.loss(step)) {
            return error;
        }
        stepped(&group);
        step += 1;
    }
}

/// The gradients of a step in a new incarnation of the group.
fn lives_on(store: &Store, rank: u32, prefix: &str) -> Vec<u32> {
    let model = Model::new();
    let mut group = form(store, rank, prefix, 2, LONG, &model).unwrap();
    group.backward(&model.loss(rank)).unwrap();
    bits(&gradients(&group))
}

fn halves() -> Vec<u32> {
    let (a, b) = (Model::plain_gradient(0), Model::plain_gradient(1));
    let mean: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a / 2.0 + b / 2.0).collect();
    bits(&mean)
}

/// The store dies with the rank that served it; the group meets again at that of another.
#[test]
fn the_rank_that_serves_the_store_dies_in_a_step() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("port");
    let mut first = spawn("serves", place.to_str().unwrap());
    let port = loop {
        if let Ok(port) = std::fs::read_to_string(&place) {
            break port.parse().unwrap();
        }
        thread::sleep(Duration::from_millis(10));
    };
    let next = Store::serve(HOST, LONG).unwrap();
    let next_port = next.port();
    let mut next = Some(next);
    let (stepped, steps) = std::sync::mpsc::channel();
    let (tell, breakers) = std::sync::mpsc::channel();
    let seen: Vec<_> = thread::scope(|scope| {
        let ranks: Vec<_> = (0..2)
            .map(|rank| {
                let (own, stepped, tell) = (next.take(), stepped.clone(), tell.clone());
                scope.spawn(move || {
                    let store = Store::connect(HOST, port, LONG).unwrap();
                    let told = std::cell::Cell::new(false);
                    let error = trains(&store, rank + 1, "0", 3, |group| {
                        if !told.replace(true) {
                            tell.send(group.breaker().unwrap().unwrap()).unwrap();
                            stepped.send(()).unwrap();
                        }
                    });
                    assert!(matches!(error, GroupError::Broken { .. }), "{error}");
                    let connect = || Store::connect(HOST, next_port, LONG).unwrap();
                    lives_on(&own.unwrap_or_else(connect), rank, "1")
                })
            })
            .collect();
        for _ in 0..2 {
            steps.recv_timeout(LONG).unwrap();
        }
        first.kill().unwrap();
        first.wait().unwrap();
        // As the coordinator, which hears of the death, tells the others.
        for breaker in (0..2).map(|_| breakers.recv_timeout(LONG).unwrap()) {
            breaker.break_group();
        }
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    assert_eq!(seen, [halves(), halves()]);
}

/// Its address is in the store, and nobody is there: the others give up, and meet without it.
#[test]
fn a_rank_that_dies_while_the_group_forms_is_an_error_of_forming() {
    let store = Store::serve(HOST, LONG).unwrap();
    let port = store.port();
    let mut dead = spawn("joins", &port.to_string());
    assert_eq!(dead.wait().unwrap().code(), Some(1));
    let mut store = Some(store);
    let seen: Vec<_> = thread::scope(|scope| {
        let ranks: Vec<_> = (0..2)
            .map(|rank| {
                let own = store.take();
                scope.spawn(move || {
                    let connect = || Store::connect(HOST, port, LONG).unwrap();
                    let store = own.unwrap_or_else(connect);
                    let formed = form(&store, rank, "again", 3, SHORT, &Model::new());
                    let error = formed.unwrap_err();
                    assert!(matches!(error, GroupError::Form(_)), "{error}");
                    lives_on(&store, rank, "and again")
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    assert_eq!(seen, [halves(), halves()]);
}

/// Nobody uses what an end of a collective has left, when it may have been broken off.
#[test]
fn a_broken_group_says_so_before_anything_is_used() {
    let all = std::sync::Barrier::new(2);
    ranks(2, LONG, |_, group| {
        let breaker = group.breaker().unwrap().unwrap();
        group.check().unwrap();
        breaker.check().unwrap();
        group.all_reduce_sum(&mut [1.0]).unwrap();
        all.wait();
        breaker.break_group();
        assert!(breaker.check().is_err());
        assert!(matches!(group.check(), Err(GroupError::Broken { .. })));
        let mut values = Tensor::from_slice(&[1f32]);
        let error = group.all_reduce_mean(&mut values).unwrap_err();
        assert!(matches!(error, GroupError::Broken { .. }), "{error}");
    });
}
