//! The reader's side: it opens the samples, answers, and ends with its parent.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use memmap2::MmapMut;
use rustix::process::{Pid, getppid};

use super::{Opened, PROGRAM, places};
use crate::{DataError, Hdf5Folder, Layout, Room, Rows, Source};

/// How often a reader looks whether its parent lives: a process that the parent has forked may hold the socket.
const PARENT: Duration = Duration::from_secs(5);

/// Why a reader ends before its time.
#[derive(Debug, thiserror::Error)]
pub enum ReaderError {
    /// Somebody else has started it.
    #[error(
        "{PROGRAM} is started by whoever reads samples: `{PROGRAM} PATH [LAYOUT]`, with a socket for its input and shared memory for its output"
    )]
    NotStarted,
    /// Its parent has gone in the middle of something, or gave it too little memory.
    #[error("{PROGRAM}: {0}")]
    System(#[from] io::Error),
}

/// What the program does, from its arguments to the end.
///
/// # Errors
/// It was started by hand; the socket or the memory cannot be used.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Result<(), ReaderError> {
    let parent = getppid();
    let mut arguments = arguments.into_iter();
    let path: PathBuf = arguments.next().ok_or(ReaderError::NotStarted)?.into();
    let layout = arguments.next();
    let socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let memory: OwnedFd = std::io::stdout().as_fd().try_clone_to_owned()?;
    if socket.local_addr().is_err() {
        return Err(ReaderError::NotStarted);
    }
    let layout = layout.map(|layout| layout.to_string_lossy().parse::<Layout>());
    let source = layout
        .transpose()
        .and_then(|layout| Hdf5Folder::open(&path, layout.as_ref()))
        .map(|source| Box::new(source) as Box<dyn Source>);
    Serving { parent, socket }.serve(source, &File::from(memory))
}

struct Serving {
    parent: Option<Pid>,
    socket: UnixStream,
}

impl Serving {
    fn serve(
        mut self,
        source: Result<Box<dyn Source>, DataError>,
        memory: &File,
    ) -> Result<(), ReaderError> {
        let opened = source.as_ref().map(|source| Opened {
            fields: source.fields().to_vec(),
            samples: source.len(),
        });
        self.say(&opened)?;
        let Ok(source) = source else { return Ok(()) };
        let (begins, bytes) = places(source.fields());
        if memory.metadata()?.len() < bytes as u64 {
            return Err(io::Error::other("there is too little memory for a sample").into());
        }
        // SAFETY: the memory has no file that somebody could cut. The parent reads it, and only between an
        // answer and the next question, when nothing here writes.
        let mut memory = unsafe { MmapMut::map_mut(memory) }?;
        self.socket.set_read_timeout(Some(PARENT))?;
        let mut refusal = vec![0; 1 + 8 * begins.len()];
        refusal[0] = 1;
        while let Some(sample) = self.question()? {
            match read(&*source, sample, &begins, &mut memory) {
                Ok(counts) => {
                    let counts = counts
                        .iter()
                        .flat_map(|count| (*count as u64).to_le_bytes());
                    let answer: Vec<u8> = [0].into_iter().chain(counts).collect();
                    self.socket.write_all(&answer)?;
                }
                Err(error) => {
                    self.socket.write_all(&refusal)?;
                    self.say(&error)?;
                }
            }
        }
        Ok(())
    }

    fn say(&mut self, what: &impl serde::Serialize) -> Result<(), ReaderError> {
        let text = serde_json::to_vec(what).map_err(io::Error::from)?;
        self.socket.write_all(&(text.len() as u32).to_le_bytes())?;
        self.socket.write_all(&text)?;
        Ok(())
    }

    /// The next sample that is asked for; `None` at the end.
    fn question(&mut self) -> Result<Option<usize>, ReaderError> {
        let (mut number, mut got) = ([0; 8], 0);
        while got < number.len() {
            match self.socket.read(&mut number[got..]) {
                Ok(0) => return Ok(None),
                Ok(bytes) => got += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if getppid() != self.parent {
                        return Ok(None);
                    }
                }
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(u64::from_le_bytes(number) as usize))
    }
}

/// Reads a sample into the memory; the bytes of each field.
fn read(
    source: &dyn Source,
    sample: usize,
    begins: &[usize],
    memory: &mut [u8],
) -> Result<Vec<usize>, DataError> {
    let fields = source.fields();
    // Rows are not written in place: how many there are is known afterwards.
    let mut rows = vec![Vec::new(); fields.len()];
    let mut rooms = Vec::with_capacity(fields.len());
    let (mut rest, mut at) = (&mut *memory, 0);
    for ((field, begin), rows) in fields.iter().zip(begins).zip(&mut rows) {
        rooms.push(match field.rows {
            Rows::Varying { .. } => Room::Varying(rows),
            Rows::One => {
                let (_, after) = std::mem::take(&mut rest).split_at_mut(begin - at);
                let (place, after) = after.split_at_mut(field.row_bytes());
                (rest, at) = (after, begin + field.row_bytes());
                Room::One(place)
            }
        });
    }
    source.read(sample, &mut rooms)?;
    let mut counts = Vec::with_capacity(fields.len());
    for ((field, begin), rows) in fields.iter().zip(begins).zip(&rows) {
        match field.rows {
            Rows::One => counts.push(field.row_bytes()),
            Rows::Varying { .. } => {
                memory[*begin..begin + rows.len()].copy_from_slice(rows);
                counts.push(rows.len());
            }
        }
    }
    Ok(counts)
}
