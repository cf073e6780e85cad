//! Clients as generated from the `.proto`.

use std::time::Duration;

use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};
use tradewind_proto::auth::{Credentials, ShowToken};
use tradewind_proto::v1::coordinator_client::CoordinatorClient;
use tradewind_proto::v1::host_client::HostClient;
use tradewind_proto::v1::shard_client::ShardClient;
use tradewind_proto::v1::{PullFrame, PushFrame, ShardStatusReply, ShardStatusRequest};

/// Longest wait for an answer, for a slow and noisy machine; a call that hangs fails the test.
pub(super) const ANSWER: Duration = Duration::from_secs(60);

/// A connection that shows a token.
pub type Authorized = InterceptedService<Channel, ShowToken>;

/// Clients of every service of a fleet, each server with a connection of its own.
#[derive(Clone, Debug)]
pub struct Client {
    /// The coordinator.
    pub coordinator: CoordinatorClient<Authorized>,
    /// The shard service of every server.
    pub shards: Vec<ShardClient<Authorized>>,
    /// The host service of every server.
    pub hosts: Vec<HostClient<Authorized>>,
}

impl Client {
    /// Clients of the servers at these addresses, which need not be there yet.
    pub(super) fn connect(coordinator: &str, servers: &[String], shown: &Credentials) -> Self {
        let channel = |address: &String| connect(address, shown);
        let channels: Vec<Authorized> = servers.iter().map(channel).collect();
        Self {
            coordinator: CoordinatorClient::new(connect(coordinator, shown)),
            shards: channels.iter().cloned().map(ShardClient::new).collect(),
            hosts: channels.into_iter().map(HostClient::new).collect(),
        }
    }

    /// What server i tells of shard i of `run`, which it holds where nothing has failed.
    pub async fn shard_status(&self, server: usize, run: &str) -> Result<ShardStatusReply, Status> {
        self.status_of(server, run, server as u32).await
    }

    /// What a server tells of a shard of `run`.
    pub async fn status_of(
        &self,
        server: usize,
        run: &str,
        shard: u32,
    ) -> Result<ShardStatusReply, Status> {
        let request = ShardStatusRequest {
            run: run.into(),
            shard,
            digest: true,
        };
        let mut client = self.shards[server].clone();
        Ok(answer(client.shard_status(request)).await?.into_inner())
    }

    /// Sends frames on a stream of its own, which is then ended, and collects the answers up to
    /// the stream's end or its error.
    pub async fn exchange(
        &self,
        server: usize,
        frames: Vec<PushFrame>,
    ) -> (Vec<PullFrame>, Result<(), Status>) {
        let mut shard = self.shards[server].clone();
        let frames = Request::new(tokio_stream::iter(frames));
        match answer(shard.exchange(frames)).await {
            Ok(response) => collect(response.into_inner()).await,
            Err(status) => (Vec::new(), Err(status)),
        }
    }

    /// Sends one frame and takes its answer.
    pub async fn push(&self, server: usize, frame: PushFrame) -> Result<PullFrame, Status> {
        let (mut answers, end) = self.exchange(server, vec![frame]).await;
        end.map(|()| answers.pop().expect("every frame is answered"))
    }
}

fn connect(address: &str, shown: &Credentials) -> Authorized {
    let endpoint = Endpoint::try_from(format!("http://{address}")).expect("an address");
    let channel = endpoint.connect_with_connector_lazy(shown.connector());
    InterceptedService::new(channel, shown.show())
}

/// The messages of a stream up to its end or its error.
pub async fn collect<T>(mut stream: Streaming<T>) -> (Vec<T>, Result<(), Status>) {
    let mut messages = Vec::new();
    loop {
        match answer(stream.message()).await {
            Ok(Some(message)) => messages.push(message),
            Ok(None) => return (messages, Ok(())),
            Err(status) => return (messages, Err(status)),
        }
    }
}

/// The answer to a call.
///
/// # Panics
/// If there is none after a minute.
pub async fn answer<T>(call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    match tokio::time::timeout(ANSWER, call).await {
        Ok(answer) => answer,
        Err(_) => panic!("a call has no answer"),
    }
}
