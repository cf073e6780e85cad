//! The worker's decisions as values: inputs go in, frames are polled out. No async, no clock, no
//! I/O, no libtorch: the same code runs under the network, under tests and in the simulated world.

pub mod session;
