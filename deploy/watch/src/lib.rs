//! What a run looks like while it goes on and afterwards: `tradewind watch`, a page, and what `tradewind status`
//! shows on the terminal.

mod certificate;
mod connections;
mod curve;
mod device;
mod explain;
mod files;
#[cfg(test)]
mod fixture;
mod history;
mod http;
mod jobs;
mod look;
mod memory;
mod observe;
mod reader;
pub mod screen;
mod serve;
mod standing;
mod stream;
pub mod table;
mod targets;
#[cfg(test)]
mod tests;
mod timeline;
mod traffic;
mod watcher;
mod words;

pub use explain::explain;
pub use serve::{Arguments, run};
pub use standing::Standing;
pub use watcher::Watcher;
