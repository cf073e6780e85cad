//! Files of a group's sets, copied to the node's own disk while training goes on.

use std::fmt::Display;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// Copies files of samples in the background, range by range. Ends, between two pieces of a file, when it is dropped.
pub struct Staging {
    wanted: Option<Sender<Vec<Range<usize>>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Staging {
    /// Copies by `copy`, such as [`stage`](crate::stage), which ends early once it is told to stop.
    pub fn new<E: Display>(
        mut copy: impl FnMut(Range<usize>, &AtomicBool) -> Result<(), E> + Send + 'static,
    ) -> Self {
        let (wanted, asked): (_, Receiver<Vec<Range<usize>>>) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let copy = move || {
            for part in asked.into_iter().flatten() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                if let Err(error) = copy(part, &stopped) {
                    // Whoever reads the file says it, too, and ends the run.
                    tracing::warn!("files cannot be copied ahead of their use: {error}");
                }
            }
        };
        // Not supervised: what it does not copy is copied, or read where it is, when it is used.
        let thread = std::thread::Builder::new().name("staging".into());
        let thread = thread.spawn(copy).inspect_err(|error| {
            tracing::warn!(
                "files are not copied ahead of their use: no thread can be started: {error}"
            );
        });
        Self {
            wanted: Some(wanted),
            stop,
            thread: thread.ok(),
        }
    }

    /// Samples that will be used; the ranks of a group copy a part of their files first that is another one for
    /// each.
    pub fn want(&self, samples: Range<usize>, rank: u32, ranks: u32) {
        let parts = in_parts(samples, rank as usize, ranks as usize);
        if let Some(wanted) = &self.wanted {
            // Without a thread nobody hears it, which was told.
            let _ = wanted.send(parts);
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.wanted = None;
        if let Some(thread) = self.thread.take() {
            // One that has panicked has told it.
            let _ = thread.join();
        }
    }
}

/// As many parts as there are ranks, beginning with this one's.
fn in_parts(samples: Range<usize>, rank: usize, ranks: usize) -> Vec<Range<usize>> {
    let cut = |part: usize| samples.start + samples.len() * part / ranks;
    let part = |nth: usize| (rank + nth) % ranks;
    let parts = (0..ranks).map(|nth| cut(part(nth))..cut(part(nth) + 1));
    parts.filter(|part| !part.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_begin_with_different_parts_and_copy_all() {
        assert_eq!(in_parts(10..20, 0, 2), [10..15, 15..20]);
        assert_eq!(in_parts(10..20, 1, 3), [13..16, 16..20, 10..13]);
        assert_eq!(in_parts(4..6, 2, 3), [5..6, 4..5]);
    }
}
