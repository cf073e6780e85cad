//! A server that is told to end waits for the last snapshot of the runs, whose groups are told to leave
//! at the same time.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::coordinator_task::Message;
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
        loop {
            match hosting.current() {
                Ok(coordinator) => match coordinator.call(Message::Idle).await {
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
