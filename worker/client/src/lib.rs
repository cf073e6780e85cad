//! One rank's side of the wire, and what a rank does from its start to its end: it joins its group, exchanges
//! with the shards, leases data, leaves, and enters its group again where that has broken.
//!
//! It links no libtorch, so that whatever moves blocks can use it. Who computes the gradients supplies
//! the group ([`ranks::Ranks`]), says where values lie ([`replica::Replica`]), and calls in this order, here with
//! [`exchanges::Exchanges`]:
//!
//! ```text
//! RankProcess::new
//! for each incarnation of the group:
//!     RankProcess::join ─► Membership: (the ranks meet), formed, await_start, streams
//!     Exchanges: pull
//!     for each exchange:
//!         Feed::next, Membership::check, (forward, backward), Computed::agree
//!         Exchanges: exchange; RankProcess::exchanged, Membership::ended, Exchanges: go_on_at
//!     Membership::leave; or after an error break_off, and RankProcess::again says what follows
//! ```

pub mod alike;
mod arriving;
pub mod away;
pub mod background;
pub mod behind;
pub mod between;
pub mod coordinator;
pub mod core;
pub mod destination;
pub mod directory;
pub mod during;
pub mod evaluation;
pub mod exchange;
pub mod exchange_error;
pub mod exchanges;
pub mod feed;
pub mod fence;
pub mod group_key;
pub mod heartbeat;
pub mod lease;
pub mod leaving;
mod link;
pub mod local;
pub mod main_memory;
pub mod membership;
pub mod milestones;
pub mod network;
pub mod norms;
pub mod order;
pub mod pace;
pub mod parts;
pub mod pushed;
pub mod ranges;
pub mod rank_process;
pub mod rank_settings;
pub mod ranks;
pub mod reader;
pub mod recorder;
pub mod replica;
pub mod saving;
mod sender;
mod small_frames;
pub mod step;
pub mod stopwatch;
mod stream;
pub mod streams;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod traces;
pub mod verdict;
mod whereabouts;
