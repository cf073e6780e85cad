//! What is revoked: core ↔ wire.

use tradewind_common::GroupId;
use tradewind_proto::convert::{self, Malformed};
use tradewind_proto::v1;

use tradewind_core::revoked::RevokedGroups;

pub(super) fn revoked_to_wire(groups: &RevokedGroups) -> v1::Revoked {
    let group = |(run, group): &(_, GroupId)| v1::RevokedGroup {
        run: ToString::to_string(run),
        group: group.0,
    };
    v1::Revoked {
        groups: groups.iter().map(group).collect(),
    }
}

pub(crate) fn revoked_from_wire(revoked: &v1::Revoked) -> Result<RevokedGroups, Malformed> {
    let groups = revoked.groups.iter();
    let group = |g: &v1::RevokedGroup| Ok((convert::run_id(&g.run)?, GroupId(g.group)));
    groups.map(group).collect()
}
