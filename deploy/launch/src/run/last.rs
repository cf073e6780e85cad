//! The last snapshot of a run, and what comes before it where the run is interrupted.

use std::time::Duration;

use tradewind_config::Config;
use tradewind_proto::refusal::retryable;
use tradewind_server::store::read_address;

use crate::{LOOK, LaunchContext};
use tradewind_folder::clock::Clock;
use tradewind_folder::cluster::Access;

/// Whether the groups of a run that is interrupted leave before its last snapshot is taken, so that
/// the snapshot has all that they have pushed.
///
/// Several groups under `sync` do not: they leave one after the other, and what one of them pushes
/// meanwhile would be an update without the others' part of the batch. Their snapshot is of one clock,
/// and what comes after it is trained again as it was.
pub(super) fn groups_leave(config: &Config) -> bool {
    !config.train.consistency.waits_for_all() || config.cluster.groups.len() == 1
}

/// Takes the last snapshot of a run that is interrupted, within `liveness.notice_ms`. What came of it,
/// in words.
pub(super) async fn of_interrupted(context: &LaunchContext<'_>, access: &Access) -> String {
    let clock = Clock::start();
    let notice = Duration::from_millis(context.config.liveness.notice_ms);
    let mut text = String::new();
    if groups_leave(context.config) {
        // The other half is for the snapshot, which is of use without them, too.
        let patience = notice / 2;
        if let Err(why) = let_leave(context, access, patience).await {
            text = format!(
                "not all groups have left after {patience:?} ({why}); what they push after the last snapshot is lost; "
            );
        }
    }
    let taken = within(context, access, notice.saturating_sub(clock.elapsed())).await;
    text += &match taken {
        Ok(number) => {
            format!("snapshot {number} is whole; `tradewind run CONFIG --resume` goes on from it")
        }
        Err(why) => format!("no last snapshot was taken: {why}"),
    };
    text
}

/// Asks all groups to leave, and waits until they have: each ends its exchange before.
async fn let_leave(
    context: &LaunchContext<'_>,
    access: &Access,
    patience: Duration,
) -> Result<(), String> {
    let run = &context.config.name;
    let mut why = "the coordinator has told no address".to_owned();
    let leaving = async {
        let mut is_asked = false;
        loop {
            if let Ok(Some(there)) = read_address(context.folder.path()) {
                let told = async {
                    if !is_asked {
                        access.drain(&there.address, run, &[]).await?;
                    }
                    access.status(&there.address, run).await
                };
                match told.await {
                    Ok(status) => {
                        is_asked = true;
                        let states = status.groups.iter().map(|group| group.state.as_str());
                        let there = states.filter(|state| !["left", "dead"].contains(state));
                        let there = there.count();
                        if there == 0 {
                            return;
                        }
                        why = format!("{there} end their exchange");
                    }
                    Err(error) => why = format!("{error:#}"),
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    let left = tokio::time::timeout(patience, leaving).await;
    left.map_err(|_| why)
}

/// Has a snapshot taken within `liveness.notice_ms`, wherever the coordinator is by then. Its number,
/// or why there is none.
pub(super) async fn snapshot(context: &LaunchContext<'_>, access: &Access) -> Result<u64, String> {
    let notice = Duration::from_millis(context.config.liveness.notice_ms);
    within(context, access, notice).await
}

async fn within(
    context: &LaunchContext<'_>,
    access: &Access,
    patience: Duration,
) -> Result<u64, String> {
    let mut why = "the coordinator has told no address".to_owned();
    let taking = async {
        loop {
            if let Ok(Some(there)) = read_address(context.folder.path()) {
                match access.snapshot(&there.address, &context.config.name).await {
                    Ok(taken) => return Ok(taken.number),
                    Err(refused) if !retryable(&refused) => {
                        return Err(refused.message().to_owned());
                    }
                    Err(passing) => why = passing.message().to_owned(),
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    let taken = tokio::time::timeout(patience, taking).await;
    taken.unwrap_or_else(|_| Err(format!("not done after {patience:?}; {why}")))
}
