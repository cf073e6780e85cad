//! The host service: what every server can be asked, whether it hosts the coordinator or not.

use std::sync::Arc;

use tonic::{Request, Response, Status};
use tradewind_proto::refusal::{self, Reason};
use tradewind_proto::v1;

use crate::hosting::Hosting;
use crate::registry::Registry;

/// The host service.
pub struct HostService {
    /// The coordinator, if it is here.
    pub hosting: Hosting,
    /// The shards of this server.
    pub registry: Arc<Registry>,
    /// Which life of the server.
    pub incarnation: u64,
}

#[tonic::async_trait]
impl v1::host_server::Host for HostService {
    async fn coordinate(
        &self,
        request: Request<v1::CoordinateRequest>,
    ) -> Result<Response<v1::CoordinateReply>, Status> {
        let servers = request.into_inner().servers;
        if servers == 0 {
            return Err(Status::invalid_argument("a fleet has at least 1 server"));
        }
        if !self.hosting.outlives() {
            let text = "the fleet has no folder from which a coordinator could go on";
            return Err(refusal::status(Reason::NoFolder, text.into()));
        }
        let hosting = self.hosting.clone();
        let begin = tokio::task::spawn_blocking({
            let hosting = hosting.clone();
            move || hosting.begin(servers)
        });
        let begun = begin
            .await
            .map_err(|error| Status::internal(error.to_string()))?;
        let incarnation = begun.map_err(|error| Status::unavailable(format!("{error:#}")))?;
        Ok(Response::new(v1::CoordinateReply {
            incarnation,
            address: hosting.address().to_owned(),
        }))
    }

    async fn ping(&self, _: Request<v1::PingRequest>) -> Result<Response<v1::PingReply>, Status> {
        Ok(Response::new(v1::PingReply {
            server: self.registry.server().0,
            incarnation: self.incarnation,
            coordinates: self.hosting.current().is_ok(),
        }))
    }
}
