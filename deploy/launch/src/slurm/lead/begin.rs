//! What is done before a run is followed: a run on a fleet is made to go on there, and groups whose own
//! jobs have ended with the start before are handed in again.

use std::time::Duration;

use anyhow::{Context, bail};
use tokio::time::sleep;
use tradewind_server::store::Address;

use super::super::start::{Start, resumes};
use super::super::{client, gave_up, handing_in, standing};
use super::{COMING, Lead, PAUSE, Why};
use crate::progress::Progress;
use tradewind_folder::cluster::Access;
use tradewind_folder::found::FoundRun;
use tradewind_process::log::say;

/// Pause before groups that Slurm has not taken are handed in again.
const AGAIN: Duration = Duration::from_secs(60);

impl Lead {
    /// Returns when the run's folder belongs to this start of the job, or why it never will.
    pub(super) async fn begin(&mut self) -> anyhow::Result<Option<Why>> {
        if !self.place.is_on_fleet() {
            return self.servers_begun().await;
        }
        let why = tokio::select! {
            joined = join_fleet(&self.place) => {
                joined?;
                None
            }
            _ = self.near_limit.recv() => Some(Why::TimeIsUp),
            _ = self.asked.recv() => Some(Why::Cancelled),
            _ = self.terminate.recv() => Some(Why::Ended),
        };
        if why.is_none() {
            self.start.begin(&self.place.path, true)?;
        }
        Ok(why)
    }

    /// Waits until the first server has made the folder this start's, but not for servers that have ended.
    async fn servers_begun(&mut self) -> anyhow::Result<Option<Why>> {
        let (start, run) = (self.start, self.place.path.clone());
        let mut begun = std::pin::pin!(start.begun(&run));
        loop {
            tokio::select! {
                begun = &mut begun => return begun.map(|()| None),
                _ = self.near_limit.recv() => return Ok(Some(Why::TimeIsUp)),
                _ = self.asked.recv() => return Ok(Some(Why::Cancelled)),
                _ = self.terminate.recv() => return Ok(Some(Why::Ended)),
                () = sleep(PAUSE) => {}
            }
            if let Some(failure) = gave_up::read(&run, start) {
                return Ok(Some(Why::Failed(failure)));
            }
            self.ended_steps(|text| say(text))?;
            if self.steps.servers_are_over() && Start::read(&run) != Some(start) {
                bail!(
                    "the servers have ended before the first of them had begun; {} says why",
                    self.log().display()
                );
            }
        }
    }

    /// Hands groups in again that are jobs of their own, if that is still to be done. A run goes on
    /// without them.
    pub(super) fn hand_in_again(&mut self, progress: &mut Progress) {
        let now = self.clock.elapsed();
        if self.again.is_none_or(|at| now < at) {
            return;
        }
        self.again = None;
        if let Err(error) = self.try_to_hand_in_again(progress) {
            let text = format!("{error:#}; it is tried again in {AGAIN:?}");
            progress.message(&text);
            self.again = Some(now + AGAIN);
        }
    }

    /// Groups of the configuration that are jobs of their own have left when the job before was put
    /// back into the queue. Those that came by `attach` do not come again by themselves.
    fn try_to_hand_in_again(&self, progress: &mut Progress) -> anyhow::Result<()> {
        let run = &self.place.path;
        let config = &self.place.config;
        let known = handing_in::jobs_of(run)?;
        for number in config.groups_together() as u32..config.cluster.groups.len() as u32 {
            let mut own = known.iter().filter(|job| job.groups == [number]);
            let Some(last) = own.next_back().filter(|job| !job.leads) else {
                continue;
            };
            let rows = client::queue(&[last.job])?;
            let ends = |row: &client::Row| standing::is_over(row) || row.state == "COMPLETING";
            if !rows.iter().all(ends) {
                continue;
            }
            let script = run.join(format!("slurm/group-{number}.sh"));
            let job = handing_in::hand_in(run, &script, &[], last.clone())
                .with_context(|| format!("group {number} cannot be submitted again"))?;
            progress.message(&format!("job {job}: group {number} again"));
        }
        Ok(())
    }
}

/// On a fleet a run that was begun before goes on from its last snapshot; its groups wait until that
/// is said.
async fn join_fleet(place: &FoundRun) -> anyhow::Result<()> {
    let name = &place.config.name;
    let (access, there) = fleet_is_up(place).await?;
    if resumes(&place.fleet, name)? {
        // A previous start may have been ended before it could do so.
        let _ = access.drain(&there.address, name, &[]).await;
        let _ = access.remove(&there.address, name).await;
        access.resume(&there.address, name).await?;
    }
    Ok(())
}

/// Waits for the fleet's coordinator: the fleet's job may have started a moment ago.
async fn fleet_is_up(place: &FoundRun) -> anyhow::Result<(Access, Address)> {
    let mut waited = Duration::ZERO;
    loop {
        if let Some(there) = place.coordinator()?
            // What a person shows comes with the fleet's start.
            && let access = place.access()?
            && access.fleet(&there.address).await.is_ok()
        {
            return Ok((access, there));
        }
        if waited >= COMING {
            bail!(
                "no coordinator of the fleet in {} has answered for {COMING:?}",
                place.fleet.display()
            );
        }
        sleep(PAUSE).await;
        waited += PAUSE;
    }
}
