//! A run's specification and a placement, as they come over the wire.

use prost::Message;
use tradewind_common::compress::Compression;
use tradewind_common::optimizer::{Adam, Sgd};
use tradewind_common::spec::{ConsistencySpec, Frozen, OptimizerSpec, RunSpec};
use tradewind_common::{TensorKind, TensorSpec};
use tradewind_fuzz::target;
use tradewind_proto::holding::{placement_from_wire, placement_to_wire};
use tradewind_proto::v1;

/// Most values of a layout that is built: larger ones are right, and take memory.
const BLOCKS_MAX: u64 = 1 << 12;

#[test]
fn a_specification_that_is_taken_comes_back_the_same() {
    target!(examples()).each(|bytes, _| {
        let Ok(wire) = v1::RunSpec::decode(bytes) else {
            return;
        };
        let Ok(spec) = RunSpec::try_from(wire) else {
            return;
        };
        if is_large(&spec) {
            return;
        }
        let Ok(layout) = spec.check() else { return };
        let elements: u64 = spec
            .tensors
            .iter()
            .map(|tensor| tensor.shape.iter().product::<u64>())
            .sum();
        let held: u64 = layout
            .blocks
            .iter()
            .map(|block| block.elements.len() as u64)
            .sum();
        assert_eq!(held, elements);
        let again = RunSpec::try_from(v1::RunSpec::from(&spec)).expect("what was taken");
        assert_eq!(again.difference(&spec), None);
        assert_eq!(
            again.check().expect("what was taken").blocks.len(),
            layout.blocks.len()
        );
    });
}

/// Blocks are as many as a run has values for.
fn is_large(spec: &RunSpec) -> bool {
    let elements = spec.tensors.iter().map(|tensor| {
        tensor
            .shape
            .iter()
            .fold(1u64, |all, extent| all.saturating_mul(*extent))
    });
    let bytes = elements.fold(0u64, u64::saturating_add).saturating_mul(4);
    let piece = spec
        .block_bytes
        .min(spec.bucket_bytes.unwrap_or(usize::MAX))
        .max(1) as u64;
    (bytes / piece) > BLOCKS_MAX && bytes < 1 << 50
}

#[test]
fn a_placement_that_is_taken_comes_back_the_same() {
    target!(placements()).each(|bytes, _| {
        let Ok(wire) = v1::Placement::decode(bytes) else {
            return;
        };
        let Ok((placement, holding)) = placement_from_wire(wire) else {
            return;
        };
        let again = placement_from_wire(placement_to_wire(&placement, &holding, None));
        assert_eq!(again.expect("what was taken"), (placement, holding));
    });
}

pub(crate) fn spec() -> RunSpec {
    let tensor = |name: &str, elements, kind| TensorSpec {
        name: name.into(),
        shape: vec![elements],
        kind,
    };
    let tensors = vec![
        tensor("weight", 3, TensorKind::Parameter),
        tensor("mean", 2, TensorKind::Buffer),
    ];
    RunSpec {
        optimizer: OptimizerSpec::Sgd(Sgd {
            momentum: 0.9,
            nesterov: false,
            weight_decay: 0.0,
        }),
        ..RunSpec::plain(vec![1, 2, 1], tensors, 16)
    }
}

fn examples() -> Vec<Vec<u8>> {
    let adam = RunSpec {
        optimizer: OptimizerSpec::Adam(Adam {
            beta1: 0.9,
            beta2: 0.99,
            epsilon: 1e-8,
            weight_decay: 0.01,
        }),
        consistency: ConsistencySpec::Bounded { staleness_bound: 2 },
        bucket_bytes: Some(64),
        up: Compression::TopK { fraction: 0.01 },
        down: Compression::Int8,
        frozen: vec![Frozen {
            name: "embedding".into(),
            digest: 7,
        }],
        ..spec()
    };
    let sync = RunSpec {
        consistency: ConsistencySpec::Sync,
        ..spec()
    };
    let specs = [spec(), adam, sync];
    specs
        .iter()
        .map(|spec| v1::RunSpec::from(spec).encode_to_vec())
        .collect()
}

fn placements() -> Vec<Vec<u8>> {
    let shard = |server: u32| v1::Holders {
        primary: Some(server),
        primary_since: 3,
        copies: vec![v1::CopyHolder {
            server: server + 1,
            since: 4,
            full: true,
        }],
        ..v1::Holders::default()
    };
    let endpoint = |server: u32| v1::ServerEndpoint {
        server,
        address: format!("10.0.0.{server}:4000"),
        incarnation: 1,
    };
    let holding = v1::Holding {
        generation: 9,
        servers: vec![endpoint(1), endpoint(2), endpoint(3)],
        holders: vec![shard(1), shard(2)],
    };
    let placement = v1::Placement {
        shards: vec![0, 1, 0],
        holding: Some(holding),
        bucket_bytes: Some(64),
    };
    vec![placement.encode_to_vec()]
}
