//! Scripts that have ended with status 0. Any script ends so that runs to its end, also one that never trained:
//! the coordinator knows whether the group has left the run.

use std::collections::BTreeMap;

use tradewind_common::exit::Exit;
use tradewind_folder::member::{Member, ProcessEnd};
use tradewind_proto::v1::StatusReply;

/// How often the coordinator may tell that the group of such a script has not left: its first word may be older
/// than the script's end.
const WORDS: u32 = 2;

/// What such an end is called where the group has not left.
const EARLY: &str = "ended with status 0 before its group had left the run (a script calls tradewind.join(), and trains until rank.done)";

/// Scripts that have ended with status 0, until it is known what that means.
#[derive(Debug, Default)]
pub(super) struct Finished(BTreeMap<Member, Waiting>);

#[derive(Debug)]
struct Waiting {
    ended: ProcessEnd,
    words: u32,
}

/// What the end of a script has turned out to mean.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) member: Member,
    pub(super) ended: ProcessEnd,
    /// As a worker would have said it.
    pub(super) exit: Exit,
}

impl Finished {
    /// The process of a member has ended with status 0.
    pub(super) fn add(&mut self, member: Member, ended: ProcessEnd) {
        self.0.insert(member, Waiting { ended, words: 0 });
    }

    /// The coordinator has told how the run stands, `None` if it knows no such run; what is known with that.
    pub(super) fn hear(&mut self, status: Option<&StatusReply>) -> Vec<Judged> {
        let mut judged = Vec::new();
        for (member, mut waiting) in std::mem::take(&mut self.0) {
            waiting.words += 1;
            let said = meaning(status, member);
            if said.is_none() && waiting.words < WORDS {
                self.0.insert(member, waiting);
            } else {
                judged.push(judge(member, waiting.ended, said));
            }
        }
        judged
    }
}

/// What status 0 of a rank's script means by what the coordinator tells; `None` if its group has not left.
pub(super) fn meaning(status: Option<&StatusReply>, member: Member) -> Option<Exit> {
    let Member::Rank { group, .. } = member else {
        return Some(Exit::Done);
    };
    let status = status?;
    let group = status.groups.iter().find(|row| row.group == group)?;
    match group.state.as_str() {
        "left" if status.draining || group.draining => Some(Exit::Left),
        "left" => Some(Exit::Done),
        _ => None,
    }
}

/// An end with the meaning that was found; one that means nothing is a failure.
pub(super) fn judge(member: Member, mut ended: ProcessEnd, said: Option<Exit>) -> Judged {
    let exit = said.unwrap_or(Exit::Failed);
    if exit == Exit::Failed {
        ended.success = false;
        ended.how = EARLY.into();
    }
    Judged {
        member,
        ended,
        exit,
    }
}

#[cfg(test)]
mod tests {
    use tradewind_folder::member::Role;
    use tradewind_proto::v1::GroupStatus;

    use super::*;

    const RANK: Member = Member::Rank { group: 3, rank: 1 };

    fn ended() -> ProcessEnd {
        ProcessEnd {
            role: Role::Member(RANK),
            success: true,
            status: Some(0),
            how: "ended".into(),
            log: "log".into(),
            tail: String::new(),
        }
    }

    fn status(state: &str, draining: bool) -> StatusReply {
        let group = GroupStatus {
            group: 3,
            state: state.into(),
            draining,
            ..GroupStatus::default()
        };
        StatusReply {
            groups: vec![group],
            ..StatusReply::default()
        }
    }

    #[test]
    fn a_script_has_done_its_part_when_its_group_has_left() {
        let check = |told: &[StatusReply], want: Option<Exit>| {
            let mut finished = Finished::default();
            finished.add(RANK, ended());
            let mut judged = told.iter().flat_map(|told| finished.hear(Some(told)));
            let found = judged.next();
            assert_eq!(found.as_ref().map(|found| found.exit), want, "{told:?}");
            let early = found.is_some_and(|found| found.ended.how == EARLY);
            assert_eq!(early, want == Some(Exit::Failed));
            assert!(judged.next().is_none());
        };
        check(&[status("left", false)], Some(Exit::Done));
        check(&[status("left", true)], Some(Exit::Left));
        check(&[status("live", false)], None);
        let soon = [status("live", false), status("left", false)];
        check(&soon, Some(Exit::Done));
        let never = [status("live", false), status("gathering", false)];
        check(&never, Some(Exit::Failed));
    }
}
