//! What is done before a run is followed: a run on a fleet is made to go on there, and groups whose own
//! jobs have ended with the start before are handed in again.

use std::time::Duration;

use anyhow::{Context, bail};
use tokio::time::sleep;
use tradewind_server::store::Address;

use super::super::start::resumes;
use super::super::{client, handing_in, standing};
use super::{COMING, Lead, PAUSE};
use crate::cluster::Access;
use crate::place::Place;
use crate::say;

impl Lead {
    /// Returns when the run's folder belongs to this start of the job.
    pub(super) async fn begin(&mut self) -> anyhow::Result<()> {
        match self.place.is_on_fleet() {
            true => {
                tokio::select! {
                    joined = join_fleet(&self.place, &self.access) => joined?,
                    // Nothing has begun that could be kept.
                    _ = self.terminate.recv() => bail!("the job was ended before its fleet was up"),
                }
                self.start.begin(&self.place.path, true)?;
            }
            false => self.start.begun(&self.place.path).await?,
        }
        if self.start.restarts > 0 {
            self.hand_in_again()?;
        }
        Ok(())
    }

    /// Groups of the configuration that are jobs of their own have left when the job before was put
    /// back into the queue. Those that came by `attach` do not come again by themselves.
    fn hand_in_again(&self) -> anyhow::Result<()> {
        let run = &self.place.path;
        let config = &self.place.config;
        let known = handing_in::jobs_of(run)?;
        for number in config.slurm.min_groups as u32..config.cluster.groups.len() as u32 {
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
                .with_context(|| format!("group {number} cannot be handed in again"))?;
            say(format_args!("job {job}: group {number} again"));
        }
        Ok(())
    }
}

/// On a fleet a run that was begun before goes on from its last snapshot; its groups wait until that
/// is said.
async fn join_fleet(place: &Place, access: &Access) -> anyhow::Result<()> {
    let name = &place.config.name;
    let there = fleet_is_up(place, access).await?;
    if resumes(&place.fleet, name)? {
        // A former start may have been ended before it could do so.
        let _ = access.drain(&there.address, name, &[]).await;
        let _ = access.remove(&there.address, name).await;
        access.resume(&there.address, name).await?;
    }
    Ok(())
}

/// Waits for the fleet's coordinator: the fleet's job may have started a moment ago.
async fn fleet_is_up(place: &Place, access: &Access) -> anyhow::Result<Address> {
    let mut waited = Duration::ZERO;
    loop {
        if let Some(there) = place.coordinator()?
            && access.fleet(&there.address).await.is_ok()
        {
            return Ok(there);
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
