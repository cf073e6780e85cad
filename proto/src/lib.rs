//! The wire: package `tradewind.v1`. The generated code is committed, because compute nodes have
//! no protoc; `make proto` regenerates it and a test fails when it drifts.

#[allow(missing_docs, clippy::all)]
#[rustfmt::skip]
#[path = "gen/tradewind.v1.rs"]
pub mod v1;

pub mod auth;
pub mod authorities;
pub mod authority;
mod certificate;
mod choice;
pub mod codec;
pub mod connector;
pub mod convert;
pub mod frame;
pub mod holding;
pub mod limits;
mod malformed;
mod policy;
pub mod refusal;
pub mod renewal;
pub mod socket;
pub mod tls;
