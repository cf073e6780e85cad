//! Who is heard at the authority of certificates: so many at a time. Where somebody else comes, the one gives way that
//! has had its time for longest, of the address that has most: who connects and says nothing keeps nobody out.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::sleep;
use tradewind_folder::clock::Clock;

/// Who is heard at a time; others wait in the system's queue.
pub(crate) const HEARD_MAX: usize = 64;

/// How long somebody is heard who then gives way: a handshake and a line take milliseconds, and a task asks again.
const AT_LEAST: Duration = Duration::from_millis(250);

/// Those that are heard.
#[derive(Debug)]
pub(crate) struct Hearings(Vec<Heard>);

#[derive(Debug)]
struct Heard {
    from: IpAddr,
    since: Clock,
    task: AbortHandle,
}

impl Hearings {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    /// Waits until there is a place.
    pub(crate) async fn room(&mut self) {
        loop {
            self.0.retain(|heard| !heard.task.is_finished());
            if self.0.len() < HEARD_MAX {
                return;
            }
            let Some(at) = self.gives_way() else { return };
            let had = self.0[at].since.elapsed();
            match AT_LEAST.checked_sub(had).filter(|left| !left.is_zero()) {
                // Others may have said their lines meanwhile.
                Some(left) => sleep(left).await,
                None => self.0.remove(at).task.abort(),
            }
        }
    }

    /// Somebody is heard, by this task.
    pub(crate) fn add(&mut self, from: IpAddr, task: AbortHandle) {
        let since = Clock::start();
        self.0.push(Heard { from, since, task });
    }

    /// The first of the address that has most.
    fn gives_way(&self) -> Option<usize> {
        let mut counts = BTreeMap::<IpAddr, usize>::new();
        for heard in &self.0 {
            *counts.entry(heard.from).or_default() += 1;
        }
        let most = counts.values().copied().max()?;
        let mut all = self.0.iter();
        all.position(|heard| counts[&heard.from] == most)
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tradewind_folder::runtime::one_thread;

    use super::*;

    #[test]
    fn the_first_of_the_address_that_has_most_gives_way() {
        one_thread().unwrap().block_on(async {
            let mut hearings = Hearings::new();
            let mut silent = Vec::new();
            let address = |last: u8| IpAddr::from([10, 0, 0, last]);
            for number in 0..HEARD_MAX {
                hearings.room().await;
                let task = tokio::spawn(pending::<()>());
                let from = address(if number % 4 == 0 { 1 } else { 2 });
                hearings.add(from, task.abort_handle());
                silent.push(task);
            }
            let closed = async |silent: &[tokio::task::JoinHandle<()>]| {
                tokio::task::yield_now().await;
                let ended = silent.iter().enumerate();
                let ended = ended.filter(|(_, task)| task.is_finished());
                ended.map(|(at, _)| at).collect::<Vec<_>>()
            };
            assert_eq!(closed(&silent).await, [0; 0]);
            hearings.room().await;
            assert_eq!(closed(&silent).await, [1], "the first of address 2");
            hearings.add(address(3), silent[0].abort_handle());
            hearings.room().await;
            assert_eq!(closed(&silent).await, [1, 2], "and the next one of it");
            hearings.add(address(3), silent[0].abort_handle());
            // Who has said its line makes room by itself.
            silent[4].abort();
            tokio::task::yield_now().await;
            hearings.room().await;
            assert_eq!(closed(&silent).await, [1, 2, 4]);
        });
    }
}
