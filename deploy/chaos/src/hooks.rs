//! The launcher's side: hands the run to the thread of the faults, and takes what comes of it.

use std::thread::JoinHandle;

use anyhow::Context;
use tokio::sync::oneshot;
use tradewind_config::Config;

use super::proxy::{Front, Net};
use super::session::{Begun, FaultPlan, SessionOutcome, session};
use super::shared::{Injected, Shared};
use tradewind_folder::cluster::Access;
use tradewind_folder::runtime::one_thread;
use tradewind_launch::run::RunHooks;
use tradewind_launch::{LaunchContext, Roster};

/// Faults that go along with a run.
pub struct Chaos {
    roster: Roster,
    fronts: Vec<String>,
    shared: Shared,
    /// Seconds; `None` until the budget is applied.
    lasts: Option<f64>,
    begun: Option<oneshot::Sender<Begun>>,
    done: Option<oneshot::Receiver<SessionOutcome>>,
    thread: Option<JoinHandle<()>>,
    outcome: Option<SessionOutcome>,
    /// Dropped when the servers are not needed any more.
    release: Option<oneshot::Sender<()>>,
}

impl Chaos {
    /// Listens in front of every server that the run will have.
    pub fn new(config: &Config, plan: FaultPlan) -> anyhow::Result<Self> {
        let host = &config.cluster.host;
        let fronts = (0..config.cluster.servers).map(|server| Front::bind(server, host));
        let fronts: Vec<Front> = fronts.collect::<anyhow::Result<_>>()?;
        let addresses = fronts.iter().map(|front| front.address.clone()).collect();
        let (roster, shared) = (Roster::default(), Shared::default());
        let net = Net::new(roster.clone());
        let lasts = plan.lasts;
        let (begun, begins) = oneshot::channel();
        let (ends, done) = oneshot::channel();
        let (release, released) = oneshot::channel();
        let own = (roster.clone(), net, shared.clone());
        let thread = std::thread::Builder::new()
            .name("faults".into())
            .spawn(move || {
                let runtime = one_thread();
                let all = async {
                    let _ = ends.send(session(plan, own, fronts, begins).await);
                    // The servers are still needed, and so is what stands in front of them.
                    let _ = released.await;
                };
                if let Ok(runtime) = runtime {
                    runtime.block_on(all);
                }
            })
            .context("cannot start the thread of the faults")?;
        Ok(Self {
            roster,
            fronts: addresses,
            shared,
            lasts,
            begun: Some(begun),
            done: Some(done),
            thread: Some(thread),
            outcome: None,
            release: Some(release),
        })
    }

    /// What has happened, how much was left out, and what came of it; `None` if it broke off.
    pub fn results(mut self) -> (Vec<Injected>, usize, Option<SessionOutcome>) {
        let (injected, left_out) = self.shared.faults();
        (injected, left_out, self.outcome.take())
    }
}

impl Drop for Chaos {
    fn drop(&mut self) {
        // It may still wait for the run to begin, or to be over.
        self.begun = None;
        self.release = None;
        self.shared.set_over(false);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl RunHooks for Chaos {
    fn roster(&self) -> &Roster {
        &self.roster
    }

    fn fronts(&self) -> &[String] {
        &self.fronts
    }

    fn begin(&mut self, context: &LaunchContext<'_>, access: &Access) -> anyhow::Result<()> {
        let begun = Begun {
            access: access.clone(),
            folder: context.folder.path().to_owned(),
            run: context.config.name.clone(),
            replication: context.config.faults.replication,
            patience: context.config.faults.patience_ms as f64 / 1000.0,
        };
        let to = self.begun.take().context("a run begins once")?;
        to.send(begun)
            .map_err(|_| anyhow::anyhow!("the thread of the faults has ended"))
    }

    fn lines(&mut self) -> Vec<String> {
        self.shared.lines()
    }

    fn has_enough(&self) -> bool {
        self.shared.has_enough()
    }

    fn lasts(&self) -> Option<f64> {
        self.lasts
    }

    async fn training_over(&mut self, in_order: bool) {
        self.shared.set_over(in_order);
        if let Some(done) = self.done.take() {
            self.outcome = done.await.ok();
        }
    }
}
