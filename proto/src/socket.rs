//! What every connection is set to, at both ends.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;

/// Silence after which a peer's system is probed, and between two probes. Its system, not its
/// process: one that computes answers no HTTP/2 pings.
const PROBE: Duration = Duration::from_secs(5);

/// Probes without an answer after which the peer is gone.
const PROBES: u32 = 3;

/// How long what was sent waits for the peer's system to have room for it, or to say that it has come: as long as
/// silence is probed.
const UNACKNOWLEDGED: Duration = PROBE.saturating_mul(1 + PROBES);

/// Small messages leave at once, and a host that is gone is noticed. Between processes of one machine there is no congestion to
/// control, and the pacing of BBR, many systems' default, costs up to a third of the rate: such
/// connections use Reno. Whatever the system refuses stays as it is.
pub fn tune(connection: &TcpStream) {
    let peer = connection.peer_addr();
    tune_fd(connection, peer.is_ok_and(|peer| peer.ip().is_loopback()));
}

/// As [`tune`], for a socket of any kind.
pub fn tune_fd(socket: impl AsFd, loopback: bool) {
    let _ = sockopt::set_tcp_nodelay(&socket, true);
    let _ = sockopt::set_socket_keepalive(&socket, true);
    let _ = sockopt::set_tcp_keepidle(&socket, PROBE);
    let _ = sockopt::set_tcp_keepintvl(&socket, PROBE);
    let _ = sockopt::set_tcp_keepcnt(&socket, PROBES);
    if loopback {
        let _ = sockopt::set_tcp_congestion(&socket, "reno");
    }
}

/// At the end that connects, besides: a host that goes while something is on the way to it is noticed as one that
/// goes while nothing is. So is a server that is stopped and has no room for more. (Not at the end that accepts: a rank
/// may be stopped for as long as its group waits for it.)
pub fn give_up_in_time(connection: &TcpStream) {
    let _ = sockopt::set_tcp_user_timeout(connection, UNACKNOWLEDGED.as_millis() as u32);
}

#[cfg(test)]
mod tests {
    use http::Uri;
    use tower_service::Service;

    use super::*;
    use crate::connector::{Connected, Connector};

    #[tokio::test]
    async fn who_connects_gives_a_host_up_that_takes_nothing() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let uri: Uri = format!("http://{}", listener.local_addr().unwrap())
            .parse()
            .unwrap();
        let connected = Connector::new(None).call(uri).await.unwrap();
        let Connected::Clear(socket) = connected.into_inner() else {
            panic!("without a certificate it is in clear");
        };
        assert_eq!(sockopt::tcp_user_timeout(&socket).unwrap(), 20_000);
        assert!(sockopt::socket_keepalive(&socket).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&socket).unwrap(), PROBE);
    }
}
