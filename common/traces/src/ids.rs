//! The numbers of traces and spans. Nobody tells them to anybody: they follow from what both sides of an exchange
//! know, so that what a server did of a step is found below what the group did of it.
//!
//! With BLAKE3, keyed: one who does not have the token of the servers learns nothing of it, and cannot make numbers
//! that look like theirs.

use tradewind_common::{Clock, GroupId};

use crate::Who;

/// Keeps these numbers apart from what else is derived from the same secret.
const CONTEXT: &str = "tradewind 2026 numbers of traces";

/// What numbers are made with.
#[derive(Clone)]
pub struct Key([u8; 32]);

/// Of a trace: a step of a group.
pub type TraceId = [u8; 16];

/// Of a span.
pub type SpanId = [u8; 8];

impl Key {
    /// Of this secret.
    pub fn new(secret: &[u8]) -> Self {
        Self(blake3::derive_key(CONTEXT, secret))
    }

    fn number<const N: usize>(&self, parts: &[&[u8]]) -> [u8; N] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for part in parts {
            // With their lengths, so that no two lists are the same bytes.
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        let mut number = [0; N];
        hasher.finalize_xof().fill(&mut number);
        number
    }

    /// Of the step of a group of a run that has this clock.
    pub fn trace(&self, run: &str, group: GroupId, clock: Clock) -> TraceId {
        let (group, clock) = (group.0.to_le_bytes(), clock.0.to_le_bytes());
        self.number(&[run.as_bytes(), &group, &clock])
    }

    /// Of what somebody did of it. Of several parts of one rank with the same name each has its own, by when it began.
    pub fn span(&self, trace: &TraceId, who: Who, begun_ns: u64) -> SpanId {
        let (kind, one, other, begun): (&str, u32, u32, u64) = match who {
            Who::Group => ("group", 0, 0, 0),
            Who::Rank(rank) => ("rank", rank, 0, 0),
            Who::Part(rank, part) => (part, rank, 1, begun_ns),
            Who::Shard(shard) => ("shard", shard, 0, 0),
            Who::Copy { shard, server } => ("copy", shard, server, 0),
        };
        let (one, other) = (one.to_le_bytes(), other.to_le_bytes());
        self.number(&[trace, kind.as_bytes(), &one, &other, &begun.to_le_bytes()])
    }

    /// Of what it is a part of; `None` of the step itself.
    pub fn parent(&self, trace: &TraceId, who: Who) -> Option<SpanId> {
        let parent = match who {
            Who::Group => return None,
            Who::Rank(_) | Who::Shard(_) => Who::Group,
            Who::Part(rank, _) => Who::Rank(rank),
            Who::Copy { shard, .. } => Who::Shard(shard),
        };
        Some(self.span(trace, parent, 0))
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}
