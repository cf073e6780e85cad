//! What is revoked: core ↔ wire.

use tradewind_common::identity::{Identity, PersonName};
use tradewind_common::{GroupId, Rank, RunId, ServerId};
use tradewind_proto::convert::Malformed;
use tradewind_proto::v1;

use tradewind_core::revoked::RevokedIdentities;

pub(super) fn revoked_to_wire(revoked: &RevokedIdentities) -> v1::Revoked {
    v1::Revoked {
        identities: revoked.iter().map(Identity::uri).collect(),
    }
}

pub(crate) fn revoked_from_wire(revoked: &v1::Revoked) -> Result<RevokedIdentities, Malformed> {
    let named = revoked.identities.iter().map(|uri| {
        Identity::of_uri(uri).ok_or_else(|| Malformed {
            field: "identities",
            problem: format!("{uri:?} names nobody"),
        })
    });
    named.collect()
}

/// Whom a person shuts out of this run or its fleet.
pub(super) fn to_revoke(
    run: &RunId,
    request: &v1::RevokeRequest,
) -> Result<RevokedIdentities, Malformed> {
    let of = |group: u32, rank| Identity::Rank {
        run: run.clone(),
        group: GroupId(group),
        rank,
    };
    let groups = request.groups.iter().map(|group| of(*group, None));
    let ranks = request.ranks.iter();
    let ranks = ranks.map(|named| of(named.group, Some(Rank(named.rank))));
    let servers = request.servers.iter();
    let servers = servers.map(|server| Identity::Server(Some(ServerId(*server))));
    let mut all: RevokedIdentities = groups.chain(ranks).chain(servers).collect();
    for name in &request.people {
        let named = PersonName::new(name).map_err(|why| Malformed {
            field: "people",
            problem: why.to_string(),
        })?;
        all.insert(Identity::Person(Some(named)));
    }
    match all.is_empty() {
        true => Err(Malformed {
            field: "groups",
            problem: "is missing, and so are ranks, servers and people".into(),
        }),
        false => Ok(all),
    }
}
