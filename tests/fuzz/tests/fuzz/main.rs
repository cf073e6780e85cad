//! Bytes that others could send or leave, to everything that reads them. Nothing may panic, hang, take memory without
//! bound or be believed that was changed: each target says what must hold.
//!
//! As ordinary tests the targets replay their examples and what is in `corpus/`, the same each time. `make fuzz` draws
//! inputs at random besides: what they find may be older than the change at hand.

mod codecs;
mod configuration;
mod enrolment;
mod frames;
mod lines;
mod records;
mod samples;
mod slurm;
mod snapshots;
mod specification;

use tradewind_fuzz::memory::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;
