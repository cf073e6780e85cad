//! Servers that answer as a test tells them to; for the tests of this package, and with the feature
//! `testing` for those of others.

use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_stream::{Stream, StreamExt};
use tonic::transport::Server;
use tonic::transport::server::Router;
use tonic::{Request, Response, Status, Streaming};
use tradewind_common::schedule::Schedule;
use tradewind_common::spec::RunSpec;
use tradewind_common::{TensorKind, TensorSpec};
use tradewind_proto::v1::coordinator_server::{Coordinator, CoordinatorServer};
use tradewind_proto::v1::shard_server::{Shard, ShardServer};
use tradewind_proto::v1::{
    AttachReply, AttachRequest, AwaitReadyReply, AwaitReadyRequest, Beat, BeatReply, Confirm,
    DrainReply, DrainRequest, JoinReply, JoinRequest, LeaseChunkReply, LeaseChunkRequest,
    LeaveReply, LeaveRequest, PullFrame, PushFrame, Record, RemoveReply, RemoveRequest,
    ResumeReply, ResumeRequest, RevokeReply, RevokeRequest, ServerOrder, ServerReport,
    ShardStatusReply, ShardStatusRequest, SnapshotReply, SnapshotRequest, StatusReply,
    StatusRequest,
};

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;
type Answered<T> = Result<Response<T>, Status>;
type Judge<Q, A> = Arc<dyn Fn(&Q) -> Does<A> + Send + Sync>;
type Joining = Arc<dyn Fn(u32) -> Result<JoinReply, Status> + Send + Sync>;

/// A server on a runtime of its own. It dies when it is dropped, with all its connections.
pub struct Running {
    /// host:port
    pub address: String,
    runtime: Option<Runtime>,
    connections: Arc<AtomicU32>,
}

impl Running {
    /// Connections to it so far.
    pub fn connections(&self) -> u32 {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let runtime = self.runtime.take().expect("dropped once");
        runtime.shutdown_background();
    }
}

fn serve(router: Router) -> Running {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let connections = Arc::<AtomicU32>::default();
    let counted = connections.clone();
    runtime.spawn(async move {
        let listener = TcpListener::from_std(listener).unwrap();
        let connections = TcpListenerStream::new(listener).map(move |accepted| {
            counted.fetch_add(1, Ordering::Relaxed);
            accepted
        });
        router.serve_with_incoming(connections).await.unwrap();
    });
    Running {
        address,
        runtime: Some(runtime),
        connections,
    }
}

/// What becomes of a message.
pub enum Does<T> {
    /// It is answered.
    Answers(T),
    /// Nothing is said.
    Waits,
    /// The stream ends, well or not.
    Ends(Result<(), Status>),
}

/// Answers the messages of a stream one by one.
fn answers<Q: Send + 'static, A: Send + 'static>(
    mut asked: Streaming<Q>,
    does: impl Fn(Q) -> Does<A> + Send + 'static,
) -> Answers<A> {
    let (answers, answered) = mpsc::channel(16);
    tokio::spawn(async move {
        while let Some(Ok(asked)) = asked.next().await {
            let answer = match does(asked) {
                Does::Answers(answer) => Ok(answer),
                Does::Waits => continue,
                Does::Ends(Ok(())) => return,
                Does::Ends(Err(status)) => Err(status),
            };
            let last = answer.is_err();
            if answers.send(answer).await.is_err() || last {
                return;
            }
        }
        // The other side has ended its stream; this one stays open, as long as the call is.
        answers.closed().await;
    });
    Box::pin(ReceiverStream::new(answered))
}

/// Of a run of one tensor.
pub fn spec() -> RunSpec {
    let weight = TensorSpec {
        name: "weight".into(),
        shape: vec![4],
        kind: TensorKind::Parameter,
    };
    RunSpec {
        seed: 0,
        schedule: Schedule::constant(0.1),
        epoch_samples: 100,
        lease_ms: 1000,
        start_grace_ms: 1000,
        ..RunSpec::plain(vec![2], vec![weight], 64)
    }
}

/// A shard's server.
#[derive(Clone)]
pub struct FakeShard {
    does: Judge<PushFrame, PullFrame>,
    heard: Arc<Mutex<Vec<PushFrame>>>,
}

impl FakeShard {
    /// Nothing is sent until it [runs](Self::run).
    pub fn new(does: impl Fn(&PushFrame) -> Does<PullFrame> + Send + Sync + 'static) -> Self {
        Self {
            does: Arc::new(does),
            heard: Arc::default(),
        }
    }

    /// The frames so far.
    pub fn heard(&self) -> Vec<PushFrame> {
        self.heard.lock().unwrap().clone()
    }

    /// Serves on a port of its own.
    pub fn run(&self) -> Running {
        serve(Server::builder().add_service(ShardServer::new(self.clone())))
    }
}

#[tonic::async_trait]
impl Shard for FakeShard {
    type ExchangeStream = Answers<PullFrame>;
    type ReplicateStream = Answers<Confirm>;

    async fn exchange(
        &self,
        request: Request<Streaming<PushFrame>>,
    ) -> Answered<Self::ExchangeStream> {
        let own = self.clone();
        let does = move |frame: PushFrame| {
            let done = (own.does)(&frame);
            own.heard.lock().unwrap().push(frame);
            done
        };
        Ok(Response::new(answers(request.into_inner(), does)))
    }

    async fn replicate(&self, _: Request<Streaming<Record>>) -> Answered<Self::ReplicateStream> {
        Err(Status::unimplemented("a fake"))
    }

    async fn shard_status(&self, _: Request<ShardStatusRequest>) -> Answered<ShardStatusReply> {
        Err(Status::unimplemented("a fake"))
    }
}

/// A coordinator, for joins and heartbeats.
#[derive(Clone)]
pub struct FakeCoordinator {
    beat: Judge<Beat, BeatReply>,
    join: Joining,
    beats: Arc<Mutex<Vec<Beat>>>,
    streams: Arc<Mutex<u32>>,
    joins: Arc<Mutex<Vec<JoinRequest>>>,
    start: fn(u64) -> u64,
    leave: fn(u64) -> Result<(), Status>,
    left: Arc<Mutex<Vec<u64>>>,
}

impl FakeCoordinator {
    /// One that refuses joins.
    pub fn beats(beat: impl Fn(&Beat) -> Does<BeatReply> + Send + Sync + 'static) -> Self {
        Self {
            beat: Arc::new(beat),
            join: Arc::new(|_| Err(Status::unimplemented("a fake"))),
            beats: Arc::default(),
            streams: Arc::default(),
            joins: Arc::default(),
            start: |_| 0,
            leave: |_| Ok(()),
            left: Arc::default(),
        }
    }

    /// One that does not answer beats. `join` is told how many joins there have been before.
    pub fn joins(join: impl Fn(u32) -> Result<JoinReply, Status> + Send + Sync + 'static) -> Self {
        Self::beats(|_| Does::Waits).joined(join)
    }

    /// The same, but for joins.
    pub fn joined(
        self,
        join: impl Fn(u32) -> Result<JoinReply, Status> + Send + Sync + 'static,
    ) -> Self {
        let join = Arc::new(join);
        Self { join, ..self }
    }

    /// The same; an incarnation of a group begins at `clock`, given its number.
    pub fn starting(self, clock: fn(u64) -> u64) -> Self {
        let start = clock;
        Self { start, ..self }
    }

    /// The same; what it says to a group that leaves, given its incarnation.
    pub fn leaving(self, leave: fn(u64) -> Result<(), Status>) -> Self {
        Self { leave, ..self }
    }

    /// Joins so far.
    pub fn joins_heard(&self) -> Vec<JoinRequest> {
        self.joins.lock().unwrap().clone()
    }

    /// Incarnations that have asked to leave.
    pub fn left(&self) -> Vec<u64> {
        self.left.lock().unwrap().clone()
    }

    /// The beats so far.
    pub fn heard(&self) -> Vec<Beat> {
        self.beats.lock().unwrap().clone()
    }

    /// Streams of beats so far.
    pub fn streams(&self) -> u32 {
        *self.streams.lock().unwrap()
    }

    /// Serves on a port of its own.
    pub fn run(&self) -> Running {
        serve(Server::builder().add_service(CoordinatorServer::new(self.clone())))
    }
}

#[tonic::async_trait]
impl Coordinator for FakeCoordinator {
    type KeepLeaseStream = Answers<BeatReply>;
    type ServeStream = Answers<ServerOrder>;

    async fn join(&self, request: Request<JoinRequest>) -> Answered<JoinReply> {
        let before = {
            let mut joins = self.joins.lock().unwrap();
            joins.push(request.into_inner());
            joins.len() as u32 - 1
        };
        (self.join)(before).map(Response::new)
    }

    async fn keep_lease(
        &self,
        request: Request<Streaming<Beat>>,
    ) -> Answered<Self::KeepLeaseStream> {
        *self.streams.lock().unwrap() += 1;
        let own = self.clone();
        let does = move |beat: Beat| {
            let done = (own.beat)(&beat);
            own.beats.lock().unwrap().push(beat);
            done
        };
        Ok(Response::new(answers(request.into_inner(), does)))
    }

    async fn await_ready(&self, request: Request<AwaitReadyRequest>) -> Answered<AwaitReadyReply> {
        Ok(Response::new(AwaitReadyReply {
            create: false,
            generation: 1,
            start_clock: (self.start)(request.into_inner().incarnation),
        }))
    }

    async fn lease_chunk(&self, _: Request<LeaseChunkRequest>) -> Answered<LeaseChunkReply> {
        Err(Status::unimplemented("a fake"))
    }

    async fn leave(&self, request: Request<LeaveRequest>) -> Answered<LeaveReply> {
        let incarnation = request.into_inner().incarnation;
        self.left.lock().unwrap().push(incarnation);
        (self.leave)(incarnation).map(|()| Response::new(LeaveReply {}))
    }

    async fn attach(&self, _: Request<AttachRequest>) -> Answered<AttachReply> {
        Err(Status::unimplemented("a fake"))
    }

    async fn remove(&self, _: Request<RemoveRequest>) -> Answered<RemoveReply> {
        Err(Status::unimplemented("a fake"))
    }

    async fn resume(&self, _: Request<ResumeRequest>) -> Answered<ResumeReply> {
        Err(Status::unimplemented("a fake"))
    }

    async fn drain(&self, _: Request<DrainRequest>) -> Answered<DrainReply> {
        Err(Status::unimplemented("a fake"))
    }

    async fn revoke(&self, _: Request<RevokeRequest>) -> Answered<RevokeReply> {
        Err(Status::unimplemented("a fake"))
    }

    async fn snapshot(&self, _: Request<SnapshotRequest>) -> Answered<SnapshotReply> {
        Err(Status::unimplemented("a fake"))
    }

    async fn status(&self, _: Request<StatusRequest>) -> Answered<StatusReply> {
        Err(Status::unimplemented("a fake"))
    }

    async fn serve(&self, _: Request<Streaming<ServerReport>>) -> Answered<Self::ServeStream> {
        Err(Status::unimplemented("a fake"))
    }
}
