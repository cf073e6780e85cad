//! Memory of batches that is used again: for each batch the system would have to give new pages, which takes as
//! long as reading them from its page cache.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{DataError, Field, Place, Places};

/// Places begin at multiples of so many bytes, as libtorch's do.
const ALIGNED: usize = 64;

/// Gives memory for columns, and takes it back when they are dropped. Handles are of one pool.
///
/// What lies idle is never more than what was given away at once before.
///
/// ```
/// use tradewind_data::Pool;
///
/// let pool = Pool::default();
/// let place = pool.take(1 << 20)?;
/// let address = place.as_ptr();
/// drop(place);
/// assert_eq!(pool.take(1 << 20)?.as_ptr(), address);
/// # Ok::<(), tradewind_data::DataError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Pool(Arc<Mutex<Memory>>);

#[derive(Debug, Default)]
struct Memory {
    /// What was given back, the oldest first.
    idle: Vec<Vec<u8>>,
    idle_bytes: usize,
    /// Given away now, and the most at once.
    given_bytes: usize,
    given_max: usize,
}

impl Pool {
    /// `bytes` of memory, whatever is in them, from an address that is a multiple of 64.
    ///
    /// # Errors
    /// There is not so much.
    pub fn take(&self, bytes: usize) -> Result<Pooled, DataError> {
        let memory = match self.lock().find(bytes) {
            Some(memory) => memory,
            None => fresh(bytes)?,
        };
        self.lock().given(memory.len());
        let begin = memory.as_ptr().align_offset(ALIGNED);
        Ok(Pooled {
            range: begin..begin + bytes,
            memory,
            pool: self.clone(),
        })
    }

    /// How much is given away now, with what places need to begin where they do.
    pub fn given_bytes(&self) -> usize {
        self.lock().given_bytes
    }

    fn lock(&self) -> MutexGuard<'_, Memory> {
        // Nothing panics while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn fresh(bytes: usize) -> Result<Vec<u8>, DataError> {
    let mut memory = Vec::new();
    let all = bytes.saturating_add(ALIGNED);
    if memory.try_reserve_exact(all).is_err() {
        let reason = format!("{bytes} bytes of memory for a batch cannot be had");
        return Err(DataError::Memory(reason));
    }
    memory.resize(all, 0);
    Ok(memory)
}

impl Memory {
    /// The smallest that is large enough, but for no more than half of it.
    fn find(&mut self, bytes: usize) -> Option<Vec<u8>> {
        let fits = bytes.saturating_add(ALIGNED)..=bytes.saturating_mul(2).saturating_add(ALIGNED);
        let idle = self.idle.iter().enumerate();
        let fitting = idle.filter(|(_, memory)| fits.contains(&memory.len()));
        let (at, _) = fitting.min_by_key(|(_, memory)| memory.len())?;
        let memory = self.idle.remove(at);
        self.idle_bytes -= memory.len();
        Some(memory)
    }

    fn given(&mut self, bytes: usize) {
        self.given_bytes += bytes;
        self.given_max = self.given_max.max(self.given_bytes);
        self.let_go();
    }

    fn came_back(&mut self, memory: Vec<u8>) {
        self.given_bytes -= memory.len();
        self.idle_bytes += memory.len();
        self.idle.push(memory);
        self.let_go();
    }

    /// Frees what is longest idle, where it and what is given away are more than was given away at once.
    fn let_go(&mut self) {
        while self.idle_bytes + self.given_bytes > self.given_max {
            self.idle_bytes -= self.idle.remove(0).len();
        }
    }
}

/// Memory of a [`Pool`].
#[derive(Debug)]
pub struct Pooled {
    memory: Vec<u8>,
    range: std::ops::Range<usize>,
    pool: Pool,
}

impl Deref for Pooled {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.range.clone()]
    }
}

impl DerefMut for Pooled {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.range.clone()]
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        self.pool.lock().came_back(std::mem::take(&mut self.memory));
    }
}

impl Place for Pooled {
    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }

    fn keep(&mut self, field: &Field, rows: usize) {
        self.range.end = self.range.start + rows * field.row_bytes();
    }
}

impl Places for Pool {
    type Place = Pooled;

    fn place(&mut self, field: &Field, rows: usize) -> Result<Pooled, DataError> {
        self.take(field.rows_bytes(rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle(pool: &Pool) -> Vec<usize> {
        let idle = &pool.lock().idle;
        idle.iter().map(|memory| memory.len() - ALIGNED).collect()
    }

    #[test]
    fn memory_is_given_again_to_who_needs_most_of_it() {
        let pool = Pool::default();
        let places = [100, 1000, 150].map(|bytes| pool.take(bytes).unwrap());
        assert!(
            places
                .iter()
                .all(|place| place.as_ptr().align_offset(64) == 0)
        );
        drop(places);
        assert_eq!(idle(&pool), [100, 1000, 150]);
        // The smallest that is large enough, and none of which most would be wasted.
        let place = pool.take(90).unwrap();
        assert_eq!((place.len(), idle(&pool)), (90, vec![1000, 150]));
        let other = pool.take(120).unwrap();
        assert_eq!((other.len(), idle(&pool)), (120, vec![1000]));
        for (asked, len) in [(500, 1000), (499, 499)] {
            let pool = Pool::default();
            drop(pool.take(1000).unwrap());
            assert_eq!(pool.take(asked).unwrap().memory.len(), len + ALIGNED);
        }
    }

    #[test]
    fn no_more_lies_idle_than_was_given_away_at_once() {
        let pool = Pool::default();
        drop([pool.take(1000).unwrap(), pool.take(1000).unwrap()]);
        assert_eq!(idle(&pool), [1000, 1000]);
        // None fits: with the second there is more than there ever was, and the oldest goes.
        let places = [pool.take(10).unwrap(), pool.take(10).unwrap()];
        assert_eq!(idle(&pool), [1000]);
        drop(places);
        assert_eq!(idle(&pool), [1000, 10, 10]);
        for _ in 0..100 {
            drop(pool.take(2100).unwrap());
        }
        assert_eq!(idle(&pool), [2100]);
        let memory = pool.lock();
        assert_eq!((memory.given_bytes, memory.given_max), (0, 2164));
    }

    #[test]
    fn more_than_there_is_is_an_error() {
        let error = Pool::default().take(usize::MAX / 2).unwrap_err();
        let want = "9223372036854775807 bytes of memory for a batch cannot be had";
        assert_eq!(error, DataError::Memory(want.into()));
    }
}
