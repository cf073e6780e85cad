//! What is new in a run's folder since it was looked at last.

use std::path::Path;

use serde::Deserialize;
use tradewind_common::loss::Loss;
use tradewind_common::record::{Evaluation, Validation};
use tradewind_common::run_files;
use tradewind_folder::events::Events;
use tradewind_folder::failure::Cause;
use tradewind_folder::found::FoundRun;
use tradewind_folder::lines::{Lines, Metrics};
use tradewind_folder::parts::Id;
use tradewind_folder::records::read_evaluation;

use crate::history::History;
use crate::timeline::Timeline;

/// Validations that are kept.
const VALIDATIONS_MAX: usize = 4096;

/// Everything that a run's folder has told so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Records {
    pub(crate) history: History,
    pub(crate) timeline: Timeline,
    pub(crate) validations: Vec<Validation>,
    pub(crate) evaluation: Option<Evaluation>,
    pub(crate) end: Option<End>,
}

/// What of `summary.json` is shown.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct End {
    pub(crate) status: String,
    pub(crate) failure: Option<Cause>,
    #[serde(default)]
    pub(crate) shards: Vec<EndShard>,
    #[serde(default)]
    pub(crate) faults: EndFaults,
    /// `None` if the servers could not be asked.
    #[serde(default)]
    pub(crate) exchanged: Option<EndExchanged>,
}

/// What travelled, as it travelled.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct EndExchanged {
    pub(crate) pushed_bytes: u64,
}

/// A shard at the end.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct EndShard {
    pub(crate) server: u32,
    /// Servers that had a full copy; empty where an older version wrote the summary.
    #[serde(default)]
    pub(crate) copies: Vec<u32>,
    pub(crate) bytes: u64,
    pub(crate) version_min: u64,
    pub(crate) version_max: u64,
}

/// What went wrong on the way.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct EndFaults {
    #[serde(default)]
    pub(crate) lost: Option<Loss>,
}

/// Reads a run's folder as it grows.
#[derive(Debug)]
pub(crate) struct Reader {
    place: FoundRun,
    metrics: Metrics,
    events: Events,
    validations: Lines<Validation>,
    /// Which folder it is: another run of the same name gets another.
    folder: Option<Id>,
    /// One more for each run that has taken the folder since.
    life: u64,
    records: Records,
}

impl Reader {
    pub(crate) fn new(place: FoundRun) -> Self {
        Self {
            metrics: Metrics::new(place.path.join(run_files::METRICS)),
            events: place.events(),
            validations: Lines::new(place.path.join("validation.jsonl")),
            folder: id(&place.path),
            place,
            life: 0,
            records: Records::default(),
        }
    }

    pub(crate) fn place(&self) -> &FoundRun {
        &self.place
    }

    pub(crate) fn life(&self) -> u64 {
        self.life
    }

    pub(crate) fn records(&self) -> &Records {
        &self.records
    }

    /// Reads what is new. What cannot be read now is read with the next look.
    pub(crate) fn look(&mut self) {
        let folder = id(&self.place.path);
        if folder.is_some()
            && folder != self.folder
            && let Ok(place) = FoundRun::find(Some(&self.place.path))
        {
            let life = self.life + 1;
            *self = Self {
                life,
                ..Self::new(place)
            };
        }
        let Records {
            history,
            timeline,
            validations,
            evaluation,
            end,
        } = &mut self.records;
        let _ = self.metrics.each(|record| history.take_in(record));
        for event in self.events.fresh().unwrap_or_default() {
            timeline.take_in(event);
        }
        for validation in self.validations.fresh().unwrap_or_default() {
            if validations.len() < VALIDATIONS_MAX {
                validations.push(validation);
            }
        }
        *end = read_end(&self.place.path);
        *evaluation = read_evaluation(&self.place.path).ok();
    }
}

fn id(folder: &Path) -> Option<Id> {
    Some(Id::of(&std::fs::metadata(folder).ok()?))
}

fn read_end(folder: &Path) -> Option<End> {
    let text = std::fs::read_to_string(folder.join(run_files::SUMMARY)).ok()?;
    serde_json::from_str(&text).ok()
}
