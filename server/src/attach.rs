//! A server's bond with the coordinator: registers, beats, obeys orders, reports.

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, Notify, mpsc, watch};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::transport::Endpoint;
use tradewind_common::{Generation, RunId};
use tradewind_core::view::OrderedView;
use tradewind_process::watched;
use tradewind_proto::auth::Credentials;
use tradewind_proto::convert;
use tradewind_proto::limits::COORDINATOR_MESSAGE_BYTES_MAX;
use tradewind_proto::refusal::{self, Reason};
use tradewind_proto::v1::coordinator_client::CoordinatorClient;
use tradewind_proto::v1::server_report::Report as Body;
use tradewind_proto::v1::{self, ServerReport};

use crate::admission::Connections;
use crate::orders::obey;
use crate::queue::Queue;
use crate::registry::Registry;
use crate::rpc::order::{captured_to_wire, decode_order, followed_to_wire, report_to_wire};
use crate::rpc::revoked::revoked_from_wire;
use crate::store::read_address;
use crate::surroundings::ReportToSend;

/// Reports that wait for the connection.
const OUTGOING_MAX: usize = 64;

/// Pause before the coordinator is tried again.
const RETRY: Duration = Duration::from_millis(100);

/// How long a connection to the coordinator may take.
const CONNECT: Duration = Duration::from_secs(2);

/// Beats in a lease.
const BEATS: u32 = 5;

/// Reports of shards that nobody asked for.
pub(crate) type Reports = mpsc::Receiver<ReportToSend>;

/// Where a coordinator is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// host:port
    At(String),
    /// In the fleet's folder, which says it anew when it has moved.
    In(PathBuf),
}

/// Who registers.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    /// Where the coordinator is.
    pub(crate) coordinator: Found,
    /// host:port under which workers reach this server.
    pub(crate) address: String,
    /// Names this machine.
    pub(crate) host: String,
    /// Which life of the server.
    pub(crate) incarnation: u64,
    /// What it shows, and asks of others.
    pub(crate) credentials: Credentials,
    /// Length of a server's lease.
    pub(crate) lease: Duration,
}

/// Stays registered for as long as the process lives. A broken connection is made again, and the
/// coordinator then sends all orders anew.
///
/// `bonded` is told whether there is a bond, and `shut_out` if there will be none: the server's certificates are
/// revoked.
pub(crate) async fn stay_registered(
    me: Registration,
    (registry, connections): (Arc<Registry>, Arc<Connections>),
    reports: Reports,
    (bonded, shut_out): (watch::Sender<bool>, Arc<Notify>),
) -> Infallible {
    let bond = Bond {
        bonded,
        me,
        registry,
        connections,
        reports: Mutex::new(reports),
        obeying: Mutex::default(),
        obeyed: AtomicU64::new(0),
    };
    loop {
        match bond.follow().await {
            Ok(()) => tracing::warn!("the coordinator closed the connection; trying again"),
            Err(error) => {
                tracing::warn!("no bond with the coordinator: {error:#}; trying again");
                if is_shut_out(&error) {
                    shut_out.notify_one();
                }
            }
        }
        bond.bonded.send_if_modified(std::mem::take);
        tokio::time::sleep(RETRY).await;
    }
}

/// Whether it is that the server's certificates are revoked.
fn is_shut_out(error: &anyhow::Error) -> bool {
    let refused = error.downcast_ref::<Status>();
    let word = refused.and_then(refusal::reason);
    word == Some(Reason::RevokedCertificate.word())
}

/// What there is to report of an order.
type Obeyed = anyhow::Result<Vec<ServerReport>>;

/// Orders that wait, and those that are being obeyed, by run.
#[derive(Default)]
struct Obeying {
    queue: Queue,
    tasks: JoinSet<(String, Obeyed)>,
}

struct Bond {
    bonded: watch::Sender<bool>,
    me: Registration,
    registry: Arc<Registry>,
    connections: Arc<Connections>,
    reports: Mutex<Reports>,
    /// What was begun is brought to its end when the bond breaks, and never cut short: values that were
    /// read would be lost.
    obeying: Mutex<Obeying>,
    /// The highest incarnation of a coordinator that was obeyed; lower ones are deposed.
    obeyed: AtomicU64,
}

impl Bond {
    async fn follow(&self) -> anyhow::Result<()> {
        let address = self.coordinator().await?;
        let channel = Endpoint::try_from(format!("http://{address}"))?
            .connect_timeout(CONNECT)
            // One that is out of reach is given up within a lease: its successor waits for one.
            .http2_keep_alive_interval(self.me.lease / 2)
            .keep_alive_timeout(self.me.lease / 2)
            .connect_with_connector(self.me.credentials.connector())
            .await?;
        let mut client = CoordinatorClient::with_interceptor(channel, self.me.credentials.show())
            .max_decoding_message_size(COORDINATOR_MESSAGE_BYTES_MAX);
        let (outgoing, stream) = mpsc::channel(OUTGOING_MAX);
        outgoing.send(self.register()).await?;
        let mut orders = client
            .serve(ReceiverStream::new(stream))
            .await?
            .into_inner();
        tracing::info!("registered with the coordinator at {address}");
        self.bonded.send_replace(true);
        let mut reports = self.reports.lock().await;
        let mut beats = interval(self.me.lease / BEATS);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut obeying = self.obeying.lock().await;
        let Obeying { queue, tasks } = &mut *obeying;
        queue.clear();
        loop {
            // Obeying may take long, for values are read from disk: beats go on meanwhile.
            while let Some(order) = queue.next() {
                let (registry, run) = (self.registry.clone(), order.run.clone());
                let name = format!("the obedience to an order of run {run:?}");
                let obeying = async move { (run, obey_wire(&registry, order).await) };
                tasks.spawn(watched(name, obeying));
            }
            tokio::select! {
                order = orders.message(), if queue.has_room() => match order? {
                    Some(order) => {
                        self.check(order.coordinator)?;
                        match &order.revoked {
                            Some(revoked) => outgoing.send(self.revoke(revoked)?).await?,
                            None => queue.add(order),
                        }
                    }
                    None => return Ok(()),
                },
                Some(ended) = tasks.join_next() => {
                    let (run, obeyed) = ended?;
                    queue.done(&run);
                    for report in obeyed? {
                        outgoing.send(report).await?;
                    }
                }
                Some(report) = reports.recv() => outgoing.send(encode(report)).await?,
                _ = beats.tick() => {
                    let beat = Body::Beat(v1::ServerBeat {});
                    outgoing.send(ServerReport { report: Some(beat) }).await?;
                }
            }
        }
    }

    async fn coordinator(&self) -> anyhow::Result<String> {
        match &self.me.coordinator {
            Found::At(address) => Ok(address.clone()),
            Found::In(folder) => {
                let within = folder.clone();
                // A folder that does not answer holds up nobody else.
                let found = spawn_blocking(move || read_address(&within)).await??;
                let found = found.ok_or_else(|| {
                    anyhow::anyhow!("no coordinator has been in {} yet", folder.display())
                })?;
                self.check(found.incarnation.0)?;
                Ok(found.address)
            }
        }
    }

    /// Refuses a coordinator that another one has followed.
    fn check(&self, incarnation: u64) -> anyhow::Result<()> {
        let highest = self.obeyed.fetch_max(incarnation, Ordering::Relaxed);
        if incarnation < highest {
            anyhow::bail!(
                "coordinator incarnation {incarnation} is deposed; {highest} has followed it"
            );
        }
        Ok(())
    }

    /// Shuts out whose certificates are revoked, and says so.
    fn revoke(&self, revoked: &v1::Revoked) -> anyhow::Result<ServerReport> {
        let revoked = revoked_from_wire(revoked)?;
        let count = revoked.len() as u32;
        self.connections.revoke(revoked);
        let keeps = Body::KeepsRevoked(v1::KeepsRevoked { count });
        Ok(ServerReport {
            report: Some(keeps),
        })
    }

    fn register(&self) -> ServerReport {
        let register = v1::Register {
            server: self.registry.server().0,
            incarnation: self.me.incarnation,
            address: self.me.address.clone(),
            host: self.me.host.clone(),
        };
        ServerReport {
            report: Some(Body::Register(register)),
        }
    }
}

async fn obey_wire(registry: &Registry, order: v1::ServerOrder) -> Obeyed {
    if order.run.is_empty() {
        let runs = order.runs.iter().map(|run| convert::run_id(run));
        registry.keep_only(&runs.collect::<Result<_, _>>()?).await;
        return Ok(Vec::new());
    }
    let run = convert::run_id(&order.run)?;
    let known = registry.find(&run).ok();
    let Some(order) = decode_order(registry.server(), order, known.as_ref())? else {
        tracing::warn!(%run, "an order says what has changed, but the run is not known; all of it is asked for");
        return Ok(vec![followed(&run, None)]);
    };
    let layout = match (&order.view, known) {
        (OrderedView::Since(_), Some(known)) => known.layout,
        _ => Arc::new(order.spec.check()?),
    };
    let generation = order.view.generation();
    match obey(registry, order, layout).await {
        Ok(Some(reports)) => {
            let encode = |report| encode(ReportToSend::Shard(run.clone(), report));
            let reports = reports.into_iter().map(encode);
            let first = followed(&run, Some(generation));
            Ok(std::iter::once(first).chain(reports).collect())
        }
        // What was obeyed before was said then.
        Ok(None) => Ok(Vec::new()),
        Err(behind) => {
            tracing::warn!(%run, "an order leaves a gap, and all of it is asked for: {behind}");
            Ok(vec![followed(&run, None)])
        }
    }
}

/// Says which view of a run was followed; later orders may say what has changed since.
fn followed(run: &RunId, generation: Option<Generation>) -> ServerReport {
    ServerReport {
        report: Some(Body::Followed(followed_to_wire(run, generation))),
    }
}

fn encode(report: ReportToSend) -> ServerReport {
    let report = match report {
        ReportToSend::Shard(run, report) => Body::Acknowledge(report_to_wire(&run, report)),
        ReportToSend::Captured(run, shard, number, result) => {
            Body::Captured(captured_to_wire(&run, shard, number, result))
        }
    };
    ServerReport {
        report: Some(report),
    }
}
