//! Local processes of a run: started, watched, started again, stopped, never left behind.

mod keeper;
mod local;
mod ping;
mod process;
pub mod progress;
pub mod results;
mod roster;
pub mod run;
pub mod slurm;
mod supervisor;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use tradewind_common::environment::{OMP_NUM_THREADS, TOKEN};
use tradewind_config::Config;
use tradewind_programs::{SERVER, WORKER};

pub use keeper::Keeper;
pub use local::{LaunchContext, processes};
pub use process::Process;
pub use roster::{Present, Roster};
pub use tradewind_folder::member::{Member, ProcessEnd, Role};

/// How long a server may take until it listens.
const LISTEN: Duration = Duration::from_secs(30);

/// Pause between two looks at a process.
pub const LOOK: Duration = Duration::from_millis(50);

/// The programs of a run.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `tradewind-server`, which lies beside `tradewind` itself.
    pub server: PathBuf,
    /// `tradewind-worker` beside it, or that of the configuration.
    pub worker: PathBuf,
}

impl Programs {
    /// Those of a configuration.
    ///
    /// # Errors
    /// One of them is not there.
    pub fn of(config: &Config) -> anyhow::Result<Self> {
        Ok(Self {
            server: beside(SERVER)?,
            worker: match &config.program {
                Some(own) if own.is_file() => own.clone(),
                Some(own) => bail!("model.program: {} is missing; build it", own.display()),
                None => beside(WORKER)?,
            },
        })
    }
}

/// A program that lies beside `tradewind` itself.
pub fn beside(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot tell where tradewind lies")?;
    let path = own.with_file_name(name);
    if !path.is_file() {
        bail!(
            "{} is missing; build it with `cargo build --bins`",
            path.display()
        );
    }
    Ok(path)
}

/// What every process of a run is told besides its arguments.
pub fn environment(token: &str) -> BTreeMap<&'static str, String> {
    // One thread a rank: several share a machine's cores.
    BTreeMap::from([(TOKEN, token.to_owned()), (OMP_NUM_THREADS, "1".to_owned())])
}

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
