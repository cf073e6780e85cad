//! The accept loop, which outlives a lack of descriptors.

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

/// Connections that wait for their turn, for each listener; the system may allow fewer (`net.core.somaxconn`). Where there is no
/// room a peer may believe that it is connected, and hear nothing until its system has tried often enough:
/// all ranks of a fleet come at once.
const WAITING_MAX: i32 = 1 << 16;

/// Connections of a listener, as they find places. It never ends, and never fails.
pub(crate) fn accept(
    listener: TcpListener,
    connections: Arc<Connections>,
    credentials: Credentials,
) -> impl Stream<Item = Connection> {
    if let Err(error) = rustix::net::listen(&listener, WAITING_MAX) {
        tracing::warn!(%error, "few connections can wait until they are accepted");
    }
    let accepting = Accepting {
        listener,
        connections,
        credentials,
        reserve: None,
        pause: PAUSE_MIN,
    };
    stream::unfold(accepting, |mut accepting| async move {
        let connection = accepting.next().await;
        Some((connection, accepting))
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

#[cfg(test)]
mod tests {
    use std::env;
    use std::io::{Read, Write};
    use std::net::TcpStream as Client;
    use std::process::Command;

    use futures_util::StreamExt;
    use rustix::process::{Resource, getrlimit, setrlimit};
    use tokio::io::AsyncReadExt;
    use tradewind_common::ServerId;

    use super::*;
    use crate::clock::Origin;
    use crate::limits::Notices;

    /// Set in the process that has few descriptors: those of the other tests are not touched.
    const CHILD: &str = "TRADEWIND_TEST_WITHOUT_DESCRIPTORS";

    const DESCRIPTORS: u64 = 64;

    /// How often accept may fail meanwhile: after 10, 20, 40, …, 640 ms and each second, it would be 9 times.
    const MEANWHILE: Duration = Duration::from_secs(3);
    const FAILURES_MAX: u64 = 12;

    /// As many as there are: somebody else has taken them all.
    fn take_all() -> Vec<File> {
        std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
    }

    #[test]
    fn a_server_without_descriptors_serves_those_it_has_and_does_not_spin() {
        let name = "admission::accept::tests::a_server_without_descriptors_serves_those_it_has_and_does_not_spin";
        if env::var_os(CHILD).is_none() {
            let test = env::current_exe().unwrap();
            let mut child = Command::new(test);
            let ended = child
                .args(["--exact", name])
                .env(CHILD, "1")
                .output()
                .unwrap();
            let told = String::from_utf8_lossy(&ended.stdout);
            assert!(
                ended.status.success() && told.contains("1 passed"),
                "{told}"
            );
            return;
        }
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = Some(DESCRIPTORS);
        setrlimit(Resource::Nofile, limit).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        runtime.block_on(without_descriptors());
    }

    #[tokio::test]
    async fn more_may_wait_than_listeners_have_room_for_by_themselves() {
        const COME: usize = 1_500;
        const PATIENCE: Duration = Duration::from_secs(5);
        let mut limit = getrlimit(Resource::Nofile);
        limit.current = limit.maximum;
        setrlimit(Resource::Nofile, limit).unwrap();
        let allowed = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        let come = COME.min(allowed.trim().parse().unwrap());
        let origin = Origin::start();
        let notices = Arc::new(Notices::new(ServerId(0), origin, None));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        // Nobody is accepted: it is not asked.
        let _accepted = accept(
            listener,
            Connections::new(notices, origin),
            Credentials::default(),
        );
        let connect = |_| Client::connect_timeout(&address, PATIENCE);
        let waiting: Result<Vec<_>, _> = (0..come).map(connect).collect();
        assert_eq!(waiting.unwrap().len(), come);
    }

    async fn without_descriptors() {
        let origin = Origin::start();
        let notices = Arc::new(Notices::new(ServerId(0), origin, None));
        let connections = Connections::new(notices.clone(), origin);
        let listen = || async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let accepted = accept(listener, connections.clone(), Credentials::default());
            (Box::pin(accepted), address)
        };
        // Who has shown a token is served all the while.
        let (mut accepted, address) = listen().await;
        let mut member = Client::connect(address).unwrap();
        let mut served = accepted.next().await.unwrap();
        served.standing().show();
        let mut is_served = async || {
            member.write_all(b"a call").unwrap();
            let mut heard = [0; 6];
            served.read_exact(&mut heard).await.unwrap();
            assert_eq!(&heard, b"a call");
        };
        let (mut accepted, address) = listen().await;

        // Not even a reserve: who comes waits, and accept is not called over and over.
        let waiting = Client::connect(address).unwrap();
        let others = take_all();
        let none = timeout(MEANWHILE, accepted.next()).await;
        assert!(none.is_err(), "there was a descriptor for it");
        let failures = notices.times_reached(Limit::Descriptors);
        assert!((1..=FAILURES_MAX).contains(&failures), "{failures}");
        is_served().await;
        // It gets in as soon as there are some again.
        drop(others);
        assert!(accepted.next().await.is_some());
        drop(waiting);

        // With a reserve whoever comes is told at once: its connection is reset.
        let none = timeout(Duration::from_millis(10), accepted.next()).await;
        assert!(none.is_err(), "nobody has come");
        let mut told = Client::connect(address).unwrap();
        let others = take_all();
        let none = timeout(MEANWHILE, accepted.next()).await;
        assert!(none.is_err(), "there was a descriptor for it");
        told.set_nonblocking(true).unwrap();
        let reset = told.read(&mut [0]).unwrap_err();
        assert_eq!(reset.kind(), io::ErrorKind::ConnectionReset);
        is_served().await;
        let failures = notices.times_reached(Limit::Descriptors) - failures;
        assert!((1..=FAILURES_MAX).contains(&failures), "{failures}");
        drop(others);
        let _healthy = Client::connect(address).unwrap();
        assert!(accepted.next().await.is_some());
    }
}
