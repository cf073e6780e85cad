//! Servers in this process, on ports that the system picks, and clients as generated from the
//! `.proto`.

use std::time::Duration;

use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};
use tradewind_common::ServerId;
use tradewind_proto::auth::{ShowToken, Token};
use tradewind_proto::v1::coordinator_client::CoordinatorClient;
use tradewind_proto::v1::shard_client::ShardClient;
use tradewind_proto::v1::{PullFrame, PushFrame, ShardStatusReply, ShardStatusRequest};
use tradewind_server::{Config, CoordinatorAt, serve};

/// Longest wait for an answer, for a slow and noisy machine; a call that hangs fails the test.
pub(super) const ANSWER: Duration = Duration::from_secs(60);

/// The life of every server of a fleet; not 1, so that there is a former one.
pub const INCARNATION: u64 = 2;

/// A connection that shows a token.
pub type Authorized = InterceptedService<Channel, ShowToken>;

/// The servers of a fleet; the first one hosts the coordinator. They end when it is dropped.
pub struct Fleet {
    runtime: Runtime,
    token: String,
    addresses: Vec<String>,
    stops: Vec<oneshot::Sender<()>>,
    serving: Vec<JoinHandle<anyhow::Result<()>>>,
}

impl Fleet {
    /// Starts `servers` servers that ask for `token`.
    ///
    /// # Panics
    /// If a port cannot be had.
    pub fn start(servers: u32, token: &str) -> Self {
        Self::partial(servers, servers, token)
    }

    /// Starts the first `started` servers of a fleet of `servers`.
    ///
    /// # Panics
    /// If a port cannot be had.
    pub fn partial(started: u32, servers: u32, token: &str) -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let mut fleet = Self {
            runtime,
            token: token.to_owned(),
            addresses: Vec::new(),
            stops: Vec::new(),
            serving: Vec::new(),
        };
        for server in 0..started {
            fleet.add(server, servers);
        }
        fleet
    }

    fn add(&mut self, server: u32, servers: u32) {
        let listener = self.runtime.block_on(TcpListener::bind("127.0.0.1:0"));
        let listener = listener.expect("a free port");
        let address = listener.local_addr().expect("a bound port").to_string();
        let coordinator = match self.addresses.first() {
            None => CoordinatorAt::Here { servers },
            Some(first) => CoordinatorAt::Elsewhere(first.clone()),
        };
        let config = Config {
            server: ServerId(server),
            incarnation: INCARNATION,
            address: address.clone(),
            coordinator,
            token: Token::new(&self.token).expect("a token of visible ASCII"),
        };
        let (stop, stopped) = oneshot::channel();
        let serving = serve(listener, config, async {
            let _ = stopped.await;
        });
        self.serving.push(self.runtime.spawn(serving));
        self.stops.push(stop);
        self.addresses.push(address);
    }

    /// host:port of every server.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// What it asks for.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Runs a test against the fleet.
    pub fn block_on<T>(&self, test: impl Future<Output = T>) -> T {
        self.runtime.block_on(test)
    }

    /// Fresh connections that show the fleet's token.
    pub async fn client(&self) -> Client {
        self.client_with(&self.token).await
    }

    /// Fresh connections that show another token.
    pub async fn client_with(&self, token: &str) -> Client {
        let show = ShowToken(Token::new(token).expect("a token of visible ASCII"));
        let mut shards = Vec::new();
        for address in &self.addresses {
            let channel = connect(address, &show).await;
            shards.push(ShardClient::new(channel));
        }
        let channel = connect(&self.addresses[0], &show).await;
        let coordinator = CoordinatorClient::new(channel);
        Client {
            coordinator,
            shards,
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for stop in self.stops.drain(..) {
            let _ = stop.send(());
        }
        // A second panic would hide the first one.
        let mut failed = false;
        for serving in self.serving.drain(..) {
            let ended = self.runtime.block_on(serving);
            failed |= !matches!(ended, Ok(Ok(())));
        }
        assert!(
            std::thread::panicking() || !failed,
            "a server ended with an error"
        );
    }
}

async fn connect(address: &str, show: &ShowToken) -> Authorized {
    let endpoint = Endpoint::try_from(format!("http://{address}")).expect("an address");
    let channel = endpoint.connect().await.expect("a server that listens");
    InterceptedService::new(channel, show.clone())
}

/// Clients of every service of a fleet, each with a connection of its own.
#[derive(Clone, Debug)]
pub struct Client {
    /// The coordinator.
    pub coordinator: CoordinatorClient<Authorized>,
    /// The shard service of every server.
    pub shards: Vec<ShardClient<Authorized>>,
}

impl Client {
    /// What the shard of `run` on a server tells.
    pub async fn shard_status(&self, server: usize, run: &str) -> Result<ShardStatusReply, Status> {
        let request = ShardStatusRequest { run: run.into() };
        let mut shard = self.shards[server].clone();
        Ok(answer(shard.shard_status(request)).await?.into_inner())
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
