//! The cost model beside what real exchanges move: messages and the bytes of their values to the
//! last one, bytes on the wire to within 32 bytes a message and 0.01 %. That is 0.02 % of blocks of
//! 256 KiB.

mod rank;
mod wire;

use tradewind_common::compress::Compression;
use tradewind_common::cost::{Flow, Run, Traffic};
use tradewind_common::optimizer::Sgd;
use tradewind_common::policy::Policies;
use tradewind_common::schedule::Schedule;
use tradewind_common::spec::{ConsistencySpec, DecayExempt, FaultSpec, OptimizerSpec, RunSpec};
use tradewind_common::{GroupId, Rank, ShardId, TensorKind, TensorSpec};
use tradewind_tests::cluster::fleet::Fleet;

use self::rank::{Counting, RUN, Seen};

/// Exchanges that are counted.
const EXCHANGES: u32 = 3;

/// By how much the bytes of a message's head may differ from the estimate.
const HEAD_BYTES_OFF: u64 = 32;

/// Window updates take less: 26 bytes for 1 MiB.
const WIRE_OFF: f64 = 1e-4;

struct Case {
    servers: u32,
    groups: &'static [u32],
    connections: u32,
    /// Values of the parameters, and of a buffer.
    tensors: &'static [(u64, TensorKind)],
    block_bytes: usize,
    up: Compression,
    down: Compression,
}

const PLAIN: Case = Case {
    servers: 1,
    groups: &[1],
    connections: 1,
    tensors: &[(524_288, TensorKind::Parameter)],
    block_bytes: 256 << 10,
    up: Compression::None,
    down: Compression::None,
};

impl Case {
    fn spec(&self) -> RunSpec {
        let tensor = |(index, (elements, kind)): (usize, &(u64, TensorKind))| TensorSpec {
            name: index.to_string(),
            shape: vec![*elements],
            kind: *kind,
        };
        RunSpec {
            seed: 1,
            group_sizes: self.groups.to_vec(),
            tensors: self.tensors.iter().enumerate().map(tensor).collect(),
            bucket_bytes: None,
            block_bytes: self.block_bytes,
            consistency: ConsistencySpec::Async,
            policies: Policies::default(),
            optimizer: OptimizerSpec::Sgd(Sgd {
                momentum: 0.0,
                nesterov: false,
                weight_decay: 0.0,
            }),
            decay_exempt: DecayExempt::None,
            schedule: Schedule::constant(0.01),
            samples: 1 << 40,
            epoch_samples: 1 << 40,
            batch: 1,
            batch_ramp: Vec::new(),
            local: false,
            local_steps: 1,
            chunk_samples: 1,
            sets: Default::default(),
            lease_ms: 600_000,
            milestone_samples: 0,
            frozen: Vec::new(),
            start_grace_ms: 600_000,
            up: self.up,
            down: self.down,
            faults: FaultSpec {
                patience_ms: 1_200_000,
                ..FaultSpec::default()
            },
        }
    }

    /// Runs it and compares.
    fn check(&self) {
        let (fleet, spec) = (Fleet::start(self.servers, ""), self.spec());
        let ranks = self.groups.iter().zip(0..).flat_map(|(size, group)| {
            let ranks = (0..*size).map(Rank);
            ranks.map(move |rank| (GroupId(group), rank))
        });
        let seen: Vec<Seen> = std::thread::scope(|scope| {
            let started: Vec<_> = ranks
                .map(|(group, rank)| {
                    let counting = Counting {
                        fleet: &fleet,
                        spec: &spec,
                        connections: self.connections,
                        group,
                        rank,
                    };
                    scope.spawn(|| counting.fleet.block_on(counting.exchange(EXCHANGES)))
                })
                .collect();
            let started = started.into_iter();
            started.map(|rank| rank.join().unwrap()).collect()
        });

        let layout = spec.check().unwrap();
        let run = Run {
            layout: &layout,
            placement: &seen[0].placement,
            group_sizes: self.groups,
            connections: self.connections,
            up: self.up,
            down: self.down,
            copies: 1,
        };
        for seen in &seen {
            let what = format!("group {}, rank {}", seen.group, seen.rank.0);
            let counted = sum(seen.servers.iter().copied());
            agree(&what, counted, run.rank(seen.group, seen.rank));
        }
        for server in 0..self.servers {
            let counted = sum(seen.iter().map(|rank| rank.servers[server as usize]));
            let predicted = run.server(ShardId(server), self.groups.len() as u64);
            let at_server = Traffic {
                values: 0,
                sent: counted.received,
                received: counted.sent,
            };
            agree(&format!("server {server}"), at_server, predicted);
            let status = fleet.block_on(async {
                let client = fleet.client().await;
                client.shard_status(server as usize, RUN).await.unwrap()
            });
            let decided = status.applied + status.skipped + status.dropped;
            let messages = u64::from(EXCHANGES) * predicted.received.messages;
            assert_eq!((decided, status.duplicate), (messages, 0), "{server}");
            assert_eq!(
                status.bytes * self.groups.len() as u64,
                4 * predicted.values,
                "{server}"
            );
        }
    }
}

fn sum(all: impl Iterator<Item = Traffic>) -> Traffic {
    let add = |a: Flow, b: Flow| Flow {
        messages: a.messages + b.messages,
        payload: a.payload + b.payload,
        wire: a.wire + b.wire,
    };
    all.fold(Traffic::default(), |a, b| Traffic {
        values: 0,
        sent: add(a.sent, b.sent),
        received: add(a.received, b.received),
    })
}

#[track_caller]
fn agree(what: &str, counted: Traffic, predicted: Traffic) {
    for (way, counted, predicted) in [
        ("sends", counted.sent, predicted.sent),
        ("receives", counted.received, predicted.received),
    ] {
        let exactly = |flow: Flow, times| (flow.messages * times, flow.payload * times);
        let times = u64::from(EXCHANGES);
        assert_eq!(
            exactly(counted, 1),
            exactly(predicted, times),
            "messages and payload, {what} {way}"
        );
        let off = counted.wire.abs_diff(predicted.wire * times);
        let allowed = HEAD_BYTES_OFF * counted.messages + (WIRE_OFF * counted.wire as f64) as u64;
        assert!(
            off <= allowed,
            "{what} {way} {} bytes, predicted {}",
            counted.wire,
            predicted.wire * times
        );
    }
}

#[test]
fn one_rank_and_one_server() {
    PLAIN.check();
}

/// Blocks of several HTTP/2 frames.
#[test]
fn large_blocks_on_several_connections() {
    Case {
        connections: 3,
        tensors: &[(3_000_000, TensorKind::Parameter)],
        block_bytes: 2 << 20,
        servers: 2,
        ..PLAIN
    }
    .check();
}

/// The last rank of the larger group has fewer blocks, and the blocks are not all of one size.
#[test]
fn groups_of_several_ranks_with_small_blocks_and_a_buffer() {
    Case {
        servers: 2,
        groups: &[2, 3],
        tensors: &[
            (50_001, TensorKind::Parameter),
            (1000, TensorKind::Buffer),
            (30_000, TensorKind::Parameter),
        ],
        block_bytes: 20 << 10,
        ..PLAIN
    }
    .check();
}

#[test]
fn compressed_both_ways_on_three_servers() {
    Case {
        servers: 3,
        groups: &[2, 2],
        tensors: &[(700_000, TensorKind::Parameter), (5000, TensorKind::Buffer)],
        up: Compression::TopK { fraction: 0.01 },
        down: Compression::Bf16,
        ..PLAIN
    }
    .check();
}

#[test]
fn integers_both_ways() {
    Case {
        servers: 2,
        groups: &[1, 1, 1],
        block_bytes: 64 << 10,
        up: Compression::Int8,
        down: Compression::Int8,
        ..PLAIN
    }
    .check();
}
