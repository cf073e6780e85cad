//! The end of an incarnation of the group that a rank is stuck in: with a peer that hangs, a collective
//! never ends. The group is broken from here then; and should not even that help, the process ends.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tradewind_common::exit::Exit;
use tradewind_process::{supervise_thread, watched};

use crate::coordinator::MembershipError;

/// Status of a process that was stuck in an incarnation of its group that is over.
const FENCED: i32 = Exit::Fenced.number() as i32;

/// How long a rank may take to come back from an incarnation of its group that is over: the lease, and on
/// a GPU, where an abort waits for the driver, half a minute at least.
pub fn patience(lease: Duration, on_gpu: bool) -> Duration {
    const ON_GPU: Duration = Duration::from_secs(30);
    if on_gpu { lease.max(ON_GPU) } else { lease }
}

/// Watches over one incarnation of the group, which is over when it is dropped.
pub struct Fence(Guard);

/// A handle for those who hear of the end of the incarnation before the rank does.
#[derive(Clone)]
pub struct Guard(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    breaker: Mutex<Option<Break>>,
    runtime: Handle,
    patience: Duration,
    exit: fn(i32),
}

/// Breaks the collectives of a group, from another thread. With a driver that hangs it never returns.
pub type Break = Box<dyn Fn() + Send>;

enum State {
    Alive,
    /// The lease is lost, or the rank is on its way out.
    Ending {
        lost: bool,
        timer: JoinHandle<()>,
    },
    Over,
}

impl Fence {
    /// For one that begins. A rank that has not come back when `patience` has passed since the
    /// end of it ends its process.
    pub fn new(runtime: &Handle, patience: Duration) -> Self {
        Self::exiting(runtime, patience, |status| tradewind_process::exit(status))
    }

    fn exiting(runtime: &Handle, patience: Duration, exit: fn(i32)) -> Self {
        Self(Guard(Arc::new(Inner {
            state: Mutex::new(State::Alive),
            breaker: Mutex::new(None),
            runtime: runtime.clone(),
            patience,
            exit,
        })))
    }

    /// A handle.
    pub fn guard(&self) -> Guard {
        self.0.clone()
    }

    /// The rank is on its way out of it, and may get stuck there.
    pub fn ending(&self) {
        self.0.end(false);
    }

    /// The incarnation is over, well or not: nothing is stuck.
    pub fn over(&self) {
        let mut state = self.0.state();
        if let State::Ending { timer, .. } = std::mem::replace(&mut *state, State::Over) {
            timer.abort();
        }
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        self.over();
    }
}

impl Guard {
    /// The lease is lost. Breaks the group, on a thread of its own: whoever calls this may have the
    /// runtime's only one, which has to see the end of the process if breaking never ends.
    pub fn lost(&self, error: &MembershipError) {
        if self.end(true) {
            tracing::warn!("this incarnation of the group is over: {error}");
            let own = self.clone();
            let breaks = move || {
                if let Some(break_group) = &*own.breaker() {
                    break_group();
                }
            };
            if let Err(error) = supervise_thread("fence", breaks) {
                tracing::error!("no thread to break the group on: {error}");
            }
        }
    }

    /// There is a group to break: when the lease is lost, or now if it is already.
    pub fn formed(&self, break_group: Option<Break>) {
        let mut place = self.breaker();
        *place = break_group;
        if let Some(break_group) = &*place
            && self.is_lost()
        {
            break_group();
        }
    }

    /// Whether the lease is lost.
    pub fn is_lost(&self) -> bool {
        matches!(*self.state(), State::Ending { lost: true, .. })
    }

    fn end(&self, lost: bool) -> bool {
        let mut state = self.state();
        let alive = matches!(*state, State::Alive);
        if alive {
            let wait = watched("the fence".into(), self.0.clone().wait());
            let timer = self.0.runtime.spawn(wait);
            *state = State::Ending { lost, timer };
        }
        alive
    }

    fn state(&self) -> MutexGuard<'_, State> {
        let state = self.0.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }

    fn breaker(&self) -> MutexGuard<'_, Option<Break>> {
        let breaker = self.0.breaker.lock();
        breaker.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    async fn wait(self: Arc<Self>) {
        tokio::time::sleep(self.patience).await;
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*state, State::Ending { .. }) {
            tracing::error!("stuck in an incarnation of the group that is over: the process ends");
            (self.exit)(FENCED);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI32, Ordering};

    use tonic::Status;

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    fn error() -> MembershipError {
        MembershipError::Refused {
            what: "renew the lease",
            status: Status::permission_denied("not live"),
        }
    }

    fn runtime() -> tokio::runtime::Runtime {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_time().build().unwrap()
    }

    #[test]
    fn on_a_gpu_there_is_half_a_minute_at_least() {
        let seconds = Duration::from_secs;
        for (lease, on_gpu, want) in [(2, false, 2), (2, true, 30), (40, true, 40)] {
            assert_eq!(patience(seconds(lease), on_gpu), seconds(want));
        }
    }

    #[test]
    fn who_is_stuck_where_the_lease_is_lost_is_ended() {
        static STATUS: AtomicI32 = AtomicI32::new(0);
        let runtime = runtime();
        let exit = |status| STATUS.store(status, Ordering::Relaxed);
        let fence = Fence::exiting(runtime.handle(), SHORT, exit);
        let guard = fence.guard();
        assert!(!guard.is_lost());
        guard.lost(&error());
        assert!(guard.is_lost());
        while STATUS.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(STATUS.load(Ordering::Relaxed), FENCED);
    }

    /// Heartbeats tell of the lost lease on the runtime's only thread.
    #[test]
    fn who_is_stuck_is_ended_even_if_breaking_the_group_never_ends() {
        static STATUS: AtomicI32 = AtomicI32::new(0);
        let runtime = runtime();
        let exit = |status| STATUS.store(status, Ordering::Relaxed);
        let fence = Fence::exiting(runtime.handle(), SHORT, exit);
        let guard = fence.guard();
        let (lets_go, holds) = std::sync::mpsc::channel::<()>();
        let never = move || {
            let _ = holds.recv();
        };
        guard.formed(Some(Box::new(never)));
        runtime.spawn(async move { guard.lost(&error()) });
        while STATUS.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        assert_eq!(STATUS.load(Ordering::Relaxed), FENCED);
        drop(lets_go);
    }

    #[test]
    fn who_comes_back_is_not_ended_however_late_the_news() {
        let runtime = runtime();
        let exit = |_| panic!("nobody is stuck");
        for end in [Fence::ending, Fence::over] {
            let fence = Fence::exiting(runtime.handle(), SHORT, exit);
            let guard = fence.guard();
            end(&fence);
            drop(fence);
            guard.lost(&error());
            let inner = guard.0.clone();
            runtime.block_on(inner.wait());
            assert!(matches!(*guard.state(), State::Over));
        }
    }
}
