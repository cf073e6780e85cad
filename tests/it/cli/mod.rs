//! The `tradewind` command as a person uses it: real processes, real files, real data.

mod bench;
mod data;
mod experiment;
mod faults;
mod files;
mod groups;
mod input;
mod programs;
mod renewed;
mod script;
mod shut_out;
mod stragglers;
mod traces;
mod unwritten;
