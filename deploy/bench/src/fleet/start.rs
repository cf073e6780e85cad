//! How the processes of a side are started.

use std::path::{Path, PathBuf};

use super::{Fleet, Kind, Pipe};
use crate::floor;
use crate::model::Model;
use tradewind_launch::{Process, Role, bare_host, beside, environment, wait_for_address};

/// What processes of every side are started with.
#[derive(Clone, Debug)]
pub struct Ground<'a> {
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
        kind: &Kind,
        model: &Model,
        ground: &Ground<'_>,
    ) -> anyhow::Result<()> {
        let (Kind::Exchange { servers } | Kind::Floor { servers }) = *kind else {
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
                (Kind::Floor { .. }, _) => {
                    arguments.insert(0, "floor-server".into());
                    arguments.push(format!("--index={index}"));
                    arguments.extend(plan(model, servers).arguments());
                    helper()?
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

    pub(super) fn start_clients(
        &mut self,
        kind: &Kind,
        model: &Model,
        ground: &Ground<'_>,
    ) -> anyhow::Result<()> {
        for index in 0..model.clients {
            let attached = |coordinator: &str| {
                let mut arguments = vec!["client".into()];
                arguments.extend(model.arguments());
                arguments.push(format!("--coordinator={coordinator}"));
                arguments.push(format!("--run={}", ground.run));
                arguments
            };
            let mut arguments = match kind {
                Kind::Exchange { .. } => attached(&self.addresses[0]),
                Kind::Attached { coordinator } => attached(coordinator),
                Kind::Floor { servers } => {
                    let mut arguments = vec!["floor-client".into()];
                    arguments.extend(plan(model, *servers).arguments());
                    let addresses = self.addresses.iter();
                    arguments.extend(addresses.map(|address| format!("--server={address}")));
                    arguments
                }
            };
            arguments.push(format!("--index={index}"));
            let (program, arguments) = ground.wrapped("client", index, helper()?, arguments);
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
}

/// The program whose verbs are `Helper`.
fn helper() -> anyhow::Result<PathBuf> {
    beside("tradewind-bench")
}

fn plan(model: &Model, servers: u32) -> floor::Plan {
    floor::Plan {
        model: model.clone(),
        servers,
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
