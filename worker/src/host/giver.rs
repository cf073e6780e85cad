//! Waits for copies to main memory, so that nobody else has to, and gives what has come.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use tch::{Device, Kind};
use tradewind_client::parts::{Lent, Parts};
use tradewind_process::supervise_thread;

use crate::c10d::{Breaker, C10dError};
use crate::stream::{Event, PageLocked};

/// A bucket on its way to main memory.
pub(super) struct Gift {
    pub(super) parts: Arc<Parts>,
    pub(super) bucket: usize,
    pub(super) landing: Arc<Landing>,
    /// From which on `landing` can be read.
    pub(super) event: Event,
}

/// A rank's part of a bucket in main memory, and whether the bucket is finite: a flag that is 0 if
/// so.
pub(super) struct Landing {
    pub(super) values: PageLocked,
    pub(super) flag: PageLocked,
}

impl Landing {
    /// One for a rank's part of each bucket, of so many values.
    pub(super) fn each(
        lengths: &[usize],
        form: Kind,
        device: Device,
    ) -> Result<Vec<Self>, C10dError> {
        let values = PageLocked::each(lengths, form, device)?;
        let flags = PageLocked::each(&vec![1; lengths.len()], Kind::Float, device)?;
        let both = values.into_iter().zip(flags);
        Ok(both.map(|(values, flag)| Self { values, flag }).collect())
    }
}

impl Lent for Landing {
    fn values(&self) -> tradewind_client::parts::Values<'_> {
        self.values.values()
    }
}

/// A thread that gives buckets in the order in which they are handed to it.
pub(super) struct Giver {
    /// `None` only while being dropped.
    gifts: Option<SyncSender<Gift>>,
    given: Arc<Given>,
    handed: u64,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Given {
    so_far: Mutex<SoFar>,
    one_more: Condvar,
}

#[derive(Default)]
struct SoFar {
    given: u64,
    failed: Option<C10dError>,
}

impl Given {
    fn so_far(&self) -> MutexGuard<'_, SoFar> {
        self.so_far.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Giver {
    /// Has room for as many gifts as there are buckets. Of a group that is broken nothing is given:
    /// what was under way has ended, with anything in it.
    pub(super) fn new(buckets: usize, group: Option<Breaker>) -> Self {
        let (gifts, given) = sync_channel(buckets.max(1));
        let given_so_far = Arc::<Given>::default();
        let told = given_so_far.clone();
        let thread = supervise_thread("staging", move || give(&given, &told, group.as_ref()));
        Self {
            gifts: Some(gifts),
            given: given_so_far,
            handed: 0,
            thread: Some(thread.expect("the system has room for one more thread")),
        }
    }

    /// Returns how many there were so far.
    pub(super) fn give(&mut self, gift: Gift) -> u64 {
        let gifts = self.gifts.as_ref().expect("not being dropped");
        gifts.send(gift).expect("it ends after the last gift");
        self.handed += 1;
        self.handed
    }

    /// Waits until so many gifts have been given, and nothing is held of them here.
    pub(super) fn wait(&self, count: u64) {
        let so_far = self.given.so_far();
        let fewer = |so_far: &mut SoFar| so_far.given < count;
        let reached = self.given.one_more.wait_while(so_far, fewer);
        drop(reached.unwrap_or_else(PoisonError::into_inner));
    }

    /// Why a bucket could not be copied, if one could not: it is skipped.
    pub(super) fn failure(&self) -> Option<C10dError> {
        self.given.so_far().failed.take()
    }
}

impl Drop for Giver {
    fn drop(&mut self) {
        self.gifts = None;
        if let Some(thread) = self.thread.take() {
            // It waits for nothing but copies.
            let _ = thread.join();
        }
    }
}

fn give(gifts: &Receiver<Gift>, given: &Given, group: Option<&Breaker>) {
    while let Ok(gift) = gifts.recv() {
        let Gift {
            parts,
            bucket,
            landing,
            event,
        } = gift;
        let finite = match event.wait() {
            // The training loop meets a broken group by itself, and says so.
            Ok(()) => {
                group.is_none_or(|group| group.check().is_ok()) && landing.flag.f32()[0] == 0.0
            }
            Err(error) => {
                given.so_far().failed.get_or_insert(error);
                false
            }
        };
        parts.lend(bucket, finite.then_some(landing as Arc<dyn Lent>));
        drop(parts);
        given.so_far().given += 1;
        given.one_more.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tch::{Device, Kind};
    use tradewind_client::parts::Plan;
    use tradewind_common::{BlockId, Layout, TensorKind, TensorSpec};

    use super::*;
    use crate::c10d::{ProcessGroup, Store};

    #[test]
    fn of_a_broken_group_nothing_is_given() {
        const HOST: &str = "127.0.0.1";
        const LONG: Duration = Duration::from_secs(60);
        let spec = TensorSpec {
            name: "weight".into(),
            shape: vec![2],
            kind: TensorKind::Parameter,
        };
        let layout = Layout::new(&[spec], 64).unwrap();
        let plan = Arc::new(Plan::new(&layout, &layout.buckets(64), &[BlockId(0)]));
        let store = Store::serve(HOST, LONG).unwrap();
        let group = ProcessGroup::new(&store, "0", 0, 1, HOST, LONG).unwrap();
        let mut giver = Giver::new(1, Some(group.breaker().unwrap()));
        let mut skipped = || {
            let zeros = |length| PageLocked::new(length, Kind::Float, Device::Cpu).unwrap();
            let (mut values, mut flag) = (zeros(2), zeros(1));
            values.f32_mut().fill(1.0);
            flag.f32_mut().fill(0.0);
            let parts = Arc::new(Parts::new(&plan));
            let given = giver.give(Gift {
                parts: parts.clone(),
                bucket: 0,
                landing: Arc::new(Landing { values, flag }),
                event: Event::now(Device::Cpu).unwrap(),
            });
            giver.wait(given);
            parts.skipped()
        };
        assert_eq!(skipped(), 0);
        group.breaker().unwrap().break_group();
        assert_eq!(skipped(), 1);
    }
}
