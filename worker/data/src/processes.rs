//! Readers that are processes: for files whose library lets one thread of a process read at a time, HDF5.
//!
//! A reader is the program [`PROGRAM`]. Its standard input is a socket, on which it is asked and answers; its
//! standard output is memory that it shares with its parent and writes samples into. So both are handed over
//! as every program's are, and nothing of the parent's is left open by accident. It ends when the socket is
//! closed, or when its parent is another one than at its start.
//!
//! ```text
//! reader → parent   u32 length, JSON: fields and number of samples, or why it cannot open them
//! parent → reader   u32 how many samples, no more than the memory has places for; u64 number of each
//! reader → parent   u32 how many of them are in the memory, from the first on: all up to the first that cannot
//!                   be read; of each of these u64 bytes of each field;
//!                   u32 length, JSON: why the next cannot be read, and what the cache has done; or length 0
//! ```

mod reader;

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags};
use serde::{Deserialize, Serialize};

use crate::source::{placed, unusable};
use crate::{Cache, CacheCounts, DataError, Field, Filling, Layout, Room, Source};

pub use self::reader::run;

/// The name of the readers' program.
pub const PROGRAM: &str = "tradewind-reader";

/// How often a sample is asked for whose reader dies.
const TRIES: usize = 2;

/// Longest text of an answer.
const TEXT_BYTES_MAX: usize = 16 << 20;

/// Where fields begin in the memory: at multiples of so many bytes.
const ALIGNED: usize = 64;

/// Memory of a reader, if a sample does not take more.
const MEMORY_BYTES: usize = 16 << 20;

/// Most samples that a reader is asked for at once.
const PLACES_MAX: usize = 1024;

/// A source that is read by processes. Each reads for one caller at a time, as many samples at once as 16 MiB hold,
/// or one; who asks while all are busy waits.
pub struct Processes {
    /// The same samples, for names and numbers.
    source: Box<dyn Source>,
    command: Words,
    cache: Option<Arc<Cache>>,
    idle: Mutex<Vec<Slot>>,
    returned: Condvar,
}

/// How a reader is started.
struct Words {
    program: PathBuf,
    path: PathBuf,
    layout: Option<String>,
    /// Folder and bytes of a cache.
    cache: Option<(PathBuf, u64)>,
}

/// A reader, or the place of one that has died.
type Slot = Option<Reader>;

/// A reader that waits to be asked.
struct Reader {
    child: Child,
    socket: BufReader<UnixStream>,
    memory: MmapRaw,
    places: Places,
}

/// What a reader says first.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Opened {
    fields: Vec<Field>,
    samples: usize,
}

/// What is said behind samples.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Note {
    error: Option<DataError>,
    cache: Option<CacheCounts>,
}

/// Where samples are in the memory.
#[derive(Debug)]
struct Places {
    /// Where each field begins, from where its sample does.
    begins: Vec<usize>,
    sample_bytes: usize,
    samples: usize,
}

impl Places {
    fn of(fields: &[Field]) -> Self {
        let mut bytes = 0;
        let begins = fields.iter().map(|field| {
            let begin = bytes;
            bytes += field.bytes_max().next_multiple_of(ALIGNED);
            begin
        });
        let begins = begins.collect();
        let sample_bytes = bytes.max(ALIGNED);
        Self {
            begins,
            sample_bytes,
            samples: (MEMORY_BYTES / sample_bytes).clamp(1, PLACES_MAX),
        }
    }

    fn bytes(&self) -> usize {
        self.sample_bytes * self.samples
    }
}

/// The readers' program: beside this one, or in the folder above, where tests are; then where PATH says.
///
/// # Errors
/// It is in none of these places.
pub fn program() -> Result<PathBuf, DataError> {
    let own = std::env::current_exe().unwrap_or_default();
    let beside = own.ancestors().skip(1).take(2).map(Path::to_owned);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = beside.chain(std::env::split_paths(&path));
    let mut programs = folders.map(|folder| folder.join(PROGRAM));
    programs.find(|program| program.is_file()).ok_or_else(|| {
        let reason = "the program that reads is missing, nor is it in PATH; build it with `cargo build --bins`";
        DataError::file(&own.with_file_name(PROGRAM), reason)
    })
}

impl Processes {
    /// Starts so many readers of a path and a layout, which read from a cache's copies if there is one. `source`
    /// is the same, opened in this process.
    ///
    /// # Errors
    /// The program is missing or cannot be started; a reader cannot open the samples, or finds others.
    pub fn start(
        source: Box<dyn Source>,
        path: &Path,
        layout: Option<&Layout>,
        readers: usize,
        cache: Option<Arc<Cache>>,
    ) -> Result<Self, DataError> {
        Self::start_program(program()?, source, path, layout, readers, cache)
    }

    /// As [`start`](Self::start), with a program from elsewhere.
    ///
    /// # Errors
    /// As of [`start`](Self::start).
    pub fn start_program(
        program: PathBuf,
        source: Box<dyn Source>,
        path: &Path,
        layout: Option<&Layout>,
        readers: usize,
        cache: Option<Arc<Cache>>,
    ) -> Result<Self, DataError> {
        let of_cache = |cache: &Arc<Cache>| (cache.folder().to_owned(), cache.bytes());
        let command = Words {
            program,
            path: path.into(),
            layout: layout.map(ToString::to_string),
            cache: cache.as_ref().map(of_cache),
        };
        // All open at the same time.
        let starting: Result<Vec<_>, _> = (0..readers.max(1))
            .map(|_| command.spawn(source.fields()))
            .collect();
        let opened = starting?
            .into_iter()
            .map(|reader| reader.opened(&*source, &command.program));
        let idle: Result<Vec<_>, _> = opened.map(|reader| reader.map(Some)).collect();
        Ok(Self {
            source,
            command,
            cache,
            idle: Mutex::new(idle?),
            returned: Condvar::new(),
        })
    }

    /// A slot that nobody has, waiting for one.
    fn take(&self) -> Slot {
        // Nothing panics while it is held.
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match idle.pop() {
                Some(slot) => return slot,
                None => {
                    idle = self
                        .returned
                        .wait(idle)
                        .unwrap_or_else(PoisonError::into_inner)
                }
            }
        }
    }

    fn give(&self, slot: Slot) {
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(slot);
        self.returned.notify_one();
    }

    /// The reader of a slot, started where there is none.
    fn reader(&self, slot: &mut Slot) -> Result<Reader, DataError> {
        match slot.take() {
            Some(reader) => Ok(reader),
            None => {
                let started = self.command.spawn(self.source.fields())?;
                started.opened(&*self.source, &self.command.program)
            }
        }
    }

    /// Has a reader read samples, no more than it has places for, and each put into the next rooms; what is behind
    /// them. The outer error is that of a reader that has ended, which says how.
    fn ask(
        &self,
        slot: &mut Slot,
        samples: &[usize],
        each: impl FnMut(&mut dyn FnMut(&mut [Room<'_>]) -> io::Result<()>) -> io::Result<()>,
    ) -> Result<Result<(), String>, DataError> {
        let mut reader = self.reader(slot)?;
        match reader.read(samples, self.source.fields(), each) {
            Ok(note) => {
                *slot = Some(reader);
                if let (Some(cache), Some(counts)) = (&self.cache, note.cache) {
                    cache.add(&counts);
                }
                note.error.map_or(Ok(Ok(())), Err)
            }
            Err(error) => {
                let ended = reader.ended(&error);
                let name = self.source.name(samples[0]);
                let others = match samples.len() {
                    1 => String::new(),
                    more => format!(", or one of the {} after it", more - 1),
                };
                let sample = samples[0];
                tracing::warn!("a reader {ended} at sample {sample}, {name}{others}");
                Ok(Err(ended))
            }
        }
    }

    /// Reads a sample; a reader that dies is started again.
    fn read_one(
        &self,
        slot: &mut Slot,
        sample: usize,
        rooms: &mut [Room<'_>],
    ) -> Result<(), DataError> {
        let mut ended = String::new();
        for _ in 0..TRIES {
            match self.ask(slot, &[sample], |put| put(rooms))? {
                Ok(()) => return Ok(()),
                Err(how) => ended = how,
            }
        }
        Err(unusable(
            self,
            sample,
            format!("its reader {ended}, {TRIES} times"),
        ))
    }

    /// Reads samples, as many at once as a reader has places for. Where one dies, they are read one by one, so that
    /// the sample at which it does is known.
    fn read_all(
        &self,
        slot: &mut Slot,
        samples: &[usize],
        filling: &mut Filling<'_>,
    ) -> Result<(), DataError> {
        let places = Places::of(self.source.fields()).samples;
        for samples in samples.chunks(places) {
            let before = filling.rows();
            let read = self.ask(slot, samples, |put| filling.next(|rooms| put(rooms)))?;
            if read.is_err() {
                for sample in &samples[filling.rows() - before..] {
                    filling.next(|rooms| self.read_one(slot, *sample, rooms))?;
                }
            }
        }
        Ok(())
    }
}

impl Words {
    /// Starts a reader, which then opens the samples.
    fn spawn(&self, fields: &[Field]) -> Result<Reader, DataError> {
        let failed = |error: io::Error| DataError::of_system(&self.program, &error);
        let places = Places::of(fields);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = rustix::fs::memfd_create("tradewind samples", flags);
        let memory = File::from(memory.map_err(|error| failed(error.into()))?);
        memory.set_len(places.bytes() as u64).map_err(failed)?;
        // Nobody can take it away while it is read.
        let sealed = rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::SEAL);
        sealed.map_err(|error| failed(error.into()))?;
        let mapped = MmapOptions::new().map_raw_read_only(&memory);
        let mapped = mapped.map_err(failed)?;
        let (socket, theirs) = UnixStream::pair().map_err(failed)?;
        let mut command = Command::new(&self.program);
        command.arg(&self.path);
        command.arg(self.layout.as_deref().unwrap_or_default());
        if let Some((folder, bytes)) = &self.cache {
            command.arg(folder).arg(bytes.to_string());
        }
        command.stdin(Stdio::from(OwnedFd::from(theirs)));
        command.stdout(Stdio::from(memory));
        // Ctrl-C reaches the parent, which may still read on before it ends.
        command.process_group(0);
        let child = command.spawn().map_err(failed)?;
        Ok(Reader {
            child,
            socket: BufReader::new(socket),
            memory: mapped,
            places,
        })
    }
}

impl Reader {
    /// The same once it has opened the same samples.
    fn opened(mut self, source: &dyn Source, program: &Path) -> Result<Self, DataError> {
        let text = text(&mut self.socket);
        let text = text.map_err(|error| {
            let ended = self.ended(&error);
            DataError::file(program, format!("it {ended} before it opened the samples"))
        })?;
        let opened: Result<Opened, DataError> = serde_json::from_slice(&text).map_err(|error| {
            DataError::file(program, format!("it is of another version: {error}"))
        })?;
        let want = Opened {
            fields: source.fields().to_vec(),
            samples: source.len(),
        };
        match opened? {
            opened if opened == want => Ok(self),
            Opened { samples, .. } => {
                let (known, reason) = (
                    want.samples,
                    "somebody writes the data, or the program is an older one",
                );
                let reason = format!(
                    "a reader finds {samples} samples, or other fields, where {known} were found: {reason}"
                );
                Err(DataError::file(program, reason))
            }
        }
    }

    /// Reads samples and has each put into rooms; what is said behind them. The error is that of a reader that has
    /// ended or talks nonsense.
    fn read(
        &mut self,
        samples: &[usize],
        fields: &[Field],
        mut each: impl FnMut(&mut dyn FnMut(&mut [Room<'_>]) -> io::Result<()>) -> io::Result<()>,
    ) -> io::Result<Note> {
        let numbers = samples.iter().flat_map(|n| (*n as u64).to_le_bytes());
        let count = (samples.len() as u32).to_le_bytes();
        let question: Vec<u8> = count.into_iter().chain(numbers).collect();
        self.socket.get_mut().write_all(&question)?;
        let mut count = [0; 4];
        self.socket.read_exact(&mut count)?;
        let count = u32::from_le_bytes(count) as usize;
        if count > samples.len() {
            return Err(io::Error::other("its answer has no sense"));
        }
        let mut bytes = vec![0; 8 * fields.len() * count];
        self.socket.read_exact(&mut bytes)?;
        let (bytes, _) = bytes.as_chunks::<8>();
        let text = text(&mut self.socket)?;
        let note: Note = match text.is_empty() {
            true => Note::default(),
            false => serde_json::from_slice(&text)?,
        };
        if note.error.is_none() && count < samples.len() {
            return Err(io::Error::other("its answer has no sense"));
        }
        for place in 0..count {
            let begin = place * self.places.sample_bytes;
            let bytes = &bytes[place * fields.len()..(place + 1) * fields.len()];
            each(&mut |rooms| self.put(begin, bytes, fields, rooms))?;
        }
        Ok(note)
    }

    /// Puts a sample into rooms that is in the memory from a place on.
    fn put(
        &self,
        sample_begin: usize,
        bytes: &[[u8; 8]],
        fields: &[Field],
        rooms: &mut [Room<'_>],
    ) -> io::Result<()> {
        let rooms = fields.iter().zip(rooms).zip(bytes);
        for (((field, room), bytes), begin) in rooms.zip(&self.places.begins) {
            let bytes = u64::from_le_bytes(*bytes) as usize;
            let fits = match field.varies() {
                true => bytes <= field.bytes_max() && bytes.is_multiple_of(field.row_bytes()),
                false => bytes == field.row_bytes(),
            };
            if !fits {
                return Err(io::Error::other(format!(
                    "it gave {bytes} bytes of {field}"
                )));
            }
            let (into, at) = (placed(room, bytes), sample_begin + begin);
            assert!(at + bytes <= self.memory.len(), "it has its place");
            // SAFETY: it is inside of the memory, which cannot become shorter. A reader writes only between a
            // question and its answer, and to one that does otherwise no reference was made here.
            unsafe {
                let from = self.memory.as_ptr().add(at);
                std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), bytes);
            }
        }
        Ok(())
    }

    /// How it ended, in words. One that talks nonsense is ended.
    fn ended(&mut self, error: &io::Error) -> String {
        let closed = [
            io::ErrorKind::UnexpectedEof,
            io::ErrorKind::BrokenPipe,
            io::ErrorKind::ConnectionReset,
        ];
        if !closed.contains(&error.kind()) {
            let _ = self.child.kill();
        }
        match self.child.wait() {
            Err(error) => format!("has ended ({error})"),
            Ok(status) => match (status.signal(), status.code()) {
                (Some(signal), _) if closed.contains(&error.kind()) => {
                    format!("was killed by signal {signal}")
                }
                (None, Some(code)) => format!("ended with status {code}"),
                _ => format!("was ended: {error}"),
            },
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // It would end by itself once the socket is closed, but maybe after a slow read.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A text with its length in front.
fn text(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > TEXT_BYTES_MAX {
        return Err(io::Error::other("its answer has no sense"));
    }
    let mut text = vec![0; length];
    from.read_exact(&mut text)?;
    Ok(text)
}

impl Source for Processes {
    fn fields(&self) -> &[Field] {
        self.source.fields()
    }

    fn len(&self) -> usize {
        self.source.len()
    }

    fn name(&self, sample: usize) -> String {
        self.source.name(sample)
    }

    fn read(&self, sample: usize, rooms: &mut [Room<'_>]) -> Result<(), DataError> {
        let mut slot = self.take();
        let read = self.read_one(&mut slot, sample, rooms);
        self.give(slot);
        read
    }

    fn read_many(&self, samples: &[usize], filling: &mut Filling<'_>) -> Result<(), DataError> {
        let mut slot = self.take();
        let read = self.read_all(&mut slot, samples, filling);
        self.give(slot);
        read
    }

    fn files(&self, samples: Range<usize>) -> Vec<PathBuf> {
        self.source.files(samples)
    }
}
