//! Follows a run's training to its end.

use std::future::Future;
use std::io::IsTerminal;
use std::pin::Pin;

use super::{Company, Interruption, Outcome, last};
use crate::progress::Progress;
use crate::{Ground, Keeper, LOOK};

/// A snapshot that is being taken because the run shall end; what came of it, in words.
type Last<'a> = Pin<Box<dyn Future<Output = String> + 'a>>;

/// Keeps the run going until it is done, fails, or is interrupted. An interruption is followed by a
/// last snapshot; a second one is not waited for.
pub(super) async fn follow<C: Company>(
    ground: &Ground<'_>,
    keeper: &mut Keeper<'_>,
    interruption: &mut Interruption,
    company: &mut C,
) -> anyhow::Result<Outcome> {
    let config = ground.config;
    let interactive = std::io::stderr().is_terminal();
    let groups = config.cluster.groups.len();
    let out = Box::new(std::io::stdout());
    let mut progress = match company.lasts() {
        Some(seconds) => Progress::lasting(groups, seconds, interactive, out),
        None => Progress::new(groups, config.train.samples, interactive, out),
    };
    let access = keeper.access().clone();
    let mut ending: Option<(&str, Last<'_>)> = None;
    loop {
        if company.has_enough() {
            keeper.end_training();
        }
        company
            .lines()
            .iter()
            .for_each(|line| progress.message(line));
        let found = keeper.look()?;
        for record in &found.records {
            progress.record(record);
        }
        for message in &found.messages {
            progress.message(message);
        }
        if let Some(failure) = found.failure {
            progress.message("ending the run");
            progress.finish();
            return Ok(Outcome::Failed(failure));
        }
        if found.done {
            progress.finish();
            return Ok(Outcome::Completed);
        }
        let word = tokio::select! {
            by = interruption.wait() => match &ending {
                Some((by, _)) => Some(format!("{by} again")),
                None if may_snapshot(ground, keeper) => {
                    let seconds = config.liveness.notice_ms.div_ceil(1000);
                    progress.message(&format!(
                        "{by}: taking a last snapshot, for at most {seconds} s; once more ends at once"
                    ));
                    ending = Some((by, Box::pin(take(ground, &access))));
                    None
                }
                None => Some(by.to_owned()),
            },
            (by, text) = finished(&mut ending) => {
                progress.message(&text);
                Some(by.to_owned())
            }
            () = tokio::time::sleep(LOOK) => None,
        };
        if let Some(by) = word {
            progress.message(&format!("{by}: ending all processes"));
            progress.finish();
            return Ok(Outcome::Interrupted);
        }
    }
}

/// Whether there is anything to take a snapshot of, and time for it.
fn may_snapshot(ground: &Ground<'_>, keeper: &Keeper<'_>) -> bool {
    let ready = keeper.status().is_some_and(|s| s.phase == "ready");
    ready && ground.config.liveness.notice_ms > 0
}

async fn take(ground: &Ground<'_>, access: &tradewind_folder::cluster::Access) -> String {
    match last::snapshot(ground, access).await {
        Ok(number) => {
            format!("snapshot {number} is whole; `tradewind run CONFIG --resume` goes on from it")
        }
        Err(why) => format!("no last snapshot was taken: {why}"),
    }
}

/// Waits for the last snapshot; for ever if none is being taken.
async fn finished<'a>(ending: &mut Option<(&'a str, Last<'_>)>) -> (&'a str, String) {
    match ending {
        Some((by, last)) => (*by, last.as_mut().await),
        None => std::future::pending().await,
    }
}
