use std::sync::{Arc, Mutex};
use std::thread;

use super::super::testing::Model;
use super::*;
use crate::flat::Flat;

const HOST: &str = "127.0.0.1";
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_secs(2);

/// Runs `body` as each rank of a group of `size`, one thread a rank, and returns what each
/// returned. Every thread has its own model and its own connection to the store.
fn ranks<T: Send>(
    size: u32,
    timeout: Duration,
    body: impl Fn(&Model, &mut C10d) -> T + Sync,
) -> Vec<T> {
    let served = Store::serve(HOST, LONG).unwrap();
    let port = served.port();
    let mut served = Some(served);
    let body = &body;
    thread::scope(|scope| {
        let ranks: Vec<_> = (0..size)
            .map(|rank| {
                let store = served.take();
                scope.spawn(move || {
                    let store = store.unwrap_or_else(|| Store::connect(HOST, port, LONG).unwrap());
                    let model = Model::new();
                    let meet = Rendezvous {
                        store: &store,
                        prefix: "0",
                        host: HOST,
                        timeout,
                    };
                    let layout = model.layout();
                    let mut group =
                        C10d::new(Rank(rank), size, &meet, &layout, &model.tensors).unwrap();
                    body(&model, &mut group)
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn gradients(layout: &Layout, group: &C10d) -> Vec<f32> {
    let bucket = |(index, bucket): (usize, &tradewind_common::layout::Bucket)| {
        let gradient = group.gradient(index);
        assert_eq!(gradient.is_some(), bucket.kind == TensorKind::Parameter);
        let gradient = gradient.map_or(vec![0.0; bucket.elements.len()], <[f32]>::to_vec);
        assert_eq!(gradient.len(), bucket.elements.len());
        gradient
    };
    layout.buckets.iter().enumerate().flat_map(bucket).collect()
}

#[test]
fn gradients_are_the_mean_over_the_ranks() {
    let steps = 4;
    let seen = ranks(2, LONG, |model, group| {
        let layout = model.layout();
        assert!(layout.buckets.len() > 2, "several buckets of parameters");
        let _flat = Flat::new(&layout, &model.tensors).unwrap();
        let step = |step| {
            group
                .backward(&model.loss(2 * step + group.rank().0))
                .unwrap();
            gradients(&layout, group)
        };
        (0..steps).map(step).collect::<Vec<_>>()
    });
    assert_eq!(seen[0], seen[1], "the same bits on both ranks");
    for step in 0..steps {
        let (a, b) = (
            Model::plain_gradient(2 * step),
            Model::plain_gradient(2 * step + 1),
        );
        // Halving is exact, so the mean of two has one rounding whichever way it is taken.
        let mean: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a / 2.0 + b / 2.0).collect();
        assert_eq!(seen[0][step as usize], mean, "step {step}");
    }
}

/// What a group was told, in order, since it was asked last.
fn watched(group: &mut C10d) -> impl FnMut() -> Vec<(usize, Vec<u32>)> + use<> {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let ear = heard.clone();
    let told = move |bucket, gradient: &[f32]| ear.lock().unwrap().push((bucket, bits(gradient)));
    group.watch(Arc::new(told)).unwrap();
    move || std::mem::take(&mut *heard.lock().unwrap())
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Thirds are rounded, so that another arithmetic would show.
#[test]
fn each_bucket_is_told_once_and_final_and_watching_changes_no_bit() {
    let step = |group: &mut C10d, model: &Model, step: u32| {
        group
            .backward(&model.loss(3 * step + group.rank().0))
            .unwrap();
        bits(&gradients(&model.layout(), group))
    };
    let unwatched = ranks(3, LONG, |model, group| {
        let steps = (0..4).map(|at| step(group, model, at));
        steps.collect::<Vec<_>>()
    });
    let seen = ranks(3, LONG, |model, group| {
        let layout = model.layout();
        let mut heard = watched(group);
        let steps = (0..4).map(|at| {
            let got = step(group, model, at);
            let mut heard = heard();
            heard.sort();
            let trained = layout.buckets.iter().enumerate();
            let trained = trained.filter(|(_, bucket)| bucket.kind == TensorKind::Parameter);
            let want = trained.map(|(at, bucket)| (at, got[bucket.elements.clone()].to_vec()));
            assert_eq!(heard, want.collect::<Vec<_>>(), "step {at}");
            got
        });
        steps.collect::<Vec<_>>()
    });
    assert_eq!(seen, unwatched);
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
fn gather_keeps_bits_of_slices_of_any_length() {
    // Three ranks do not divide the blocks evenly.
    let seen = ranks(3, LONG, |model, group| {
        let layout = model.layout();
        let mut values = vec![f32::NAN; layout.elements()];
        for id in layout.slice(group.rank(), 3) {
            for element in layout.block(id).unwrap().elements.clone() {
                values[element] = fresh(element);
            }
        }
        group.gather(&mut values).unwrap();
        let wrong = group.gather(&mut values[1..]).unwrap_err();
        assert!(matches!(wrong, GroupError::Length { .. }), "{wrong}");
        (values, layout.slice(group.rank(), 3).len())
    });
    assert_ne!(seen[0].1, seen[2].1, "slices of different lengths");
    let want: Vec<f32> = (0..seen[0].0.len()).map(fresh).collect();
    for (rank, (values, _)) in seen.iter().enumerate() {
        assert_eq!(bits(values), bits(&want), "rank {rank}");
    }
}

fn fresh(element: usize) -> f32 {
    if element.is_multiple_of(3) {
        -0.0
    } else {
        element as f32
    }
}

#[test]
fn control_messages() {
    ranks(2, LONG, |_, group| {
        let rank = group.rank().0;
        let mut sums = [f64::from(rank) + 1.0, 0.5];
        group.all_reduce_sum(&mut sums).unwrap();
        assert_eq!(sums, [3.0, 1.0]);
        let mut told = [7 * i64::from(rank + 1), i64::MAX - i64::from(rank)];
        group.broadcast(&mut told).unwrap();
        assert_eq!(told, [7, i64::MAX]);
        let mut mean = [rank as f32, 4.0];
        group.all_reduce_mean(&mut mean).unwrap();
        assert_eq!(mean, [0.5, 4.0]);
        group.all_reduce_sum(&mut []).unwrap();
    });
}

#[test]
fn a_group_can_be_formed_again_on_the_same_model() {
    let served = Store::serve(HOST, LONG).unwrap();
    let port = served.port();
    let run = |rank: u32, store: &Store| {
        let model = Model::new();
        let layout = model.layout();
        let mut last = Vec::new();
        for prefix in ["1", "2"] {
            let meet = Rendezvous {
                store,
                prefix,
                host: HOST,
                timeout: LONG,
            };
            let mut group = C10d::new(Rank(rank), 2, &meet, &layout, &model.tensors).unwrap();
            group.backward(&model.loss(0)).unwrap();
            last = gradients(&layout, &group);
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
fn a_peer_that_never_comes_is_an_error() {
    let store = Store::serve(HOST, SHORT).unwrap();
    let model = Model::new();
    let meet = Rendezvous {
        store: &store,
        prefix: "0",
        host: HOST,
        timeout: SHORT,
    };
    let error = C10d::new(Rank(0), 2, &meet, &model.layout(), &model.tensors).unwrap_err();
    assert!(matches!(error, GroupError::Form(_)), "{error}");
}

#[test]
fn a_slow_peer_is_waited_for() {
    let seen = ranks(2, SHORT, |_, group| {
        if group.rank() == Rank(1) {
            thread::sleep(SHORT + SHORT / 4);
        }
        let mut sum = [1.0];
        group.all_reduce_sum(&mut sum).unwrap();
        sum[0]
    });
    assert_eq!(seen, [2.0, 2.0]);
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
            let error = group.all_reduce_sum(&mut [1.0]).unwrap_err();
            assert!(matches!(error, GroupError::Broken { .. }), "{error}");
        });
        done.send(()).unwrap();
    });
}

/// What a rank saw of the lives of its group: how large each was, the gradients of its steps, and
/// whether the last one broke.
#[derive(Debug, PartialEq)]
struct Life {
    size: u32,
    gradients: Vec<u32>,
    broken: bool,
}

/// A rank of a group of 3 that loses one rank after the other: rank 2 leaves in the first life,
/// rank 1 in the second, both between backwards. As the store of the first rank that is there is
/// used, all serve one.
fn outlives(rank: u32, ports: &[u16], own: &Store, watched: bool) -> Vec<Life> {
    let model = Model::new();
    let layout = model.layout();
    let _flat = Flat::new(&layout, &model.tensors).unwrap();
    let mut lives = Vec::new();
    for size in (1..=3).rev().filter(|size| rank < *size) {
        let connected = (rank > 0).then(|| Store::connect(HOST, ports[0], LONG).unwrap());
        let meet = Rendezvous {
            store: connected.as_ref().unwrap_or(own),
            prefix: &format!("life-{size}"),
            host: HOST,
            timeout: LONG,
        };
        let mut group: Box<dyn Group> = match size {
            1 => Box::new(super::super::Solo::new(&layout, &model.tensors).unwrap()),
            _ => {
                let tensors = &model.tensors;
                Box::new(C10d::new(Rank(rank), size, &meet, &layout, tensors).unwrap())
            }
        };
        let heard = Arc::new(Mutex::new(Vec::new()));
        if watched {
            let ear = heard.clone();
            let told = move |bucket, _: &[f32]| ear.lock().unwrap().push(bucket);
            group.watch(Arc::new(told)).unwrap();
        }
        let step = |group: &mut dyn Group, step: u32| group.backward(&model.loss(3 * step + rank));
        step(&mut *group, 0).unwrap();
        let trained = layout.buckets.iter().enumerate();
        let trained = trained.filter(|(_, bucket)| bucket.kind == TensorKind::Parameter);
        let buckets: Vec<usize> = trained.map(|(at, _)| at).collect();
        let gradient = |at: &usize| bits(group.gradient(*at).unwrap());
        let gradients = buckets.iter().flat_map(gradient).collect();
        if watched {
            let mut told = std::mem::take(&mut *heard.lock().unwrap());
            told.sort();
            assert_eq!(told, buckets, "rank {rank} of {size}");
        }
        // The last rank goes without a word; the others find out in their next step.
        let leaves = rank + 1 == size;
        let broken = !leaves && matches!(step(&mut *group, 1), Err(GroupError::Broken { .. }));
        lives.push(Life {
            size,
            gradients,
            broken,
        });
    }
    lives
}

#[test]
fn a_group_is_formed_again_by_those_who_are_left() {
    for watched in [false, true] {
        let stores: Vec<_> = (0..3).map(|_| Store::serve(HOST, LONG).unwrap()).collect();
        let ports: Vec<_> = stores.iter().map(Store::port).collect();
        let ports = &ports;
        let seen: Vec<Vec<Life>> = thread::scope(|scope| {
            let ranks = stores
                .into_iter()
                .zip(0..)
                .map(|(store, rank)| scope.spawn(move || outlives(rank, ports, &store, watched)));
            let ranks: Vec<_> = ranks.collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        });
        let sizes = |lives: &[Life]| lives.iter().map(|life| life.size).collect::<Vec<_>>();
        assert_eq!(sizes(&seen[0]), [3, 2, 1]);
        for (rank, lives) in seen.iter().enumerate() {
            for (life, of_first) in lives.iter().zip(&seen[0]) {
                assert_eq!(life.gradients, of_first.gradients, "rank {rank}");
                assert_eq!(
                    life.broken,
                    rank as u32 + 1 < life.size,
                    "rank {rank}: {life:?}"
                );
            }
        }
        // Alone it is as if nobody had ever been there.
        let layout = Model::new().layout();
        let plain = Model::plain_gradient(0);
        let trained = layout.buckets.iter();
        let trained = trained.filter(|bucket| bucket.kind == TensorKind::Parameter);
        let want = trained.flat_map(|bucket| bits(&plain[bucket.elements.clone()]));
        assert_eq!(seen[0][2].gradients, want.collect::<Vec<_>>());
    }
}

#[test]
fn no_store_is_an_error() {
    // A client's end of a connection: nobody listens on its port, and nobody else gets it.
    let listener = std::net::TcpListener::bind((HOST, 0)).unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let port = client.local_addr().unwrap().port();
    let error = Store::connect(HOST, port, SHORT).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("connecting to the group's store"),
        "{error}"
    );
}

#[test]
fn parameters_outside_the_loss_are_named() {
    let seen = ranks(1, LONG, |model, group| {
        let loss = model.tensors[0].1.square().sum(tch::Kind::Float);
        group.backward(&loss).unwrap_err().to_string()
    });
    assert!(seen[0].contains("b.bias, b.weight, a.bias;"), "{}", seen[0]);
}
