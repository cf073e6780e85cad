//! Servers in this process, each with threads of its own, or in processes on disks that fail, on ports
//! that the system picks. A server can be killed at any moment, and started again in another life.

mod serving;
mod setup;

use std::net::TcpListener as Bound;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tradewind_client::coordinator::CoordinatorAt as Sought;
use tradewind_common::ServerId;
use tradewind_common::identity::Identity;
use tradewind_proto::auth::Credentials;
use tradewind_server::store::read_address;
use tradewind_server::{Config, CoordinatorAt, serve};

use super::client::Client;
use super::disk::Disks;
use super::gate::Gate;
use super::wait_for;
use serving::Serving;
pub use setup::Setup;

/// The first life of every server of a fleet; not 1, so that there is a former one.
pub const INCARNATION: u64 = 2;

/// The servers of a fleet; the first one hosts the coordinator at first. They end when it is dropped.
pub struct Fleet {
    runtime: Runtime,
    setup: Setup,
    entries: Mutex<Vec<ServerEntry>>,
}

/// One server, in its present life or the last one.
struct ServerEntry {
    incarnation: u64,
    /// Where it listens.
    address: String,
    gate: Option<Gate>,
    bond: Option<Gate>,
    serving: Option<Serving>,
}

impl Fleet {
    /// Starts `servers` servers that ask for `token`.
    ///
    /// # Panics
    /// If a port cannot be had.
    pub fn start(servers: u32, token: &str) -> Self {
        Self::partial(servers, servers, token)
    }

    /// Starts the first `started` servers of a fleet of `servers`.
    ///
    /// # Panics
    /// If a port cannot be had.
    pub fn partial(started: u32, servers: u32, token: &str) -> Self {
        let token = token.to_owned();
        Self::of(Setup {
            started,
            token,
            ..Setup::of(servers)
        })
    }

    fn of(setup: Setup) -> Self {
        let started = setup.started;
        if let (Some(folder), Some(_)) = (&setup.folder, &setup.resume) {
            put_aside(folder);
        }
        let former = setup.folder.as_deref().and_then(life);
        let fleet = Self {
            runtime: threads(),
            setup,
            entries: Mutex::default(),
        };
        for server in 0..started {
            fleet.begin(server);
            if server == 0 {
                fleet.settle(former);
            }
        }
        fleet
    }

    /// Starts a server: the next one, or one that was killed, in its next life.
    ///
    /// # Panics
    /// If a port cannot be had, or it runs.
    pub fn begin(&self, server: u32) {
        let mut entries = self.entries();
        let former = entries.get(server as usize);
        assert!(
            former.is_none_or(|entry| entry.serving.is_none()),
            "it runs"
        );
        let incarnation = former.map_or(INCARNATION, |entry| entry.incarnation + 1);
        let fresh = former.is_none();
        let runtime = threads();
        let listener = listen(&runtime);
        let address = listener.local_addr().expect("a bound port").to_string();
        let _context = self.runtime.enter();
        let gate = self.setup.gated.contains(&server);
        let gate = gate.then(|| Gate::start(&address));
        let first = entries.first().map(|entry| entry.address.clone());
        let bond = first
            .as_ref()
            .filter(|_| self.setup.bonds.contains(&server));
        let bond = bond.map(|coordinator| Gate::start(coordinator));
        let coordinator = match (first, &self.setup.folder) {
            _ if server == 0 && fresh && !self.setup.stand_in => CoordinatorAt::Here {
                servers: self.setup.servers,
            },
            (Some(first), None) => {
                CoordinatorAt::Elsewhere(bond.as_ref().map_or(first, |b| b.address().to_owned()))
            }
            _ => CoordinatorAt::InFolder,
        };
        let config = Config {
            server: ServerId(server),
            incarnation,
            address: gate.as_ref().map_or(&*address, Gate::address).to_owned(),
            host: format!("host-{server}"),
            coordinator,
            credentials: self.credentials_of(&Identity::Server(Some(ServerId(server)))),
            folder: self.setup.folder.clone(),
            resume: self.setup.resume.clone(),
            lease_ms: self.setup.lease_ms,
            stand_in: self.setup.stand_in.then_some(self.setup.servers),
            linger_ms: self.setup.linger_ms,
        };
        let (address, serving) = match &self.setup.disks {
            Some(disks) => {
                // It picks a port itself.
                runtime.shutdown_background();
                assert!(gate.is_none() && bond.is_none(), "a process has no gates");
                let (serving, address) = Serving::start(disks, &config, &self.setup.token);
                (address, serving)
            }
            None => {
                let (stop, stopped) = oneshot::channel();
                let ended = runtime.spawn(serve(listener, config, async {
                    let _ = stopped.await;
                }));
                let serving = Serving::Here {
                    runtime,
                    stop,
                    ended,
                };
                (address, serving)
            }
        };
        let entry = ServerEntry {
            incarnation,
            address,
            gate,
            bond,
            serving: Some(serving),
        };
        if fresh {
            entries.push(entry);
        } else {
            entries[server as usize] = entry;
        }
    }

    /// Kills a server: everything that it does ends where it is, its connections break, what it had
    /// in memory is gone.
    ///
    /// # Panics
    /// If it does not run.
    pub fn kill(&self, server: u32) {
        let serving = self.entries()[server as usize].serving.take();
        serving.expect("it runs").kill();
    }

    /// Whether a server that was not killed has ended.
    ///
    /// # Panics
    /// If it was killed.
    pub fn has_ended(&self, server: u32) -> bool {
        let mut entries = self.entries();
        let serving = entries[server as usize].serving.as_mut();
        serving.expect("it was not killed").has_ended()
    }

    /// The servers' disks.
    ///
    /// # Panics
    /// If they are no processes.
    pub fn disks(&self) -> &Disks {
        self.setup
            .disks
            .as_ref()
            .expect("servers that are processes")
    }

    /// Tells servers to end, as SIGTERM does, and waits until they have.
    ///
    /// # Panics
    /// If one does not run, or ends with an error.
    pub async fn terminate(&self, servers: impl IntoIterator<Item = u32>) {
        let take = |server: u32| self.entries()[server as usize].serving.take();
        let serving: Vec<Option<Serving>> = servers.into_iter().map(take).collect();
        let ending = serving.into_iter().map(|serving| {
            let serving = serving.expect("it runs");
            tokio::spawn(serving.terminate())
        });
        for ending in ending.collect::<Vec<_>>() {
            let ended = ending.await.expect("a server does not panic");
            assert!(ended, "a server ends well");
        }
    }

    /// Waits until a coordinator after `former` has said in the folder where it is.
    fn settle(&self, former: Option<u64>) {
        if let Some(folder) = &self.setup.folder {
            let there = || life(folder).filter(|life| Some(*life) > former);
            wait_for("the coordinator's address", there);
        }
    }

    /// host:port where every server listens, or has listened last.
    pub fn addresses(&self) -> Vec<String> {
        let entries = self.entries();
        entries.iter().map(|entry| entry.address.clone()).collect()
    }

    /// Which life of a server is the present one, or was the last.
    pub fn incarnation(&self, server: u32) -> u64 {
        self.entries()[server as usize].incarnation
    }

    /// Shuts or opens the way on which others reach a server.
    ///
    /// # Panics
    /// If it has no gate.
    pub fn gate(&self, server: u32, open: bool) {
        let entries = self.entries();
        let gate = entries[server as usize].gate.as_ref();
        gate.expect("a gate before the server").set(open);
    }

    /// Shuts or opens the way on which a server reaches the coordinator.
    ///
    /// # Panics
    /// If it has no gate.
    pub fn bond(&self, server: u32, open: bool) {
        let entries = self.entries();
        let bond = entries[server as usize].bond.as_ref();
        bond.expect("a gate before the coordinator").set(open);
    }

    /// Where ranks look for the coordinator.
    pub fn coordinator(&self) -> Sought {
        match &self.setup.folder {
            Some(folder) => Sought::File(folder.join("coordinator/address.json")),
            None => Sought::Address(self.addresses()[0].clone()),
        }
    }

    /// host:port of the coordinator, as it is found now.
    ///
    /// # Panics
    /// If the folder does not say.
    pub fn coordinator_address(&self) -> String {
        let found = self.try_coordinator_address();
        found.expect("there has been a coordinator")
    }

    /// As [`coordinator_address`](Self::coordinator_address), if there has been one.
    ///
    /// # Panics
    /// If the folder cannot be read.
    pub fn try_coordinator_address(&self) -> Option<String> {
        match &self.setup.folder {
            Some(folder) => {
                let found = read_address(folder).expect("the folder can be read");
                found.map(|found| found.address)
            }
            None => Some(self.addresses()[0].clone()),
        }
    }

    /// What its servers show and ask for.
    ///
    /// # Panics
    /// If the token cannot be sent.
    pub fn credentials(&self) -> Credentials {
        self.setup.credentials(&Identity::Server(None))
    }

    /// What somebody shows whom its authority knows; without one, the token.
    ///
    /// # Panics
    /// If the token cannot be sent.
    pub fn credentials_of(&self, identity: &Identity) -> Credentials {
        self.setup.credentials(identity)
    }

    /// Runs a test against the fleet.
    pub fn block_on<T>(&self, test: impl Future<Output = T>) -> T {
        self.runtime.block_on(test)
    }

    /// Fresh connections that show what the fleet's servers show.
    pub async fn client(&self) -> Client {
        self.client_as(&self.credentials())
    }

    /// Fresh connections that show this.
    pub fn client_as(&self, shown: &Credentials) -> Client {
        Client::connect(&self.coordinator_address(), &self.addresses(), shown)
    }

    /// Fresh connections that show another token.
    ///
    /// # Panics
    /// If it cannot be sent.
    pub async fn client_with(&self, token: &str) -> Client {
        self.client_as(&Credentials::new(token, None).expect("a token of visible ASCII"))
    }

    /// Fresh connections, which take this server for the coordinator's.
    pub async fn client_of(&self, server: usize) -> Client {
        let addresses = self.addresses();
        Client::connect(&addresses[server], &addresses, &self.credentials())
    }

    fn entries(&self) -> MutexGuard<'_, Vec<ServerEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts aside what a former start knew of its fleet.
fn put_aside(folder: &Path) {
    let aside = (1..).map(|n| folder.join(format!("coordinator-{n}")));
    let mut free = aside.filter(|path| !path.exists());
    let free = free.next().expect("a free name");
    std::fs::rename(folder.join("coordinator"), free).expect("a former start");
}

/// Which life of the coordinator the folder names.
fn life(folder: &Path) -> Option<u64> {
    let found = read_address(folder).ok()??;
    Some(found.incarnation.0)
}

fn listen(runtime: &Runtime) -> TcpListener {
    let bound = Bound::bind("127.0.0.1:0").expect("a free port");
    bound.set_nonblocking(true).expect("a fresh socket");
    let _context = runtime.enter();
    TcpListener::from_std(bound).expect("within a runtime")
}

fn threads() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build();
    runtime.expect("a runtime")
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let entries: Vec<ServerEntry> = self.entries().drain(..).collect();
        let serving: Vec<Serving> = entries
            .into_iter()
            .filter_map(|entry| entry.serving)
            .collect();
        // A second panic would hide the first one.
        let mut failed = false;
        for serving in serving {
            match std::thread::panicking() {
                true => serving.kill(),
                false => failed |= !self.runtime.block_on(serving.terminate()),
            }
        }
        assert!(
            std::thread::panicking() || !failed,
            "a server ended with an error"
        );
    }
}
