//! The coordinator, if this server hosts it; any server can be made to.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock, TryLockError};

use anyhow::{Context, bail};
use tonic::Status;
use tradewind_common::identity::Identity;
use tradewind_common::{Generation, RunId, ServerId};
use tradewind_proto::refusal::{self, Reason};
use tradewind_proto::tls::Tls;

use crate::admission::Connections;
use crate::authority;
use crate::clock::Origin;
use crate::coordinator_task::{CoordinatorHandle, Message};
use crate::durable::Disk;
use crate::marks;
use crate::refuse;
use crate::snapshot::Folder;
use crate::snapshot::manifest::{self, Manifest};
use crate::snapshot::{READ_PAUSE, READ_TRIES};
use crate::store::{Claimed, Store, Written};
use tradewind_core::answer::Refused;
use tradewind_core::coordinator::Coordinator;
use tradewind_core::durable::Durable;
use tradewind_core::revoked::RevokedIdentities;
use tradewind_core::saved::{ManifestData, Saved};

/// What a coordinator needs of the server that hosts it.
#[derive(Clone, Debug)]
pub struct Host {
    /// The server.
    pub server: ServerId,
    /// host:port of it.
    pub address: String,
    /// The fleet's folder, if it has one.
    pub folder: Option<PathBuf>,
    /// Length of a server's lease, milliseconds.
    pub lease_ms: u64,
    /// The run that this start of the fleet goes on with, whoever of its servers hosts first.
    pub resume: Option<RunId>,
    /// The server's clock.
    pub origin: Origin,
    /// Names the authority of the fleet's certificates, if it has some.
    pub authority: Option<String>,
    /// Who is connected to the server.
    pub(crate) connections: Arc<Connections>,
}

/// The way to the coordinator, while it is here.
#[derive(Clone, Debug)]
pub struct Hosting {
    host: Host,
    current: Arc<RwLock<Option<CoordinatorHandle>>>,
    /// Held by who is about to host, which may take long: it is not begun twice.
    beginning: Arc<Mutex<()>>,
}

impl Hosting {
    /// Nothing is hosted yet.
    pub fn new(host: Host) -> Self {
        Self {
            host,
            current: Arc::default(),
            beginning: Arc::default(),
        }
    }

    /// The coordinator.
    pub fn current(&self) -> Result<CoordinatorHandle, Status> {
        let current = self.current.read().unwrap_or_else(|e| e.into_inner());
        let current = current.as_ref().filter(|handle| !handle.is_over());
        let elsewhere = || Status::unavailable("the coordinator is not on this server");
        current.cloned().ok_or_else(elsewhere)
    }

    /// Hosts the coordinator of a fleet of `servers`, from its durable state if there is some. What that
    /// does not know of the run to be resumed is in its newest whole snapshot. Answers which life of the
    /// coordinator it is.
    ///
    /// It may take as long as reading a snapshot.
    pub fn begin(&self, servers: u32) -> anyhow::Result<u64> {
        let begun = self.begin_if(servers, || true)?;
        Ok(begun.expect("it is wanted"))
    }

    /// As [`begin`](Self::begin), unless it is not wanted any more once all is read; then `None`.
    pub fn begin_if(
        &self,
        servers: u32,
        wanted: impl FnOnce() -> bool,
    ) -> anyhow::Result<Option<u64>> {
        let _beginning = match self.beginning.try_lock() {
            Err(TryLockError::WouldBlock) => bail!("this server is about to host it already"),
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        };
        let Host {
            server,
            address,
            folder,
            lease_ms,
            resume,
            origin,
            authority,
            connections,
        } = &self.host;
        let under = |core: Coordinator| core.under(authority.clone());
        let Some(folder) = folder else {
            if let Some(run) = resume {
                bail!("run {run} cannot be resumed: the fleet has no folder");
            }
            let core = Coordinator::new(servers, false, *lease_ms).hosted_by(*server);
            let core = under(core);
            return Ok(Some(
                self.put(CoordinatorHandle::spawn(core, None, *origin)),
            ));
        };
        // A claim deposes whoever has claimed before. If all who read for long had claimed first, none
        // of them would ever come to act.
        let saved = match resume {
            Some(run) if !knows(Store::look(folder)?, run)? => Some(newest(folder, run)?),
            _ => None,
        };
        // It would let itself in, and its word would be law.
        if let Some(authority) = authority
            && let Some(state) = Store::look(folder)?.as_ref().map(understand).transpose()?
            && state.shuts_out(authority, *server)
        {
            bail!("server {server} is shut out of the fleet");
        }
        if !wanted() {
            return Ok(None);
        }
        let Claimed {
            store,
            incarnation,
            former,
        } = Store::claim(folder)?;
        let former = former.as_ref().map(understand).transpose()?;
        let unknown = |run: &&RunId| former.as_ref().is_none_or(|former| !former.knows(run));
        let resume = resume.as_ref().filter(unknown);
        let mut core = match former {
            Some(former) => Coordinator::recover(servers, true, *lease_ms, former, origin.now_ms()),
            None => Coordinator::new(servers, true, *lease_ms),
        }
        .hosted_by(*server);
        core = under(core);
        // It may have been shut out since.
        if core.revoked().contains(&Identity::Server(Some(*server))) {
            bail!("server {server} is shut out of the fleet");
        }
        // Before anybody calls: the bond with this coordinator tells of it only later.
        connections.revoke(core.revoked().clone());
        // Who has recorded the run has got further with it than the snapshot.
        if let Some(run) = resume {
            let saved = saved.map_or_else(|| newest(folder, run), Ok)?;
            core.resume(run.clone(), saved)?;
        }
        let disk = Disk::new((store, incarnation), folder)?;
        tracing::info!(%incarnation, "hosting the coordinator");
        let disk = Some((disk, address.clone()));
        Ok(Some(
            self.put(CoordinatorHandle::spawn(core, disk, *origin)),
        ))
    }

    fn put(&self, handle: CoordinatorHandle) -> u64 {
        let incarnation = handle.incarnation();
        *self.current.write().unwrap_or_else(|e| e.into_inner()) = Some(handle);
        incarnation
    }

    /// Where the snapshots of a run are, by number; `None` if the fleet has no folder.
    pub fn snapshots(&self, run: &RunId) -> Option<impl Fn(u64) -> String + use<>> {
        let (folder, run) = (Folder::new(self.host.folder.clone()?), run.clone());
        Some(move |number| folder.snapshot(&run, number).display().to_string())
    }

    /// Makes the next join of a run go on from its newest whole snapshot; its number.
    pub async fn resume(&self, run: &RunId) -> Result<u64, Status> {
        let coordinator = self.current()?;
        let folder = self.host.folder.clone();
        let folder = folder.ok_or_else(|| refuse::refused(Refused::NoFolder))?;
        // Told at once, not after a long read.
        let known = coordinator
            .call(|reply| Message::Holding(run.clone(), reply))
            .await;
        if known.is_ok() {
            return Err(refuse::refused(Refused::RunExists(run.clone())));
        }
        let read = run.clone();
        let read = tokio::task::spawn_blocking(move || newest(&folder, &read));
        let saved = read
            .await
            .unwrap_or_else(|panicked| Err(anyhow::anyhow!("{panicked}")));
        let saved =
            saved.map_err(|error| refusal::status(Reason::NoSnapshot, format!("{error:#}")))?;
        let (run, number) = (run.clone(), saved.manifest.number);
        let ask = |reply| Message::Resume(run, Box::new(saved), reply);
        coordinator.call(ask).await.map_err(refuse::call)?;
        Ok(number)
    }

    /// Whether there is a folder, in which the coordinator's state outlives its process.
    pub fn outlives(&self) -> bool {
        self.host.folder.is_some()
    }

    /// host:port of the server that hosts.
    pub fn address(&self) -> &str {
        &self.host.address
    }
}

/// Who is shut out of the fleet in this folder, of those who have certificates of the authority that this one is of: as
/// its coordinator has written it down, which it does before it tells anybody.
pub fn shut_out(folder: &Path, tls: &Tls) -> anyhow::Result<RevokedIdentities> {
    let state = Store::look(folder)?.as_ref().map(understand).transpose()?;
    let revoked = state.map(|state| state.revoked_of(&authority(tls)));
    Ok(revoked.unwrap_or_default())
}

/// A coordinator's durable state.
fn understand(written: &Written) -> anyhow::Result<Durable> {
    let understand = || -> anyhow::Result<Durable> {
        let mut durable: Durable = serde_json::from_slice(&written.state)?;
        for change in &written.changes {
            durable.change(serde_json::from_slice(change)?)?;
        }
        Ok(durable)
    };
    understand().context("the coordinator's durable state cannot be understood")
}

/// Whether the coordinator that has left this state has recorded the run.
fn knows(written: Option<Written>, run: &RunId) -> anyhow::Result<bool> {
    let state = written.as_ref().map(understand).transpose()?;
    Ok(state.is_some_and(|state| state.knows(run)))
}

/// What there is on disk of a run that shall go on.
fn newest(folder: &Path, run: &RunId) -> anyhow::Result<Saved> {
    let read = || -> anyhow::Result<Saved> {
        let saved = newest_whole(&Folder::new(folder), run)?;
        let recorded = Generation(marks::last_lineage(folder, run)?);
        Ok(Saved { recorded, ..saved })
    };
    read().with_context(|| format!("run {run} cannot be resumed"))
}

/// What the newest whole snapshot of a run says; those that are damaged are named. A file that cannot be
/// read is tried again before an older one takes its place: the folder may be on its way back.
fn newest_whole(snapshots: &Folder, run: &RunId) -> anyhow::Result<Saved> {
    let mut tries = 1;
    let (whole, damaged) = loop {
        let (whole, damaged) = manifest::newest_whole(snapshots, run, &mut |_, _| ())?;
        let may_pass = damaged.iter().find(|damaged| damaged.may_pass);
        match may_pass.filter(|_| tries < READ_TRIES) {
            None => break (whole, damaged),
            Some(unread) => tracing::warn!("tried again: {unread}"),
        }
        std::thread::sleep(READ_PAUSE);
        tries += 1;
    };
    let whole: Manifest<ManifestData> = whole.with_context(|| {
        let damaged: String = damaged.iter().map(|error| format!("; {error}")).collect();
        format!(
            "{} has no whole snapshot{damaged}",
            snapshots.run(run).display()
        )
    })?;
    Ok(Saved {
        manifest: whole.data,
        numbers: snapshots.numbers(run)?,
        damaged: damaged.iter().map(ToString::to_string).collect(),
        recorded: Generation(0),
    })
}
