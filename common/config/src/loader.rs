//! How samples are read ahead of their use: section `loader`.

use tradewind_common::choice::{Field, Kind, Of, Setting, Unfit, fit};
use tradewind_common::settings;

use crate::Values;

settings! {
    /// How a rank reads batches ahead.
    Loader {
        /// Threads that read.
        readers: u64 = Field {
            key: "loader.readers",
            kind: Kind::Count { min: 1, max: 256 },
            default: "1",
            meaning: "Number of threads of each rank that read batches ahead. Which samples come next does not depend on it. More help where reading or decoding a batch takes longer than a step computes.",
        },
        /// Batches that are asked for and not yet used.
        batches_ahead: u64 = Field {
            key: "loader.batches_ahead",
            kind: Kind::Count { min: 1, max: 4096 },
            default: "2",
            meaning: "Largest number of batches that a rank reads ahead; at least `loader.readers`, so that none is idle.",
        },
        /// Bytes of batches that are being read, or are read and not yet used.
        bytes_ahead: u64 = Field {
            key: "loader.bytes_ahead",
            kind: Kind::Count { min: 4096, max: 1 << 40 },
            default: "268435456",
            meaning: "Most main memory, in bytes, of the batches that a rank reads ahead. A batch is begun once it fits beside those that are begun and not yet used.",
        },
        /// What is done with a sample that is damaged.
        damaged: Damaged = Field {
            key: "loader.damaged",
            kind: Kind::Word(Damaged::WORDS),
            default: "\"end\"",
            meaning: "What a rank does when a sample is damaged. `end`: the run ends, and the error names the sample. `replace`: the log names the sample, and another one, the same on every rank, is taken in its place.",
        },
    }
}

/// What is done with a sample that is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damaged {
    /// The run ends.
    End,
    /// Another sample is taken in its place.
    Replace,
}

impl Damaged {
    const WORDS: &[&str] = &["end", "replace"];
}

impl Of for Damaged {
    fn setting(&self) -> Setting {
        let word = match self {
            Self::End => "end",
            Self::Replace => "replace",
        };
        Setting::Word(word.to_owned())
    }

    fn read(setting: Setting) -> Option<Self> {
        match setting {
            Setting::Word(word) if word == "end" => Some(Self::End),
            Setting::Word(word) if word == "replace" => Some(Self::Replace),
            _ => None,
        }
    }
}

impl Loader {
    /// What does not fit together.
    pub(super) fn problems(&self) -> Vec<Unfit> {
        let check = fit(
            self.batches_ahead >= self.readers,
            "loader.batches_ahead",
            &format!(
                "is less than loader.readers = {}: some would be idle",
                self.readers
            ),
        );
        check.err().into_iter().collect()
    }
}

/// Where the ranks of a node keep files of samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheAt {
    /// An absolute path, or one that begins with `$` and the name of an environment variable.
    pub folder: String,
    /// Most bytes in it.
    pub bytes: u64,
}

impl CacheAt {
    /// `None` where there is to be none, or the key that is wrong, and why.
    pub(super) fn read(values: &Values<'_>) -> Result<Option<Self>, (&'static str, &'static str)> {
        let folder = values.text("loader.cache");
        let bytes = values.int("loader.cache_bytes") as u64;
        match (folder.chars().next(), bytes) {
            (None, 0) => Ok(None),
            (None, _) => Err(("loader.cache_bytes", "is of no use without loader.cache")),
            (Some('/' | '$'), 0) => {
                let why = "needs loader.cache_bytes: how much of the disk may be taken";
                Err(("loader.cache", why))
            }
            (Some('/' | '$'), bytes) => Ok(Some(Self {
                folder: folder.to_owned(),
                bytes,
            })),
            (Some(_), _) => {
                let why = "is not absolute: it is a folder on each node's own disk, such as \"/tmp/samples\" or \"$TMPDIR/samples\"";
                Err(("loader.cache", why))
            }
        }
    }
}
