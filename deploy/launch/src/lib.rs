//! Local processes of a run: started, watched, started again, stopped, never left behind.

mod board;
mod finished;
mod hearing;
mod issuing;
mod keeper;
mod local;
mod people;
mod ping;
mod process;
mod programs;
pub mod progress;
pub mod results;
mod roster;
pub mod run;
mod secrets;
pub mod slurm;
mod supervisor;

use std::path::Path;
use std::time::Duration;

use anyhow::bail;

pub use keeper::Keeper;
pub use local::{LaunchContext, ProcessRow, processes};
pub use process::Process;
pub use programs::{Programs, RankProgram, beside, environment};
pub use roster::{Present, Roster};
pub use secrets::Secrets;
pub use tradewind_folder::member::{Member, ProcessEnd, Role};

/// How long a server may take until it listens.
const LISTEN: Duration = Duration::from_secs(30);

/// Pause between two looks at a process.
pub const LOOK: Duration = Duration::from_millis(50);

/// A host as it stands before a port.
pub fn bare_host(host: &str) -> String {
    if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}

/// What a server writes into `file` once it listens.
pub fn wait_for_address(process: &mut Process, file: &Path) -> anyhow::Result<String> {
    let mut waited = Duration::ZERO;
    loop {
        if let Ok(address) = std::fs::read_to_string(file) {
            return Ok(address.trim().to_owned());
        }
        if let Some(ended) = process.poll()? {
            return Err(ended.into());
        }
        if waited >= LISTEN {
            bail!(
                "{} does not listen after {LISTEN:?}; see {}",
                process.role(),
                process.log().display()
            );
        }
        std::thread::sleep(LOOK);
        waited += LOOK;
    }
}
