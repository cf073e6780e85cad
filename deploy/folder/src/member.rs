//! Who takes part in a run.

use std::fmt;
use std::path::PathBuf;

/// A place in a run that one process fills at a time. Servers come before ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Member {
    /// A parameter server, by its number.
    Server(u32),
    /// A rank, as configured.
    Rank {
        /// Its group.
        group: u32,
        /// Its number in the group.
        rank: u32,
    },
}

impl Member {
    /// The log of its processes, from the run's folder on.
    pub fn log(self) -> String {
        match self {
            Self::Server(server) => format!("logs/server-{server}.log"),
            Self::Rank { group, rank } => format!("logs/group-{group}-rank-{rank}.log"),
        }
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(server) => write!(f, "server {server}"),
            Self::Rank { group, rank } => write!(f, "rank {rank} of group {group}"),
        }
    }
}

/// What a process is in its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A server or a rank.
    Member(Member),
    /// The check of configuration, data and model before anything starts.
    Check,
    /// The evaluation after training.
    Evaluation,
    /// A process of a measurement, by its name and number there.
    Bench(&'static str, u32),
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Member(member) => member.fmt(f),
            Self::Check => f.write_str("the check of data and model"),
            Self::Evaluation => f.write_str("the evaluation"),
            Self::Bench(name, index) => write!(f, "{name} {index}"),
        }
    }
}

/// How a process ended.
#[derive(Clone, Debug)]
pub struct ProcessEnd {
    /// Of what.
    pub role: Role,
    /// Whether it ended with status 0.
    pub success: bool,
    /// What it returned; `None` if a signal ended it.
    pub status: Option<i32>,
    /// Such as `was killed by signal 9`.
    pub how: String,
    /// Where its output is.
    pub log: PathBuf,
    /// The last lines of that.
    pub tail: String,
}

impl fmt::Display for ProcessEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It has looked at what people have written, so what it found is all that they need.
        if self.role == Role::Check
            && let Some(message) = error_of(&self.tail)
        {
            return f.write_str(message);
        }
        write!(f, "{} {}", self.role, self.how)?;
        if self.role == Role::Check {
            // Its log goes with the folder of the run that never began.
            write!(f, ":\n{}", self.tail)
        } else if self.tail.is_empty() {
            write!(f, "; its log {} is empty", self.log.display())
        } else {
            write!(
                f,
                "; the last lines of {}:\n{}",
                self.log.display(),
                self.tail
            )
        }
    }
}

/// The message of the last error in the lines of a log, with the lines that belong to it. A line is
/// `TIME ERROR TARGET: MESSAGE`.
fn error_of(log: &str) -> Option<&str> {
    let (_, error) = log.rsplit_once(" ERROR ")?;
    let (_, message) = error.split_once(": ")?;
    Some(message.trim_end())
}

impl std::error::Error for ProcessEnd {}

impl ProcessEnd {
    /// The same end, with more to be said about it.
    pub fn because(self, how: String) -> Self {
        Self { how, ..self }
    }
}
