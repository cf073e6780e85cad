use std::sync::mpsc;
use std::thread;

use tch::Tensor;
use tradewind_tests::cluster::wait_for;
use tradewind_worker::c10d::Breaker;
use tradewind_worker::group::Rendezvous;
use tradewind_worker::stream::Event;

use super::group::{LONG, form, meeting, met, nccl_calls, over_nccl, ranks};

#[test]
fn a_group_that_never_forms_can_be_broken() {
    over_nccl(
        "gpu::breaking::a_group_that_never_forms_can_be_broken",
        |gpus, _| {
            gpus.nccl_never_forms();
            let errors = ranks(|rank, device, store| {
                let (give, given) = mpsc::channel();
                thread::scope(|scope| {
                    scope.spawn(move || {
                        let breaker: Breaker = given.recv().unwrap();
                        wait_for("the communicator to be asked", || {
                            let asked = "ncclCommGetAsyncError";
                            nccl_calls(&gpus.calls(), rank as usize)
                                .contains(&asked)
                                .then_some(())
                        });
                        breaker.break_group();
                    });
                    let meet = Rendezvous {
                        breaks: &|breaker| give.send(breaker).unwrap(),
                        ..meeting(store)
                    };
                    form(rank, device, &meet, 256).map(drop).unwrap_err()
                })
            });
            for error in errors {
                // And not because the patience with NCCL has ended.
                let error = error.to_string();
                let broken = ["the group was broken", "has been aborted"];
                assert!(broken.iter().any(|told| error.contains(told)), "{error}");
            }
            let calls = gpus.calls();
            for device in 0..2 {
                let calls = nccl_calls(&calls, device);
                assert!(calls.contains(&"ncclCommAbort"), "{calls:?}");
                assert!(!calls.contains(&"ncclAllReduce"), "{calls:?}");
            }
        },
    );
}

/// What waits for a collective of which a peer has no part ends when the group is broken, with anything in
/// the tensor: whoever asks then is told.
#[test]
fn a_collective_that_is_broken_off_ends_and_is_told() {
    over_nccl(
        "gpu::breaking::a_collective_that_is_broken_off_ends_and_is_told",
        |_, nccl| {
            ranks(|rank, device, store| {
                let mut group = met(rank, store);
                group.add_nccl(nccl, rank as usize, LONG).unwrap();
                if rank == 1 {
                    // Until the other one has begun.
                    group.all_reduce_sum(&mut [0.0]).unwrap();
                    return;
                }
                let mut values = Tensor::from_slice(&[1f32]).to_device(device);
                group.all_reduce_sum_tensor(&mut values).unwrap();
                let event = Event::now(device).unwrap();
                group.check().unwrap();
                group.all_reduce_sum(&mut [0.0]).unwrap();
                let breaker = group.breaker().unwrap();
                thread::scope(|scope| {
                    let waits = scope.spawn(move || event.wait().unwrap());
                    breaker.break_group();
                    waits.join().unwrap();
                });
                let told = group.check().unwrap_err().to_string();
                assert!(told.contains("the group was broken"), "{told}");
            });
        },
    );
}

/// The end of a group must not undo the last of what it did: a GPU may be behind.
#[test]
fn a_group_ends_when_its_collectives_have() {
    over_nccl(
        "gpu::breaking::a_group_ends_when_its_collectives_have",
        |gpus, nccl| {
            let sums = ranks(|rank, device, store| {
                let mut group = met(rank, store);
                group.add_nccl(nccl, rank as usize, LONG).unwrap();
                if rank == 1 {
                    wait_for("the other rank to be at its end", || {
                        let calls = gpus.calls();
                        let asked = "ncclCommGetAsyncError";
                        let begun = calls
                            .iter()
                            .rposition(|call| call.function == "ncclAllReduce")?;
                        nccl_calls(&calls[begun..], 0)
                            .contains(&asked)
                            .then_some(())
                    });
                }
                let mut values = Tensor::from_slice(&[1f32 + rank as f32]).to_device(device);
                group.all_reduce_sum_tensor(&mut values).unwrap();
                drop(group);
                f64::try_from(values).unwrap()
            });
            assert_eq!(sums, [3.0, 3.0]);
        },
    );
}

#[test]
fn a_peer_that_dies_is_told() {
    over_nccl("gpu::breaking::a_peer_that_dies_is_told", |gpus, nccl| {
        let checked = ranks(|rank, _, store| {
            let mut group = met(rank, store);
            group.add_nccl(nccl, rank as usize, LONG).unwrap();
            let breaker = group.breaker().unwrap();
            group.check().unwrap();
            breaker.check().unwrap();
            // Both ranks have seen that all is well.
            group.all_reduce_sum(&mut [1.0]).unwrap();
            gpus.nccl_peer_dies();
            [group.check(), breaker.check()].map(|told| told.map_err(|error| error.to_string()))
        });
        for told in checked.into_iter().flatten() {
            let error = told.expect_err("a peer is dead");
            assert!(error.contains("remote process exited"), "{error}");
        }
    });
}
