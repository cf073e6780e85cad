use super::*;

#[test]
fn a_group_can_be_formed_again_on_the_same_model() {
    let served = Store::serve(HOST, LONG).unwrap();
    let port = served.port();
    let run = |rank: u32, store: &Store| {
        let model = Model::new();
        let mut last = Vec::new();
        for prefix in ["1", "2"] {
            let meet = Rendezvous {
                store,
                prefix,
                host: HOST,
                timeout: LONG,
                breaks: &|_| (),
            };
            let mut group = form(rank, 2, &meet, &model).unwrap();
            group.backward(&model.loss(0)).unwrap();
            last = gradients(&group);
        }
        last
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| run(1, &Store::connect(HOST, port, LONG).unwrap()));
        let want = Model::plain_gradient(0);
        assert_eq!(
            run(0, &served),
            want,
            "nothing of the first group's gradients is left"
        );
        assert_eq!(other.join().unwrap(), want);
    });
}

#[test]
fn a_peer_that_leaves_breaks_the_group() {
    let seen = ranks(2, LONG, |model, group| {
        group.backward(&model.loss(0)).unwrap();
        // Rank 1 returns, and drops its connections as a killed process would.
        (group.rank() == Rank(0)).then(|| group.backward(&model.loss(1)).unwrap_err())
    });
    assert!(
        matches!(seen[0], Some(GroupError::Broken { .. })),
        "{:?}",
        seen[0]
    );
}

#[test]
fn a_peer_that_leaves_breaks_a_group_that_is_watched() {
    let seen = ranks(2, LONG, |model, group| {
        let mut heard = watched(group);
        group.backward(&model.loss(0)).unwrap();
        assert!(!heard().is_empty());
        (group.rank() == Rank(0)).then(|| group.backward(&model.loss(1)).unwrap_err())
    });
    let broken = matches!(seen[0], Some(GroupError::Broken { .. }));
    assert!(broken, "{:?}", seen[0]);
}

#[test]
fn a_group_with_a_peer_that_hangs_can_be_broken() {
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    ranks(3, LONG, |_, group| {
        if group.rank() == Rank(2) {
            // Connected, but in no collective, until the others have given up.
            let _ = (0..2).try_for_each(|_| wait.lock().unwrap().recv());
            return;
        }
        let breaker = group.breaker().unwrap().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(SHORT / 10);
                breaker.break_group();
            });
            group.all_reduce_sum(&mut [1.0]).unwrap_err();
        });
        done.send(()).unwrap();
    });
}

/// Tells a process of this test binary that it is a peer, and where the store is.
const PEER: &str = "TRADEWIND_TEST_PEER";

/// Exchanges large vectors until the group breaks.
fn busy(rank: u32, store: &Store, formed: impl FnOnce(&C10d)) -> GroupError {
    let model = Model::new();
    let meet = Rendezvous {
        store,
        prefix: "0",
        host: HOST,
        timeout: LONG,
        breaks: &|_| (),
    };
    let group = form(rank, 2, &meet, &model).unwrap();
    formed(&group);
    let mut values = Tensor::ones([3_000_000], (tch::Kind::Float, Device::Cpu));
    loop {
        if let Err(error) = group.all_reduce_mean(&mut values) {
            return error;
        }
    }
}

/// Not a test of its own: the other process of the one below, which kills it.
#[test]
fn peer_process() {
    if let Ok(port) = std::env::var(PEER) {
        let store = Store::connect(HOST, port.parse().unwrap(), LONG).unwrap();
        busy(1, &store, |_| {});
    }
}

#[test]
fn a_peer_process_that_is_killed_in_a_collective_breaks_the_group() {
    let store = Store::serve(HOST, LONG).unwrap();
    let mut peer = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "group::c10d::tests::breaking::peer_process"])
        .env(PEER, store.port().to_string())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let (formed, is_formed) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let peer = &mut peer;
        scope.spawn(move || {
            // Gloo does not wake who waits for a message that has come in part; whoever hears of
            // the death from elsewhere breaks the group.
            let breaker: Breaker = is_formed.recv().unwrap();
            thread::sleep(SHORT / 4);
            peer.kill().unwrap();
            peer.wait().unwrap();
            thread::sleep(SHORT / 4);
            breaker.break_group();
        });
        let error = busy(0, &store, |group| {
            formed.send(group.breaker().unwrap().unwrap()).unwrap();
        });
        assert!(matches!(error, GroupError::Broken { .. }), "{error}");
    });
}

/// What a rank saw of the incarnations of its group: how large each was, the gradients of its steps, and
/// whether the last one broke.
#[derive(Debug, PartialEq)]
struct Seen {
    size: u32,
    gradients: Vec<u32>,
    broken: bool,
}

/// A rank of a group of 3 that loses one rank after the other: rank 2 leaves in the first incarnation,
/// rank 1 in the second, both between backwards. As the store of the first rank that is there is
/// used, all serve one.
fn outlives(rank: u32, ports: &[u16], own: &Store, watched: bool) -> Vec<Seen> {
    let model = Model::new();
    let (layout, buckets) = (model.layout(), model.buckets());
    let _flat = Flat::new(&layout, &model.tensors, Device::Cpu).unwrap();
    let mut incarnations = Vec::new();
    for size in (1..=3).rev().filter(|size| rank < *size) {
        let connected = (rank > 0).then(|| Store::connect(HOST, ports[0], LONG).unwrap());
        let meet = Rendezvous {
            store: connected.as_ref().unwrap_or(own),
            prefix: &format!("incarnation-{size}"),
            host: HOST,
            timeout: LONG,
            breaks: &|_| (),
        };
        let mut group: Box<dyn Group> = match size {
            1 => Box::new(crate::group::Solo::new(&layout, &buckets, &model.tensors).unwrap()),
            _ => Box::new(form(rank, size, &meet, &model).unwrap()),
        };
        let heard = Arc::new(Mutex::new(Vec::new()));
        if watched {
            let ear = heard.clone();
            let told = move |bucket, _: &Tensor| ear.lock().unwrap().push(bucket);
            group.watch(Arc::new(told)).unwrap();
        }
        let step = |group: &mut dyn Group, step: u32| group.backward(&model.loss(3 * step + rank));
        step(&mut *group, 0).unwrap();
        let gradient = |at: usize| bits(&values(group.gradient(at)));
        let gradients = (0..buckets.len()).flat_map(gradient).collect();
        if watched {
            let mut told = std::mem::take(&mut *heard.lock().unwrap());
            told.sort();
            assert!(
                told.into_iter().eq(0..buckets.len()),
                "rank {rank} of {size}"
            );
        }
        // The last rank goes without a word; the others find out in their next step.
        let leaves = rank + 1 == size;
        let broken = !leaves && matches!(step(&mut *group, 1), Err(GroupError::Broken { .. }));
        incarnations.push(Seen {
            size,
            gradients,
            broken,
        });
    }
    incarnations
}

#[test]
fn a_group_is_formed_again_by_those_who_are_left() {
    for watched in [false, true] {
        let stores: Vec<_> = (0..3).map(|_| Store::serve(HOST, LONG).unwrap()).collect();
        let ports: Vec<_> = stores.iter().map(Store::port).collect();
        let ports = &ports;
        let seen: Vec<Vec<Seen>> = thread::scope(|scope| {
            let ranks = stores
                .into_iter()
                .zip(0..)
                .map(|(store, rank)| scope.spawn(move || outlives(rank, ports, &store, watched)));
            let ranks: Vec<_> = ranks.collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        });
        let sizes = |incarnations: &[Seen]| {
            incarnations
                .iter()
                .map(|incarnation| incarnation.size)
                .collect::<Vec<_>>()
        };
        assert_eq!(sizes(&seen[0]), [3, 2, 1]);
        for (rank, incarnations) in seen.iter().enumerate() {
            for (incarnation, of_first) in incarnations.iter().zip(&seen[0]) {
                assert_eq!(incarnation.gradients, of_first.gradients, "rank {rank}");
                assert_eq!(
                    incarnation.broken,
                    rank as u32 + 1 < incarnation.size,
                    "rank {rank}: {incarnation:?}"
                );
            }
        }
        // Alone it is as if nobody had ever been there.
        assert_eq!(seen[0][2].gradients, bits(&Model::plain_gradient(0)));
    }
}
