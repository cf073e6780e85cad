//! What is called while a run goes on.

use std::future::Future;

use crate::{LaunchContext, Roster};
use tradewind_folder::cluster::Access;

/// Hooks of somebody who watches a run, or does something to it, while it goes on.
pub trait RunHooks {
    /// Where the run's processes are written down.
    fn roster(&self) -> &Roster;

    /// Under which addresses the servers are reached; none, if under their own.
    fn fronts(&self) -> &[String];

    /// The processes have been started.
    fn begin(&mut self, context: &LaunchContext<'_>, access: &Access) -> anyhow::Result<()>;

    /// Lines for people since the last call.
    fn lines(&mut self) -> Vec<String>;

    /// Whether training shall end, though its budget may not be applied.
    fn has_enough(&self) -> bool;

    /// For how many seconds training goes on; `None` until its budget is applied.
    fn lasts(&self) -> Option<f64> {
        None
    }

    /// Training is over. If it has come to its end in order, the servers are still there.
    fn training_over(&mut self, in_order: bool) -> impl Future<Output = ()>;
}

/// No hooks: a run that is left alone.
#[derive(Debug, Default)]
pub struct NoHooks(Roster);

impl RunHooks for NoHooks {
    fn roster(&self) -> &Roster {
        &self.0
    }

    fn fronts(&self) -> &[String] {
        &[]
    }

    fn begin(&mut self, _: &LaunchContext<'_>, _: &Access) -> anyhow::Result<()> {
        Ok(())
    }

    fn lines(&mut self) -> Vec<String> {
        Vec::new()
    }

    fn has_enough(&self) -> bool {
        false
    }

    async fn training_over(&mut self, _: bool) {}
}
