//! The messages of enrolment (`enrol.rs`): a line of JSON in each direction.

use serde::{Deserialize, Serialize};
use tradewind_proto::authorities::Refused;
pub use tradewind_proto::authorities::Reply;
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
            let NoGood { reason, text } = no_good;
            let reason = reason.word().to_owned();
            Reply::Refused(Refused { reason, text })
        }
        Err(error) => Reply::Failed(format!("{error:#}")),
    }
}
