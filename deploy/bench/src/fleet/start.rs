//! How the processes of a side are started.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context;
use tradewind_common::identity::Identity;
use tradewind_common::{GroupId, Rank, RunId};
use tradewind_proto::authority::Authority;

use super::{Fleet, FleetKind, Pipe};
use crate::floor;
use crate::model::Model;
use tradewind_launch::{Process, Role, bare_host, beside, environment, wait_for_address};
use tradewind_programs::SERVER;
use tradewind_programs::server::{CoordinatorAt, ServerArguments};
use tradewind_programs::worker::THREADS;

/// What processes of every side are started with.
#[derive(Clone, Debug)]
pub struct StartOptions<'a> {
    /// For logs and addresses.
    pub folder: &'a Path,
    /// The fleet's token.
    pub token: &'a str,
    /// Name of the run.
    pub run: &'a str,
    /// Words before the command of every process; empty for none.
    pub wrap: &'a str,
    /// Where servers listen.
    pub host: &'a str,
    /// Threads of a server.
    pub server_threads: usize,
}

impl Fleet {
    pub(super) fn start_servers(
        &mut self,
        kind: &FleetKind,
        model: &Model,
        options: &StartOptions<'_>,
        authority: Option<&Authority>,
    ) -> anyhow::Result<()> {
        let (FleetKind::Exchange { servers, .. } | FleetKind::Floor { servers }) = *kind else {
            return Ok(());
        };
        for index in 0..servers {
            let role = Role::Bench(self.names.server, index);
            let file = options.file(role, "address");
            let host = fill(options.host, "server", index);
            let listen = format!("{}:0", bare_host(&host));
            let (program, arguments) = if let FleetKind::Floor { .. } = kind {
                let mut arguments = vec![
                    "floor-server".into(),
                    format!("--listen={listen}"),
                    format!("--address-file={}", file.display()),
                    format!("--threads={}", options.server_threads),
                    format!("--index={index}"),
                ];
                arguments.extend(plan(model, servers).arguments());
                let arguments = arguments.into_iter().map(OsString::from).collect();
                (helper()?, arguments)
            } else {
                let coordinator = match self.addresses.first() {
                    None => CoordinatorAt::Here { servers },
                    Some(coordinator) => CoordinatorAt::Elsewhere(coordinator.clone()),
                };
                // Nothing is kept: a disk is not what is measured.
                let arguments = ServerArguments {
                    listen,
                    address_file: Some(file.clone()),
                    threads: options.server_threads,
                    ..ServerArguments::plain(index, coordinator)
                };
                (beside(SERVER)?, arguments.words())
            };
            let (program, arguments) = options.wrapped("server", index, program, arguments);
            let log = options.file(role, "log");
            let environment = options.environment(authority, &Identity::Server(None))?;
            let mut process = Process::start(role, &program, &arguments, &environment, &log)?;
            let address = wait_for_address(&mut process, &file);
            self.servers.push(process);
            self.addresses.push(address?);
        }
        Ok(())
    }

    pub(super) fn start_clients(
        &mut self,
        kind: &FleetKind,
        model: &Model,
        options: &StartOptions<'_>,
        authority: Option<&Authority>,
    ) -> anyhow::Result<()> {
        for index in 0..model.clients {
            let attached = |coordinator: &str| {
                let mut arguments = vec!["client".into()];
                arguments.extend(model.arguments());
                arguments.push(format!("--coordinator={coordinator}"));
                arguments.push(format!("--run={}", options.run));
                arguments
            };
            let mut arguments = match kind {
                FleetKind::Exchange { .. } => attached(&self.addresses[0]),
                FleetKind::Attached { coordinator } => attached(coordinator),
                FleetKind::Floor { servers } => {
                    let mut arguments = vec!["floor-client".into()];
                    arguments.extend(plan(model, *servers).arguments());
                    let addresses = self.addresses.iter();
                    arguments.extend(addresses.map(|address| format!("--server={address}")));
                    arguments
                }
            };
            arguments.push(format!("--index={index}"));
            let arguments = arguments.into_iter().map(OsString::from).collect();
            let (program, arguments) = options.wrapped("client", index, helper()?, arguments);
            let role = Role::Bench(self.names.client, index);
            let log = options.file(role, "log");
            let (group, rank) = if model.group { (0, index) } else { (index, 0) };
            let identity = Identity::Rank {
                run: RunId::new(options.run)?,
                group: GroupId(group),
                rank: Some(Rank(rank)),
            };
            let environment = options.environment(authority, &identity)?;
            let (process, orders, answers) =
                Process::start_piped(role, &program, &arguments, &environment, &log)?;
            self.clients.push(process);
            self.pipes.push(Pipe::new(orders, answers)?);
        }
        Ok(())
    }
}

/// The program whose verbs are `Helper`.
fn helper() -> anyhow::Result<PathBuf> {
    beside("tradewind-bench")
}

fn plan(model: &Model, servers: u32) -> floor::FloorPlan {
    floor::FloorPlan {
        model: model.clone(),
        servers,
    }
}

impl StartOptions<'_> {
    /// What a process is told, with a certificate where there is an authority.
    fn environment(
        &self,
        authority: Option<&Authority>,
        identity: &Identity,
    ) -> anyhow::Result<BTreeMap<&'static str, String>> {
        let pass = authority.map(|authority| authority.pass(identity));
        let pass = pass.transpose().context("no certificate can be issued")?;
        Ok(environment(self.token, pass.as_deref(), THREADS))
    }

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
        arguments: Vec<OsString>,
    ) -> (PathBuf, Vec<OsString>) {
        let words = fill(self.wrap, role, index);
        let mut words = words.split_whitespace().map(OsString::from);
        let Some(first) = words.next() else {
            return (program, arguments);
        };
        let own = std::iter::once(program.into_os_string());
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
        let options = StartOptions {
            folder: Path::new("/f"),
            token: "",
            run: "r",
            wrap: "ip netns exec tw-{role}{index}",
            host: "",
            server_threads: 1,
        };
        let (program, arguments) =
            options.wrapped("client", 3, "/bin/tradewind".into(), vec!["bench".into()]);
        assert_eq!(program, Path::new("ip"));
        assert_eq!(
            arguments,
            ["netns", "exec", "tw-client3", "/bin/tradewind", "bench"]
        );
        let plain = StartOptions {
            wrap: "",
            ..options
        };
        let (program, arguments) = plain.wrapped("client", 3, "/p".into(), vec!["bench".into()]);
        assert_eq!(
            (program.as_path(), arguments),
            (Path::new("/p"), vec!["bench".into()])
        );
        let file = plain.file(Role::Bench("floor server", 1), "log");
        assert_eq!(file, Path::new("/f/floor-server-1.log"));
    }
}
