//! Who may call what. A call is looked at before anything of it is read: who calls by the certificate of the
//! connection, the token, and whether the call is for such callers. Whom a message speaks for is asked where it is read.

use std::convert::Infallible;
use std::fmt::Display;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::Either;
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tower_service::Service;
use tradewind_common::identity::Identity;
use tradewind_common::{GroupId, Rank, RunId, ServerId};
use tradewind_proto::auth::{Credentials, Token};
use tradewind_proto::refusal::{self, Reason};
use tradewind_proto::tls::Unfit;

use super::connection::Standing;
use crate::limits::Notices;

/// What is asked of callers.
#[derive(Clone, Debug)]
pub(crate) struct Admit {
    token: Token,
    /// Whether there are certificates, which name the callers.
    tls: bool,
    notices: Arc<Notices>,
}

/// A service behind what is asked of its callers.
#[derive(Clone)]
pub(crate) struct Admitted<S> {
    service: S,
    admit: Admit,
}

/// Who calls, as its messages are judged by. Without TLS nobody can be told from others who know the token, and all
/// of them may speak for everybody.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peer(Option<Known>);

#[derive(Clone, Debug)]
struct Known {
    identity: Arc<Identity>,
    standing: Standing,
    notices: Arc<Notices>,
}

impl Admit {
    pub(crate) fn new(credentials: &Credentials, notices: Arc<Notices>) -> Self {
        Self {
            token: credentials.token().clone(),
            tls: credentials.tls().is_some(),
            notices,
        }
    }

    /// The service, for those who are let in.
    pub(crate) fn before<S>(&self, service: S) -> Admitted<S> {
        Admitted {
            service,
            admit: self.clone(),
        }
    }

    fn look(&self, request: &http::Request<Body>) -> Result<Peer, Status> {
        let standing = request.extensions().get::<Standing>();
        let caller = if self.tls {
            // Without a connection that knows who is there nobody is.
            let standing = standing.ok_or(Unfit::NoCertificate);
            let known = standing.and_then(|standing| {
                Ok(Known {
                    identity: standing.identity()?,
                    standing: standing.clone(),
                    notices: self.notices.clone(),
                })
            });
            Peer(Some(
                known.map_err(|unfit| refuse_unfit(&self.notices, unfit))?,
            ))
        } else {
            Peer(None)
        };
        self.token.ask(request.headers()).inspect_err(|_| {
            let text = "a call showed no token, or another one";
            self.notices.refused(Reason::BadToken, text);
        })?;
        if let Some(standing) = standing {
            standing.show();
        }
        caller.may_call(request.uri().path())?;
        Ok(caller)
    }
}

fn refuse_unfit(notices: &Notices, unfit: Unfit) -> Status {
    refuse(notices, unfit.reason(), unfit.to_string())
}

fn refuse(notices: &Notices, reason: Reason, text: String) -> Status {
    notices.refused(reason, &text);
    refusal::status(reason, text)
}

impl Peer {
    /// Of a call.
    pub(crate) fn of(extensions: &http::Extensions) -> Self {
        extensions.get().cloned().unwrap_or_default()
    }

    /// Refuses whom a certificate names who is not `fit`. Without TLS nobody can be told from others.
    fn must_be(
        &self,
        fit: impl FnOnce(&Identity) -> bool,
        reason: Reason,
        why: impl Display,
    ) -> Result<(), Status> {
        match &self.0 {
            Some(Known {
                identity, notices, ..
            }) if !fit(identity) => {
                let text = format!("the caller's certificate is that of {identity}, {why}");
                Err(refuse(notices, reason, text))
            }
            _ => Ok(()),
        }
    }

    /// Whether its role is one that the call is for.
    fn may_call(&self, path: &str) -> Result<(), Status> {
        let call = path.rsplit('/').next().unwrap_or_default();
        self.must_be(
            |identity| is_for(path, identity),
            Reason::WrongRole,
            format_args!("who may not call {call}"),
        )
    }

    /// Whether it is still let in: what had come before its connection was closed is not taken either.
    pub(crate) fn is_let_in(&self) -> Result<(), Status> {
        let shut_out = self.0.as_ref().and_then(|known| {
            let what = known.standing.shut_out()?;
            Some(refuse_unfit(&known.notices, Unfit::Revoked(what)))
        });
        shut_out.map_or(Ok(()), Err)
    }

    /// Whether it may be this server of the fleet: who has a certificate with a number is no other server.
    pub(crate) fn is_server(&self, server: ServerId) -> Result<(), Status> {
        self.must_be(
            |identity| !matches!(identity, Identity::Server(Some(own)) if *own != server),
            Reason::WrongRole,
            format_args!("which does not register as server {server}"),
        )
    }

    /// Whether it belongs to this run: ranks of other runs do not.
    pub(crate) fn belongs_to(&self, run: &RunId) -> Result<(), Status> {
        self.is_let_in()?;
        self.must_be(
            |identity| !matches!(identity, Identity::Rank { run: own, .. } if own != run),
            Reason::WrongRun,
            format_args!("and run {run} is another one"),
        )
    }

    /// Whether it may speak for this group of a run: only the group's own ranks may, whichever. Such calls name no rank.
    pub(crate) fn speaks_for(&self, run: &RunId, group: GroupId) -> Result<(), Status> {
        self.belongs_to(run)?;
        self.must_be(
            |identity| matches!(identity, Identity::Rank { group: own, .. } if *own == group),
            Reason::WrongGroup,
            format_args!("who does not speak for group {group}"),
        )?;
        self.must_be(
            |identity| matches!(identity, Identity::Rank { rank: Some(_), .. }),
            Reason::WrongRank,
            "who has no number there, and only reads",
        )
    }

    /// Whether it may speak as this rank of a group of a run: a rank keeps its number in whatever incarnation of the group
    /// and whichever process it is.
    pub(crate) fn speaks_as(&self, run: &RunId, group: GroupId, rank: Rank) -> Result<(), Status> {
        self.speaks_for(run, group)?;
        self.must_be(
            |identity| matches!(identity, Identity::Rank { rank: Some(own), .. } if *own == rank),
            Reason::WrongRank,
            format_args!("who does not speak as rank {rank} of group {group}"),
        )
    }

    /// Whether it may hear of all runs of a fleet.
    pub(crate) fn hears_of(&self, run: &RunId) -> bool {
        match self.0.as_ref().map(|known| &*known.identity) {
            Some(Identity::Rank { run: own, .. }) => own == run,
            Some(Identity::Server(_) | Identity::Person(_)) | None => true,
        }
    }
}

/// Whether a call is for such callers. What is not named here is for nobody.
fn is_for(path: &str, identity: &Identity) -> bool {
    let is_rank = matches!(identity, Identity::Rank { .. });
    let is_person = matches!(identity, Identity::Person(_));
    match path.strip_prefix("/tradewind.v1.") {
        Some(
            "Coordinator/Join"
            | "Coordinator/AwaitReady"
            | "Coordinator/KeepLease"
            | "Coordinator/LeaseChunk"
            | "Coordinator/Leave",
        ) => is_rank,
        // A person only reads: see `speaks_for`.
        Some("Shard/Exchange") => is_rank || is_person,
        Some(
            "Coordinator/Attach"
            | "Coordinator/Drain"
            | "Coordinator/Revoke"
            | "Coordinator/Remove"
            | "Coordinator/Resume"
            | "Coordinator/Snapshot",
        ) => is_person,
        Some("Coordinator/Serve" | "Shard/Replicate" | "Host/Coordinate") => {
            matches!(identity, Identity::Server(_))
        }
        Some("Coordinator/Status" | "Shard/ShardStatus" | "Host/Ping") => true,
        _ => false,
    }
}

impl<S: NamedService> NamedService for Admitted<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for Admitted<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Either<S::Future, Ready<Result<S::Response, S::Error>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        match self.admit.look(&request) {
            Ok(caller) => {
                request.extensions_mut().insert(caller);
                Either::Left(self.service.call(request))
            }
            Err(status) => Either::Right(ready(Ok(status.into_http()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paths of all calls, as the protocol lists them.
    fn calls() -> Vec<String> {
        let files = [
            include_str!("../../../proto/tradewind/v1/coordinator.proto"),
            include_str!("../../../proto/tradewind/v1/shard.proto"),
        ];
        let mut calls = Vec::new();
        let mut service = "";
        for line in files.iter().flat_map(|file| file.lines()) {
            let words: Vec<&str> = line.split([' ', '(']).filter(|w| !w.is_empty()).collect();
            match words[..] {
                ["service", name, ..] => service = name,
                ["rpc", call, ..] => calls.push(format!("/tradewind.v1.{service}/{call}")),
                _ => {}
            }
        }
        calls
    }

    #[test]
    fn every_call_is_for_somebody_and_what_moves_a_fleet_for_servers_alone() {
        let rank = Identity::Rank {
            run: RunId::new("climate").unwrap(),
            group: GroupId(0),
            rank: None,
        };
        let all = [Identity::Server(None), rank.clone(), Identity::Person(None)];
        let calls = calls();
        assert_eq!(calls.len(), 18, "{calls:?}");
        for call in &calls {
            assert!(all.iter().any(|identity| is_for(call, identity)), "{call}");
        }
        let of_servers = ["Coordinator/Serve", "Shard/Replicate", "Host/Coordinate"];
        for call in of_servers.map(|call| format!("/tradewind.v1.{call}")) {
            assert!(calls.contains(&call));
            let may: Vec<_> = all.iter().map(|identity| is_for(&call, identity)).collect();
            assert_eq!(may, [true, false, false], "{call}");
        }
        for (call, identity, may) in [
            ("Coordinator/Drain", &rank, false),
            ("Coordinator/Drain", &Identity::Person(None), true),
            ("Coordinator/Revoke", &rank, false),
            ("Coordinator/Revoke", &Identity::Server(None), false),
            ("Coordinator/Revoke", &Identity::Person(None), true),
            ("Coordinator/Join", &Identity::Server(None), false),
            ("Coordinator/Join", &Identity::Person(None), false),
            ("Coordinator/Join", &rank, true),
            ("Coordinator/Unknown", &Identity::Server(None), false),
        ] {
            let path = format!("/tradewind.v1.{call}");
            assert_eq!(is_for(&path, identity), may, "{call} by {identity}");
        }
    }
}
