//! The accept loop, which outlives a lack of descriptors.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, Stream, stream};
use rustix::io::Errno;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tradewind_proto::auth::Credentials;
use tradewind_proto::socket;

use super::Connections;
use super::connection::Connection;
use crate::limits::Limit;

/// Pause after an accept that failed, and the longest one: each that follows is twice as long. Where descriptors
/// are lacking, accept fails at once however often it is called.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Connections of a listener, as they find places. It never ends, and never fails.
pub(crate) fn accept(
    listener: TcpListener,
    connections: Arc<Connections>,
    credentials: Credentials,
) -> impl Stream<Item = Result<Connection, Infallible>> {
    let accepting = Accepting {
        listener,
        connections,
        credentials,
        reserve: None,
        pause: PAUSE_MIN,
    };
    stream::unfold(accepting, |mut accepting| async move {
        let connection = accepting.next().await;
        Some((Ok(connection), accepting))
    })
}

struct Accepting {
    listener: TcpListener,
    connections: Arc<Connections>,
    /// What is asked of those who come.
    credentials: Credentials,
    /// A descriptor that is given up to turn somebody away, who would wait for an answer otherwise.
    reserve: Option<File>,
    pause: Duration,
}

impl Accepting {
    async fn next(&mut self) -> Connection {
        loop {
            self.keep_reserve();
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    self.pause = PAUSE_MIN;
                    // An IPv4 address is one, by whatever kind of socket it has come.
                    let from = peer.ip().to_canonical();
                    if let Some((place, told)) = self.connections.admit(from).await {
                        socket::tune(&stream);
                        return Connection::new(stream, self.credentials.tls(), place, told);
                    }
                    turn_away(stream);
                }
                // The peer has gone before it was its turn.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) if lacks_descriptors(&error) => {
                    self.connections.notices.reached(Limit::Descriptors);
                    self.make_room().await;
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection cannot be accepted; trying again");
                    self.back_off().await;
                }
            }
        }
    }

    fn keep_reserve(&mut self) {
        if self.reserve.is_none() {
            self.reserve = File::open("/dev/null").ok();
        }
    }

    /// Frees a descriptor of a stranger; where there is none, turns away who has connected.
    async fn make_room(&mut self) {
        if self.connections.close_oldest() {
            let left = self.connections.changed.notified();
            let _ = timeout(self.pause, left).await;
            self.lengthen();
            return;
        }
        if let Some(reserve) = self.reserve.take() {
            drop(reserve);
            if let Some(Ok((stream, _))) = self.listener.accept().now_or_never() {
                turn_away(stream);
            }
            self.keep_reserve();
        }
        self.back_off().await;
    }

    async fn back_off(&mut self) {
        sleep(self.pause).await;
        self.lengthen();
    }

    fn lengthen(&mut self) {
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}

/// Resets it: its peer is told at once, and nothing of it stays in the system.
fn turn_away(stream: TcpStream) {
    let _ = stream.set_zero_linger();
}

/// Neither this process nor the system has another one.
fn lacks_descriptors(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| errno == Errno::MFILE || errno == Errno::NFILE)
}
