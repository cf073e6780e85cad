//! One side of a measurement: server processes and the client processes that obey orders. An
//! exchange's fleet and the floor's are the same to whoever measures.

mod start;

use std::process::{ChildStdin, ChildStdout};
use std::time::Duration;

use anyhow::{Context, bail};
use futures_util::future::try_join_all;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};

use super::model::Model;
use super::orders::{Done, Order, Ready, Work};
use super::usage::{cpu_seconds, peak_rss_bytes};
use tradewind_launch::{LOOK, Process};
use tradewind_proto::authority::Authority;

pub use self::start::StartOptions;

/// How long a client that has closed its output may take to end.
const END: Duration = Duration::from_secs(2);

/// How long clients may take until they are ready.
const READY: Duration = Duration::from_secs(120);

/// What a side is made of.
#[derive(Clone, Debug, PartialEq)]
pub enum FleetKind {
    /// `tradewind-server`, so many, and clients that exchange with them, over mutual TLS or in clear.
    Exchange { servers: u32, tls: bool },
    /// Clients that exchange with the fleet whose coordinator is at this address.
    Attached { coordinator: String },
    /// Servers of bare TCP, so many, and clients that exchange with them.
    Floor { servers: u32 },
}

/// What servers and clients of a side are called.
#[derive(Clone, Copy, Debug)]
pub struct Names {
    pub server: &'static str,
    pub client: &'static str,
}

/// Processes that measure. Dropping it ends them.
#[derive(Debug)]
pub struct Fleet {
    names: Names,
    servers: Vec<Process>,
    addresses: Vec<String>,
    clients: Vec<Process>,
    pipes: Vec<Pipe>,
    ready: Vec<Ready>,
}

/// The lines to and from a client.
#[derive(Debug)]
pub struct Pipe {
    orders: tokio::process::ChildStdin,
    answers: Lines<BufReader<tokio::process::ChildStdout>>,
}

/// What all clients of a side did at once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    pub clients: Vec<ClientSample>,
    pub cpu: Cpu,
}

/// What one client did.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientSample {
    /// Bytes that it moves in each direction when it works once.
    pub bytes: usize,
    pub done: Done,
}

/// Processor time, seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cpu {
    /// Of all clients.
    pub client: f64,
    /// Of all servers; `None` where they are not this measurement's own.
    pub server: Option<f64>,
}

/// The most memory that any process of a kind has held, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Peaks {
    pub client: u64,
    /// `None` where servers are not this measurement's own.
    pub server: Option<u64>,
}

impl Fleet {
    /// Starts the processes of a side and waits until all its clients are ready. Must be called on
    /// a thread that lives as long as the launcher.
    pub async fn start(
        names: Names,
        kind: &FleetKind,
        model: &Model,
        options: &StartOptions<'_>,
    ) -> anyhow::Result<Self> {
        let mut fleet = Self {
            names,
            servers: Vec::new(),
            addresses: Vec::new(),
            clients: Vec::new(),
            pipes: Vec::new(),
            ready: Vec::new(),
        };
        let authority = match kind {
            FleetKind::Exchange { tls: true, .. } => Some(Authority::new(options.run)?),
            _ => None,
        };
        fleet.start_servers(kind, model, options, authority.as_ref())?;
        fleet.start_clients(kind, model, options, authority.as_ref())?;
        let ready = tokio::time::timeout(READY, fleet.answers()).await;
        fleet.ready = ready.with_context(|| format!("clients are not ready after {READY:?}"))??;
        Ok(fleet)
    }

    /// Where the coordinator of its own servers is.
    pub fn coordinator(&self) -> &str {
        &self.addresses[0]
    }

    /// How many servers there are.
    pub fn servers(&self) -> usize {
        self.ready.first().map_or(0, |ready| ready.servers)
    }

    /// Has all clients work at once for `seconds`, and at least once each.
    pub async fn sample(&mut self, work: Work, seconds: f64) -> anyhow::Result<Sample> {
        let before = self.cpu()?;
        for pipe in &mut self.pipes {
            pipe.order(Order { work, seconds }).await;
        }
        let done: Vec<Done> = self.answers().await?;
        let after = self.cpu()?;
        let clients = self.ready.iter().zip(done).map(|(ready, done)| {
            let bytes = ready.bytes;
            ClientSample { bytes, done }
        });
        let server = before.server.zip(after.server);
        Ok(Sample {
            clients: clients.collect(),
            cpu: Cpu {
                client: after.client - before.client,
                server: server.map(|(before, after)| after - before),
            },
        })
    }

    /// The most memory that processes have held so far.
    pub fn peaks(&self) -> anyhow::Result<Peaks> {
        let most = |processes: &[Process]| {
            let peaks = processes.iter().map(|p| peak_rss_bytes(p.pid()));
            peaks
                .collect::<anyhow::Result<Vec<_>>>()
                .map(|all| all.into_iter().max())
        };
        Ok(Peaks {
            client: most(&self.clients)?.unwrap_or(0),
            server: most(&self.servers)?,
        })
    }

    /// Lets clients leave their run, and ends all processes.
    pub async fn end(mut self) -> anyhow::Result<()> {
        self.pipes.clear();
        let mut waited = Duration::ZERO;
        while waited < END {
            let mut running = false;
            for client in &mut self.clients {
                match client.poll()? {
                    Some(ended) if !ended.success => return Err(ended.into()),
                    ended => running |= ended.is_none(),
                }
            }
            if !running {
                break;
            }
            tokio::time::sleep(LOOK).await;
            waited += LOOK;
        }
        Ok(())
    }

    fn cpu(&self) -> anyhow::Result<Cpu> {
        let sum = |processes: &[Process]| -> anyhow::Result<f64> {
            processes.iter().map(|p| cpu_seconds(p.pid())).sum()
        };
        let own = !self.servers.is_empty();
        Ok(Cpu {
            client: sum(&self.clients)?,
            server: own.then(|| sum(&self.servers)).transpose()?,
        })
    }

    /// One line of every client.
    async fn answers<T: DeserializeOwned>(&mut self) -> anyhow::Result<Vec<T>> {
        let all = try_join_all(self.pipes.iter_mut().map(Pipe::answer));
        let casualty = casualty(self.servers.iter_mut().chain(&mut self.clients));
        tokio::pin!(casualty);
        let failed = tokio::select! {
            ended = &mut casualty => return Err(ended),
            answers = all => match answers {
                Ok(answers) => return Ok(answers),
                Err(error) => error,
            },
        };
        // A process that ends closes its output a moment before.
        match tokio::time::timeout(END, casualty).await {
            Ok(ended) => Err(ended),
            Err(_) => Err(failed),
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        Process::stop_all(self.clients.iter_mut().chain(&mut self.servers).collect());
    }
}

/// Waits until one of the processes has ended, which none should.
async fn casualty(processes: impl Iterator<Item = &mut Process>) -> anyhow::Error {
    let mut processes: Vec<_> = processes.collect();
    loop {
        for process in &mut processes {
            match process.poll() {
                Ok(None) => {}
                Ok(Some(ended)) => return ended.into(),
                Err(error) => return error,
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

impl Pipe {
    pub fn new(orders: ChildStdin, answers: ChildStdout) -> anyhow::Result<Self> {
        let answers = tokio::process::ChildStdout::from_std(answers)?;
        Ok(Self {
            orders: tokio::process::ChildStdin::from_std(orders)?,
            answers: BufReader::new(answers).lines(),
        })
    }

    /// To a client that has gone nothing is said; it is found, and named, when it does not answer.
    pub async fn order(&mut self, order: Order) {
        let line = format!("{order}\n");
        let _ = self.orders.write_all(line.as_bytes()).await;
    }

    /// Its next line.
    pub async fn answer<T: DeserializeOwned>(&mut self) -> anyhow::Result<T> {
        let Some(line) = self.answers.next_line().await? else {
            bail!("a client has closed its output");
        };
        serde_json::from_str(&line).with_context(|| format!("a client answered {line:?}"))
    }
}
