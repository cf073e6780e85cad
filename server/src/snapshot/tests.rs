//! What was written is read back bit for bit; what was damaged in any way is named and passed over.

mod damage;
mod export;
mod full;
mod round;

use std::collections::BTreeMap;
use std::sync::Arc;

use tempfile::TempDir;
use tradewind_common::placement::Placement;
use tradewind_common::{
    BlockId, Clock, GroupId, Incarnation, Layout, RunId, ShardId, TensorKind, TensorSpec,
};

use super::manifest::Manifest;
use super::{FORMAT, Folder, manifest, write};
use tradewind_core::decided::{Decided, Verdict};
use tradewind_core::state::BlockState;

const SLOTS: usize = 2;

/// A fleet's folder, and a run in it whose blocks hold parts of several tensors.
struct World {
    _root: TempDir,
    folder: Folder,
    run: RunId,
    layout: Layout,
}

impl World {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let tensor = |name: &str, shape: &[u64], kind| TensorSpec {
            name: name.into(),
            shape: shape.to_vec(),
            kind,
        };
        let tensors = [
            tensor("scale", &[], TensorKind::Parameter),
            tensor("stem.weight", &[5, 7], TensorKind::Parameter),
            tensor("norm.mean", &[3], TensorKind::Buffer),
            tensor("head.weight", &[2, 3, 4], TensorKind::Parameter),
            tensor("head.bias", &[2], TensorKind::Parameter),
        ];
        Self {
            folder: Folder::new(root.path()),
            run: RunId::new("run-1").unwrap(),
            layout: Layout::new(&tensors, 40).unwrap(),
            _root: root,
        }
    }

    fn all(&self) -> Vec<BlockId> {
        self.layout.blocks.iter().map(|block| block.id).collect()
    }

    /// All blocks; other values for each `seed`.
    fn states(&self, seed: u32) -> Vec<BlockState> {
        let blocks = self.layout.blocks.iter();
        blocks.map(|block| self.state(block.id, seed)).collect()
    }

    fn state(&self, id: BlockId, seed: u32) -> BlockState {
        let block = self.layout.block(id).unwrap();
        let vector = |what: u32| {
            // Every bit of the fraction takes part; signs and zeros too.
            let value = |at: u32| {
                let bits = (seed + what * 1000 + at).wrapping_mul(0x9e37_79b9);
                f32::from_bits(bits & 0xbfff_ffff)
            };
            let elements = block.elements.clone();
            Arc::new(elements.map(|at| value(at as u32)).collect::<Vec<f32>>())
        };
        let slots = match block.kind {
            TensorKind::Parameter => SLOTS as u32,
            TensorKind::Buffer => 0,
        };
        let decided = |group: u32| {
            let verdicts = [Verdict::Applied, Verdict::Dropped, Verdict::Skipped];
            let decided = Decided {
                clock: Clock(u64::from(100 + group + id.0)),
                verdict: verdicts[(group + id.0) as usize % 3],
                delay: u64::MAX - u64::from(group),
            };
            (GroupId(group), (Incarnation(u64::from(group) + 9), decided))
        };
        BlockState {
            id,
            values: vector(0),
            slots: (1..=slots).map(vector).collect(),
            version: u64::from(seed + id.0),
            samples_applied: u64::from(seed + id.0) * 32,
            // A block that nothing was decided of, too.
            decided: (0..id.0).map(decided).collect::<BTreeMap<_, _>>(),
        }
    }

    /// Takes a snapshot of `shards` shards; returns all blocks as they were.
    fn snapshot(&self, number: u64, shards: u32) -> Vec<BlockState> {
        let states = self.states(number as u32);
        let placement = Placement::by_bytes(&self.layout, shards);
        let file = |shard| {
            let own = placement.blocks(shard);
            let own: Vec<_> = own.map(|id| states[id.0 as usize].clone()).collect();
            write::shard(&self.folder, &self.run, number, shard, &own).unwrap()
        };
        let files = (0..shards).map(ShardId).map(file).collect();
        let written = manifest::write(&self.folder, &self.manifest(number, files, &placement));
        written.unwrap();
        states
    }

    fn manifest(
        &self,
        number: u64,
        files: Vec<tradewind_core::order::ShardFile>,
        placement: &Placement,
    ) -> Manifest<Vec<String>> {
        Manifest {
            format: FORMAT,
            run: self.run.clone(),
            number,
            written_at: 1.7e9 + 0.1,
            configuration: Some("name = \"run-1\"\n".into()),
            files,
            shards: placement.shards().to_vec(),
            data: vec!["what the coordinator \u{2028} knows\n}\n".into()],
        }
    }

    fn newest(&self) -> Result<super::read::Restored, super::read::NoneLeft> {
        let newest = manifest::list(&self.folder, &self.run).unwrap().pop();
        let upto = (newest.unwrap_or(1), false);
        super::read::newest(
            &self.folder,
            &self.run,
            upto,
            &self.all(),
            &self.layout,
            SLOTS,
        )
    }
}

/// Equal bits, which `==` on floats does not say.
fn same(left: &[BlockState], right: &[BlockState]) {
    let bits = |states: &[BlockState]| -> Vec<Vec<u32>> {
        let vectors = states.iter();
        let vectors = vectors.flat_map(|state| std::iter::once(&state.values).chain(&state.slots));
        vectors
            .map(|vector| vector.iter().map(|value| value.to_bits()).collect())
            .collect()
    };
    assert_eq!(left, right);
    assert_eq!(bits(left), bits(right));
}

#[test]
fn a_snapshot_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    world.snapshot(1, 2);
    let folder = world.folder.snapshot(&world.run, 1);
    let files = std::fs::read_dir(&folder).unwrap();
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    let modes: Vec<u32> = files.map(|file| mode(&file.unwrap().path())).collect();
    assert_eq!(modes, [0o600; 3]);
    assert_eq!(mode(&folder), 0o700);
}
