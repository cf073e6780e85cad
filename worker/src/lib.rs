//! One process per rank: libtorch, the group's collectives, training. What a rank does that needs no libtorch
//! is `tradewind-client`.
//!
//! A worker program with models of somebody's own, besides the built-in ones, is [`main`] with a list of
//! them; [`model`] says what a model is.

pub mod c10d;
mod clip;
pub mod data;
pub mod device;
pub mod enter;
pub mod evaluate;
pub mod exchanging;
pub mod feed;
pub mod flat;
pub mod gpu_stats;
pub mod group;
pub mod host;
pub mod lives;
pub mod member;
pub mod model;
pub mod norms;
pub mod on_device;
pub mod precision;
pub mod program;
pub mod stream;
pub mod train;
pub mod train_error;
pub mod verdict;

pub use program::main;
