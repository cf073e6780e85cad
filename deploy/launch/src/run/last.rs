//! The last snapshot of a run.

use std::time::Duration;

use tradewind_proto::refusal::retryable;
use tradewind_server::store::read_address;

use crate::{LOOK, LaunchContext};
use tradewind_folder::cluster::Access;

/// Has one taken within `liveness.notice_ms`, wherever the coordinator is by then. Its number, or
/// why there is none.
pub(super) async fn snapshot(context: &LaunchContext<'_>, access: &Access) -> Result<u64, String> {
    let notice = Duration::from_millis(context.config.liveness.notice_ms);
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
    let taken = tokio::time::timeout(notice, taking).await;
    taken.unwrap_or_else(|_| Err(format!("not done after {notice:?}; {why}")))
}
