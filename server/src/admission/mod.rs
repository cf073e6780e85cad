//! Who may be connected to a server: limits on connections, above all on strangers, who have shown no valid
//! token yet.
//!
//! Under TLS the handshake is a part of this: whoever has not finished it is a stranger, in a stranger's place and time.
//! A stranger is closed when it has shown nothing for [`SHOW`], and gives way when others need its place. Whoever has
//! shown a token is let alone from then on, unless its certificate is [revoked](Connections::revoke): no lock, no clock
//! and no table stands between it and its calls.

mod accept;
mod admit;
mod connection;
mod places;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use tokio::sync::{Notify, oneshot};
use tradewind_common::identity::Identity;
use tradewind_core::revoked::RevokedIdentities;
use tradewind_proto::tls::Unfit;

pub(crate) use accept::accept;
pub(crate) use admit::{Admit, Admitted, Peer};
pub(crate) use connection::{Connection, Standing};

use crate::clock::Origin;
use crate::limits::{Limit, Notices};
use crate::{pages, telemetry};
use connection::Shown;
use places::{Answer, Most, Places};

/// How long a connection may be open before a call on it shows the token. A client connects for a call, so it
/// does within milliseconds, on a machine that is busy within a few seconds.
const SHOW: Duration = Duration::from_secs(10);

/// Who is connected to a server.
#[derive(Debug)]
pub(crate) struct Connections {
    table: Mutex<Table>,
    /// Somebody has left, or has shown a token.
    changed: Notify,
    notices: Arc<Notices>,
    origin: Origin,
}

#[derive(Debug)]
struct Table {
    places: Places,
    /// By which strangers are told to close.
    closers: BTreeMap<u64, oneshot::Sender<()>>,
    /// Who is connected under TLS, by number, from the end of their handshakes on.
    named: BTreeMap<u64, Weak<Shown>>,
    /// Who is let in no more; as many as the coordinator names.
    revoked: RevokedIdentities,
}

/// A place: what was given to a connection that was admitted.
#[derive(Debug)]
struct Place {
    number: u64,
    from: IpAddr,
    connections: Arc<Connections>,
}

impl Connections {
    /// Nobody yet; in all as many as this process may have descriptors for.
    pub(crate) fn new(notices: Arc<Notices>, origin: Origin) -> Arc<Self> {
        let descriptors = getrlimit(Resource::Nofile).current;
        let most = Most::of(descriptors);
        tracing::info!(
            descriptors = descriptors.map_or_else(|| "unlimited".into(), |d| d.to_string()),
            connections = most.all,
            strangers = most.strangers,
            per_address = most.per_address,
            "limits of connections"
        );
        Arc::new(Self {
            table: Mutex::new(Table {
                places: Places::new(most),
                closers: BTreeMap::new(),
                named: BTreeMap::new(),
                revoked: RevokedIdentities::new(),
            }),
            changed: Notify::new(),
            notices,
            origin,
        })
    }

    /// Finds a place for somebody who has just connected, which may take until a stranger has had its time.
    async fn admit(self: &Arc<Self>, from: IpAddr) -> Option<(Place, oneshot::Receiver<()>)> {
        loop {
            // Before it is asked, so that no change is missed.
            let changed = self.changed.notified();
            let now_ms = self.origin.now_ms();
            let answer = self.table().places.ask(from, now_ms);
            match answer {
                Answer::Admitted(number) => {
                    let (closer, closing) = oneshot::channel();
                    let mut table = self.table();
                    table.closers.insert(number, closer);
                    let (known, strangers) = table.places.count();
                    telemetry::connections((known, strangers));
                    pages::connected(known + strangers);
                    let connections = self.clone();
                    let place = Place {
                        number,
                        from,
                        connections,
                    };
                    return Some((place, closing));
                }
                Answer::GiveWay(number, limit) => {
                    self.close(number);
                    self.notices.reached(limit);
                }
                Answer::Wait(until_ms) => {
                    let pause = Duration::from_millis(until_ms.saturating_sub(now_ms));
                    tokio::select! {
                        () = changed => {}
                        () = tokio::time::sleep(pause) => {}
                    }
                }
                Answer::Refused(limit) => {
                    self.notices.reached(limit);
                    return None;
                }
            }
        }
    }

    /// These are let in no more, on top of those of before, and their connections are closed: none of their calls is
    /// taken once this returns.
    pub(crate) fn revoke(&self, more: RevokedIdentities) {
        let mut table = self.table();
        table.revoked.extend(more);
        let open = table.named.values().filter_map(Weak::upgrade);
        let closed = open.filter(|shown| {
            let shut_out = shown.identity().map(|i| i.is_shut_out(&table.revoked));
            shut_out.is_ok_and(|what| what.is_some_and(|what| shown.revoke(what)))
        });
        let closed = closed.count();
        if closed > 0 {
            tracing::warn!(closed, "connections of revoked certificates are closed");
        }
    }

    /// Closes the stranger that has been silent for longest, if there is one.
    fn close_oldest(&self) -> bool {
        let oldest = self.table().places.oldest();
        oldest.inspect(|number| self.close(*number)).is_some()
    }

    fn close(&self, number: u64) {
        let closer = self.table().closers.remove(&number);
        // Where it has gone by itself nobody listens.
        let _ = closer.map(|closer| closer.send(()));
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing in here leaves the table half-changed.
        self.table.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Place {
    /// A token was shown, or none is asked for.
    fn show(&self) {
        self.change(|places, number| places.show(number));
    }

    /// The handshake is over, and says who this is: it is known from then on, and found if it is revoked later.
    fn enter(&self, identity: Result<Identity, Unfit>, shown: &Arc<Shown>) {
        // Held to the end, so that it is either found or refused.
        let mut table = self.connections.table();
        let identity = identity.and_then(|identity| match identity.is_shut_out(&table.revoked) {
            Some(what) => Err(Unfit::Revoked(what)),
            None => Ok(identity),
        });
        if identity.is_ok() {
            table.named.insert(self.number, Arc::downgrade(shown));
        }
        shown.is_named(identity);
    }

    /// The connection is closed.
    fn leave(&self) {
        self.connections.table().named.remove(&self.number);
        self.change(|places, number| places.leave(number, self.from));
    }

    fn reached(&self, limit: Limit) {
        self.connections.notices.reached(limit);
    }

    /// Whoever has connected speaks no TLS, or does not believe this server's certificate.
    fn no_tls(&self) {
        self.connections.notices.no_tls();
    }

    fn change(&self, change: impl FnOnce(&mut Places, u64)) {
        {
            let mut table = self.connections.table();
            table.closers.remove(&self.number);
            change(&mut table.places, self.number);
            telemetry::connections(table.places.count());
        }
        // The accept loop alone waits.
        self.connections.changed.notify_one();
    }
}
