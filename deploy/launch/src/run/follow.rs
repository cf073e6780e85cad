//! Follows a run's training to its end.

use std::future::Future;
use std::io::IsTerminal;
use std::pin::Pin;

use super::{Interruption, Outcome, RunHooks, last};
use crate::progress::Progress;
use crate::{Keeper, LOOK, LaunchContext};

/// A snapshot that is being taken because the run shall end; what came of it, in words.
type Last<'a> = Pin<Box<dyn Future<Output = String> + 'a>>;

/// Keeps the run going until it is done, fails, or is interrupted. After an interruption groups leave
/// and a last snapshot is taken; a second one is not waited for.
pub(super) async fn follow<C: RunHooks>(
    context: &LaunchContext<'_>,
    keeper: &mut Keeper<'_>,
    interruption: &mut Interruption,
    hooks: &mut C,
) -> anyhow::Result<Outcome> {
    let config = context.config;
    let interactive = std::io::stderr().is_terminal();
    let groups = config.cluster.groups.len();
    let out = Box::new(std::io::stdout());
    let mut progress = match hooks.lasts() {
        Some(seconds) => Progress::lasting(groups, seconds, interactive, out),
        None => Progress::new(groups, config.train.samples, interactive, out),
    };
    let access = keeper.access().clone();
    let mut ending: Option<(&str, Last<'_>)> = None;
    let mut has_trained = false;
    loop {
        if hooks.has_enough() {
            keeper.end_training();
        }
        hooks.lines().iter().for_each(|line| progress.message(line));
        let found = keeper.look()?;
        has_trained |= !found.records.is_empty();
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
                None if may_snapshot(context, keeper, has_trained) => {
                    let seconds = config.liveness.notice_ms.div_ceil(1000);
                    progress.message(&format!(
                        "{by}: {}a last snapshot is taken, within {seconds} s; once more ends at once",
                        if last::groups_leave(config) { "groups leave and " } else { "" }
                    ));
                    keeper.expect_leaving(by);
                    ending = Some((by, Box::pin(last::of_interrupted(context, &access))));
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

/// Whether there is anything to take a snapshot of, and time for it. The status is from a moment ago: a run
/// that has trained since is ready, too.
fn may_snapshot(context: &LaunchContext<'_>, keeper: &Keeper<'_>, has_trained: bool) -> bool {
    let ready = keeper.status().is_some_and(|s| s.phase == "ready");
    (ready || has_trained) && context.config.liveness.notice_ms > 0
}

/// Waits for the last snapshot; for ever if none is being taken.
async fn finished<'a>(ending: &mut Option<(&'a str, Last<'_>)>) -> (&'a str, String) {
    match ending {
        Some((by, last)) => (*by, last.as_mut().await),
        None => std::future::pending().await,
    }
}
