//! Files of a snapshot, whose checksums fit: whoever can write them could have made these as well.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use serde::de::IgnoredAny;
use serde_json::Value;
use tempfile::TempDir;
use tradewind_common::{BlockId, Clock, GroupId, Incarnation, Layout, RunId, ShardId};
use tradewind_core::decided::{Decided, Verdict};
use tradewind_core::order::ShardFile;
use tradewind_core::state::BlockState;
use tradewind_fuzz::target;
use tradewind_server::snapshot::manifest::{self, Manifest};
use tradewind_server::snapshot::{FORMAT, Folder, read, write};

use super::specification::spec;

const NUMBER: u64 = 4;

/// What the optimizer keeps for each parameter.
const SLOTS: usize = 1;

/// Blocks of these lengths, the first of which is of parameters.
fn states(lengths: &[usize]) -> Vec<BlockState> {
    let state = |(number, length): (u32, &usize)| {
        let decided = Decided {
            clock: Clock(3),
            verdict: Verdict::Applied,
            delay: 1,
        };
        let slots = if number == 0 { SLOTS } else { 0 };
        BlockState {
            id: BlockId(number),
            values: Arc::new(vec![1.5; *length]),
            slots: (0..slots).map(|_| Arc::new(vec![0.25; *length])).collect(),
            version: 4,
            samples_applied: 64,
            decided: BTreeMap::from([(GroupId(1), (Incarnation(5), decided))]),
        }
    };
    (0..).zip(lengths).map(state).collect()
}

/// A snapshot of a run with one shard.
struct Written {
    folder: Folder,
    run: RunId,
    layout: Layout,
    file: ShardFile,
    _within: TempDir,
}

impl Written {
    fn new() -> Self {
        let within = tempfile::tempdir().expect("a folder");
        let folder = Folder::new(within.path());
        let run = RunId::new("climate").expect("a name");
        let layout = spec().layout().expect("a run");
        let lengths = layout.blocks.iter().map(|block| block.elements.len());
        let states = states(&lengths.collect::<Vec<_>>());
        let file = write::shard(&folder, &run, NUMBER, ShardId(0), &states).expect("it is written");
        let written = Self {
            folder,
            run,
            layout,
            file,
            _within: within,
        };
        manifest::write(&written.folder, &written.manifest(written.file.clone()))
            .expect("it is written");
        written
    }

    fn manifest(&self, file: ShardFile) -> Manifest<Value> {
        Manifest {
            format: FORMAT,
            run: self.run.clone(),
            number: NUMBER,
            written_at: 1.7e9,
            configuration: None,
            files: vec![file],
            shards: vec![ShardId(0); self.layout.blocks.len()],
            data: Value::Null,
        }
    }

    fn shard_file(&self) -> std::path::PathBuf {
        self.folder
            .snapshot(&self.run, NUMBER)
            .join(&self.file.name)
    }

    /// The manifest is this, with its checksum: as `tradewind_server`'s files of JSON have it.
    fn put_manifest(&self, json: &[u8]) {
        let begin = format!(
            "{{\"blake3\":\"{}\",\"content\":\n",
            blake3::hash(json).to_hex()
        );
        let all = [begin.as_bytes(), json, b"\n}\n"].concat();
        fs::write(self.folder.manifest(&self.run, NUMBER), all).expect("it is written");
    }

    /// All blocks of a file in the place of the shard's, which the manifest knows.
    fn read_shard(&self, bytes: &[u8]) -> Result<Vec<BlockState>, read::NoneLeft> {
        fs::write(self.shard_file(), bytes).expect("it is written");
        let file = ShardFile {
            bytes: bytes.len() as u64,
            digest: blake3::hash(bytes).to_hex().to_string(),
            ..self.file.clone()
        };
        let manifest = serde_json::to_vec(&self.manifest(file)).expect("JSON");
        self.put_manifest(&manifest);
        self.read()
    }

    /// All blocks, or why not.
    fn read(&self) -> Result<Vec<BlockState>, read::NoneLeft> {
        let all: Vec<BlockId> = self.layout.blocks.iter().map(|block| block.id).collect();
        let restored = read::newest(
            &self.folder,
            &self.run,
            (NUMBER, true),
            &all,
            &self.layout,
            SLOTS,
        )?;
        assert_eq!(restored.states.len(), all.len());
        Ok(restored.states)
    }
}

#[test]
fn a_manifest_is_taken_as_a_whole_or_named() {
    let written = Written::new();
    let json = serde_json::to_vec_pretty(&written.manifest(written.file.clone())).expect("JSON");
    written.put_manifest(&json);
    written.read().expect("the example is right");
    target!([json]).each(|json, _| {
        written.put_manifest(json);
        if let Err(why) = written.read() {
            assert!(!why.to_string().is_empty());
        }
        let verified =
            manifest::verify::<IgnoredAny>(&written.folder, &written.run, NUMBER, &mut |_, _| {});
        if let Err(damaged) = verified {
            assert!(!damaged.to_string().is_empty());
        }
    });
}

#[test]
fn a_file_of_a_shard_is_taken_as_a_whole_or_named() {
    let written = Written::new();
    let own = fs::read(written.shard_file()).expect("it is there");
    // Those of other runs are right as well, but for this one.
    let others = [&[3, 1][..], &[2, 3], &[3], &[3, 2, 1]].map(|lengths| {
        let (folder, run) = (&written.folder, &written.run);
        let file = write::shard(folder, run, NUMBER, ShardId(0), &states(lengths));
        let name = file.expect("it is written").name;
        fs::read(folder.snapshot(run, NUMBER).join(name)).expect("it is there")
    });
    assert_ne!(others[0], own);
    written.read_shard(&own).expect("the example is right");
    target!(others.into_iter().chain([own])).each(|bytes, _| {
        let Ok(states) = written.read_shard(bytes) else {
            return;
        };
        for (state, block) in states.iter().zip(&written.layout.blocks) {
            assert_eq!(state.values.len(), block.elements.len());
            assert!(state.values.iter().all(|value| value.is_finite()));
        }
    });
}
