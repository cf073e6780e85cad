//! Why samples cannot be read.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Every message names the file or the sample, what is wrong, and the way out where there is one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum DataError {
    /// A file, or a folder of files, that cannot be used at all.
    #[error("{}: {reason}", path.display())]
    File {
        /// It.
        path: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// One sample that cannot be used; others can.
    #[error("sample {number}, {name}: {reason}")]
    Sample {
        /// Its number in its source, from 0.
        number: usize,
        /// Where it is: a file, or a place in one.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// What was asked for is not there, or does not fit.
    #[error("{0}")]
    Asked(String),
    /// There is not so much memory now.
    #[error("{0}")]
    Memory(String),
    /// Somebody has asked to stop.
    #[error("interrupted: nothing is kept")]
    Interrupted,
    /// A reader has panicked.
    #[error(transparent)]
    Ended(#[from] crate::Ended),
}

impl DataError {
    /// Of a file that cannot be used.
    pub fn file(path: &Path, reason: impl ToString) -> Self {
        Self::File {
            path: path.into(),
            reason: reason.to_string(),
        }
    }

    /// Of a file that was written while it was used.
    pub(crate) fn changed(path: &Path) -> Self {
        let reason = "it was written since it was read first; let nobody write data of a run, and start again";
        Self::file(path, reason)
    }

    /// Of a file that the operating system does not give.
    pub fn of_system(path: &Path, error: &std::io::Error) -> Self {
        Self::file(path, error)
    }
}
