//! What the servers of a run tell about it, and what they can be asked to do.

use std::time::Duration;

use anyhow::anyhow;
use tonic::Status;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tradewind_common::{RunId, ShardId};
use tradewind_proto::auth::{Credentials, ShowToken};
use tradewind_proto::holding::Holding;
use tradewind_proto::refusal::{Reason, reason};
use tradewind_proto::v1::coordinator_client::CoordinatorClient;
use tradewind_proto::v1::host_client::HostClient;
use tradewind_proto::v1::shard_client::ShardClient;
use tradewind_proto::v1::{
    AttachRequest, CoordinateReply, CoordinateRequest, DrainRequest, PingReply, PingRequest,
    RankOfGroup, RemoveRequest, ResumeRequest, RevokeRequest, ShardStatusReply, ShardStatusRequest,
    SnapshotReply, SnapshotRequest, StatusReply, StatusRequest,
};

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(2);

/// How long the primary of a shard may take to tell its state.
const SHARD: Duration = Duration::from_secs(5);

/// The coordinator's status and that of every shard's primary.
#[derive(Clone, Debug)]
pub struct ClusterStatus {
    /// What the coordinator says of the run.
    pub run: StatusReply,
    /// By shard; `None` where nobody answered for it.
    pub shards: Vec<Option<ShardStatusReply>>,
}

/// Whom a person shuts out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Whom {
    /// Groups of the run, with all their ranks.
    pub groups: Vec<u32>,
    /// Ranks of the run, each by its group and its number there.
    pub ranks: Vec<(u32, u32)>,
    /// Servers of the fleet.
    pub servers: Vec<u32>,
    /// People, by their names.
    pub people: Vec<String>,
}

/// A connection that shows the token.
pub type Connection = InterceptedService<Channel, ShowToken>;

/// The right to talk to the servers of a fleet.
#[derive(Clone, Debug)]
pub struct Access(Credentials);

impl Access {
    /// For the token of the servers, and under TLS a key with its certificates.
    pub fn new(token: &str, pem: Option<&str>) -> anyhow::Result<Self> {
        Ok(Self(Credentials::new(token, pem)?))
    }

    /// The coordinator's status.
    pub async fn status(&self, coordinator: &str, run: &RunId) -> anyhow::Result<StatusReply> {
        self.ask_status(coordinator, run.to_string()).await
    }

    async fn ask_status(&self, coordinator: &str, run: String) -> anyhow::Result<StatusReply> {
        let told = self.ask_of(coordinator, run).await?;
        told.map_err(|status| anyhow!("{coordinator}: {}", status.message()))
    }

    /// The coordinator's status; `None` if nobody has ever joined the run.
    pub async fn status_if_known(
        &self,
        coordinator: &str,
        run: &RunId,
    ) -> anyhow::Result<Option<StatusReply>> {
        match self.ask_of(coordinator, run.to_string()).await? {
            Ok(status) => Ok(Some(status)),
            Err(refused) if reason(&refused) == Some(Reason::UnknownRun.word()) => Ok(None),
            Err(refused) => Err(anyhow!("{coordinator}: {}", refused.message())),
        }
    }

    async fn ask_of(
        &self,
        coordinator: &str,
        run: String,
    ) -> anyhow::Result<Result<StatusReply, Status>> {
        let mut client = CoordinatorClient::new(self.connect(coordinator).await?);
        let told = client.status(StatusRequest { run }).await;
        Ok(told.map(tonic::Response::into_inner))
    }

    /// The runs of a fleet, and its servers.
    pub async fn fleet(&self, coordinator: &str) -> anyhow::Result<StatusReply> {
        self.ask_status(coordinator, String::new()).await
    }

    /// The coordinator's status, and what the primary of every shard says.
    pub async fn cluster(&self, coordinator: &str, run: &RunId) -> anyhow::Result<ClusterStatus> {
        let status = self.status(coordinator, run).await?;
        let holding = holding(&status)?;
        let count = holding.holders.len() as u32;
        let shards = (0..count).map(|shard| self.shard(&holding, run, ShardId(shard)));
        let shards = futures_util::future::join_all(shards).await;
        Ok(ClusterStatus {
            run: status,
            shards,
        })
    }

    /// What the primary of a shard says; `None` if nobody answers for it in time.
    async fn shard(
        &self,
        holding: &Holding,
        run: &RunId,
        shard: ShardId,
    ) -> Option<ShardStatusReply> {
        let server = holding.primary(shard)?;
        let asked = async {
            let mut client = ShardClient::new(self.connect(&server.address).await.ok()?);
            let request = ShardStatusRequest {
                run: run.to_string(),
                shard: shard.0,
                digest: false,
            };
            Some(client.shard_status(request).await.ok()?.into_inner())
        };
        tokio::time::timeout(SHARD, asked).await.ok()?
    }

    /// Has a snapshot taken; returns when it is whole on disk.
    pub async fn snapshot(&self, coordinator: &str, run: &RunId) -> Result<SnapshotReply, Status> {
        let connected = self.connect(coordinator).await;
        let connection = connected.map_err(|error| Status::unavailable(format!("{error:#}")))?;
        let run = run.to_string();
        let mut client = CoordinatorClient::new(connection);
        let taken = client.snapshot(SnapshotRequest { run }).await;
        Ok(taken?.into_inner())
    }

    /// Adds groups of so many ranks each; the number of the first.
    pub async fn attach(
        &self,
        coordinator: &str,
        run: &RunId,
        sizes: &[u32],
    ) -> anyhow::Result<u32> {
        let mut client = CoordinatorClient::new(self.connect(coordinator).await?);
        let request = AttachRequest {
            run: run.to_string(),
            sizes: sizes.to_vec(),
        };
        let added = client.attach(request).await;
        let added = added.map_err(|status| anyhow!("{}", status.message()))?;
        Ok(added.into_inner().first_group)
    }

    /// Asks groups to leave; where none is named, all of them.
    pub async fn drain(
        &self,
        coordinator: &str,
        run: &RunId,
        groups: &[u32],
    ) -> anyhow::Result<()> {
        let mut client = CoordinatorClient::new(self.connect(coordinator).await?);
        let request = DrainRequest {
            run: run.to_string(),
            groups: groups.to_vec(),
        };
        let asked = client.drain(request).await;
        asked.map_err(|status| anyhow!("{}", status.message()))?;
        Ok(())
    }

    /// Shuts somebody out of a run or its fleet: returns when every server refuses them that may be there. Servers that
    /// are gone and were given up are named.
    pub async fn revoke(
        &self,
        coordinator: &str,
        run: &RunId,
        whom: &Whom,
    ) -> anyhow::Result<Vec<u32>> {
        let mut client = CoordinatorClient::new(self.connect(coordinator).await?);
        let ranks = whom.ranks.iter();
        let request = RevokeRequest {
            run: run.to_string(),
            groups: whom.groups.clone(),
            ranks: ranks
                .map(|(group, rank)| RankOfGroup {
                    group: *group,
                    rank: *rank,
                })
                .collect(),
            servers: whom.servers.clone(),
            people: whom.people.clone(),
        };
        let revoked = client.revoke(request).await;
        let revoked = revoked.map_err(|status| anyhow!("{}", status.message()))?;
        Ok(revoked.into_inner().without)
    }

    /// Has a fleet forget a run that is over.
    pub async fn remove(&self, coordinator: &str, run: &RunId) -> anyhow::Result<()> {
        let mut client = CoordinatorClient::new(self.connect(coordinator).await?);
        let run = run.to_string();
        let removed = client.remove(RemoveRequest { run }).await;
        removed.map_err(|status| anyhow!("{}", status.message()))?;
        Ok(())
    }

    /// Has a run that a fleet does not hold go on from its newest snapshot; its number.
    pub async fn resume(&self, coordinator: &str, run: &RunId) -> anyhow::Result<u64> {
        let mut client = CoordinatorClient::new(self.connect(coordinator).await?);
        let run = run.to_string();
        let resumed = client.resume(ResumeRequest { run }).await;
        let resumed = resumed.map_err(|status| anyhow!("{}", status.message()))?;
        Ok(resumed.into_inner().number)
    }

    /// Pings a server on a connection that is kept.
    pub async fn ping(
        &self,
        address: &str,
        connection: &mut Option<Connection>,
    ) -> anyhow::Result<PingReply> {
        let open = match connection.take() {
            Some(open) => open,
            None => self.connect(address).await?,
        };
        let open = connection.insert(open).clone();
        let told = HostClient::new(open).ping(PingRequest {}).await?;
        Ok(told.into_inner())
    }

    /// Has a server host the coordinator.
    pub async fn coordinate(&self, address: &str, servers: u32) -> anyhow::Result<CoordinateReply> {
        let mut client = HostClient::new(self.connect(address).await?);
        let told = client.coordinate(CoordinateRequest { servers }).await?;
        Ok(told.into_inner())
    }

    /// A connection to a server.
    pub async fn connect(&self, address: &str) -> anyhow::Result<Connection> {
        let channel = Endpoint::try_from(format!("http://{address}"))?
            .connect_timeout(CONNECT)
            .connect_with_connector(self.0.connector())
            .await
            .map_err(|error| {
                // What is between says the same again.
                let error = anyhow::Error::from(error);
                anyhow!("cannot reach {address}: {}", error.root_cause())
            })?;
        Ok(InterceptedService::new(channel, self.0.show()))
    }
}

/// Who holds what, as a status says; nobody anything before that is decided.
pub fn holding(status: &StatusReply) -> anyhow::Result<Holding> {
    let holding = status.placement.clone().unwrap_or_default().holding;
    Ok(Holding::try_from(holding.unwrap_or_default())?)
}
