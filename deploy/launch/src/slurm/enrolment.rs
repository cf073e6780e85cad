//! The messages of enrolment (`enrol.rs`): a line of JSON in each direction.

use serde::{Deserialize, Serialize};
use tradewind_proto::authority::Authority;
use tradewind_proto::refusal::Reason;

pub use super::task_secrets::{NoGood, TaskName, TaskSecrets, Tasked};

/// What a task asks for: to be certified for what it is there for.
#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    /// Which task it is.
    pub task: TaskName,
    /// That of the task.
    pub secret: String,
    /// Its public key, DER: [`Key::public`](tradewind_proto::authority::Key::public).
    pub public: Vec<u8>,
}

/// What it is answered.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// PEM: its certificate, and the authority's.
    Issued(String),
    /// Nothing was issued, and nothing will be.
    Refused {
        /// A word of [`Reason`].
        reason: String,
        /// The same for people.
        text: String,
    },
    /// Nothing could be issued now, and why: it may be asked again.
    Failed(String),
}

impl From<NoGood> for Reply {
    fn from(NoGood { reason, text }: NoGood) -> Self {
        let reason = reason.word().to_owned();
        Self::Refused { reason, text }
    }
}

/// The answer to a task's line: a certificate of whom its secret certifies. `refused` hears of it if there is none.
pub fn answer(
    authority: &Authority,
    secrets: &TaskSecrets,
    line: &str,
    refused: impl FnOnce(&NoGood),
) -> Reply {
    let used = match serde_json::from_str::<Request>(line) {
        Ok(request) => {
            let Request {
                task,
                secret,
                public,
            } = &request;
            let issue = |identity: &_| Ok(authority.issue(identity, public)?);
            secrets.use_for(*task, secret, public, issue)
        }
        Err(_) => Ok(Err(NoGood {
            reason: Reason::Malformed,
            text: "what was asked for cannot be understood".into(),
        })),
    };
    match used {
        Ok(Ok(certificates)) => Reply::Issued(certificates),
        Ok(Err(no_good)) => {
            refused(&no_good);
            no_good.into()
        }
        Err(error) => Reply::Failed(format!("{error:#}")),
    }
}
