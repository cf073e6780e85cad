//! Who runs at the moment, for those who are no part of the launcher's loop.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::member::Member;

/// The present processes of a run; clones show the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roster(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    present: BTreeMap<Member, Present>,
    /// Every process that there was.
    pids: BTreeMap<u32, Member>,
}

/// A process.
#[derive(Clone, Debug)]
pub(crate) struct Present {
    pub(crate) pid: u32,
    /// Which one of its member.
    pub(crate) life: u64,
    /// Where a server listens itself, once it does.
    pub(crate) address: Option<String>,
    handle: Option<Arc<OwnedFd>>,
}

impl Present {
    /// Sends a signal; says whether the process was there to get it. Its number may be another's by
    /// then, the handle never is.
    pub(crate) fn signal(&self, signal: Signal) -> bool {
        let handle = self.handle.as_ref();
        handle.is_some_and(|handle| pidfd_send_signal(handle, signal).is_ok())
    }
}

impl Roster {
    /// A child that was started, and is not waited for yet.
    pub(crate) fn started(&self, member: Member, pid: u32, life: u64) {
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
        inner.present.insert(member, present);
        inner.pids.insert(pid, member);
    }

    /// A server listens.
    pub(crate) fn listens(&self, server: u32, address: &str) {
        if let Some(present) = self.inner().present.get_mut(&Member::Server(server)) {
            present.address = Some(address.to_owned());
        }
    }

    /// Its end has been noticed.
    pub(super) fn ended(&self, member: Member) {
        self.inner().present.remove(&member);
    }

    /// The present process of a member, if it has one.
    pub(crate) fn get(&self, member: Member) -> Option<Present> {
        self.inner().present.get(&member).cloned()
    }

    /// Everybody who is there.
    pub(crate) fn members(&self) -> Vec<Member> {
        self.inner().present.keys().copied().collect()
    }

    /// Where servers listen themselves.
    pub(crate) fn servers(&self) -> Vec<(u32, String)> {
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
    pub(crate) fn pids(&self) -> BTreeMap<u32, Member> {
        self.inner().pids.clone()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Nothing in here leaves it half-changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
