//! How a worker reaches servers: channels, tokens, and for how long it tries.

use std::time::Duration;

use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tradewind_proto::auth::{ShowToken, Token};
use tradewind_proto::limits::WINDOW_BYTES;

/// A connection that shows the fleet's token.
pub type Authorized = InterceptedService<Channel, ShowToken>;

/// Pause between two tries.
pub const PAUSE: Duration = Duration::from_millis(100);

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A peer that answers no ping for so long is gone.
const PING: Duration = Duration::from_secs(5);

/// How servers are reached.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// The fleet's token.
    pub token: Token,
    /// How long an unreachable server is tried again.
    pub retry: Duration,
}

impl Reach {
    /// Connects to host:port.
    pub async fn connect(&self, address: &str) -> Result<Authorized, tonic::Status> {
        let unavailable = |e: tonic::transport::Error| {
            let mut text = e.to_string();
            let mut source = std::error::Error::source(&e);
            while let Some(inner) = source {
                text += &format!(": {inner}");
                source = inner.source();
            }
            tonic::Status::unavailable(text)
        };
        let channel = Endpoint::try_from(format!("http://{address}"))
            .map_err(unavailable)?
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PING)
            .keep_alive_timeout(PING)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .connect()
            .await
            .map_err(unavailable)?;
        Ok(InterceptedService::new(
            channel,
            ShowToken(self.token.clone()),
        ))
    }
}
