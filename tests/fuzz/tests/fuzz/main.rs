//! Bytes that others could send or leave, to everything that reads them. Nothing may panic, hang, take memory without
//! bound or be believed that was changed: each target says what must hold.
//!
//! `make fuzz` gives each target up to a few thousand inputs that are drawn at random; a failure prints
//! `BOLERO_RANDOM_SEED`, which draws it again. `BOLERO_RANDOM_ITERATIONS` sets how many. They are not among the
//! ordinary tests, because what they find has nothing to do with the change at hand.

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

/// Inputs of a target, where they cost microseconds; of slower ones there are fewer.
const MANY: usize = 3_000;
const SOME: usize = 500;
const FEW: usize = 150;
