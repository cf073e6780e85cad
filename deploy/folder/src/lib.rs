//! A run as it is found: its folder and the files in it, and what its servers say when they are asked.

pub mod clock;
pub mod closing;
pub mod cluster;
pub mod config;
pub mod events;
pub mod failure;
pub mod found;
pub mod input;
pub mod lines;
pub mod lock;
pub mod member;
pub mod parts;
pub mod records;
pub mod rotation;
pub mod run;
pub mod runtime;
pub mod summary;
mod tasks;

/// This version, with the commit if it is a release.
pub const VERSION: &str = env!("TRADEWIND_VERSION");

/// The same, with the libtorch that the worker is built for.
pub const VERSION_AND_LIBTORCH: &str = env!("TRADEWIND_VERSION_AND_LIBTORCH");
