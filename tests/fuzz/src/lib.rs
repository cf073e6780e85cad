//! Fuzzing of what reads bytes of others. A [`Target`] is a test: it replays its examples and its corpus, and draws
//! inputs where it is told how many.

mod changed;
pub mod memory;
mod message;
mod target;

pub use changed::{Changed, changed};
pub use target::{Engine, Target, Turn};
