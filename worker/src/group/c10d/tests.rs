use std::sync::{Arc, Mutex};
use std::thread;

use super::super::testing::Model;
use tch::Kind;
use tradewind_common::layout::{TensorKind, TensorSpec};

use super::*;

/// Groups that break, and are formed again.
mod breaking;
/// Processes that die.
mod deaths;

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
                        breaks: &|_| (),
                    };
                    let mut group = form(rank, size, &meet, &model).unwrap();
                    body(&model, &mut group)
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn form(rank: u32, size: u32, meet: &Rendezvous<'_>, model: &Model) -> Result<C10d, GroupError> {
    let (layout, buckets) = (model.layout(), model.buckets());
    C10d::new(Rank(rank), size, meet, &layout, &buckets, &model.tensors)
}

/// Of all parameters, in flat order.
fn gradients(group: &C10d) -> Vec<f32> {
    let all = (0..group.buckets.len()).flat_map(|bucket| values(group.gradient(bucket)));
    all.collect()
}

#[test]
fn gradients_are_the_mean_over_the_ranks() {
    let steps = 4;
    let seen = ranks(2, LONG, |model, group| {
        let layout = model.layout();
        assert!(group.buckets.len() > 1, "several buckets");
        let _flat = Flat::new(&layout, &model.tensors, Device::Cpu).unwrap();
        let step = |step| {
            group
                .backward(&model.loss(2 * step + group.rank().0))
                .unwrap();
            gradients(group)
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
    let told = move |bucket, gradient: &Tensor| {
        let heard = (bucket, bits(&values(gradient)));
        ear.lock().unwrap().push(heard);
    };
    group.watch(Arc::new(told)).unwrap();
    move || std::mem::take(&mut *heard.lock().unwrap())
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.try_into().unwrap()
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
        bits(&gradients(group))
    };
    let unwatched = ranks(3, LONG, |model, group| {
        let steps = (0..4).map(|at| step(group, model, at));
        steps.collect::<Vec<_>>()
    });
    let seen = ranks(3, LONG, |model, group| {
        let mut heard = watched(group);
        let steps = (0..4).map(|at| {
            let got = step(group, model, at);
            let mut heard = heard();
            heard.sort();
            let buckets = model.buckets().into_iter().enumerate();
            let want = buckets.map(|(at, bucket)| (at, got[bucket.elements].to_vec()));
            assert_eq!(heard, want.collect::<Vec<_>>(), "step {at}");
            got
        });
        steps.collect::<Vec<_>>()
    });
    assert_eq!(seen, unwatched);
}

#[test]
fn gather_keeps_bits_of_slices_of_any_length() {
    // Three ranks do not divide the blocks evenly.
    let seen = ranks(3, LONG, |model, group| {
        let layout = model.layout();
        let mut flat = Flat::new(&layout, &model.tensors, Device::Cpu).unwrap();
        let mut before = vec![f32::NAN; layout.elements()];
        for id in layout.slice(group.rank(), 3) {
            for element in layout.block(id).unwrap().elements.clone() {
                before[element] = fresh(element);
            }
        }
        flat.write(&before).unwrap();
        group.gather(&mut flat).unwrap();
        let gathered = bits(&flat.read());
        for again in 0..2 {
            // As on a GPU.
            flat.write(&before).unwrap();
            let C10d {
                gather,
                process_group,
                ..
            } = &mut *group;
            gather.by_views(process_group, &mut flat).unwrap();
            assert_eq!(bits(&flat.read()), gathered, "by views, time {again}");
        }
        let wrong = group.gather(&mut other_flat()).unwrap_err();
        assert!(matches!(wrong, GroupError::Length { .. }), "{wrong}");
        (flat.read(), layout.slice(group.rank(), 3).len())
    });
    let lengths = seen.iter().map(|(_, length)| *length);
    assert!(
        lengths.clone().min() < lengths.max(),
        "slices of different lengths"
    );
    let want: Vec<f32> = (0..seen[0].0.len()).map(fresh).collect();
    for (rank, (values, _)) in seen.iter().enumerate() {
        assert_eq!(bits(values), bits(&want), "rank {rank}");
    }
}

/// Of another model.
fn other_flat() -> Flat {
    let spec = TensorSpec {
        name: "alone".into(),
        shape: vec![3],
        kind: TensorKind::Parameter,
    };
    let layout = Layout::new(&[spec], 64).unwrap();
    Flat::new(
        &layout,
        &[(
            "alone".into(),
            Tensor::from_slice(&[0f32; 3]).set_requires_grad(true),
        )],
        Device::Cpu,
    )
    .unwrap()
}

fn fresh(element: usize) -> f32 {
    if element.is_multiple_of(3) {
        -0.0
    } else {
        element as f32
    }
}

/// Few values are sent to all at once, many go round in a ring: the limit is 1 MiB of all ranks.
#[test]
fn few_values_and_many_are_summed_and_gathered_alike() {
    const RANKS: u32 = 3;
    let limit = (1 << 20) / RANKS as usize / size_of::<f64>();
    let lengths = [1, 7, limit, limit + 1, 3 * limit];
    ranks(RANKS, LONG, |_, group| {
        let own = 1 + group.rank().0;
        for length in lengths {
            let mut sums: Vec<_> = (0..length).map(|at| (at as u32 * own).into()).collect();
            group.all_reduce_sum(&mut sums).unwrap();
            let want = |at| 6.0 * at as f64;
            assert!(sums.iter().enumerate().all(|(at, sum)| *sum == want(at)));

            let own: Vec<_> = (0..2 * length).map(|at| (at as u32 * own) as f32).collect();
            let mut mean = Tensor::from_slice(&own);
            group.all_reduce_mean(&mut mean).unwrap();
            let mean = values(&mean);
            assert!(
                mean.iter()
                    .enumerate()
                    .all(|(at, mean)| *mean == 2.0 * at as f32)
            );

            let mut all = vec![0.0; RANKS as usize * own.len()];
            group.process_group.all_gather(&mut all, &own).unwrap();
            for (rank, of_rank) in (1u32..).zip(all.chunks(own.len())) {
                let want = |at| (at as u32 * rank) as f32;
                assert!(of_rank.iter().enumerate().all(|(at, x)| *x == want(at)));
            }
        }
    });
}

/// It goes round the ring, by the Reducer's own arithmetic or, watched or beside a short bucket, by the
/// hook's. Thirds are rounded, so that another arithmetic would show.
#[test]
fn the_hook_changes_no_bit_of_a_long_bucket() {
    const RANKS: u32 = 3;
    let long = (1 << 20) / RANKS as usize / size_of::<f32>() + 1;
    ranks(RANKS, LONG, |_, group| {
        let part = 0.1 * f64::from(1 + group.rank().0);
        let options = (Kind::Float, Device::Cpu);
        let reduced = |lengths: &[usize], watched: bool| {
            let leaf = |length: &usize| Tensor::ones([*length as i64], options);
            let tensors: Vec<_> = lengths
                .iter()
                .map(|length| leaf(length).set_requires_grad(true))
                .collect();
            let buckets = vec![1; tensors.len()];
            let mut reducer = Reducer::new(&group.process_group, &tensors, &buckets).unwrap();
            if watched {
                reducer.watch(Arc::new(|_, _: &Tensor| ())).unwrap();
            }
            reducer.prepare().unwrap();
            let loss = tensors.iter().map(|values| {
                let factors = Tensor::arange(values.numel() as i64, options) * part;
                (values * factors).sum(Kind::Float)
            });
            loss.reduce(|a, b| a + b).unwrap().backward();
            reducer.finish().unwrap().expect("all have gradients");
            bits(&values(&reducer.bucket(0).unwrap()))
        };
        let own = reduced(&[long], false);
        assert!(own.iter().any(|bits| *bits != 0));
        assert!(reduced(&[long], true) == own, "watched");
        assert!(reduced(&[long, 1], false) == own, "beside a short one");
    });
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
        let mut mean = Tensor::from_slice(&[rank as f32, 4.0]);
        group.all_reduce_mean(&mut mean).unwrap();
        assert_eq!(values(&mean), [0.5, 4.0]);
        group.all_reduce_sum(&mut []).unwrap();
    });
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
        breaks: &|_| (),
    };
    let error = form(0, 2, &meet, &model).unwrap_err();
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
