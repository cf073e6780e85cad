//! The disk: how long writing takes, whether it fails, and the snapshots on it.

use std::collections::BTreeMap;

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use tradewind_common::placement::Placement;
use tradewind_common::{BlockId, Clock, ShardId};
use tradewind_core::order::ShardFile;
use tradewind_core::saved::{ManifestData, Saved as Resumable};
use tradewind_core::state::BlockState;

use crate::checker::Saved;
use crate::random_stream;

/// Median time of a write, microseconds.
const WRITE_US: u64 = 800;

/// A shard's file.
#[derive(Clone, Debug)]
pub(super) struct File {
    pub(super) states: Vec<BlockState>,
    /// What the observer knows of them.
    pub(super) saved: BTreeMap<BlockId, Saved>,
    pub(super) about: ShardFile,
    pub(super) damaged: bool,
}

#[derive(Debug, Default)]
struct Snapshot {
    files: BTreeMap<ShardId, File>,
    manifest: Option<ManifestData>,
    /// The manifest is cut off, or not what was written.
    torn: bool,
    /// When the folder of it was made.
    made_us: u64,
}

impl Snapshot {
    fn whole(&self) -> bool {
        let damaged = self.torn || self.files.values().any(|file| file.damaged);
        self.manifest.is_some() && !damaged
    }
}

/// What becomes of the writing of a file that is there whole or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// It is there.
    Yes,
    /// It is not, and its writer knows.
    No,
    /// It is there, but its writer was told that it could not be made to last.
    ButFailed,
}

/// What was read of a shard.
pub(super) struct Found {
    pub(super) number: u64,
    pub(super) states: Vec<BlockState>,
    pub(super) saved: BTreeMap<BlockId, Saved>,
    /// Newer ones that could not be used.
    pub(super) damaged: Vec<String>,
}

/// The disk.
#[derive(Debug)]
pub(super) struct Disk {
    snapshots: BTreeMap<u64, Snapshot>,
    slow: Option<(u64, u64)>,
    failing_until_us: u64,
    /// Until when every so many writes fail, on average.
    bad: Option<(u64, u32)>,
    /// Until when listings are old, and how old at most.
    old: Option<(u64, u64)>,
    rng: ChaCha8Rng,
}

impl Disk {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            snapshots: BTreeMap::new(),
            slow: None,
            failing_until_us: 0,
            bad: None,
            old: None,
            rng: random_stream(seed, 10),
        }
    }

    /// How long something takes that begins now.
    pub(super) fn takes_us(&mut self, now_us: u64) -> u64 {
        let slow = self.slow.filter(|(until, _)| now_us < *until);
        self.rng.random_range(WRITE_US / 2..WRITE_US * 3) + slow.map_or(0, |(_, by)| by)
    }

    /// Is slower by so much until then.
    pub(super) fn slow(&mut self, until_us: u64, by_us: u64) {
        self.slow = Some((until_us, by_us));
    }

    /// Writes nothing until then.
    pub(super) fn fail(&mut self, until_us: u64) {
        self.failing_until_us = self.failing_until_us.max(until_us);
    }

    /// Fails every so many writes until then.
    pub(super) fn fail_some(&mut self, until_us: u64, one_in: u32) {
        self.bad = Some((until_us, one_in));
    }

    /// Listings are old until then, by so much at most.
    pub(super) fn age_listings(&mut self, until_us: u64, by_us: u64) {
        self.old = Some((until_us, by_us));
    }

    /// Whether nothing that is written now is.
    pub(super) fn fails(&self, now_us: u64) -> bool {
        now_us < self.failing_until_us
    }

    /// What becomes of a file that is written now.
    pub(super) fn writes(&mut self, now_us: u64) -> Written {
        if self.fails(now_us) {
            return Written::No;
        }
        let bad = self.bad.filter(|(until_us, _)| now_us < *until_us);
        let failed = bad.is_some_and(|(_, one_in)| self.rng.random_ratio(1, one_in));
        match failed {
            false => Written::Yes,
            true if self.rng.random_bool(0.5) => Written::ButFailed,
            true => Written::No,
        }
    }

    /// A shard's part of a snapshot is there. What was there before under the number goes.
    pub(super) fn write(&mut self, (number, shard): (u64, ShardId), file: File, now_us: u64) {
        let snapshot = self.at(number, now_us);
        snapshot.files.insert(shard, file);
    }

    /// Its writer died in the midst of a shard's part of a snapshot: it is cut off. Nobody counts it
    /// to the snapshot.
    pub(super) fn tear(&mut self, (number, shard): (u64, ShardId), file: File, now_us: u64) {
        let torn = File {
            damaged: true,
            ..file
        };
        self.at(number, now_us).files.entry(shard).or_insert(torn);
    }

    fn at(&mut self, number: u64, now_us: u64) -> &mut Snapshot {
        let made = || Snapshot {
            made_us: now_us,
            ..Snapshot::default()
        };
        self.snapshots.entry(number).or_insert_with(made)
    }

    /// A snapshot is whole.
    pub(super) fn finish(&mut self, manifest: ManifestData) {
        let snapshot = self.snapshots.entry(manifest.number).or_default();
        snapshot.manifest = Some(manifest);
    }

    pub(super) fn delete(&mut self, number: u64) {
        self.snapshots.remove(&number);
    }

    /// Whether a snapshot can be used.
    pub(super) fn any_whole(&self) -> bool {
        self.snapshots.values().any(Snapshot::whole)
    }

    /// Damages a file of the newest snapshot, if the one before can be used, and all older ones.
    pub(super) fn damage(&mut self) -> bool {
        let mut listed = self.snapshots.values_mut().rev();
        let mut listed = listed
            .by_ref()
            .filter(|snapshot| snapshot.manifest.is_some());
        let (newest, rest) = (listed.next(), listed.next());
        let Some(newest) = newest.filter(|_| rest.is_some_and(|before| before.whole())) else {
            return false;
        };
        if self.rng.random_ratio(1, 4) {
            return !std::mem::replace(&mut newest.torn, true);
        }
        let which = self.rng.random_range(0..newest.files.len());
        let file = newest.files.values_mut().nth(which);
        file.is_some_and(|file| !std::mem::replace(&mut file.damaged, true))
    }

    /// Those up to `upto` that are whole and newer than `than`.
    pub(super) fn newer(&self, (than, upto): (u64, u64)) -> Vec<u64> {
        let newer = self.snapshots.range(..=upto).rev();
        let newer = newer.take_while(|(number, _)| **number > than);
        let whole = newer.filter(|(_, snapshot)| snapshot.whole());
        whole.map(|(number, _)| *number).collect()
    }

    /// The newest snapshot up to `upto` that holds these blocks undamaged; with `only`, no other.
    pub(super) fn newest(
        &self,
        (upto, only): (u64, bool),
        wanted: &[BlockId],
        (now_us, by_listing): (u64, bool),
    ) -> Result<Found, String> {
        let old = self.old.filter(|(until_us, _)| now_us < *until_us);
        let listed_us = now_us.saturating_sub(old.map_or(0, |(_, by_us)| by_us));
        let mut damaged = Vec::new();
        for (number, snapshot) in self.snapshots.range(..=upto).rev() {
            let Some(manifest) = snapshot.manifest.as_ref() else {
                continue;
            };
            // The one that was asked for is opened by its name.
            if snapshot.made_us > listed_us && (*number != upto || by_listing) {
                continue;
            }
            if snapshot.torn {
                damaged.push(format!("the manifest of snapshot {number}"));
                continue;
            }
            if only && *number != upto {
                break;
            }
            let shards = manifest.shards.iter().copied().map(ShardId).collect();
            let placement = Placement::from_shards(shards);
            let of = |id: &BlockId| snapshot.files.get(&placement.shard(*id)?);
            let files: Option<Vec<&File>> = wanted.iter().map(of).collect();
            let files = files.filter(|files| !files.iter().any(|file| file.damaged));
            let Some(files) = files else {
                damaged.push(format!("snapshot {number}"));
                continue;
            };
            let state = |(id, file): (&BlockId, &&File)| {
                let state = file.states.iter().find(|state| state.id == *id);
                state.expect("every block is captured").clone()
            };
            let saved = |(id, file): (&BlockId, &&File)| (*id, file.saved[id].clone());
            return Ok(Found {
                number: *number,
                states: wanted.iter().zip(&files).map(state).collect(),
                saved: wanted.iter().zip(&files).map(saved).collect(),
                damaged,
            });
        }
        Err(format!("no snapshot can be used: {damaged:?}"))
    }

    /// The newest snapshot that is whole in all files, to resume from.
    pub(super) fn resumable(&self) -> Option<Resumable> {
        let newest = self.snapshots.values().rev().find(|s| s.whole())?;
        Some(Resumable {
            manifest: newest.manifest.clone()?,
            numbers: self.snapshots.keys().copied().collect(),
            damaged: Vec::new(),
            recorded: Default::default(),
        })
    }
}

/// What is told of a file.
pub(super) fn about(number: u64, shard: ShardId, states: &[BlockState]) -> ShardFile {
    let versions = || states.iter().map(|state| state.version);
    let samples = || states.iter().map(|state| state.samples_applied);
    let decided = states.iter().flat_map(|state| state.decided.values());
    let highest = decided.map(|(_, decided)| decided.clock).max();
    ShardFile {
        name: format!("{number}-{shard}"),
        bytes: states.len() as u64,
        digest: String::new(),
        versions: (versions().min().unwrap_or(0), versions().max().unwrap_or(0)),
        samples: (samples().min().unwrap_or(0), samples().max().unwrap_or(0)),
        clock_next: highest.map_or(Clock(0), Clock::tick),
    }
}
