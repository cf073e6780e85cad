//! Who runs at the moment, for those who are no part of the launcher's loop.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, getrlimit, pidfd_open, pidfd_send_signal, prlimit,
};

use tradewind_folder::member::Member;

/// The present processes of a run; clones show the same.
#[derive(Clone, Debug, Default)]
pub struct Roster(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    present: BTreeMap<Member, Present>,
    /// Every process that there was.
    pids: BTreeMap<u32, Member>,
    /// Whose disk is played to be full.
    full: BTreeSet<Member>,
}

/// A process.
#[derive(Clone, Debug)]
pub struct Present {
    /// Its number, as the kernel counts.
    pub pid: u32,
    /// Which one of its member.
    pub life: u64,
    /// Where a server listens itself, once it does.
    pub address: Option<String>,
    handle: Option<Arc<OwnedFd>>,
}

impl Present {
    /// Sends a signal; says whether the process was there to get it. Its number may be another's by
    /// then, the handle never is.
    pub fn signal(&self, signal: Signal) -> bool {
        let handle = self.handle.as_ref();
        handle.is_some_and(|handle| pidfd_send_signal(handle, signal).is_ok())
    }

    /// Lets it write no byte into any file, as on a full disk, or as much as the launcher may. It gets
    /// an error (EFBIG), and a signal (SIGXFSZ), which it has to survive.
    fn set_full(&self, full: bool) {
        let limit = getrlimit(Resource::Fsize);
        let limit = Rlimit {
            current: if full { Some(0) } else { limit.current },
            ..limit
        };
        if let Some(pid) = Pid::from_raw(self.pid as i32) {
            // One that has ended writes nothing either.
            let _ = prlimit(Some(pid), Resource::Fsize, limit);
        }
    }
}

impl Roster {
    /// A child that was started, and is not waited for yet.
    pub fn started(&self, member: Member, pid: u32, life: u64) {
        let handle = Pid::from_raw(pid as i32)
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
            .map(Arc::new);
        let present = Present {
            pid,
            life,
            address: None,
            handle,
        };
        let mut inner = self.inner();
        if inner.full.contains(&member) {
            present.set_full(true);
        }
        inner.present.insert(member, present);
        inner.pids.insert(pid, member);
    }

    /// The disk of a member, and of whoever takes its place, is full from now on, or is not any more.
    pub fn set_full(&self, member: Member, full: bool) {
        let mut inner = self.inner();
        let changed = match full {
            true => inner.full.insert(member),
            false => inner.full.remove(&member),
        };
        if let Some(present) = inner.present.get(&member).filter(|_| changed) {
            present.set_full(full);
        }
    }

    /// A server listens.
    pub fn listens(&self, server: u32, address: &str) {
        if let Some(present) = self.inner().present.get_mut(&Member::Server(server)) {
            present.address = Some(address.to_owned());
        }
    }

    /// Its end has been noticed.
    pub(super) fn ended(&self, member: Member) {
        self.inner().present.remove(&member);
    }

    /// The present process of a member, if it has one.
    pub fn get(&self, member: Member) -> Option<Present> {
        self.inner().present.get(&member).cloned()
    }

    /// Everybody who is there.
    pub fn members(&self) -> Vec<Member> {
        self.inner().present.keys().copied().collect()
    }

    /// Where servers listen themselves.
    pub fn servers(&self) -> Vec<(u32, String)> {
        let inner = self.inner();
        let servers = inner.present.iter().filter_map(|(member, present)| {
            let Member::Server(server) = member else {
                return None;
            };
            Some((*server, present.address.clone()?))
        });
        servers.collect()
    }

    /// Every process that there was.
    pub fn pids(&self) -> BTreeMap<u32, Member> {
        self.inner().pids.clone()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Nothing in here leaves it half-changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// A process that waits for a line, then writes into a file, and says whether it could.
    #[test]
    fn a_full_disk_is_that_of_whoever_takes_the_place() {
        let folder = tempfile::tempdir().unwrap();
        let member = Member::Server(3);
        let writes = |roster: &Roster, name: &str, before: bool| {
            let path = folder.path().join(name);
            // A shell that is told to leaves the signal alone, as servers do.
            let script = format!("trap '' XFSZ; read line; echo x > {}", path.display());
            if before {
                roster.set_full(member, true);
            }
            let mut command = Command::new("sh");
            command.args(["-c", &script]).stdin(Stdio::piped());
            let mut child = command.stderr(Stdio::null()).spawn().unwrap();
            roster.started(member, child.id(), 1);
            if !before {
                roster.set_full(member, true);
                roster.set_full(member, false);
            }
            drop(child.stdin.take());
            child.wait().unwrap();
            roster.ended(member);
            std::fs::read_to_string(path).is_ok_and(|text| text == "x\n")
        };
        let roster = Roster::default();
        assert!(writes(&roster, "again", false), "there is room again");
        assert!(!writes(&roster, "full", true), "it was started later");
    }
}
