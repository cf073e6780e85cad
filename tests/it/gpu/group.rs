use std::thread;
use std::time::Duration;

use tch::{Device, Tensor};
use tradewind_common::ids::Rank;
use tradewind_tests::cluster::wait_for;
use tradewind_worker::c10d::{C10dError, Nccl, NcclError, ProcessGroup, Store};
use tradewind_worker::group::{C10d, GroupError, Rendezvous};
use tradewind_worker::stream::Event;

use super::memory::{Model, device_of};
use super::played::{Call, Gpus, played, skip};

const HOST: &str = "127.0.0.1";
pub const LONG: Duration = Duration::from_secs(60);
const RANKS: u32 = 2;

/// Runs `scenario` with the part of the worker that speaks NCCL, where that has been built.
pub fn over_nccl(test: &str, scenario: impl FnOnce(&Gpus, &Nccl)) {
    played(test, |gpus| {
        // It needs libtorch's CUDA half.
        device_of(0);
        match Nccl::load() {
            Ok(nccl) => scenario(gpus, &nccl),
            Err(missing @ NcclError::Missing { .. }) => skip(&format!("{test}: {missing}")),
            Err(error) => panic!("{error}"),
        }
    });
}

/// Runs `body` as each rank, a thread on a GPU of its own, and returns what each returned.
pub fn ranks<T: Send>(body: impl Fn(u32, Device, &Store) -> T + Sync) -> Vec<T> {
    let served = Store::serve(HOST, LONG).unwrap();
    let port = served.port();
    let mut served = Some(served);
    let body = &body;
    thread::scope(|scope| {
        let start = |rank| {
            let store = served.take();
            scope.spawn(move || {
                let store = store.unwrap_or_else(|| Store::connect(HOST, port, LONG).unwrap());
                body(rank, device_of(rank), &store)
            })
        };
        let ranks: Vec<_> = (0..RANKS).map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// A group of both ranks over main memory, as it is before NCCL is added.
pub fn met(rank: u32, store: &Store) -> ProcessGroup {
    ProcessGroup::new(store, "0", rank, RANKS, HOST, LONG).unwrap()
}

/// Where the ranks of a group meet.
pub fn meeting(store: &Store) -> Rendezvous<'_> {
    Rendezvous {
        store,
        prefix: "0",
        host: HOST,
        timeout: LONG,
        breaks: &|_| (),
    }
}

/// The group of a model of a few values on a GPU.
pub fn form(
    rank: u32,
    device: Device,
    meet: &Rendezvous<'_>,
    bucket_bytes: usize,
) -> Result<C10d, GroupError> {
    let Model { layout, tensors } = Model::new(device);
    let buckets = layout.buckets(bucket_bytes);
    C10d::new(Rank(rank), RANKS, meet, &layout, &buckets, &tensors)
}

/// The sum over the ranks of what each has in its GPU's memory.
fn summed(group: &ProcessGroup, rank: u32, device: Device) -> Result<Vec<f32>, C10dError> {
    let own = Tensor::from_slice(&[1f32, 10.0]) * f64::from(rank + 1);
    let mut values = own.to_device(device);
    group.all_reduce_sum_tensor(&mut values)?;
    Ok(Vec::try_from(values).unwrap())
}

/// Calls of NCCL about a GPU, in order.
pub fn nccl_calls(calls: &[Call], device: usize) -> Vec<&str> {
    let about = calls.iter().filter(|call| call.about == Some(device));
    let names = about.map(|call| call.function.as_str());
    names.filter(|name| name.starts_with("nccl")).collect()
}

#[test]
fn nothing_is_enqueued_before_the_communicator_is_formed() {
    let test = "gpu::group::nothing_is_enqueued_before_the_communicator_is_formed";
    over_nccl(test, |gpus, nccl| {
        assert_eq!(nccl.version(), (2, 28, 9));
        gpus.nccl_forms_after(20);
        let sums = ranks(|rank, device, store| {
            let mut group = met(rank, store);
            group.add_nccl(nccl, rank as usize, LONG).unwrap();
            group.check().unwrap();
            summed(&group, rank, device).unwrap()
        });
        assert_eq!(sums, [[3.0, 30.0], [3.0, 30.0]]);
        let calls = gpus.calls();
        for device in 0..2 {
            let calls = nccl_calls(&calls, device);
            let first = |name| calls.iter().position(|call| *call == name);
            let order = [
                first("ncclCommInitRankConfig"),
                first("ncclCommGetAsyncError"),
                first("ncclAllReduce"),
            ];
            assert!(order.is_sorted() && order[0].is_some(), "{calls:#?}");
        }
    });
}

#[test]
fn ranks_meet_in_main_memory_before_they_ask_nccl() {
    over_nccl(
        "gpu::group::ranks_meet_in_main_memory_before_they_ask_nccl",
        |gpus, _| {
            let errors = ranks(|rank, device, store| {
                let bucket_bytes = [256, 512][rank as usize];
                form(rank, device, &meeting(store), bucket_bytes)
                    .map(drop)
                    .unwrap_err()
                    .to_string()
            });
            for error in errors {
                assert!(
                    error.contains("ranks 1 of the group have other buckets"),
                    "{error}"
                );
            }
            let calls = gpus.calls();
            for device in 0..2 {
                assert_eq!(nccl_calls(&calls, device), [""; 0]);
            }
        },
    );
}

/// The lease bounds how long ranks wait for each other, and not how long NCCL takes.
#[test]
fn nccl_may_take_longer_than_the_lease() {
    over_nccl(
        "gpu::group::nccl_may_take_longer_than_the_lease",
        |gpus, nccl| {
            const LEASE: Duration = Duration::from_secs(4);
            // It is asked once a millisecond.
            gpus.nccl_forms_after(5000);
            ranks(|rank, device, store| {
                let meet = Rendezvous {
                    timeout: LEASE,
                    ..meeting(store)
                };
                let group = form(rank, device, &meet, 256);
                group.map(drop).unwrap_or_else(|error| panic!("{error}"));
            });
            gpus.nccl_never_forms();
            let errors = ranks(|rank, _, store| {
                let mut group = met(rank, store);
                let patience = Duration::from_millis(321);
                group
                    .add_nccl(nccl, rank as usize, patience)
                    .unwrap_err()
                    .to_string()
            });
            for error in errors {
                assert!(
                    error.contains("the peers were not all there after 321 ms"),
                    "{error}"
                );
            }
        },
    );
}

/// A rank waits through most of a step, and others may need the core.
#[test]
fn threads_that_wait_for_a_gpu_sleep() {
    let test = "gpu::group::threads_that_wait_for_a_gpu_sleep";
    over_nccl(test, |gpus, nccl| {
        ranks(|rank, device, store| {
            let mut group = met(rank, store);
            group.add_nccl(nccl, rank as usize, LONG).unwrap();
            group.all_reduce_sum(&mut [0.0]).unwrap();
            if rank == 1 {
                wait_for("the other rank to wait", || {
                    let calls = gpus.calls();
                    let begins = |call: &Call| call.function == "ncclAllReduce" && call.device == 0;
                    let begun = calls.iter().rposition(begins)?;
                    let waits = |call: &Call| {
                        let waits = ["cudaEventQuery", "cudaEventSynchronize"];
                        call.thread == calls[begun].thread && waits.contains(&&*call.function)
                    };
                    calls[begun..].iter().any(waits).then_some(())
                });
            }
            let mut values = Tensor::from_slice(&[1f32]).to_device(device);
            group.all_reduce_sum_tensor(&mut values).unwrap();
            Event::now(device).unwrap().wait().unwrap();
        });
        let calls = gpus.calls();
        let spins = calls
            .iter()
            .find(|call| call.function == "a wait that spins");
        assert_eq!(spins, None);
    });
}
