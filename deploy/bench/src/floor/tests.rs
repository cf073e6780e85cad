//! The floor moves every byte and applies every update.

use clap::Parser;

use std::net::TcpListener;

use super::client::{connect_all, exchange};
use super::server::serve;
use super::store::Store;
use super::*;
use crate::model::{gradient, values};

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    plan: FloorPlan,
}

fn plan(arguments: &[&str]) -> FloorPlan {
    Line::try_parse_from(["x"].iter().chain(arguments))
        .unwrap()
        .plan
}

#[test]
fn parts_hold_every_block_once() {
    let check = |arguments: &[&str], parts_wanted: usize| {
        let plan = plan(arguments);
        let layout = plan.model.spec().check().unwrap();
        let mut blocks = Vec::new();
        let mut parts = 0;
        for server in 0..plan.servers as usize {
            for share in 0..plan.shares() {
                for part in plan.parts(&layout, server, share) {
                    parts += 1;
                    let pieces = &part.pieces;
                    assert!(
                        pieces
                            .windows(2)
                            .all(|p| p[0].elements.end == p[1].elements.start)
                    );
                    assert_eq!(part.elements().end, pieces.last().unwrap().elements.end);
                    blocks.extend(pieces.iter().flat_map(|p| p.blocks.clone()));
                }
            }
        }
        let all: Vec<_> = layout.blocks.iter().map(|b| b.elements.clone()).collect();
        assert_eq!(blocks, all);
        assert_eq!(parts, parts_wanted, "{arguments:?}");
    };
    check(&["--servers=1"], 1);
    check(&["--servers=2", "--connections=3", "--clients=4"], 6);
    check(&["--servers=2", "--clients=4", "--group"], 8);
    check(&["--servers=2", "--bytes=4KB"], 1);
    check(
        &[
            "--servers=4",
            "--connections=2",
            "--bytes=100MB",
            "--block-bytes=25MB",
        ],
        4,
    );
}

#[test]
fn small_blocks_are_moved_together_and_large_ones_alone() {
    let plan = plan(&[
        "--servers=1",
        "--connections=1",
        "--bytes=1MiB",
        "--block-bytes=4KiB",
    ]);
    let layout = plan.model.spec().check().unwrap();
    let part = &plan.parts(&layout, 0, 0)[0];
    assert_eq!(part.pieces.len(), 4);
    assert!(part.pieces.iter().all(|piece| piece.blocks.len() == 64));
}

#[test]
fn it_travels_as_arguments() {
    let given = plan(&[
        "--servers=2",
        "--connections=3",
        "--clients=4",
        "--optimizer=adam",
    ]);
    let arguments = given.arguments();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    assert_eq!(plan(&arguments), given);
}

/// Two exchanges of every client; returns the vector of each.
fn trained(plan: &FloorPlan, threads: usize) -> Vec<Vec<f32>> {
    let elements = plan.model.spec().check().unwrap().elements();
    let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
    let listeners: Vec<_> = (0..plan.servers).map(|_| listen()).collect();
    let address = |listener: &TcpListener| listener.local_addr().unwrap().to_string();
    let addresses: Vec<_> = listeners.iter().map(address).collect();
    let gradient = gradient(elements);
    std::thread::scope(|scope| {
        let servers: Vec<_> = listeners
            .iter()
            .enumerate()
            .map(|(index, listener)| {
                let store = Store::new(plan, index).unwrap();
                scope.spawn(move || serve(listener, &store, plan, threads))
            })
            .collect();
        let mut vectors = vec![vec![0.0; elements]; plan.model.clients as usize];
        let clients = vectors.iter_mut().enumerate();
        let mut clients: Vec<_> = clients
            .map(|(index, values)| connect_all(plan, index, &addresses, &gradient, values).unwrap())
            .collect();
        for _ in 0..2 {
            for client in &mut clients {
                exchange(client).unwrap();
            }
        }
        drop(clients);
        for server in servers {
            server.join().unwrap().unwrap();
        }
        vectors
    })
}

/// Plain SGD: every update takes the rate times the same gradient from the values.
#[test]
fn an_exchange_brings_back_updated_values() {
    let check = |arguments: &[&str], threads: usize, updates: &[u32]| {
        let plan = plan(arguments);
        let trained = trained(&plan, threads);
        let elements = trained[0].len();
        let (mut want, gradient) = (values(elements), gradient(elements));
        let mut applied = 0;
        for (vector, updates) in trained.iter().zip(updates) {
            while applied < *updates {
                let rate = plan.model.rate() as f32;
                want.iter_mut()
                    .zip(&gradient)
                    .for_each(|(x, g)| *x -= rate * g);
                applied += 1;
            }
            assert!(*vector == want, "{arguments:?}: not {updates} updates");
        }
    };
    check(&["--servers=1", "--bytes=4KB"], 1, &[2]);
    check(&["--servers=1", "--bytes=5MB"], 1, &[2]);
    check(
        &[
            "--servers=2",
            "--bytes=5MB",
            "--block-bytes=100KB",
            "--connections=2",
        ],
        1,
        &[2],
    );
    check(&["--servers=2", "--bytes=5MB", "--clients=2"], 2, &[3, 4]);
}

#[test]
fn ranks_of_a_group_move_a_slice_each() {
    let plan = plan(&["--servers=2", "--bytes=5MB", "--clients=3", "--group"]);
    let trained = trained(&plan, 1);
    // Zero where a client received nothing; no value of the vector is.
    let received = |vector: &Vec<f32>| vector.iter().filter(|x| **x != 0.0).count();
    let total: usize = trained.iter().map(received).sum();
    assert_eq!(total, trained[0].len());
    assert!(trained.iter().all(|vector| received(vector) > 0));
}
