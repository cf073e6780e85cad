//! Connections, by address.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};
use tradewind_proto::v1::coordinator_client::CoordinatorClient;

/// Until a connection that does not come is given up.
const CONNECT: Duration = Duration::from_secs(2);

/// Connections that are made when they are needed.
pub(super) struct Network {
    folder: PathBuf,
    channels: Mutex<HashMap<String, Channel>>,
}

impl Network {
    /// The coordinator is where the folder says.
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            channels: Mutex::default(),
        }
    }

    /// A connection to host:port.
    pub(super) fn channel(&self, address: &str) -> Result<Channel, Status> {
        let mut channels = self.channels.lock().expect("nobody panics in here");
        if let Some(channel) = channels.get(address) {
            return Ok(channel.clone());
        }
        let endpoint = Endpoint::try_from(format!("http://{address}"));
        let endpoint = endpoint.map_err(|error| Status::unavailable(error.to_string()))?;
        let channel = endpoint.connect_timeout(CONNECT).connect_lazy();
        channels.insert(address.to_owned(), channel.clone());
        Ok(channel)
    }

    /// The coordinator, where the folder says that it is.
    pub(super) fn coordinator(&self) -> Result<CoordinatorClient<Channel>, Status> {
        let nowhere = |what: String| Status::unavailable(format!("no coordinator: {what}"));
        let path = self.folder.join("coordinator/address.json");
        let text = std::fs::read(path).map_err(|error| nowhere(error.to_string()))?;
        let file: Value =
            serde_json::from_slice(&text).map_err(|error| nowhere(error.to_string()))?;
        let address = file["address"].as_str().unwrap_or_default();
        Ok(CoordinatorClient::new(self.channel(address)?))
    }
}
