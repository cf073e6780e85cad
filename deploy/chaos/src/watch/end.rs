//! What must be so when faults are over.

use tradewind_common::holders::Holders;
use tradewind_proto::v1::StatusReply;

use crate::ask::Seen;

/// Why the run has not recovered from all faults yet; `None` if it has.
pub fn unhealthy(told: &StatusReply, holders: &[Holders], replication: u32) -> Option<String> {
    for group in &told.groups {
        if group.state != "live" || group.ranks.len() < group.size as usize {
            let (ranks, size) = (group.ranks.len(), group.size);
            return Some(format!(
                "group {} is {} with {ranks} of {size} ranks",
                group.group, group.state
            ));
        }
    }
    for (shard, holders) in holders.iter().enumerate() {
        let full = holders.copies.iter().filter(|copy| copy.full).count();
        if holders.primary.is_none() || full + 1 < replication as usize {
            let primary = holders.primary.map_or("no primary", |_| "a primary");
            return Some(format!(
                "shard {shard} has {primary} and {full} full copies"
            ));
        }
    }
    None
}

/// Whether primaries and copies of all shards have the same, when nobody pushes any more; if not,
/// in what they differ.
pub fn differs(holders: &[Holders], seen: &[Seen]) -> Option<String> {
    for (shard, holders) in holders.iter().enumerate() {
        let number = shard as u32;
        let of = |server| {
            let mut replies = seen.iter().filter(|seen| seen.shard == number);
            let found = replies.find(|seen| seen.reply.server == server);
            found.map(|seen| &seen.reply)
        };
        let mut replies = Vec::new();
        for server in holders.servers() {
            let Some(reply) = of(server.0) else {
                return Some(format!("server {server} says nothing of shard {shard}"));
            };
            replies.push(reply);
        }
        let Some(first) = replies.first().filter(|first| first.primary) else {
            return Some(format!("nobody answers for shard {shard}"));
        };
        if first.unconfirmed > 0 {
            let records = first.unconfirmed;
            return Some(format!(
                "{records} records of shard {shard} are not confirmed"
            ));
        }
        let other = replies
            .iter()
            .find(|r| r.version_sum != first.version_sum || r.digest != first.digest);
        if let Some(other) = other {
            return Some(format!(
                "servers {} and {} differ in shard {shard}: versions {} and {} (their sums)",
                first.server, other.server, first.version_sum, other.version_sum
            ));
        }
    }
    None
}
