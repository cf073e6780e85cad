//! Histories as files, read without trust.

use std::collections::HashSet;
use std::io::{self, BufRead, BufReader, Read, Write};

use crate::record::{Life, Loss, Operation, Record, Run};

/// Everything that is known of one run.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// What the run is.
    pub run: Run,
    /// What was asked, in any order.
    pub operations: Vec<Operation>,
    /// The losses that were told.
    pub losses: Vec<Loss>,
    /// When groups were live.
    pub lives: Vec<Life>,
}

/// Why a history cannot be judged.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The file cannot be read.
    #[error("the history cannot be read: {0}")]
    Io(#[from] io::Error),
    /// A line is no record.
    #[error("line {line} of the history is no record: {error}")]
    Line {
        /// From 1.
        line: usize,
        /// What is wrong.
        error: serde_json::Error,
    },
    /// A record says something that cannot be.
    #[error("the history cannot be judged: {0}")]
    Record(String),
}

impl History {
    /// A run of which nothing is known yet.
    pub fn new(run: Run) -> Self {
        Self {
            run,
            operations: Vec::new(),
            losses: Vec::new(),
            lives: Vec::new(),
        }
    }

    /// Adds a record.
    ///
    /// # Errors
    /// A second run: a history is of one.
    pub fn add(&mut self, record: Record) -> Result<(), Unreadable> {
        match record {
            Record::Run(_) => {
                let text = "it is of two runs; a history is of one";
                return Err(Unreadable::Record(text.into()));
            }
            Record::Operation(operation) => self.operations.push(operation),
            Record::Loss(loss) => self.losses.push(loss),
            Record::Life(life) => self.lives.push(life),
        }
        Ok(())
    }

    /// Reads lines of JSON; empty ones are passed over.
    ///
    /// # Errors
    /// If one is no record, the first is not of the run, or a record names what the run does not
    /// have.
    pub fn read(from: impl Read) -> Result<Self, Unreadable> {
        let mut history = None;
        for (number, line) in BufReader::new(from).lines().enumerate() {
            let line = line?;
            if line.trim().is_empty() {
                continue;
            }
            let record = serde_json::from_str(&line);
            let line = number + 1;
            match (
                &mut history,
                record.map_err(|error| Unreadable::Line { line, error })?,
            ) {
                (none @ None, Record::Run(run)) => *none = Some(Self::new(run)),
                (None, _) => {
                    let text = format!("line {line} comes before the record of the run");
                    return Err(Unreadable::Record(text));
                }
                (Some(history), record) => history.add(record)?,
            }
        }
        let history: Self = history.ok_or_else(|| Unreadable::Record("it is empty".into()))?;
        history.fits()?;
        Ok(history)
    }

    /// Writes it as lines of JSON.
    ///
    /// # Errors
    /// If that fails.
    pub fn write(&self, mut to: impl Write) -> io::Result<()> {
        let mut line = |record: &Record| {
            serde_json::to_writer(&mut to, record)?;
            to.write_all(b"\n")
        };
        line(&Record::Run(self.run.clone()))?;
        for life in &self.lives {
            line(&Record::Life(life.clone()))?;
        }
        for operation in &self.operations {
            line(&Record::Operation(operation.clone()))?;
        }
        for loss in &self.losses {
            line(&Record::Loss(loss.clone()))?;
        }
        Ok(())
    }

    /// Whether every record names only what the run has.
    ///
    /// # Errors
    /// The first one that does not.
    pub fn fits(&self) -> Result<(), Unreadable> {
        let no = |text: String| Err(Unreadable::Record(text));
        let groups = self.run.groups as usize;
        let mut numbers = HashSet::new();
        for operation in &self.operations {
            let name = format!("operation {}", operation.number);
            if !numbers.insert(operation.number) {
                return no(format!("{name} is there twice"));
            }
            if operation.block as usize >= self.run.shards.len() {
                let blocks = self.run.shards.len();
                return no(format!("{name}: block {} of {blocks}", operation.block));
            }
            if operation.group as usize >= groups {
                return no(format!("{name}: group {} of {groups}", operation.group));
            }
            let Some(answer) = &operation.answer else {
                continue;
            };
            if answer.end_us < operation.start_us {
                return no(format!("{name} is answered before it is asked"));
            }
            let counts = answer.counts.as_ref().map_or(groups, Vec::len);
            if counts != groups {
                return no(format!("{name} has {counts} counts for {groups} groups"));
            }
        }
        let unknown = |shard: u32| !self.run.shards.contains(&shard);
        match self.losses.iter().find(|loss| unknown(loss.shard)) {
            Some(loss) => no(format!(
                "a loss of shard {}, which has no block",
                loss.shard
            )),
            None => Ok(()),
        }
    }
}
