//! Where the coordinator is: at a fixed address, or where its file says, since it may be restarted
//! on another host.

use std::fmt;
use std::path::PathBuf;

use serde::Deserialize;
use tonic::Status;

/// Where the coordinator is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoordinatorAt {
    /// At this host:port for good.
    Address(String),
    /// Where this file of the fleet's folder says (`coordinator/address.json`), read again for every
    /// connection.
    File(PathBuf),
}

/// What the file says; which incarnation it is does not matter to those who look for it.
#[derive(Deserialize)]
struct Told {
    address: String,
}

impl CoordinatorAt {
    /// Its host:port at the moment. Failures may pass: the file is about to be written, or its
    /// folder is out of reach.
    pub(crate) async fn find(&self) -> Result<String, Status> {
        let path = match self {
            Self::Address(address) => return Ok(address.clone()),
            Self::File(path) => path,
        };
        let failed = |error: &dyn fmt::Display| {
            let text = format!("{} does not tell an address: {error}", path.display());
            Status::unavailable(text)
        };
        let text = tokio::fs::read(path).await.map_err(|e| failed(&e))?;
        let told: Told = serde_json::from_slice(&text).map_err(|e| failed(&e))?;
        Ok(told.address)
    }
}

impl fmt::Display for CoordinatorAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::File(path) => write!(f, "the address in {}", path.display()),
        }
    }
}
