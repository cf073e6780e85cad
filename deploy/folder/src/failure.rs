//! What ended a run that did not come to its end.

use serde::{Deserialize, Serialize};
use tradewind_common::exit::Exit;
use tradewind_proto::v1::StatusReply;

use crate::member::{Member, ProcessEnd, Role};

/// For people and for the summary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// All of it, as people read it.
    pub text: String,
    /// The same for programs.
    pub cause: Cause,
}

/// Who could not go on, and why, as it stands in the summary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// `server`, `worker`, `coordinator`, `launcher`, or another part of a run.
    pub role: String,
    server: Option<u32>,
    group: Option<u32>,
    group_rank: Option<u32>,
    /// What its process returned; `None` if none did.
    #[serde(default)]
    pub exit_status: Option<i32>,
    /// In words.
    pub reason: String,
}

impl Cause {
    /// What its process said with its status, if it ended by itself.
    pub fn exit(&self) -> Option<Exit> {
        self.exit_status.and_then(Exit::of)
    }

    /// Of somebody who has no number.
    fn of(role: &str, reason: String) -> Self {
        Self {
            role: role.to_owned(),
            server: None,
            group: None,
            group_rank: None,
            exit_status: None,
            reason,
        }
    }

    fn of_role(role: Role, reason: String) -> Self {
        match role {
            Role::Member(Member::Server(server)) => Self {
                server: Some(server),
                ..Self::of("server", reason)
            },
            Role::Member(Member::Rank { group, rank }) => Self {
                group: Some(group),
                group_rank: Some(rank),
                ..Self::of("worker", reason)
            },
            Role::Check => Self::of("check", reason),
            Role::Evaluation => Self::of("evaluation", reason),
            Role::Bench(name, _) => Self::of(name, reason),
        }
    }
}

impl Failure {
    /// The launcher could not go on.
    pub fn of_launcher(text: String) -> Self {
        Self {
            cause: Cause::of("launcher", text.clone()),
            text,
        }
    }

    /// The coordinator says that the run has failed.
    pub fn of_run(text: String) -> Self {
        Self {
            cause: Cause::of("coordinator", text.clone()),
            text,
        }
    }

    /// The same, as its status has it. One that has stopped at a loss ends as its ranks do.
    pub fn of_status(status: &StatusReply) -> Self {
        let mut failure = Self::of_run(status.failure.clone());
        if status.stopped_at_loss() {
            failure.cause.exit_status = Some(Exit::Lost.number().into());
        }
        failure
    }

    /// A member was given up.
    pub fn of_member(member: Member, why: String) -> Self {
        Self {
            text: format!("{member} {why}"),
            cause: Cause::of_role(Role::Member(member), why),
        }
    }
}

impl From<ProcessEnd> for Failure {
    fn from(ended: ProcessEnd) -> Self {
        Self {
            text: ended.to_string(),
            cause: Cause {
                exit_status: ended.status,
                ..Cause::of_role(ended.role, ended.how)
            },
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        let text = format!("{error:#}");
        match error.downcast::<ProcessEnd>() {
            Ok(ended) => ended.into(),
            Err(_) => Self::of_launcher(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use tradewind_proto::refusal::Reason;

    use super::*;

    #[test]
    fn a_run_that_has_stopped_at_a_loss_is_told_from_one_that_has_failed() {
        let check = |reason: Reason, want| {
            let status = StatusReply {
                failure: "shard 1 has nobody left".into(),
                failure_reason: reason.word().into(),
                ..StatusReply::default()
            };
            let failure = Failure::of_status(&status);
            assert_eq!(failure.cause.exit(), want, "{reason:?}");
            assert_eq!(failure.text, "shard 1 has nobody left");
        };
        check(Reason::Lost, Some(Exit::Lost));
        check(Reason::RunFailed, None);
    }
}
