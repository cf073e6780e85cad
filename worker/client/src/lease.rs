//! Heartbeats: they hold a rank's lease, tell the group's clock and speed, and bring news of who holds
//! the shards and of how fast others are.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tradewind_common::Incarnation;
use tradewind_process::{Supervised, supervise};
use tradewind_proto::holding::Holding;
use tradewind_proto::refusal;
use tradewind_proto::v1::{Beat, BeatReply};

use crate::away::Away;
use crate::coordinator::{Coordinator, MembershipError, RankId};
use crate::directory::News;
use crate::heartbeat::HeartbeatState;
use crate::stopwatch::Stopwatch;

/// Beats between the task and the connection. More than one only where the connection is stuck.
const BEATS_OUT_MAX: usize = 2;

/// A rank's lease and what keeping it needs.
#[derive(Clone, Debug)]
pub struct Lease {
    /// Whose it is.
    pub id: RankId,
    /// In which incarnation of the group.
    pub incarnation: Incarnation,
    /// Pause between two beats.
    pub pause: Duration,
    /// For how long a beat renews it.
    pub length: Duration,
    /// What beats tell, and what they bring.
    pub heartbeat: Arc<HeartbeatState>,
    /// Who is told who holds the shards.
    pub news: News,
}

/// Beats until the answer is dropped. Call it within a runtime: the one on which `coordinator` is called, whose
/// connection it shares.
///
/// A stream that breaks is made anew. `lost` is called when this incarnation of the group is over: the
/// coordinator refuses, or has not answered for as long as the lease and the retries allow. It must
/// not block: whoever waits for an answer is told after it.
pub fn keep_lease(
    coordinator: &Coordinator,
    lease: Lease,
    lost: impl FnOnce(MembershipError) + Send + 'static,
) -> Heartbeat {
    let coordinator = coordinator.clone();
    Heartbeat(supervise("the heartbeats", async move {
        lost(lease.keep(coordinator).await);
        lease.news.end();
    }))
}

/// Heartbeats; they end when it is dropped, and with them the incarnation of the group, unless it has
/// left.
#[derive(Debug)]
pub struct Heartbeat(Supervised);

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Lease {
    /// Returns why the lease is lost.
    async fn keep(&self, mut coordinator: Coordinator) -> MembershipError {
        let mut renewed = Stopwatch::start();
        // Nobody lets the lease expire while there is no coordinator: a restarted one gives
        // everybody time to show up, and exchanges go on meanwhile.
        let patience = self.length.max(coordinator.reach().retry);
        let mut away = Away::new(self.id.seed());
        loop {
            let tried = Stopwatch::start();
            let status = self.stream(&mut coordinator, &mut renewed).await;
            if !refusal::retryable(&status) {
                let what = "renew the lease";
                return MembershipError::Refused { what, status };
            }
            if renewed.elapsed() >= patience {
                return coordinator.unreachable(status);
            }
            tracing::debug!("beats end, beginning again: {}", status.message());
            coordinator.disconnect();
            if renewed.elapsed() < tried.elapsed() {
                away.over();
            }
            // A coordinator that is back waits for ranks as long as their lease.
            tokio::time::sleep(away.pause().min(self.length / 4)).await;
        }
    }

    /// One stream of beats; returns why it has ended.
    async fn stream(&self, coordinator: &mut Coordinator, renewed: &mut Stopwatch) -> Status {
        let mut client = match coordinator.client().await {
            Ok(client) => client,
            Err(status) => return status,
        };
        let (beats, out) = mpsc::channel(BEATS_OUT_MAX);
        let credentials = coordinator.reach().credentials.clone();
        let beat = || self.beat(credentials.renewals_failed());
        // Room there is; a connection that takes nothing is noticed when the lease has passed.
        let _ = beats.try_send(beat());
        let opened = client.keep_lease(ReceiverStream::new(out));
        let mut replies = match tokio::time::timeout(self.length, opened).await {
            Ok(Ok(replies)) => replies.into_inner(),
            Ok(Err(status)) => return status,
            Err(_) => return silent(),
        };
        let mut opened = Stopwatch::start();
        let mut first = true;
        let mut pause = tokio::time::interval(self.pause);
        pause.set_missed_tick_behavior(MissedTickBehavior::Delay);
        pause.tick().await;
        loop {
            tokio::select! {
                reply = replies.message() => match reply {
                    Ok(Some(reply)) => {
                        let silent = renewed.lap();
                        self.heartbeat.set_answered(silent, std::mem::take(&mut first));
                        opened.lap();
                        if let Err(status) = self.take(reply) {
                            return status;
                        }
                    }
                    Ok(None) => return Status::unavailable("the coordinator ended the stream"),
                    Err(status) => return status,
                },
                _ = pause.tick() => {
                    if opened.elapsed() >= self.length {
                        return silent();
                    }
                    let _ = beats.try_send(beat());
                }
            }
        }
    }

    fn beat(&self, renewals_failed: u32) -> Beat {
        Beat {
            run: self.id.run.to_string(),
            group: self.id.group.0,
            incarnation: self.incarnation.0,
            rank: self.id.rank.0,
            clock: self.heartbeat.clock().0,
            steps_per_second: self.heartbeat.speed(),
            renewals_failed,
        }
    }

    fn take(&self, reply: BeatReply) -> Result<(), Status> {
        self.heartbeat.set_fastest(reply.steps_per_second_max);
        self.heartbeat.set_leave(reply.leave);
        let Some(holding) = reply.holding else {
            return Ok(());
        };
        let holding = Holding::try_from(holding);
        let holding = holding.map_err(|malformed| Status::internal(malformed.to_string()))?;
        let generation = holding.generation;
        if self.news.tell(holding) {
            tracing::debug!(%generation, "who holds the shards has changed");
        }
        Ok(())
    }
}

fn silent() -> Status {
    Status::unavailable("the coordinator does not answer beats")
}

#[cfg(test)]
mod tests;
