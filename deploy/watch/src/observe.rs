//! Looks at a run once a second, at its folder and at its servers, and shows what it has seen last.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch::{Receiver, Sender, channel};
use tokio::time::sleep;
use tradewind_folder::clock::wall;
use tradewind_folder::found::FoundRun;
use tradewind_launch::processes;
use tradewind_process::{supervise, supervise_blocking};

use crate::files;
use crate::look::{Facts, Look, Seen};
use crate::memory::resident_bytes;
use crate::reader::Reader;
use crate::standing::Standing;
use crate::stream::{CurveCopy, Sight};
use crate::traffic::Traffic;
use crate::watcher::Watcher;

/// Pause between two looks.
const PAUSE: Duration = Duration::from_secs(1);

/// What was seen of a run last; `None` until it has been looked at.
pub(crate) type LastSight = Receiver<Option<Arc<Sight>>>;

/// Looks at a run from now on. Call it within a runtime.
pub(crate) fn observe(place: FoundRun) -> anyhow::Result<LastSight> {
    let (sights, last) = channel(None);
    let (standings, standing) = channel(None);
    let name = place.config.name.to_string();
    let again = FoundRun::find(Some(&place.path))?;
    supervise(
        format!("asking the servers of {name}"),
        ask(again, standings),
    );
    let observer = Observer::new(place, standing);
    supervise(format!("looking at {name}"), look(observer, sights));
    Ok(last)
}

/// What the servers told, and when, seconds since the Unix epoch.
type Told = Option<(f64, Arc<Standing>)>;

async fn ask(place: FoundRun, to: Sender<Told>) -> Infallible {
    let mut watcher = Watcher::asking(place);
    loop {
        let standing = watcher.look().await;
        to.send_replace(Some((wall(), Arc::new(standing))));
        sleep(PAUSE).await;
    }
}

async fn look(mut observer: Observer, to: Sender<Option<Arc<Sight>>>) {
    loop {
        let work = supervise_blocking("reading a run's folder", move || {
            let sight = observer.look(wall());
            (observer, sight)
        });
        // The runtime ends.
        let Ok((back, sight)) = work.await else {
            return;
        };
        observer = back;
        to.send_replace(Some(Arc::new(sight)));
        sleep(PAUSE).await;
    }
}

/// Whoever looks at a run.
#[derive(Debug)]
pub(crate) struct Observer {
    reader: Reader,
    standing: Receiver<Told>,
    traffic: Traffic,
    /// When the servers told what the traffic was reckoned from.
    told: f64,
}

impl Observer {
    pub(crate) fn new(place: FoundRun, standing: Receiver<Told>) -> Self {
        Self {
            reader: Reader::new(place),
            standing,
            traffic: Traffic::default(),
            told: f64::NEG_INFINITY,
        }
    }

    /// What there is to be seen at `now`, seconds since the Unix epoch.
    pub(crate) fn look(&mut self, now: f64) -> Sight {
        self.reader.look();
        let told = self.standing.borrow_and_update().clone();
        if let Some((wall, standing)) = &told
            && *wall > self.told
        {
            self.traffic.take_in(&standing.shards, *wall);
            self.told = *wall;
        }
        let place = self.reader.place();
        let rows = processes(&place.path);
        let servers = rows.iter().filter(|row| row.role == "server");
        let memory =
            servers.filter_map(|row| Some((row.index, resident_bytes(row, &place.fleet)?)));
        let memory: BTreeMap<u32, u64> = memory.collect();
        let facts = Facts::new(
            &place.config,
            place.path.display().to_string(),
            place.is_fleet(),
        );
        let records = self.reader.records();
        let look: Look = Seen {
            facts: &facts,
            records,
            standing: told.as_ref().map(|(_, standing)| standing.as_ref()),
            traffic: &self.traffic,
            processes: &rows,
            memory: &memory,
            now,
        }
        .look();
        let groups = records.history.groups().iter().map(|(group, history)| {
            let copy = CurveCopy {
                epoch: history.curve.epoch(),
                points: history.curve.points().to_vec(),
            };
            (*group, copy)
        });
        let validations = records.validations.iter();
        Sight {
            look,
            joined: records.history.joined(),
            groups: groups.collect(),
            validations: validations
                .map(|of| (of.samples, of.wall, of.measure.value))
                .collect(),
            events: records.timeline.all().cloned().collect(),
            files: files::list(&place.path),
            life: self.reader.life(),
        }
    }
}
