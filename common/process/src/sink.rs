//! The way of the log out of the process: a queue and a thread. A stream that takes nothing, because
//! nobody reads a pipe or a disk does not answer, holds nobody up but that thread.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use crate::lines::Lines;

/// Bytes that wait to be taken; what comes on top is lost.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// How long a line for standard output waits for lines of the log before it.
const ORDER: Duration = Duration::from_millis(100);

/// What is told of how many lines are lost.
static TOLD: OnceLock<fn(u64)> = OnceLock::new();

/// Lines of the log that are lost.
static LOST: AtomicU64 = AtomicU64::new(0);

static QUEUE: Queue = Queue::new();

/// The process whose thread takes lines; 0 without one. Its children that it forks have no such thread.
static TAKEN_IN: AtomicU32 = AtomicU32::new(0);

struct Queue {
    state: Mutex<State>,
    /// Something waits.
    more: Condvar,
    /// Nothing does.
    done: Condvar,
}

struct State {
    /// Each with the number of those before it for which there was no room.
    lines: VecDeque<(Vec<u8>, u64)>,
    bytes: usize,
    /// Lines for which there was no room since the last one for which there was.
    refused: u64,
    /// A line is being written.
    writing: bool,
}

impl Queue {
    const fn new() -> Self {
        Self {
            state: Mutex::new(State {
                lines: VecDeque::new(),
                bytes: 0,
                refused: 0,
                writing: false,
            }),
            more: Condvar::new(),
            done: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing in here leaves the state half-changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a line, or loses it; returns at once.
    fn put(&self, line: &[u8]) -> bool {
        let mut state = self.state();
        let has_room = state.bytes + line.len() <= WAITING_BYTES_MAX;
        if has_room {
            state.bytes += line.len();
            let refused = std::mem::take(&mut state.refused);
            state.lines.push_back((line.to_vec(), refused));
            self.more.notify_one();
        } else {
            state.refused += 1;
        }
        has_room
    }

    /// The next line, waiting for it, and how many were refused before.
    fn next(&self) -> (Vec<u8>, u64) {
        let mut state = self.state();
        state.writing = false;
        if state.lines.is_empty() {
            self.done.notify_all();
        }
        let empty = |state: &mut State| state.lines.is_empty();
        let waited = self.more.wait_while(state, empty);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let (line, refused) = state.lines.pop_front().expect("it is not empty");
        state.bytes -= line.len();
        state.writing = true;
        (line, refused)
    }

    fn flush(&self, patience: Duration) {
        let busy = |state: &mut State| state.writing || !state.lines.is_empty();
        // What is not taken by then is nobody's.
        let _ = self.done.wait_timeout_while(self.state(), patience, busy);
    }
}

/// Whether a thread of this process takes lines.
fn is_taken() -> bool {
    TAKEN_IN.load(Ordering::Relaxed) == std::process::id()
}

/// Starts the thread.
pub(crate) fn start() {
    let (none, order) = (0, Ordering::Relaxed);
    let begun = TAKEN_IN.compare_exchange(none, std::process::id(), order, order);
    if begun.is_err() {
        return;
    }
    let take = || {
        let mut lines = Lines::new();
        loop {
            let (line, refused) = QUEUE.next();
            lines.lose(refused, "nobody took them");
            if !lines.write(&mut Stream::Errors, &line) {
                lost();
            }
        }
    };
    let thread = std::thread::Builder::new().name("log".into()).spawn(take);
    if thread.is_err() {
        // The machine has no more of them. Lines are written where they come up, then.
        TAKEN_IN.store(0, Ordering::Relaxed);
    }
}

/// Logs a line, which has its end.
pub(crate) fn put(line: &[u8]) {
    static DIRECT: Mutex<Lines> = Mutex::new(Lines::new());
    let taken = match is_taken() {
        true => QUEUE.put(line),
        false => direct(&DIRECT, Stream::Errors, line),
    };
    if !taken {
        lost();
    }
}

/// Writes a line to standard output, after what was logged before.
pub(crate) fn say(line: &[u8]) {
    static SAID: Mutex<Lines> = Mutex::new(Lines::new());
    flush(ORDER);
    direct(&SAID, Stream::Output, line);
}

/// Writes to standard output what was asked for.
pub(crate) fn print(text: &[u8]) -> io::Result<()> {
    flush(ORDER);
    Stream::Output.write_all(text)
}

fn direct(lines: &Mutex<Lines>, mut stream: Stream, line: &[u8]) -> bool {
    let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
    lines.write(&mut stream, line)
}

/// Waits until all is taken, or for so long.
pub(crate) fn flush(patience: Duration) {
    if is_taken() {
        QUEUE.flush(patience);
    }
}

/// Lines of the log that are lost.
pub(crate) fn lost_so_far() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Has this told of the number of lost lines whenever it changes.
pub(crate) fn tell(told: fn(u64)) {
    let _ = TOLD.set(told);
}

fn lost() {
    let lost = LOST.fetch_add(1, Ordering::Relaxed) + 1;
    if let Some(tell) = TOLD.get() {
        tell(lost);
    }
}

/// A stream without what std does about its failures, and without its buffer, which keeps what could
/// not be written.
#[derive(Clone, Copy)]
enum Stream {
    Output,
    Errors,
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = match self {
            Self::Output => rustix::io::write(io::stdout(), bytes),
            Self::Errors => rustix::io::write(io::stderr(), bytes),
        };
        Ok(written?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_takes_nothing_holds_nobody_up() {
        let queue = Queue::new();
        let line = [b'x'; 1024];
        let fits = WAITING_BYTES_MAX / line.len();
        let taken = (0..fits + 3).filter(|_| queue.put(&line)).count();
        assert_eq!(taken, fits);
        queue.flush(Duration::ZERO);
        // Who takes a line makes room for one, before which the others are missing.
        assert_eq!(queue.next(), (line.to_vec(), 0));
        assert!(queue.put(&line) && !queue.put(&line));
        let missing = (1..fits).map(|_| queue.next().1).sum::<u64>();
        assert_eq!((missing, queue.next().1), (0, 3));
    }

    #[test]
    fn the_end_waits_for_the_last_line() {
        static QUEUE: Queue = Queue::new();
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        std::thread::spawn(|| {
            loop {
                QUEUE.next();
                std::thread::sleep(Duration::from_millis(1));
                WRITTEN.fetch_add(1, Ordering::Relaxed);
            }
        });
        assert!((0..100).all(|_| QUEUE.put(b"a line\n")));
        QUEUE.flush(Duration::from_secs(60));
        assert_eq!(WRITTEN.load(Ordering::Relaxed), 100);
    }
}
