//! The reader's side: it opens the samples, answers, and ends with its parent.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use memmap2::MmapMut;
use rustix::process::{Pid, getppid};

use super::{Note, Opened, PROGRAM, Places};
use crate::{Appended, Cache, CacheCounts, DataError, Hdf5Folder, Layout, Room, Source};

/// How often a reader looks whether its parent lives: a process that the parent has forked may hold the socket.
const PARENT: Duration = Duration::from_secs(5);

/// Why a reader ends before its time.
#[derive(Debug, thiserror::Error)]
pub enum ReaderError {
    /// Somebody else has started it.
    #[error(
        "{PROGRAM} is started by whoever reads samples: `{PROGRAM} PATH [LAYOUT [CACHE BYTES]]`, with a socket for its input and shared memory for its output"
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
    let layout = arguments.next().filter(|layout| !layout.is_empty());
    let cache = match (arguments.next(), arguments.next()) {
        (Some(folder), Some(bytes)) => {
            let bytes = bytes.to_string_lossy().parse();
            let bytes = bytes.map_err(|_| ReaderError::NotStarted)?;
            Some(Arc::new(Cache::open(Path::new(&folder), bytes)))
        }
        _ => None,
    };
    let socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let memory: OwnedFd = std::io::stdout().as_fd().try_clone_to_owned()?;
    if socket.local_addr().is_err() {
        return Err(ReaderError::NotStarted);
    }
    let layout = layout.map(|layout| layout.to_string_lossy().parse::<Layout>());
    let source = layout
        .transpose()
        .and_then(|layout| Hdf5Folder::open(&path, layout.as_ref()))
        .map(|source| Box::new(source.cached(cache.clone())) as Box<dyn Source>);
    let serving = Serving {
        parent,
        socket,
        cache,
        said: CacheCounts::default(),
    };
    serving.serve(source, &File::from(memory))
}

struct Serving {
    parent: Option<Pid>,
    socket: UnixStream,
    cache: Option<Arc<Cache>>,
    /// What the cache had done at the last answer.
    said: CacheCounts,
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
        let places = Places::of(source.fields());
        if memory.metadata()?.len() < places.bytes() as u64 {
            return Err(io::Error::other("there is too little memory for a sample").into());
        }
        // SAFETY: the memory has no file that somebody could cut. The parent reads it, and only between an
        // answer and the next question, when nothing here writes.
        let mut memory = unsafe { MmapMut::map_mut(memory) }?;
        self.socket.set_read_timeout(Some(PARENT))?;
        while let Some(samples) = self.question(places.samples)? {
            let mut answer = vec![0; 4];
            let (mut read, mut note) = (0u32, Note::default());
            for (sample, memory) in samples.iter().zip(memory.chunks_mut(places.sample_bytes)) {
                match read_into(&*source, *sample, &places, memory) {
                    Ok(bytes) => {
                        read += 1;
                        let bytes = bytes.iter().flat_map(|n| (*n as u64).to_le_bytes());
                        answer.extend(bytes);
                    }
                    Err(error) => {
                        note.error = Some(error);
                        break;
                    }
                }
            }
            answer[..4].copy_from_slice(&read.to_le_bytes());
            if let Some(cache) = &self.cache {
                let now = cache.counts();
                note.cache = (now != self.said).then(|| now.since(&self.said));
                self.said = now;
            }
            let text = match (&note.error, &note.cache) {
                (None, None) => Vec::new(),
                _ => serde_json::to_vec(&note).map_err(io::Error::from)?,
            };
            answer.extend((text.len() as u32).to_le_bytes());
            answer.extend(text);
            self.socket.write_all(&answer)?;
        }
        Ok(())
    }

    fn say(&mut self, what: &impl serde::Serialize) -> Result<(), ReaderError> {
        let text = serde_json::to_vec(what).map_err(io::Error::from)?;
        self.socket.write_all(&(text.len() as u32).to_le_bytes())?;
        self.socket.write_all(&text)?;
        Ok(())
    }

    /// The next samples that are asked for; `None` at the end.
    fn question(&mut self, most: usize) -> Result<Option<Vec<usize>>, ReaderError> {
        let mut count = [0; 4];
        if !self.filled(&mut count)? {
            return Ok(None);
        }
        let count = u32::from_le_bytes(count) as usize;
        if count > most {
            return Err(io::Error::other("more samples are asked for than there is memory").into());
        }
        let mut numbers = vec![0; 8 * count];
        if !self.filled(&mut numbers)? {
            return Ok(None);
        }
        let numbers = numbers.as_chunks::<8>().0.iter();
        Ok(Some(
            numbers.map(|n| u64::from_le_bytes(*n) as usize).collect(),
        ))
    }

    /// Fills these bytes; false if the parent has gone.
    fn filled(&mut self, bytes: &mut [u8]) -> Result<bool, ReaderError> {
        let mut got = 0;
        while got < bytes.len() {
            match self.socket.read(&mut bytes[got..]) {
                Ok(0) => return Ok(false),
                Ok(more) => got += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if getppid() != self.parent {
                        return Ok(false);
                    }
                }
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }
}

/// Reads a sample into its place in the memory; the bytes of each field.
fn read_into(
    source: &dyn Source,
    sample: usize,
    places: &Places,
    memory: &mut [u8],
) -> Result<Vec<usize>, DataError> {
    let fields = source.fields();
    let mut filled = vec![0; fields.len()];
    let mut rooms = Vec::with_capacity(fields.len());
    let (mut rest, mut at) = (memory, 0);
    for ((field, begin), filled) in fields.iter().zip(&places.begins).zip(&mut filled) {
        let (_, after) = rest.split_at_mut(begin - at);
        let (place, after) = after.split_at_mut(field.bytes_max());
        (rest, at) = (after, begin + field.bytes_max());
        rooms.push(match field.varies() {
            true => Room::Varying(Appended::new(place, filled)),
            false => {
                *filled = place.len();
                Room::One(place)
            }
        });
    }
    source.read(sample, &mut rooms)?;
    Ok(filled)
}
