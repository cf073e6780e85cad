//! A server that is told to end asks the groups of all runs to leave, and waits for the last snapshots.
//!
//! The groups may be jobs of their own that nobody else tells. Whoever hosts the coordinator asks them;
//! the others stay for as long as it does.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tradewind_common::RunId;

use crate::coordinator_task::{CallError, CoordinatorHandle, Message};
use crate::hosting::Hosting;

/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// Returns when no run has anything left to be kept, or after `patience`. Where the coordinator is
/// elsewhere that is when the bond with it ends.
pub(crate) async fn linger(
    hosting: &Hosting,
    mut bonded: watch::Receiver<bool>,
    patience: Duration,
) {
    let quiet = async {
        let mut asked = BTreeSet::new();
        loop {
            match hosting.current() {
                Ok(coordinator) => match is_quiet(&coordinator, &mut asked).await {
                    Ok(false) => sleep(LOOK).await,
                    Ok(true) | Err(_) => return,
                },
                Err(_) => {
                    let _ = bonded.wait_for(|bonded| !bonded).await;
                    return;
                }
            }
        }
    };
    if timeout(patience, quiet).await.is_err() {
        tracing::warn!("after {patience:?} groups or a last snapshot are still under way; ending");
    }
}

/// Whether no run has anything left to be kept, once the groups of all were asked to leave.
async fn is_quiet(
    coordinator: &CoordinatorHandle,
    asked: &mut BTreeSet<RunId>,
) -> Result<bool, CallError> {
    // Runs may still come.
    let (runs, _) = coordinator.call(Message::Fleet).await?;
    for run in runs {
        if !asked.insert(run.clone()) {
            continue;
        }
        let (name, all) = (run.clone(), Vec::new());
        let drain = coordinator.call(|reply| Message::Drain(name, all, reply));
        match drain.await {
            Err(CallError::Refused(refused)) => tracing::warn!("run {run}: {refused}"),
            drained => _ = drained?,
        }
    }
    coordinator.call(Message::Idle).await
}
