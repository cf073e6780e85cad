//! Readers that are processes: for files whose library lets one thread of a process read at a time, HDF5.
//!
//! A reader is the program [`PROGRAM`]. Its standard input is a socket, on which it is asked and answers; its
//! standard output is memory that it shares with its parent and writes samples into. So both are handed over
//! as every program's are, and nothing of the parent's is left open by accident. It ends when the socket is
//! closed, or when its parent is another one than at its start.
//!
//! ```text
//! reader → parent   u32 length, JSON: fields and number of samples, or why it cannot open them
//! parent → reader   u64 number of a sample
//! reader → parent   u8 0, and of each field u64 bytes, which are in the memory
//!                   u8 1, as many bytes as above, u32 length, JSON: why the sample cannot be read
//! ```

mod reader;

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex, PoisonError};

use rustix::fs::MemfdFlags;
use serde::{Deserialize, Serialize};

use crate::source::{placed, unusable};
use crate::{DataError, Field, Layout, Room, Source};

pub use self::reader::run;

/// The name of the readers' program.
pub const PROGRAM: &str = "tradewind-reader";

/// How often a sample is asked for whose reader dies.
const TRIES: usize = 2;

/// Longest text of an answer.
const TEXT_BYTES_MAX: usize = 16 << 20;

/// Where fields begin in the memory: at multiples of so many bytes.
const ALIGNED: usize = 64;

/// A source that is read by processes. Each reads one sample at a time; who asks while all are busy waits.
pub struct Processes {
    /// The same samples, for names and numbers.
    source: Box<dyn Source>,
    command: Words,
    idle: Mutex<Vec<Slot>>,
    returned: Condvar,
}

/// How a reader is started.
struct Words {
    program: PathBuf,
    path: PathBuf,
    layout: Option<String>,
}

/// A reader, or the place of one that has died.
type Slot = Option<Reader>;

/// A reader that waits to be asked.
struct Reader {
    child: Child,
    socket: UnixStream,
    memory: File,
    begins: Vec<usize>,
}

/// What a reader says first.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Opened {
    fields: Vec<Field>,
    samples: usize,
}

/// Where each field begins in the memory, and how much there is.
fn places(fields: &[Field]) -> (Vec<usize>, usize) {
    let mut bytes = 0;
    let begins = fields.iter().map(|field| {
        let begin = bytes;
        bytes += field.bytes_max().next_multiple_of(ALIGNED);
        begin
    });
    (begins.collect(), bytes.max(ALIGNED))
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
    /// Starts so many readers of a path and a layout. `source` is the same, opened in this process.
    ///
    /// # Errors
    /// The program is missing or cannot be started; a reader cannot open the samples, or finds others.
    pub fn start(
        source: Box<dyn Source>,
        path: &Path,
        layout: Option<&Layout>,
        readers: usize,
    ) -> Result<Self, DataError> {
        Self::start_program(program()?, source, path, layout, readers)
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
    ) -> Result<Self, DataError> {
        let command = Words {
            program,
            path: path.into(),
            layout: layout.map(ToString::to_string),
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

    /// Reads with a reader, starting one where there is none; a reader that dies is started again.
    fn read_with(
        &self,
        slot: &mut Slot,
        sample: usize,
        rooms: &mut [Room<'_>],
    ) -> Result<(), DataError> {
        let mut ended = String::new();
        for _ in 0..TRIES {
            let mut reader = match slot.take() {
                Some(reader) => reader,
                None => {
                    let started = self.command.spawn(self.source.fields())?;
                    started.opened(&*self.source, &self.command.program)?
                }
            };
            match reader.read(sample, self.source.fields(), rooms) {
                Ok(read) => {
                    *slot = Some(reader);
                    return read;
                }
                Err(error) => {
                    ended = reader.ended(&error);
                    let name = self.source.name(sample);
                    tracing::warn!("a reader {ended} at sample {sample}, {name}");
                }
            }
        }
        Err(unusable(
            self,
            sample,
            format!("its reader {ended}, {TRIES} times"),
        ))
    }
}

impl Words {
    /// Starts a reader, which then opens the samples.
    fn spawn(&self, fields: &[Field]) -> Result<Reader, DataError> {
        let failed = |error: io::Error| DataError::of_system(&self.program, &error);
        let (begins, bytes) = places(fields);
        let memory = rustix::fs::memfd_create("tradewind samples", MemfdFlags::CLOEXEC);
        let memory = File::from(memory.map_err(|error| failed(error.into()))?);
        memory.set_len(bytes as u64).map_err(failed)?;
        let (socket, theirs) = UnixStream::pair().map_err(failed)?;
        let mut command = Command::new(&self.program);
        command.arg(&self.path).args(&self.layout);
        command.stdin(Stdio::from(OwnedFd::from(theirs)));
        command.stdout(Stdio::from(memory.try_clone().map_err(failed)?));
        // Ctrl-C reaches the parent, which may still read on before it ends.
        command.process_group(0);
        let child = command.spawn().map_err(failed)?;
        Ok(Reader {
            child,
            socket,
            memory,
            begins,
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

    /// Reads a sample; the outer error is that of a reader that has ended.
    fn read(
        &mut self,
        sample: usize,
        fields: &[Field],
        rooms: &mut [Room<'_>],
    ) -> io::Result<Result<(), DataError>> {
        self.socket.write_all(&(sample as u64).to_le_bytes())?;
        let mut answer = vec![0; 1 + 8 * fields.len()];
        self.socket.read_exact(&mut answer)?;
        if answer[0] != 0 {
            return Ok(Err(serde_json::from_slice(&text(&mut self.socket)?)?));
        }
        let (counts, _) = answer[1..].as_chunks::<8>();
        for (((field, room), count), begin) in
            fields.iter().zip(rooms).zip(counts).zip(&self.begins)
        {
            let bytes = u64::from_le_bytes(*count) as usize;
            let fits = match field.varies() {
                true => bytes <= field.bytes_max() && bytes.is_multiple_of(field.row_bytes()),
                false => bytes == field.row_bytes(),
            };
            if !fits {
                return Err(io::Error::other(format!(
                    "it gave {bytes} bytes of {field}"
                )));
            }
            self.memory
                .read_exact_at(placed(room, bytes), *begin as u64)?;
        }
        Ok(Ok(()))
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
        let read = self.read_with(&mut slot, sample, rooms);
        self.give(slot);
        read
    }
}
