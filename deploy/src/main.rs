//! placeholder
mod progress;
mod report;

fn main() {}
