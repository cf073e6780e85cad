//! The coordinator service: calls to the coordinator's task.

use std::sync::Arc;

use tonic::{Request, Response, Status, Streaming};
use tradewind_common::{GroupId, Incarnation, Rank, RunId};
use tradewind_proto::convert::{self, Malformed};
use tradewind_proto::v1;

use super::keep_lease::{KeepLeaseStream, keep_lease};
use super::revoked::to_revoke;
use super::serve::{ServeStream, serve};
use crate::admission::Peer;
use crate::coordinator_task::Message;
use crate::hosting::Hosting;
use crate::limits::Notices;
use crate::refuse;
use crate::status;
use tradewind_core::answer::Answer;
use tradewind_core::run::{Caller, Join};

/// The coordinator service, and where it tells what ranks could not do.
pub struct CoordinatorService(pub Hosting, pub Arc<Notices>);

fn run_id(name: &str) -> Result<RunId, Status> {
    convert::run_id(name).map_err(refuse::malformed)
}

fn missing(field: &'static str) -> Status {
    refuse::malformed(Malformed {
        field,
        problem: "is missing".into(),
    })
}

fn caller(group: u32, incarnation: u64, rank: u32) -> Caller {
    Caller {
        group: GroupId(group),
        incarnation: Incarnation(incarnation),
        rank: Rank(rank),
    }
}

fn wrong_answer() -> Status {
    Status::internal("a call was answered with what another one asks for")
}

#[tonic::async_trait]
impl v1::coordinator_server::Coordinator for CoordinatorService {
    type ServeStream = ServeStream;
    type KeepLeaseStream = KeepLeaseStream;

    async fn join(
        &self,
        request: Request<v1::JoinRequest>,
    ) -> Result<Response<v1::JoinReply>, Status> {
        let coordinator = self.0.current()?;
        let peer = Peer::of(request.extensions());
        let request = request.into_inner();
        let run = run_id(&request.run)?;
        peer.speaks_as(&run, GroupId(request.group), Rank(request.rank))?;
        let spec = request.spec.ok_or_else(|| missing("spec"))?;
        let spec = Box::new(spec.try_into().map_err(refuse::malformed)?);
        if request.life == 0 {
            return Err(missing("life"));
        }
        if !request.store_address.is_empty() {
            convert::host_port("store_address", &request.store_address)
                .map_err(refuse::malformed)?;
        }
        let join = Join {
            group: GroupId(request.group),
            rank: Rank(request.rank),
            life: request.life,
            store_address: request.store_address,
        };
        let asked = run.clone();
        let ask = |reply| Message::Join(asked, spec, join, reply);
        let Answer::Joined {
            incarnation,
            store_address,
            group_size,
            group_rank,
            origin,
        } = coordinator.call(ask).await.map_err(refuse::call)?
        else {
            return Err(wrong_answer());
        };
        let placed = coordinator.call(|reply| Message::Placement(run, reply));
        let placed = placed.await.map_err(refuse::call)?;
        Ok(Response::new(v1::JoinReply {
            incarnation: incarnation.0,
            store_address,
            placement: Some(placed.encode()),
            group_size,
            group_rank,
            origin_clock: origin.0.0,
            origin_samples: origin.1,
        }))
    }

    async fn await_ready(
        &self,
        request: Request<v1::AwaitReadyRequest>,
    ) -> Result<Response<v1::AwaitReadyReply>, Status> {
        let peer = Peer::of(request.extensions());
        let request = request.into_inner();
        let run = run_id(&request.run)?;
        peer.speaks_as(&run, GroupId(request.group), Rank(request.rank))?;
        let who = caller(request.group, request.incarnation, request.rank);
        let ask = |reply| Message::AwaitReady(run, who, request.created, reply);
        let answer = self.0.current()?.call(ask).await;
        let (create, generation, start_clock) = match answer.map_err(refuse::call)? {
            Answer::Create => (true, 0, 0),
            Answer::Ready { generation, start } => (false, generation.0, start.0),
            Answer::Joined { .. }
            | Answer::Attached(_)
            | Answer::Draining
            | Answer::Removed
            | Answer::Resumes
            | Answer::Revoked { .. }
            | Answer::Snapshot { .. } => return Err(wrong_answer()),
        };
        Ok(Response::new(v1::AwaitReadyReply {
            create,
            generation,
            start_clock,
        }))
    }

    async fn keep_lease(
        &self,
        request: Request<Streaming<v1::Beat>>,
    ) -> Result<Response<Self::KeepLeaseStream>, Status> {
        let replies = keep_lease(self.0.current()?, self.1.clone(), request).await?;
        Ok(Response::new(Box::pin(replies)))
    }

    async fn lease_chunk(
        &self,
        request: Request<v1::LeaseChunkRequest>,
    ) -> Result<Response<v1::LeaseChunkReply>, Status> {
        let peer = Peer::of(request.extensions());
        let request = request.into_inner();
        let run = run_id(&request.run)?;
        peer.speaks_for(&run, GroupId(request.group))?;
        let owner = (GroupId(request.group), Incarnation(request.incarnation));
        let ask = |reply| Message::LeaseChunk(run, owner, request.finished, request.held, reply);
        let chunk = self.0.current()?.call(ask).await.map_err(refuse::call)?;
        Ok(Response::new(v1::LeaseChunkReply {
            chunk: chunk.number,
            epoch: chunk.epoch,
            begin: chunk.positions.start,
            end: chunk.positions.end,
        }))
    }

    async fn leave(
        &self,
        request: Request<v1::LeaveRequest>,
    ) -> Result<Response<v1::LeaveReply>, Status> {
        let peer = Peer::of(request.extensions());
        let request = request.into_inner();
        let run = run_id(&request.run)?;
        peer.speaks_as(&run, GroupId(request.group), Rank(request.rank))?;
        let who = caller(request.group, request.incarnation, request.rank);
        let ask = |reply| Message::Leave(run, who, request.finished, reply);
        self.0.current()?.call(ask).await.map_err(refuse::call)?;
        Ok(Response::new(v1::LeaveReply {}))
    }

    async fn attach(
        &self,
        request: Request<v1::AttachRequest>,
    ) -> Result<Response<v1::AttachReply>, Status> {
        let request = request.into_inner();
        let run = run_id(&request.run)?;
        let ask = |reply| Message::Attach(run, request.sizes, reply);
        let answer = self.0.current()?.call(ask).await;
        let Answer::Attached(first) = answer.map_err(refuse::call)? else {
            return Err(wrong_answer());
        };
        let first_group = first.0;
        Ok(Response::new(v1::AttachReply { first_group }))
    }

    async fn drain(
        &self,
        request: Request<v1::DrainRequest>,
    ) -> Result<Response<v1::DrainReply>, Status> {
        let request = request.into_inner();
        let run = run_id(&request.run)?;
        let groups = request.groups.into_iter().map(GroupId).collect();
        let ask = |reply| Message::Drain(run, groups, reply);
        let answer = self.0.current()?.call(ask).await;
        let Answer::Draining = answer.map_err(refuse::call)? else {
            return Err(wrong_answer());
        };
        Ok(Response::new(v1::DrainReply {}))
    }

    async fn revoke(
        &self,
        request: Request<v1::RevokeRequest>,
    ) -> Result<Response<v1::RevokeReply>, Status> {
        let request = request.into_inner();
        let run = run_id(&request.run)?;
        let who = to_revoke(&run, &request).map_err(refuse::malformed)?;
        let ask = |reply| Message::Revoke(run, who, reply);
        let answer = self.0.current()?.call(ask).await;
        let Answer::Revoked { without } = answer.map_err(refuse::call)? else {
            return Err(wrong_answer());
        };
        let without = without.iter().map(|server| server.0).collect();
        Ok(Response::new(v1::RevokeReply { without }))
    }

    async fn remove(
        &self,
        request: Request<v1::RemoveRequest>,
    ) -> Result<Response<v1::RemoveReply>, Status> {
        let run = run_id(&request.into_inner().run)?;
        let ask = |reply| Message::Remove(run, reply);
        let answer = self.0.current()?.call(ask).await;
        let Answer::Removed = answer.map_err(refuse::call)? else {
            return Err(wrong_answer());
        };
        Ok(Response::new(v1::RemoveReply {}))
    }

    async fn resume(
        &self,
        request: Request<v1::ResumeRequest>,
    ) -> Result<Response<v1::ResumeReply>, Status> {
        let run = run_id(&request.into_inner().run)?;
        let number = self.0.resume(&run).await?;
        Ok(Response::new(v1::ResumeReply { number }))
    }

    async fn snapshot(
        &self,
        request: Request<v1::SnapshotRequest>,
    ) -> Result<Response<v1::SnapshotReply>, Status> {
        let run = run_id(&request.into_inner().run)?;
        let folder = self.0.snapshots(&run);
        let ask = |reply| Message::Snapshot(run, reply);
        let answer = self.0.current()?.call(ask).await;
        let Answer::Snapshot { number } = answer.map_err(refuse::call)? else {
            return Err(wrong_answer());
        };
        let folder = folder.map(|of| of(number)).unwrap_or_default();
        Ok(Response::new(v1::SnapshotReply { number, folder }))
    }

    async fn status(
        &self,
        request: Request<v1::StatusRequest>,
    ) -> Result<Response<v1::StatusReply>, Status> {
        let coordinator = self.0.current()?;
        let peer = Peer::of(request.extensions());
        let name = request.into_inner().run;
        let fleet = coordinator.call(Message::Fleet);
        let (runs, servers) = fleet.await.map_err(refuse::call)?;
        let mut reply = if name.is_empty() {
            status::encode_servers(servers)
        } else {
            let run = run_id(&name)?;
            peer.belongs_to(&run)?;
            let asked = coordinator.call(|reply| Message::Status(run, reply));
            status::encode(asked.await.map_err(refuse::call)?)
        };
        let runs = runs.iter().filter(|run| peer.hears_of(run));
        reply.runs = runs.map(RunId::to_string).collect();
        reply.coordinator = coordinator.incarnation();
        Ok(Response::new(reply))
    }

    async fn serve(
        &self,
        request: Request<Streaming<v1::ServerReport>>,
    ) -> Result<Response<Self::ServeStream>, Status> {
        let orders = serve(self.0.current()?, request).await?;
        Ok(Response::new(Box::pin(orders)))
    }
}
