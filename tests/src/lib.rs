//! The harness: a simulated world, checkers from outside, real local clusters.

pub mod checker;
pub mod cluster;
pub mod sim;
