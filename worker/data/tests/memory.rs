//! What batches that are read ahead take of memory: no more than is counted for them, rows that vary included.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tradewind_data::{
    Ahead, Batch, DataError, Field, Kind, Memory, Readers, Room, Source, batch_bytes, read_batch,
};

/// Counts what is allocated.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static COUNTING: Counting = Counting;

fn more(bytes: usize) {
    let now = NOW.fetch_add(bytes, Ordering::Relaxed) + bytes;
    MOST.fetch_max(now, Ordering::Relaxed);
}

fn less(bytes: usize) {
    NOW.fetch_sub(bytes, Ordering::Relaxed);
}

// SAFETY: all is the system's; beside it numbers are added.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        more(layout.size());
        // SAFETY: the caller keeps to the rules of this call, which are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        more(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        less(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // Both may be there for a moment, if it does not become smaller.
        match bytes <= layout.size() {
            true => less(layout.size() - bytes),
            false => more(bytes),
        }
        // SAFETY: as above.
        let place = unsafe { System.realloc(place, layout, bytes) };
        if bytes > layout.size() {
            less(layout.size());
        }
        place
    }
}

/// Graphs of which most are nearly as large as the largest.
struct Graphs([Field; 2]);

const EDGES: usize = 20_000;

impl Source for Graphs {
    fn fields(&self) -> &[Field] {
        &self.0
    }

    fn len(&self) -> usize {
        1000
    }

    fn name(&self, sample: usize) -> String {
        format!("graph {sample}")
    }

    fn read(&self, sample: usize, rooms: &mut [Room<'_>]) -> Result<(), DataError> {
        let [Room::One(energy), Room::Varying(edges)] = rooms else {
            panic!("{rooms:?}");
        };
        energy.fill(sample as u8);
        edges.add((EDGES - sample % 3) * 8).fill(sample as u8);
        Ok(())
    }
}

type Done = Result<Batch<Vec<u8>>, DataError>;

#[test]
fn batches_ahead_take_no_more_than_their_bound() {
    let fields = [
        Field::new("energy", Kind::F32, &[]),
        Field::varying("edges", Kind::I32, &[2], EDGES),
    ];
    let source = Arc::new(Graphs(fields));
    let batch = batch_bytes(source.fields(), 8);
    // Three batches, and something for what the queue itself is made of.
    let bound = 3 * batch + batch / 20;
    let reading = Arc::clone(&source);
    let read =
        move |samples: &Vec<usize>| -> Done { read_batch(&*reading, samples, &mut Memory {}) };
    let ahead = Ahead {
        readers: 2,
        batches: 6,
        bytes: bound,
    };
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let mut readers = Readers::new(ahead, read, move |samples: &Vec<usize>| {
        batch / 8 * samples.len()
    });
    for number in 0..6 {
        let samples = (number * 8..number * 8 + 8).collect();
        readers.request(samples).unwrap();
    }
    // Three are read, and nothing is taken: there is no room for a fourth.
    while NOW.load(Ordering::Relaxed) - before < 3 * batch - batch / 20 {
        std::thread::yield_now();
    }
    std::thread::sleep(std::time::Duration::from_millis(50));
    let most = MOST.load(Ordering::Relaxed) - before;
    let part = most as f64 / bound as f64;
    assert!(part <= 1.0, "{most} of {bound} bytes: {part:.3}");
    for number in 0..6 {
        let batch = readers.next().unwrap().unwrap().unwrap();
        let edges = batch.column("edges").unwrap();
        assert_eq!(batch.samples[0], number * 8);
        let rows: usize = batch.samples.iter().map(|sample| EDGES - sample % 3).sum();
        assert_eq!(
            (edges.values.len(), edges.values.capacity()),
            (rows * 8, rows * 8)
        );
    }
}
