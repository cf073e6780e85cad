//! Batches prepared ahead of their use, by one thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use tch::Device;

use super::{Batch, DataError, Dataset, Split};

/// A thread that turns lists of sample numbers into batches, in the order asked for.
///
/// At most `depth` batches are asked for and not yet taken. Both queues have room for all of
/// them, so neither side ever waits to hand something over: only [`next`](Self::next) waits, and
/// only for a batch that was asked for. Dropping it ends the thread after the batch at hand.
pub struct Prefetch {
    depth: usize,
    /// Batches that are asked for and not yet taken.
    pending: usize,
    /// `None` only while being dropped.
    requests: Option<SyncSender<Vec<usize>>>,
    batches: Receiver<Result<Batch, DataError>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// `depth` batches are already asked for: take one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("all batches that may be prepared ahead are asked for; take one first")]
pub struct Full;

impl Prefetch {
    /// Starts the thread. `depth` is the number of batches that may be prepared ahead, at least 1.
    /// They are left in main memory, where `device` takes them from.
    pub fn new(dataset: Arc<dyn Dataset>, split: Split, depth: usize, device: Device) -> Self {
        let depth = depth.max(1);
        let (requests, asked) = sync_channel::<Vec<usize>>(depth);
        let (ready, batches) = sync_channel(depth);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let work = move || {
            for samples in asked {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let batch = dataset.batch(split, &samples);
                let staged = batch.and_then(|batch| batch.staged(device));
                if ready.send(staged).is_err() {
                    return;
                }
            }
        };
        // Not supervised: `next` tells of its end.
        let thread = std::thread::Builder::new()
            .name("prefetch".into())
            .spawn(work);
        let thread = Some(thread.expect("the system has room for one more thread"));
        Self {
            depth,
            pending: 0,
            requests: Some(requests),
            batches,
            stop,
            thread,
        }
    }

    /// How many more batches may be asked for now.
    pub fn room(&self) -> usize {
        self.depth - self.pending
    }

    /// Asks for one batch; returns at once.
    ///
    /// # Errors
    /// [`Full`] when there is no [`room`](Self::room).
    pub fn request(&mut self, samples: Vec<usize>) -> Result<(), Full> {
        if self.room() == 0 {
            return Err(Full);
        }
        self.pending += 1;
        // If the thread is gone, `next` says so.
        let _ = self
            .requests
            .as_ref()
            .map(|requests| requests.send(samples));
        Ok(())
    }

    /// The oldest batch that was asked for, waiting until it is ready; `None` when none is.
    #[expect(
        clippy::should_implement_trait,
        reason = "None is not the end: more may be asked for"
    )]
    pub fn next(&mut self) -> Option<Result<Batch, DataError>> {
        self.pending = self.pending.checked_sub(1)?;
        Some(self.batches.recv().unwrap_or(Err(DataError::PrefetchEnded)))
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // A panic in it was already reported by `next`, or concerns nobody any more.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use tch::Tensor;

    use super::*;

    /// Sample `i` is the number `i`; sample 13 cannot be read, sample 99 panics.
    #[derive(Default)]
    struct Numbers {
        read: AtomicUsize,
    }

    impl Dataset for Numbers {
        fn len(&self, _: Split) -> usize {
            100
        }

        fn batch(&self, split: Split, samples: &[usize]) -> Result<Batch, DataError> {
            self.read.fetch_add(1, Ordering::SeqCst);
            assert!(!samples.contains(&99), "unlucky");
            if samples.contains(&13) {
                return Err(DataError::Sample {
                    split,
                    sample: 13,
                    len: 13,
                });
            }
            let values: Vec<f32> = samples.iter().map(|s| *s as f32).collect();
            let tensor = Tensor::from_slice(&values);
            Ok(Batch {
                samples: samples.to_vec(),
                input: tensor.copy(),
                target: tensor,
            })
        }
    }

    fn start(depth: usize) -> (Arc<Numbers>, Prefetch) {
        let numbers = Arc::new(Numbers::default());
        (
            Arc::clone(&numbers),
            Prefetch::new(numbers, Split::Train, depth, Device::Cpu),
        )
    }

    /// Asks for as many batches as there is room for.
    fn fill(prefetch: &mut Prefetch, source: &mut dyn Iterator<Item = Vec<usize>>) {
        while prefetch.room() > 0 {
            let Some(samples) = source.next() else { return };
            prefetch.request(samples).unwrap();
        }
    }

    #[test]
    fn batches_come_in_the_order_asked_for() {
        let (_, mut prefetch) = start(3);
        let mut source = (0..10).map(|i| vec![i, i + 1]);
        let mut got = Vec::new();
        loop {
            fill(&mut prefetch, &mut source);
            let Some(batch) = prefetch.next() else { break };
            got.push(batch.unwrap().samples[0]);
        }
        assert_eq!(got, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn no_more_than_depth_are_asked_for() {
        let (_, mut prefetch) = start(2);
        assert_eq!(prefetch.request(vec![1]), Ok(()));
        assert_eq!(prefetch.request(vec![2, 3]), Ok(()));
        assert_eq!(prefetch.room(), 0);
        assert_eq!(prefetch.request(vec![4]), Err(Full));
        assert_eq!(prefetch.next().unwrap().unwrap().samples, [1]);
        assert_eq!(prefetch.request(vec![4]), Ok(()));
    }

    #[test]
    fn an_error_comes_in_its_place_and_later_batches_still_come() {
        let (_, mut prefetch) = start(3);
        fill(&mut prefetch, &mut [vec![1], vec![13], vec![2]].into_iter());
        assert_eq!(prefetch.next().unwrap().unwrap().samples, [1]);
        let error = prefetch.next().unwrap().unwrap_err();
        assert_eq!(
            error,
            DataError::Sample {
                split: Split::Train,
                sample: 13,
                len: 13
            }
        );
        assert_eq!(prefetch.next().unwrap().unwrap().samples, [2]);
        assert!(prefetch.next().is_none());
    }

    #[test]
    fn a_panic_in_the_thread_is_an_error_not_a_wait() {
        let (_, mut prefetch) = start(2);
        fill(&mut prefetch, &mut [vec![99], vec![1]].into_iter());
        assert_eq!(
            prefetch.next().unwrap().unwrap_err(),
            DataError::PrefetchEnded
        );
        assert_eq!(
            prefetch.next().unwrap().unwrap_err(),
            DataError::PrefetchEnded
        );
    }

    #[test]
    fn dropping_ends_the_thread_whatever_is_pending() {
        for taken in 0..4 {
            let (numbers, mut prefetch) = start(64);
            fill(&mut prefetch, &mut (0..64).map(|i| vec![i % 10]));
            for _ in 0..taken {
                prefetch.next().unwrap().unwrap();
            }
            drop(prefetch);
            // The thread's own handle to the data is gone with it.
            assert_eq!(Arc::strong_count(&numbers), 1);
        }
    }
}
