//! What every connection is set to, at both ends.

use std::os::fd::AsFd;

use rustix::net::sockopt;
use tokio::net::TcpStream;

/// Small messages leave at once. Between processes of one machine there is no congestion to
/// control, and the pacing of BBR, many systems' default, costs up to a third of the rate: such
/// connections use Reno. Whatever the system refuses stays as it is.
pub fn tune(connection: &TcpStream) {
    let peer = connection.peer_addr();
    tune_fd(connection, peer.is_ok_and(|peer| peer.ip().is_loopback()));
}

/// As [`tune`], for a socket of any kind.
pub fn tune_fd(socket: impl AsFd, loopback: bool) {
    let _ = sockopt::set_tcp_nodelay(&socket, true);
    if loopback {
        let _ = sockopt::set_tcp_congestion(&socket, "reno");
    }
}
