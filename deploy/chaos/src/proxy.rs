//! What stands in front of every server, and can cut whom it likes off. A connection belongs to the
//! process that made it, which is found by its socket.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener as Bound};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::schedule::Way;
use super::socket;
use tradewind_launch::{Member, Roster, bare_host};

/// Bytes that are passed on at a time.
const CHUNK: usize = 64 * 1024;

/// The connections to all servers of a run; clones are the same.
#[derive(Clone, Debug)]
pub struct Net(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    roster: Roster,
    cuts: Mutex<BTreeMap<Member, Way>>,
    changed: watch::Sender<()>,
}

/// A place where one server is reached.
#[derive(Debug)]
pub struct Front {
    server: u32,
    listener: Bound,
    pub address: String,
}

impl Front {
    /// Listens for a server of this host.
    pub fn bind(server: u32, host: &str) -> anyhow::Result<Self> {
        let listener = Bound::bind(format!("{}:0", bare_host(host)))
            .with_context(|| format!("cannot listen on {host}"))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?.to_string();
        Ok(Self {
            server,
            listener,
            address,
        })
    }
}

impl Net {
    pub fn new(roster: Roster) -> Self {
        Self(Arc::new(Inner {
            roster,
            cuts: Mutex::default(),
            changed: watch::Sender::new(()),
        }))
    }

    /// Cuts a process off, and whoever takes its place; only what goes through a front, so ranks
    /// still reach the other ranks of their group.
    pub fn cut(&self, member: Member, way: Way) {
        self.cuts().insert(member, way);
        self.0.changed.send_replace(());
    }

    /// It is reached again.
    pub fn heal(&self, member: Member) {
        self.cuts().remove(&member);
        self.0.changed.send_replace(());
    }

    fn cuts(&self) -> std::sync::MutexGuard<'_, BTreeMap<Member, Way>> {
        let cuts = self.0.cuts.lock();
        cuts.unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves a front for ever.
    pub async fn serve(self, front: Front) -> std::io::Result<()> {
        let listener = TcpListener::from_std(front.listener)?;
        let own = listener.local_addr()?;
        loop {
            // Out of files for a moment, say: whoever connects tries again.
            let Ok((stream, peer)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let (net, server) = (self.clone(), front.server);
            let client = net.client(peer, own);
            tokio::spawn(async move { net.pass_on(stream, client, server).await });
        }
    }

    /// Who has made a connection; `None` for somebody who is no member, as the launcher.
    fn client(&self, peer: SocketAddr, own: SocketAddr) -> Option<Member> {
        let members = self.0.roster.members().into_iter();
        let mut pids = members.filter_map(|m| Some((m, self.0.roster.get(m)?.pid)));
        let inode = socket::inode(peer.port(), own.port())?;
        pids.find(|(_, pid)| socket::belongs(*pid, inode))
            .map(|(member, _)| member)
    }

    async fn pass_on(self, client: TcpStream, from: Option<Member>, server: u32) {
        let gate = Gate {
            ends: [from, Some(Member::Server(server))],
            changed: self.0.changed.subscribe(),
            net: self,
        };
        let roster = &gate.net.0.roster;
        let reached = async {
            gate.opens().await?;
            let address = roster.get(Member::Server(server))?.address?;
            TcpStream::connect(address).await.ok()
        };
        let Some(behind) = reached.await else {
            reset(&client);
            return;
        };
        let _ = client.set_nodelay(true);
        let _ = behind.set_nodelay(true);
        let (client_read, client_write) = client.into_split();
        let (behind_read, behind_write) = behind.into_split();
        let broken = tokio::select! {
            () = pump(&gate, &client_read, &behind_write) => false,
            () = pump(&gate, &behind_read, &client_write) => false,
            () = gate.breaks() => true,
        };
        if broken {
            reset(client_read.as_ref());
            reset(behind_read.as_ref());
        }
    }
}

/// Both ends of a connection, and whether they can reach each other.
struct Gate {
    ends: [Option<Member>; 2],
    changed: watch::Receiver<()>,
    net: Net,
}

impl Gate {
    fn cut(&self) -> Option<Way> {
        if self.ends[0] == self.ends[1] {
            // A server reaches itself.
            return None;
        }
        let cuts = self.net.cuts();
        let mut ways = self.ends.iter().flatten();
        ways.find_map(|end| cuts.get(end).copied())
    }

    /// Waits while nothing arrives; `None` if the connection breaks.
    async fn opens(&self) -> Option<()> {
        let mut changed = self.changed.clone();
        loop {
            changed.borrow_and_update();
            match self.cut() {
                None => return Some(()),
                Some(Way::Reset) => return None,
                Some(Way::Silent) => changed.changed().await.ok()?,
            }
        }
    }

    /// Waits until the connection breaks.
    async fn breaks(&self) {
        let mut changed = self.changed.clone();
        loop {
            changed.borrow_and_update();
            if self.cut() == Some(Way::Reset) {
                return;
            }
            if changed.changed().await.is_err() {
                return;
            }
        }
    }
}

/// Passes on what comes, and the end of it; what is under way in a silent cut arrives after it.
async fn pump(gate: &Gate, from: &OwnedReadHalf, to: &OwnedWriteHalf) {
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = read(from, &mut chunk).await;
        if gate.opens().await.is_none() {
            // Whoever watches for it breaks the connection.
            return std::future::pending().await;
        }
        match read {
            Ok(0) | Err(_) => return,
            Ok(read) if write(to, &chunk[..read]).await.is_err() => return,
            Ok(_) => {}
        }
    }
}

async fn read(from: &OwnedReadHalf, chunk: &mut [u8]) -> std::io::Result<usize> {
    loop {
        from.readable().await?;
        match from.try_read(chunk) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            read => return read,
        }
    }
}

async fn write(to: &OwnedWriteHalf, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        to.writable().await?;
        match to.try_write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The other end is told that the connection has broken, not that it has ended.
fn reset(stream: &TcpStream) {
    let linger = Some(Duration::ZERO);
    let _ = rustix::net::sockopt::set_socket_linger(stream, linger);
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const RANK: Member = Member::Rank { group: 0, rank: 0 };
    const SERVER: Member = Member::Server(0);

    /// A server that sends back what it gets, and a rank, which is this process, connected to it.
    async fn connected() -> (Net, String, TcpStream) {
        let behind = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let roster = Roster::default();
        roster.started(SERVER, 1, 1);
        roster.listens(0, &behind.local_addr().unwrap().to_string());
        roster.started(RANK, std::process::id(), 1);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = behind.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
        let net = Net::new(roster);
        let front = Front::bind(0, "127.0.0.1").unwrap();
        let address = front.address.clone();
        tokio::spawn(net.clone().serve(front));
        let client = TcpStream::connect(&address).await.unwrap();
        (net, address, client)
    }

    async fn echo(stream: &mut TcpStream) -> std::io::Result<u8> {
        stream.write_u8(7).await?;
        stream.read_u8().await
    }

    #[tokio::test]
    async fn what_is_sent_in_a_silent_cut_arrives_after_it() {
        for member in [RANK, SERVER] {
            let (net, _, mut client) = connected().await;
            assert_eq!(echo(&mut client).await.unwrap(), 7);
            net.cut(member, Way::Silent);
            client.write_u8(8).await.unwrap();
            let silence = tokio::time::timeout(Duration::from_millis(100), client.read_u8());
            assert!(silence.await.is_err(), "{member} is cut off");
            net.heal(member);
            assert_eq!(client.read_u8().await.unwrap(), 8);
        }
    }

    #[tokio::test]
    async fn a_reset_breaks_connections_and_refuses_new_ones() {
        let (net, address, mut client) = connected().await;
        assert_eq!(echo(&mut client).await.unwrap(), 7);
        net.cut(RANK, Way::Reset);
        assert!(client.read_u8().await.is_err());
        let mut other = TcpStream::connect(&address).await.unwrap();
        assert!(echo(&mut other).await.is_err());
        net.heal(RANK);
        let mut other = TcpStream::connect(&address).await.unwrap();
        assert_eq!(echo(&mut other).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn others_are_not_cut_off() {
        let (net, _, mut client) = connected().await;
        net.cut(Member::Server(1), Way::Silent);
        net.cut(Member::Rank { group: 0, rank: 1 }, Way::Reset);
        assert_eq!(echo(&mut client).await.unwrap(), 7);
    }
}
