//! The server's decisions as values: inputs go in with `now`, outputs are polled out. No async, no
//! clock, no I/O: the same code runs under the network, under tests and in the simulated world.

pub mod answer;
pub mod askers;
pub mod backups;
pub mod block;
pub mod capture;
pub mod consistency;
pub mod coordinator;
pub mod decided;
pub mod delay;
pub mod durable;
pub mod event;
pub mod fleet;
pub mod frame;
pub mod held;
pub mod log;
pub mod mark;
pub mod milestones;
pub mod momentum;
pub mod optimizer;
pub mod order;
pub mod output;
pub mod pending;
mod ranked;
pub mod refusal;
pub mod replica;
pub mod revoked;
pub mod run;
pub mod saved;
pub mod shard;
mod shared;
pub mod standings;
pub mod state;
pub mod trace;
pub mod view;

#[cfg(test)]
mod tests;

/// Names the caller that waits for an answer; the shell gives numbers out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplyTo(pub u64);
