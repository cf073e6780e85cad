//! What the coordinator keeps on disk: its state, manifests of snapshots, events.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tradewind_common::{Incarnation, RunId, ShardId};

use crate::clock::wall;
use crate::events::{EventLog, EventWriter};
use crate::marks;
use crate::snapshot::manifest::{self, Manifest};
use crate::snapshot::{FORMAT, Folder};
use crate::store::{Store, StoreError};
use tradewind_core::durable::{Change, Durable};
use tradewind_core::event::Event;
use tradewind_core::saved::ManifestData;

/// What came of writing the state down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Saved {
    /// It is on disk.
    Yes,
    /// It is not, and why; it has to be tried again.
    NotNow(String),
    /// This incarnation has followed: nothing may be acted on any more.
    Deposed(u64),
}

/// What is to be written down.
#[derive(Debug)]
pub enum Saving {
    /// All that there is.
    All(Box<Durable>),
    /// What has changed since something was written down.
    Change(Box<Change>),
}

/// The coordinator's part of the fleet's folder.
pub struct Disk {
    store: Store,
    incarnation: Incarnation,
    snapshots: Folder,
    folder: PathBuf,
    events: EventWriter,
}

/// A line of events.jsonl.
#[derive(Serialize)]
struct Line<'a> {
    /// Seconds since 1970.
    wall: f64,
    #[serde(flatten)]
    event: &'a Event,
}

impl Disk {
    /// The disk of the coordinator that has claimed `store`, in the fleet's folder.
    pub fn new((store, incarnation): (Store, Incarnation), folder: &Path) -> io::Result<Self> {
        Ok(Self {
            store,
            incarnation,
            snapshots: Folder::new(folder),
            folder: folder.to_owned(),
            // Nothing depends on them: they may be written later, or never.
            events: EventWriter::start(EventLog::within(folder))?,
        })
    }

    /// Says where the coordinator is, if that is not said already, and looks whether another one
    /// has followed.
    pub fn look(&self, address: &str) -> Saved {
        let looked = self.store.check();
        match looked.and_then(|()| self.store.publish_address(address)) {
            Ok(()) => Saved::Yes,
            Err(StoreError::Deposed { by }) => Saved::Deposed(by.0),
            Err(error) => {
                tracing::debug!("the coordinator's address is not published: {error}");
                Saved::NotNow(error.to_string())
            }
        }
    }

    /// Gives a sign of life; whoever looks finds out from its absence alone.
    pub fn give_sign(&self, beat: u64) {
        if let Err(error) = self.store.give_sign(beat) {
            tracing::debug!("no sign of life is given: {error}");
        }
    }

    /// Which life of the coordinator writes.
    pub fn incarnation(&self) -> u64 {
        self.incarnation.0
    }

    /// Whether what has changed can be written down without the rest.
    pub fn takes_changes(&self) -> bool {
        self.store.takes_changes()
    }

    /// Writes the state down, or what has changed of it. Where that fails, all of it has to be written next.
    pub fn save(&self, saving: &Saving) -> Saved {
        let written = match saving {
            Saving::All(durable) => {
                let bytes = serde_json::to_vec(durable);
                bytes.map(|bytes| self.store.write(&bytes))
            }
            Saving::Change(change) => {
                let bytes = serde_json::to_vec(change);
                bytes.map(|bytes| self.store.append(&bytes))
            }
        };
        match written.map_err(|error| error.to_string()) {
            Ok(Ok(())) => Saved::Yes,
            Ok(Err(StoreError::Deposed { by })) => Saved::Deposed(by.0),
            Ok(Err(error)) => Saved::NotNow(error.to_string()),
            Err(error) => Saved::NotNow(error),
        }
    }

    /// Appends an event.
    pub fn event(&self, event: &Event) {
        let line = Line {
            wall: wall(),
            event,
        };
        self.events.write(&line);
    }

    /// Makes a snapshot whole.
    pub fn write_manifest(&self, data: ManifestData) -> Result<(), String> {
        let manifest = Manifest {
            format: FORMAT,
            run: data.run.clone(),
            number: data.number,
            written_at: wall(),
            configuration: self.snapshots.configuration(),
            files: data.files.clone(),
            shards: data.shards.iter().copied().map(ShardId).collect(),
            data,
        };
        let (run, number) = (manifest.run.clone(), manifest.number);
        manifest::write(&self.snapshots, &manifest).map_err(|error| error.to_string())?;
        if let Err(error) = manifest::sweep(&self.snapshots, &run, number) {
            tracing::warn!("unfinished snapshots of run {run} cannot be deleted: {error}");
        }
        Ok(())
    }

    /// Forgets what was recorded of a run's blocks.
    pub fn drop_marks(&self, run: &RunId) {
        if let Err(error) = marks::remove(&self.folder, run) {
            tracing::error!("what was recorded of run {run} cannot be removed: {error}");
        }
    }

    /// Deletes a snapshot that is not kept any longer.
    pub fn delete(&self, run: &RunId, number: u64) {
        if let Err(error) = manifest::delete(&self.snapshots, run, number) {
            tracing::warn!("snapshot {number} of run {run} cannot be deleted: {error}");
        }
    }
}
