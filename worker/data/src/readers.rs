//! Batches read ahead of their use, by several threads.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use serde::{Deserialize, Serialize};

/// How much is read ahead.
#[derive(Clone, Copy, Debug)]
pub struct Ahead {
    /// Threads; at least 1.
    pub readers: usize,
    /// Batches that are asked for and not yet taken; at least 1.
    pub batches: usize,
    /// Bytes of batches that are being read, or are read and not yet taken.
    pub bytes: usize,
}

/// All batches that may be read ahead are asked for: take one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("all batches that may be read ahead are asked for; take one first")]
pub struct Full;

/// Why there is no batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("a reader of samples has ended unexpectedly; its panic message is in the log")]
pub struct Ended;

/// Threads that turn what is asked for, such as lists of sample numbers, into batches, which come in the order
/// asked for, whatever the number of threads.
///
/// A batch is begun only when its bytes fit beside those that are begun and not yet taken; batches are begun
/// in the order asked for, so that the one which is waited for always has room. Dropping it ends the threads
/// after the batches at hand.
pub struct Readers<T, A = Vec<usize>> {
    shared: Arc<Shared<T, A>>,
    ahead: Ahead,
    /// Batches that are asked for and not yet taken.
    pending: usize,
    threads: Vec<JoinHandle<()>>,
}

struct Shared<T, A> {
    state: Mutex<State<T, A>>,
    /// There may be something to begin, or the end.
    begin: Condvar,
    /// A batch is ready.
    ready: Condvar,
}

struct State<T, A> {
    asked: VecDeque<A>,
    /// Number of the first in `asked`, and of the batch that is taken next.
    begun: u64,
    taken: u64,
    /// By number: what came of it, and its bytes.
    done: BTreeMap<u64, (Result<T, Ended>, usize)>,
    bytes: usize,
    bytes_max: usize,
    stop: bool,
}

impl<T: Send + 'static, A: Send + 'static> Readers<T, A> {
    /// Starts the threads: `read` makes a batch of what is asked for, `bytes` says how many bytes it takes at most.
    pub fn new(
        ahead: Ahead,
        read: impl Fn(&A) -> T + Send + Sync + 'static,
        bytes: impl Fn(&A) -> usize + Send + Sync + 'static,
    ) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                asked: VecDeque::new(),
                begun: 0,
                taken: 0,
                done: BTreeMap::new(),
                bytes: 0,
                bytes_max: 0,
                stop: false,
            }),
            begin: Condvar::new(),
            ready: Condvar::new(),
        });
        let work = Arc::new((read, bytes));
        let start = |number| {
            let (shared, work) = (Arc::clone(&shared), Arc::clone(&work));
            let name = format!("reader {number}");
            // Not supervised: `next` tells of a panic.
            let thread = std::thread::Builder::new().name(name);
            let begun = thread.spawn(move || shared.serve(ahead.bytes, &work.0, &work.1));
            begun.expect("the system has room for one more thread")
        };
        let threads = (0..ahead.readers.max(1)).map(start).collect();
        Self {
            shared,
            ahead,
            pending: 0,
            threads,
        }
    }

    /// How many more batches may be asked for now.
    pub fn room(&self) -> usize {
        self.ahead.batches.max(1) - self.pending
    }

    /// Whether none is asked for.
    pub fn is_empty(&self) -> bool {
        self.pending == 0
    }

    /// Whether [`next`](Self::next) would not wait.
    pub fn is_ready(&self) -> bool {
        let state = self.shared.lock();
        self.pending == 0 || state.done.contains_key(&state.taken)
    }

    /// Asks for one batch; returns at once.
    ///
    /// # Errors
    /// [`Full`] when there is no [`room`](Self::room).
    pub fn request(&mut self, batch: A) -> Result<(), Full> {
        if self.room() == 0 {
            return Err(Full);
        }
        self.pending += 1;
        self.shared.lock().asked.push_back(batch);
        self.shared.begin.notify_one();
        Ok(())
    }

    /// The oldest batch that was asked for, waiting until it is ready; `None` when none is.
    ///
    /// # Errors
    /// [`Ended`] if reading it panicked.
    #[expect(
        clippy::should_implement_trait,
        reason = "None is not the end: more may be asked for"
    )]
    pub fn next(&mut self) -> Option<Result<T, Ended>> {
        self.pending = self.pending.checked_sub(1)?;
        let mut state = self.shared.lock();
        let number = state.taken;
        let (batch, bytes) = loop {
            match state.done.remove(&number) {
                Some(done) => break done,
                None => state = wait(&self.shared.ready, state),
            }
        };
        state.taken += 1;
        state.bytes -= bytes;
        drop(state);
        self.shared.begin.notify_all();
        Some(batch)
    }

    /// Most bytes that batches took at once, which were being read, or read and not yet taken.
    pub fn bytes_max(&self) -> usize {
        self.shared.lock().bytes_max
    }
}

impl<T, A> Shared<T, A> {
    fn lock(&self) -> MutexGuard<'_, State<T, A>> {
        // Nothing panics while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One thread's work, to the end.
    fn serve(&self, bytes_max: usize, read: &impl Fn(&A) -> T, bytes: &impl Fn(&A) -> usize) {
        while let Some((number, asked, size)) = self.take(bytes_max, bytes) {
            let batch = catch_unwind(AssertUnwindSafe(|| read(&asked)));
            let mut state = self.lock();
            state.done.insert(number, (batch.map_err(|_| Ended), size));
            drop(state);
            self.ready.notify_one();
        }
    }

    /// The next batch to be read, once there is room for it; `None` at the end.
    fn take(&self, bytes_max: usize, bytes: &impl Fn(&A) -> usize) -> Option<(u64, A, usize)> {
        let mut state = self.lock();
        loop {
            if state.stop {
                return None;
            }
            if let Some(asked) = state.asked.front() {
                let size = bytes(asked);
                // Alone it may be larger: who starts a run has refused that.
                if state.bytes == 0 || state.bytes + size <= bytes_max {
                    let asked = state.asked.pop_front().expect("it was looked at");
                    let number = state.begun;
                    state.begun += 1;
                    state.bytes += size;
                    state.bytes_max = state.bytes_max.max(state.bytes);
                    return Some((number, asked, size));
                }
            }
            state = wait(&self.begin, state);
        }
    }
}

fn wait<'a, S>(condition: &Condvar, state: MutexGuard<'a, S>) -> MutexGuard<'a, S> {
    condition
        .wait(state)
        .unwrap_or_else(PoisonError::into_inner)
}

impl<T, A> Drop for Readers<T, A> {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.begin.notify_all();
        for thread in self.threads.drain(..) {
            // Panics were caught.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::batch::testing::Numbers;
    use crate::{Batch, DataError, Memory, read_batch};

    type Read = Result<Batch<Vec<u8>>, DataError>;

    fn start(ahead: Ahead) -> Readers<Read> {
        let read = |samples: &Vec<usize>| {
            // So that batches are ready in another order.
            std::thread::sleep(Duration::from_micros(100 * (7 - samples[0] as u64 % 7)));
            read_batch(&Numbers::new(), samples, &mut Memory {})
        };
        Readers::new(ahead, read, |samples| 10 * samples.len())
    }

    const AHEAD: Ahead = Ahead {
        readers: 3,
        batches: 6,
        bytes: 60,
    };

    fn fill(readers: &mut Readers<Read>, source: &mut dyn Iterator<Item = Vec<usize>>) {
        while readers.room() > 0 {
            let Some(samples) = source.next() else { return };
            readers.request(samples).unwrap();
        }
    }

    #[test]
    fn batches_come_in_the_order_asked_for_whatever_the_number_of_readers() {
        for readers in 1..5 {
            let mut reading = start(Ahead { readers, ..AHEAD });
            let mut source = (20..90).map(|i| vec![i, i + 1]);
            let mut got = Vec::new();
            loop {
                fill(&mut reading, &mut source);
                let Some(batch) = reading.next() else { break };
                got.push(batch.unwrap().unwrap().samples[0]);
            }
            assert_eq!(got, (20..90).collect::<Vec<_>>());
        }
    }

    #[test]
    fn no_more_than_may_be_is_asked_for_and_held() {
        let mut reading = start(AHEAD);
        for i in 0..6 {
            assert_eq!(reading.request(vec![i, i]), Ok(()));
        }
        assert_eq!(reading.request(vec![4]), Err(Full));
        // Three batches of two fit at once.
        while reading.shared.lock().bytes < 60 {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(reading.shared.lock().begun, 3);
        let taken = std::iter::from_fn(|| reading.next()).count();
        assert_eq!((taken, reading.bytes_max()), (6, 60));
        assert_eq!(reading.shared.lock().bytes, 0);
        // One that never fits is read alone.
        reading.request(vec![20; 30]).unwrap();
        reading.request(vec![21]).unwrap();
        assert_eq!(reading.next().unwrap().unwrap().unwrap().samples.len(), 30);
        assert_eq!(reading.next().unwrap().unwrap().unwrap().samples, [21]);
    }

    #[test]
    fn errors_and_panics_come_in_their_place_and_later_batches_still_come() {
        let mut reading = start(AHEAD);
        let asked = [vec![1], vec![13], vec![99], vec![2]];
        fill(&mut reading, &mut asked.into_iter());
        assert_eq!(reading.next().unwrap().unwrap().unwrap().samples, [1]);
        let error = reading.next().unwrap().unwrap().unwrap_err();
        assert!(matches!(error, DataError::Sample { number: 13, .. }));
        assert_eq!(reading.next().unwrap().unwrap_err(), Ended);
        assert_eq!(reading.next().unwrap().unwrap().unwrap().samples, [2]);
        assert!(reading.next().is_none());
    }

    #[test]
    fn dropping_ends_the_threads_whatever_is_pending() {
        let alive = Arc::new(AtomicUsize::new(0));
        for taken in 0..4 {
            let held = Arc::clone(&alive);
            let read = move |_: &Vec<usize>| held.fetch_add(1, Ordering::SeqCst);
            let mut reading = Readers::new(AHEAD, read, |_| 30);
            for i in 0..6 {
                reading.request(vec![i]).unwrap();
            }
            for _ in 0..taken {
                reading.next().unwrap().unwrap();
            }
            drop(reading);
            // The threads' own handle is gone with them.
            assert_eq!(Arc::strong_count(&alive), 1);
        }
    }
}
