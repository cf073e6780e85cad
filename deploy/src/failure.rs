//! What ended a run that did not come to its end.

use serde::{Deserialize, Serialize};

use crate::launch::{Ended, Member, Role};

/// For people and for the summary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) text: String,
    pub(crate) cause: Cause,
}

/// Who could not go on, and why, as it stands in the summary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cause {
    pub(crate) role: String,
    server: Option<u32>,
    group: Option<u32>,
    group_rank: Option<u32>,
    /// What its process returned; `None` if none did.
    #[serde(default)]
    pub(crate) exit_status: Option<i32>,
    pub(crate) reason: String,
}

impl Cause {
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
    pub(crate) fn of_launcher(text: String) -> Self {
        Self {
            cause: Cause::of("launcher", text.clone()),
            text,
        }
    }

    /// The coordinator says that the run has failed.
    pub(crate) fn of_run(text: String) -> Self {
        Self {
            cause: Cause::of("coordinator", text.clone()),
            text,
        }
    }

    /// A member was given up.
    pub(crate) fn of_member(member: Member, why: String) -> Self {
        Self {
            text: format!("{member} {why}"),
            cause: Cause::of_role(Role::Member(member), why),
        }
    }
}

impl From<Ended> for Failure {
    fn from(ended: Ended) -> Self {
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
        match error.downcast::<Ended>() {
            Ok(ended) => ended.into(),
            Err(_) => Self::of_launcher(text),
        }
    }
}
