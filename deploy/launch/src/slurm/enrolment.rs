//! The messages of enrolment (`enrol.rs`): a line of JSON in each direction.

use serde::{Deserialize, Serialize};
use tradewind_common::identity::Identity;
use tradewind_proto::auth::is_same;
use tradewind_proto::authority::Authority;

/// What a task asks for.
#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    /// That of the run or fleet.
    pub secret: String,
    /// As in a certificate: [`Identity::uri`].
    pub identity: String,
    /// Its public key, DER: [`Key::public`](tradewind_proto::authority::Key::public).
    pub public: Vec<u8>,
}

/// What it is answered.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// PEM: its certificate, and the authority's.
    Issued(String),
    /// Why nothing was issued.
    Refused(String),
}

/// The answer to a task's line: a certificate of who it says it is, if it shows the secret.
pub fn answer(authority: &Authority, secret: &str, line: &str) -> Reply {
    let refused = |why: &str| Reply::Refused(why.into());
    let Ok(request) = serde_json::from_str::<Request>(line) else {
        return refused("what was asked for cannot be understood");
    };
    if !is_same(request.secret.as_bytes(), secret.as_bytes()) {
        return refused("the secret is not that of this run or fleet");
    }
    let Some(identity) = Identity::of_uri(&request.identity) else {
        return refused("nobody of a run or fleet is named");
    };
    match authority.issue(&identity, &request.public) {
        Ok(certificates) => Reply::Issued(certificates),
        Err(error) => refused(&error.to_string()),
    }
}
