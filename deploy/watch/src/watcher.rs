//! Looks at a run again and again: while its coordinator is away, at what its folder, the answers of its
//! servers to pings, and Slurm can tell.

use std::collections::VecDeque;
use std::fs;
use std::time::{Duration, SystemTime};

use tokio::time::timeout;
use tradewind_common::RunId;
use tradewind_server::snapshot::{Folder, manifest};

use crate::device::Devices;
use crate::jobs::Jobs;
use crate::standing::{Ending, Server, Snapshot, Standing, fleet_run, server};
use tradewind_folder::clock::Clock;
use tradewind_folder::cluster::Access;
use tradewind_folder::events::{ENDING, Event, Events};
use tradewind_folder::found::FoundRun;
use tradewind_folder::lock::is_held;
use tradewind_launch::processes;
use tradewind_launch::slurm::queued;

/// Events that are kept.
const EVENTS_MAX: usize = 64;

/// How long the coordinator may take to answer.
const ANSWER: Duration = Duration::from_secs(8);

/// How long a server may take to answer a ping.
const PING: Duration = Duration::from_secs(1);

/// Looks at a run again and again.
#[derive(Debug)]
pub struct Watcher {
    place: FoundRun,
    events: Events,
    /// `None` where somebody else reads the records.
    devices: Option<Devices>,
    jobs: Jobs,
    clock: Clock,
    recent: VecDeque<Event>,
}

impl Watcher {
    /// Of this run, with what its groups tell of their GPUs.
    pub fn new(place: FoundRun) -> Self {
        Self {
            devices: Some(Devices::new(&place.path)),
            ..Self::asking(place)
        }
    }

    /// Of this run, as its servers and its folder have it, without the groups' records.
    pub(crate) fn asking(place: FoundRun) -> Self {
        Self {
            events: place.events(),
            devices: None,
            place,
            jobs: Jobs::default(),
            clock: Clock::start(),
            recent: VecDeque::new(),
        }
    }

    /// How the run stands now. What cannot be found out is left out.
    pub async fn look(&mut self) -> Standing {
        let mut standing = Standing {
            run: self.place.config.name.to_string(),
            is_fleet: self.place.is_fleet(),
            folder: self.place.path.display().to_string(),
            ended: self.place.ended(),
            result: self.place.result(),
            snapshot: self.snapshot(),
            events: self.events(),
            devices: self.devices.as_mut().map_or(Vec::new(), Devices::look),
            ..Standing::default()
        };
        if standing.ended.is_some() {
            standing.coordinator.away = Some("the run has ended".into());
            return standing;
        }
        match self.place.access() {
            Err(error) => standing.coordinator.away = Some(format!("{error:#}")),
            Ok(access) => {
                if let Err(error) = self.ask(&access, &mut standing).await {
                    standing.coordinator.away = Some(format!("{error:#}"));
                    standing.servers = self.ping_all(&access).await;
                }
            }
        }
        let path = &self.place.path;
        let away = standing.coordinator.away.is_some();
        let told = self.jobs.look(path, self.clock.elapsed(), away, queued);
        standing.jobs.clone_from(&told.jobs);
        standing.jobs_unknown.clone_from(&told.unknown);
        standing.is_slurm = told.any;
        // A job that waits holds no lock, and that of another node may not be seen. The run may also
        // have ended since this look began.
        standing.abandoned =
            away && !is_held(path) && !told.may_go_on() && self.place.ended().is_none();
        let begun = self.place.begun();
        standing.ending =
            begun.and_then(|begun| ending(&standing.events, begun, &standing.snapshot));
        standing
    }

    async fn ask(&self, access: &Access, standing: &mut Standing) -> anyhow::Result<()> {
        let there = self.place.coordinator()?;
        let there = there.ok_or_else(|| anyhow::anyhow!("there was none yet"))?;
        standing.coordinator.incarnation = Some(there.incarnation.0);
        standing.coordinator.address = Some(there.address.clone());
        let asked = async {
            match self.place.is_fleet() {
                true => self.ask_fleet(access, &there.address, standing).await,
                false => {
                    let name = &self.place.config.name;
                    standing.take_in(access.cluster(&there.address, name).await?)
                }
            }
        };
        let told = timeout(ANSWER, asked).await;
        told.map_err(|_| anyhow::anyhow!("no answer within {ANSWER:?}"))?
    }

    async fn ask_fleet(
        &self,
        access: &Access,
        coordinator: &str,
        standing: &mut Standing,
    ) -> anyhow::Result<()> {
        let fleet = access.fleet(coordinator).await?;
        standing.coordinator.incarnation = Some(fleet.coordinator);
        standing.servers = fleet.servers.into_iter().map(server).collect();
        for name in fleet.runs {
            let name = RunId::new(name)?;
            // It may have been removed in between.
            if let Ok(status) = access.status(coordinator, &name).await {
                standing.runs.push(fleet_run(&name, &status));
            }
        }
        Ok(())
    }

    async fn ping_all(&self, access: &Access) -> Vec<Server> {
        let rows = processes(&self.place.path).into_iter();
        let servers = rows.filter(|row| row.role == "server").map(async |row| {
            let mut connection = None;
            let pinged = timeout(PING, access.ping(&row.address, &mut connection)).await;
            let alive = matches!(pinged, Ok(Ok(pong)) if pong.server == row.index);
            Server {
                server: row.index,
                incarnation: row.life,
                address: row.address,
                alive,
                lease_left_ms: None,
            }
        });
        futures_util::future::join_all(servers).await
    }

    fn snapshot(&self) -> Option<Snapshot> {
        if self.place.is_fleet() {
            return None;
        }
        let folder = Folder::new(&self.place.fleet);
        let run = &self.place.config.name;
        let number = manifest::list(&folder, run).ok()?.pop()?;
        let written = fs::metadata(folder.manifest(run, number)).and_then(|m| m.modified());
        let since = |written: SystemTime| written.duration_since(SystemTime::UNIX_EPOCH).ok();
        let wall = written.ok().and_then(since);
        Some(Snapshot {
            number,
            wall: wall.map(|wall| wall.as_secs_f64()),
        })
    }

    fn events(&mut self) -> Vec<Event> {
        self.recent.extend(self.events.fresh().unwrap_or_default());
        let old = self.recent.len().saturating_sub(EVENTS_MAX);
        self.recent.drain(..old);
        self.recent.iter().cloned().collect()
    }
}

/// Whether a run whose processes were started at `begun` is being ended before its end. Times are
/// seconds since the Unix epoch.
fn ending(events: &[Event], begun: f64, snapshot: &Option<Snapshot>) -> Option<Ending> {
    let ends = |event: &&Event| event.kind == ENDING && event.wall >= begun;
    let since = events.iter().rev().find(ends)?.wall;
    let last = snapshot
        .as_ref()
        .filter(|snapshot| snapshot.wall > Some(since));
    Some(Ending {
        snapshot: last.map(|snapshot| snapshot.number),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tradewind_folder::events::fixture::event;

    #[test]
    fn a_run_ends_since_its_launcher_said_so_after_it_began() {
        let events = [
            event(10.0, "run_ready", "ready"),
            event(20.0, ENDING, "the run ends"),
        ];
        let snapshot = |wall| {
            Some(Snapshot {
                number: 3,
                wall: Some(wall),
            })
        };
        let check = |begun, wall, want: Option<Option<u64>>| {
            let want = want.map(|snapshot| Ending { snapshot });
            assert_eq!(ending(&events, begun, &snapshot(wall)), want);
        };
        check(5.0, 15.0, Some(None));
        check(5.0, 21.0, Some(Some(3)));
        // It was resumed after that.
        check(30.0, 21.0, None);
        assert_eq!(ending(&events[..1], 5.0, &None), None);
    }
}
