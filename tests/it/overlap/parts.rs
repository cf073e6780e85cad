//! Blocks are applied before backward has returned: whoever is told of a bucket waits for the
//! shards to have the blocks that end with it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tch::{Device, Kind, Tensor};
use tradewind_client::parts::{Parts, Plan};
use tradewind_common::Rank;
use tradewind_common::layout::Block;
use tradewind_common::schedule::Seen;
use tradewind_common::spec::ConsistencySpec;
use tradewind_tests::cluster::fleet::Fleet;
use tradewind_tests::cluster::wait_for;
use tradewind_worker::c10d::Store;
use tradewind_worker::group::{C10d, Group, Rendezvous, Solo};

use super::background::{Ready, enter, runtime, spec};

/// One of `b`, whose end is in a block, and one of `a`.
const BUCKET_BYTES: usize = 16;

const HOST: &str = "127.0.0.1";

/// For a slow and noisy machine; a hang fails the test.
const PATIENCE: Duration = Duration::from_secs(60);

/// The tensors of the run, with values of their own.
fn tensors() -> Vec<(String, Tensor)> {
    let tensor = |(name, length): (&str, i64)| {
        let ones = Tensor::ones([length], (Kind::Float, Device::Cpu));
        (name.to_owned(), ones.set_requires_grad(true))
    };
    [("a", 6), ("b", 4)].map(tensor).into()
}

/// Blocks that the shards have applied, of all ranks.
fn applied(fleet: &Fleet) -> u64 {
    fleet.block_on(async {
        let client = fleet.client().await;
        let mut applied = 0;
        for server in 0..2 {
            applied += client.shard_status(server, "behind").await.unwrap().applied;
        }
        applied
    })
}

/// A step of one rank: every gradient is 1.
fn step(fleet: &Arc<Fleet>, ready: Ready, group: &mut dyn Group, tensors: &[(String, Tensor)]) {
    let Ready {
        mut background,
        layout,
        slice,
    } = ready;
    let buckets = layout.buckets(BUCKET_BYTES);
    assert_eq!(buckets.len(), 2);
    let parts = Arc::new(Parts::new(&Arc::new(Plan::new(&layout, &buckets, &slice))));
    let heard = Arc::new(Mutex::new(Vec::new()));
    let told = {
        let (fleet, layout, parts, heard) =
            (fleet.clone(), layout.clone(), parts.clone(), heard.clone());
        move |bucket: usize, gradient: &Tensor| {
            let gradient = Vec::<f32>::try_from(gradient).unwrap();
            heard.lock().unwrap().push(bucket);
            parts.give(bucket, Some(&gradient));
            let there = |block: &&Block| block.elements.end <= buckets[bucket].elements.end;
            let blocks = layout.blocks.iter().filter(there).count() as u64;
            assert!(blocks > 0);
            wait_for("the blocks up to a bucket's end to be applied", || {
                (applied(&fleet) >= blocks).then_some(())
            });
        }
    };
    group.watch(Arc::new(told)).unwrap();
    background.start_parts(4, Seen::default(), parts, vec![f32::NAN; layout.elements()]);
    let sums = tensors.iter().map(|(_, tensor)| tensor.sum(Kind::Float));
    group.backward(&sums.sum::<Tensor>()).unwrap();
    heard.lock().unwrap().sort_unstable();
    assert_eq!(*heard.lock().unwrap(), [0, 1]);
    let ended = background.wait().unwrap();
    for id in slice {
        let elements = layout.block(id).unwrap().elements.clone();
        assert!(ended.values[elements].iter().all(|x| *x == 1.5));
    }
}

#[test]
fn a_rank_without_peers() {
    let spec = spec(&[1], ConsistencySpec::Async);
    let (fleet, runtime) = (Arc::new(Fleet::start(2, "")), runtime());
    let ready = enter(&fleet, &spec, 0, 0, &runtime);
    let tensors = tensors();
    let buckets = ready.layout.buckets(BUCKET_BYTES);
    let mut group = Solo::new(&ready.layout, &buckets, &tensors).unwrap();
    step(&fleet, ready, &mut group, &tensors);
}

#[test]
fn two_ranks() {
    let spec = spec(&[2], ConsistencySpec::Async);
    let (fleet, runtime) = (Arc::new(Fleet::start(2, "")), runtime());
    let served = Store::serve(HOST, PATIENCE).unwrap();
    let port = served.port();
    let mut served = Some(served);
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let store = served.take();
            let (fleet, spec, runtime) = (&fleet, &spec, &runtime);
            scope.spawn(move || {
                let connect = || Store::connect(HOST, port, PATIENCE).unwrap();
                let store = store.unwrap_or_else(connect);
                let ready = enter(fleet, spec, 0, rank, runtime);
                let tensors = tensors();
                let meet = Rendezvous {
                    store: &store,
                    prefix: "0",
                    host: HOST,
                    timeout: PATIENCE,
                    breaks: &|_| (),
                };
                let layout = ready.layout.clone();
                let buckets = layout.buckets(BUCKET_BYTES);
                let group = C10d::new(Rank(rank), 2, &meet, &layout, &buckets, &tensors);
                let mut group = group.unwrap();
                step(fleet, ready, &mut group, &tensors);
            });
        }
    });
}
