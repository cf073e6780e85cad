//! One side of a measurement: server processes and the client processes that obey orders. An
//! exchange's fleet and the floor's are the same to whoever measures.

use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout};
use std::time::Duration;

use anyhow::{Context, bail};
use futures_util::future::try_join_all;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};

use super::floor;
use super::model::Model;
use super::orders::{Done, Order, Ready, Work};
use super::usage::{cpu_seconds, peak_rss_bytes};
use crate::launch::{LOOK, Process, Role, bare_host, beside, environment, wait_for_address};

/// How long a client that has closed its output may take to end.
const END: Duration = Duration::from_secs(2);

/// How long clients may take until they are ready.
const READY: Duration = Duration::from_secs(120);

/// What processes of every side are started with.
#[derive(Clone, Debug)]
pub(crate) struct Ground<'a> {
    /// For logs and addresses.
    pub(crate) folder: &'a Path,
    /// The fleet's token.
    pub(crate) token: &'a str,
    /// Name of the run.
    pub(crate) run: &'a str,
    /// Words before the command of every process; empty for none.
    pub(crate) wrap: &'a str,
    /// Where servers listen.
    pub(crate) host: &'a str,
    /// Threads of a server.
    pub(crate) server_threads: usize,
}

/// What a side is made of.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// `tradewind-server`, so many, and clients that exchange with them.
    Exchange { servers: u32 },
    /// Clients that exchange with the fleet whose coordinator is at this address.
    Attached { coordinator: String },
    /// Servers of bare TCP, and clients with so many connections to each.
    Floor { servers: u32, connections: u32 },
}

/// What servers and clients of a side are called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names {
    pub(crate) server: &'static str,
    pub(crate) client: &'static str,
}

/// Processes that measure. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Fleet {
    names: Names,
    servers: Vec<Process>,
    addresses: Vec<String>,
    clients: Vec<Process>,
    pipes: Vec<Pipe>,
    ready: Vec<Ready>,
}

/// The lines to and from a client.
#[derive(Debug)]
struct Pipe {
    orders: tokio::process::ChildStdin,
    answers: Lines<BufReader<tokio::process::ChildStdout>>,
}

/// What all clients of a side did at once.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    pub(crate) clients: Vec<ClientSample>,
    pub(crate) cpu: Cpu,
}

/// What one client did.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClientSample {
    /// Bytes that it moves in each direction when it works once.
    pub(crate) bytes: usize,
    pub(crate) done: Done,
}

/// Processor time, seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cpu {
    /// Of all clients.
    pub(crate) client: f64,
    /// Of all servers; `None` where they are not this measurement's own.
    pub(crate) server: Option<f64>,
}

/// The most memory that any process of a kind has held, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Peaks {
    pub(crate) client: u64,
    /// `None` where servers are not this measurement's own.
    pub(crate) server: Option<u64>,
}

impl Fleet {
    /// Starts the processes of a side and waits until all its clients are ready. Must be called on
    /// a thread that lives as long as the launcher.
    pub(crate) async fn start(
        names: Names,
        kind: &Kind,
        model: &Model,
        ground: &Ground<'_>,
    ) -> anyhow::Result<Self> {
        let mut fleet = Self {
            names,
            servers: Vec::new(),
            addresses: Vec::new(),
            clients: Vec::new(),
            pipes: Vec::new(),
            ready: Vec::new(),
        };
        fleet.start_servers(kind, model, ground)?;
        fleet.start_clients(kind, model, ground)?;
        let ready = tokio::time::timeout(READY, fleet.answers()).await;
        fleet.ready = ready.with_context(|| format!("clients are not ready after {READY:?}"))??;
        Ok(fleet)
    }

    /// How many servers there are.
    pub(crate) fn servers(&self) -> usize {
        self.ready.first().map_or(0, |ready| ready.servers)
    }

    /// Has all clients work at once for `seconds`, and at least once each.
    pub(crate) async fn sample(&mut self, work: Work, seconds: f64) -> anyhow::Result<Sample> {
        let before = self.cpu()?;
        let order = format!("{}\n", Order { work, seconds });
        for pipe in &mut self.pipes {
            // One that has gone is found, and named, when it does not answer.
            let _ = pipe.orders.write_all(order.as_bytes()).await;
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
    pub(crate) fn peaks(&self) -> anyhow::Result<Peaks> {
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
    pub(crate) async fn end(mut self) -> anyhow::Result<()> {
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

    fn start_servers(
        &mut self,
        kind: &Kind,
        model: &Model,
        ground: &Ground<'_>,
    ) -> anyhow::Result<()> {
        let (Kind::Exchange { servers } | Kind::Floor { servers, .. }) = *kind else {
            return Ok(());
        };
        for index in 0..servers {
            let role = Role::Bench(self.names.server, index);
            let file = ground.file(role, "address");
            let host = fill(ground.host, "server", index);
            let mut arguments = vec![
                format!("--listen={}:0", bare_host(&host)),
                format!("--address-file={}", file.display()),
                format!("--threads={}", ground.server_threads),
            ];
            let program = match (kind, self.addresses.first()) {
                (Kind::Floor { connections, .. }, _) => {
                    arguments.splice(0..0, ["bench".into(), "floor-server".into()]);
                    arguments.push(format!("--index={index}"));
                    arguments.extend(plan(model, servers, *connections).arguments());
                    std::env::current_exe()?
                }
                (_, first) => {
                    arguments.push(format!("--server={index}"));
                    arguments.push(match first {
                        None => format!("--coordinate={servers}"),
                        Some(coordinator) => format!("--coordinator={coordinator}"),
                    });
                    beside("tradewind-server")?
                }
            };
            let (program, arguments) = ground.wrapped("server", index, program, arguments);
            let log = ground.file(role, "log");
            let environment = environment(ground.token);
            let mut server = Process::start(role, &program, &arguments, &environment, &log)?;
            let address = wait_for_address(&mut server, &file);
            self.servers.push(server);
            self.addresses.push(address?);
        }
        Ok(())
    }

    fn start_clients(
        &mut self,
        kind: &Kind,
        model: &Model,
        ground: &Ground<'_>,
    ) -> anyhow::Result<()> {
        for index in 0..model.clients {
            let mut arguments = vec!["bench".into()];
            let attached = |coordinator: &str| {
                let mut arguments = vec!["client".into()];
                arguments.extend(model.arguments());
                arguments.push(format!("--coordinator={coordinator}"));
                arguments.push(format!("--run={}", ground.run));
                arguments
            };
            arguments.extend(match kind {
                Kind::Exchange { .. } => attached(&self.addresses[0]),
                Kind::Attached { coordinator } => attached(coordinator),
                Kind::Floor {
                    servers,
                    connections,
                } => {
                    let mut arguments = vec!["floor-client".into()];
                    arguments.extend(plan(model, *servers, *connections).arguments());
                    let addresses = self.addresses.iter();
                    arguments.extend(addresses.map(|address| format!("--server={address}")));
                    arguments
                }
            });
            arguments.push(format!("--index={index}"));
            let program = std::env::current_exe()?;
            let (program, arguments) = ground.wrapped("client", index, program, arguments);
            let role = Role::Bench(self.names.client, index);
            let log = ground.file(role, "log");
            let environment = environment(ground.token);
            let (process, orders, answers) =
                Process::start_piped(role, &program, &arguments, &environment, &log)?;
            self.clients.push(process);
            self.pipes.push(Pipe::new(orders, answers)?);
        }
        Ok(())
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

fn plan(model: &Model, servers: u32, connections: u32) -> floor::Plan {
    floor::Plan {
        model: model.clone(),
        servers,
        connections,
    }
}

impl Pipe {
    fn new(orders: ChildStdin, answers: ChildStdout) -> anyhow::Result<Self> {
        let answers = tokio::process::ChildStdout::from_std(answers)?;
        Ok(Self {
            orders: tokio::process::ChildStdin::from_std(orders)?,
            answers: BufReader::new(answers).lines(),
        })
    }

    async fn answer<T: DeserializeOwned>(&mut self) -> anyhow::Result<T> {
        let Some(line) = self.answers.next_line().await? else {
            bail!("a client has closed its output");
        };
        serde_json::from_str(&line).with_context(|| format!("a client answered {line:?}"))
    }
}

impl Ground<'_> {
    /// A file of a process.
    fn file(&self, role: Role, extension: &str) -> PathBuf {
        let name = role.to_string().replace(' ', "-");
        self.folder.join(format!("{name}.{extension}"))
    }

    /// A command behind the words that every process is started with.
    fn wrapped(
        &self,
        role: &str,
        index: u32,
        program: PathBuf,
        arguments: Vec<String>,
    ) -> (PathBuf, Vec<String>) {
        let words = fill(self.wrap, role, index);
        let mut words = words.split_whitespace().map(str::to_owned);
        let Some(first) = words.next() else {
            return (program, arguments);
        };
        let own = std::iter::once(program.display().to_string());
        (first.into(), words.chain(own).chain(arguments).collect())
    }
}

/// Puts the names of a process into a template.
fn fill(template: &str, role: &str, index: u32) -> String {
    template
        .replace("{role}", role)
        .replace("{index}", &index.to_string())
        .replace("{index1}", &(index + 1).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_name_role_and_index() {
        assert_eq!(fill("10.77.0.{index1}", "server", 2), "10.77.0.3");
        let ground = Ground {
            folder: Path::new("/f"),
            token: "",
            run: "r",
            wrap: "ip netns exec tw-{role}{index}",
            host: "",
            server_threads: 1,
        };
        let (program, arguments) =
            ground.wrapped("client", 3, "/bin/tradewind".into(), vec!["bench".into()]);
        assert_eq!(program, Path::new("ip"));
        assert_eq!(
            arguments,
            ["netns", "exec", "tw-client3", "/bin/tradewind", "bench"]
        );
        let plain = Ground { wrap: "", ..ground };
        let (program, arguments) = plain.wrapped("client", 3, "/p".into(), vec!["bench".into()]);
        assert_eq!(
            (program.as_path(), arguments),
            (Path::new("/p"), vec!["bench".into()])
        );
        let file = plain.file(Role::Bench("floor server", 1), "log");
        assert_eq!(file, Path::new("/f/floor-server-1.log"));
    }
}
