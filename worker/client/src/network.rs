//! How a worker reaches servers: channels, credentials, and for how long it tries.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tradewind_proto::auth::{Credentials, ShowToken};
use tradewind_proto::limits::{HTTP2_FRAME_BYTES, WINDOW_BYTES};

use crate::small_frames::SmallFrames;

/// A connection for calls that shows the fleet's token.
pub type Authorized = InterceptedService<SmallFrames<Channel>, ShowToken>;

/// Pause before the second try, on average; later ones are longer (`away.rs`).
pub const PAUSE: Duration = Duration::from_millis(100);

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A peer that answers no ping for so long is gone.
pub(crate) const PING: Duration = Duration::from_secs(5);

/// A runtime for exchanges: the thread that blocks on it and no other. Everything that a connection
/// does is done there, so nothing is handed from thread to thread; and nothing moves while nobody
/// blocks on it. An exchange stays on the runtime where it has run first.
pub fn wire() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Of this process.
static CONNECTS: AtomicU64 = AtomicU64::new(0);

/// How often this process has tried to connect, to whomever.
pub fn connects() -> u64 {
    CONNECTS.load(Ordering::Relaxed)
}

/// How servers are reached.
#[derive(Clone, Debug)]
pub struct Reach {
    /// What it shows, and asks of servers.
    pub credentials: Credentials,
    /// How long a server that cannot be reached, or is not ready, is tried again.
    pub retry: Duration,
    /// Connections of an exchange to each shard, at least 1.
    pub connections: u32,
}

impl Reach {
    /// Connects to host:port for calls. Pings find a peer whose process hangs; their answers are read in time on a runtime
    /// that goes on all the time.
    pub async fn connect(&self, address: &str) -> Result<Authorized, tonic::Status> {
        let pinging = |endpoint: Endpoint| {
            endpoint
                .http2_keep_alive_interval(PING)
                .keep_alive_timeout(PING)
                .keep_alive_while_idle(true)
        };
        let channel = SmallFrames(self.channel(address, pinging).await?);
        Ok(InterceptedService::new(channel, self.credentials.show()))
    }

    /// Connects to host:port for exchanges, whose runtime may stand still between them, as a [`wire`] does. No pings are
    /// sent: an answer that came after an exchange would be read in the next one, and be too late by then. Who waits
    /// for a peer whose process hangs hears of it from the coordinator.
    pub(crate) async fn connect_for_exchanges(
        &self,
        address: &str,
    ) -> Result<InterceptedService<Channel, ShowToken>, tonic::Status> {
        let channel = self.channel(address, |endpoint| endpoint).await?;
        Ok(InterceptedService::new(channel, self.credentials.show()))
    }

    async fn channel(
        &self,
        address: &str,
        kept: impl FnOnce(Endpoint) -> Endpoint,
    ) -> Result<Channel, tonic::Status> {
        CONNECTS.fetch_add(1, Ordering::Relaxed);
        let unavailable = |e: tonic::transport::Error| {
            let mut text = e.to_string();
            let mut source = std::error::Error::source(&e);
            while let Some(inner) = source {
                text += &format!(": {inner}");
                source = inner.source();
            }
            tonic::Status::unavailable(text)
        };
        let endpoint = Endpoint::try_from(format!("http://{address}"))
            .map_err(unavailable)?
            .connect_timeout(CONNECT_TIMEOUT)
            .max_frame_size(HTTP2_FRAME_BYTES)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES);
        kept(endpoint)
            .connect_with_connector(self.credentials.connector())
            .await
            .map_err(unavailable)
    }
}
