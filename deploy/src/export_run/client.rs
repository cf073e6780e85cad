//! The client of a service: which Python has it, and how it is told of a run.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;
use tradewind_folder::input::BadInput;

use super::content::Content;

/// A service that takes runs.
#[derive(Debug)]
pub(super) struct Service {
    /// As its makers write it.
    pub(super) name: &'static str,
    /// Of its client, for Python and for pip.
    pub(super) module: &'static str,
}

pub(super) const MLFLOW: Service = Service {
    name: "MLflow",
    module: "mlflow",
};

pub(super) const WANDB: Service = Service {
    name: "W&B",
    module: "wandb",
};

/// Speaks with the clients.
const SCRIPT: &str = include_str!("../../export-run/export_run.py");

/// Which Pythons may have a client, if none is named.
const PYTHONS: &[&str] = &["python3", "python", ".deps/export/bin/python"];

/// Ends with 0 where there is a client of this name.
const HAS: &str =
    "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)";

/// How much of the end of what a client complains of is told.
const TOLD_BYTES: usize = 2000;

/// What the script says, a line each.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Said {
    Done { done: u64, of: u64 },
    Told { told: String },
    Failed { failed: String },
}

/// A Python that has the client: the one that is named, or the first of those that may.
pub(super) fn python(service: &Service, named: Option<&Path>) -> anyhow::Result<PathBuf> {
    let Service { name, module } = service;
    if let Some(named) = named {
        return match has(named, service) {
            Ok(true) => Ok(named.into()),
            Ok(false) => {
                let named = named.display();
                let told = format!(
                    "{named} does not have {name}'s client: {named} -m pip install {module}"
                );
                Err(BadInput(told).into())
            }
            Err(error) => {
                Err(BadInput(format!("{} does not run: {error}", named.display())).into())
            }
        };
    }
    let mut all = PYTHONS.iter().map(Path::new);
    let found = all.find(|python| has(python, service).unwrap_or(false));
    let found = found.map(Path::to_owned);
    found.ok_or_else(|| {
        let told = format!(
            "no Python here has {name}'s client (looked at {}): `pip install {module}` into one of them, `make \
             export-clients` in a source tree of Tradewind, or name one that has it with --python",
            PYTHONS.join(", ")
        );
        BadInput(told).into()
    })
}

fn has(python: &Path, service: &Service) -> io::Result<bool> {
    let mut command = command(python, HAS, &[service.module]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Ok(command.status()?.success())
}

fn command(python: &Path, script: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(python);
    // A folder named as the client, where this is called, is not taken for it.
    command.env("PYTHONSAFEPATH", "1");
    command.args(["-c", script]).args(arguments);
    command
}

/// Hands a run to a service; what there is to say of it.
pub(super) fn export(
    python: &Path,
    service: &Service,
    target: &str,
    content: &Content,
) -> anyhow::Result<String> {
    let mut command = command(python, SCRIPT, &[service.module, target]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let client = command.stderr(Stdio::piped()).spawn();
    let mut client = client.with_context(|| format!("{} does not run", python.display()))?;
    let stderr = client.stderr.take().expect("it is a pipe");
    // Not supervised: it ends with the client, whose end is waited for.
    let complaints = std::thread::spawn(move || end_of(stderr));
    // A client that has ended reads no more, and has said why.
    let _ = content.write(client.stdin.take().expect("it is a pipe"));
    let said = listen(&mut client);
    let status = client.wait()?;
    match said? {
        Some(Ok(told)) if status.success() => Ok(told),
        Some(Err(failed)) => bail!("{} at {target}: {failed}", service.name),
        _ => {
            let complaints = complaints.join().unwrap_or_default();
            let complaints = String::from_utf8_lossy(&complaints);
            let python = python.display();
            let name = service.name;
            bail!(
                "{name}'s client has failed ({python}: {status})\n{}",
                complaints.trim()
            )
        }
    }
}

/// Shows how far the client is until it ends; what it says at last.
fn listen(client: &mut Child) -> io::Result<Option<Result<String, String>>> {
    let style = ProgressStyle::with_template("exporting {wide_bar} {pos}/{len}");
    let bar = ProgressBar::new(0).with_style(style.expect("the template is right"));
    let mut last = None;
    for line in BufReader::new(client.stdout.take().expect("it is a pipe")).lines() {
        // What is not for people is what a library prints.
        match serde_json::from_str(&line?) {
            Ok(Said::Done { done, of }) => {
                bar.set_length(of);
                bar.set_position(done);
            }
            Ok(Said::Told { told }) => last = Some(Ok(told)),
            Ok(Said::Failed { failed }) => last = Some(Err(failed)),
            Err(_) => {}
        }
    }
    bar.finish_and_clear();
    Ok(last)
}

/// Reads until the client ends, so that it never waits; gives the last bytes.
fn end_of(mut stderr: impl Read) -> Vec<u8> {
    let (mut kept, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(bytes @ 1..) = stderr.read(&mut piece) {
        kept.extend_from_slice(&piece[..bytes]);
        kept.drain(..kept.len().saturating_sub(TOLD_BYTES));
    }
    kept
}

impl Content {
    /// As the script reads it.
    fn write(&self, to: impl Write) -> io::Result<()> {
        let mut to = io::BufWriter::new(to);
        serde_json::to_writer(&mut to, &self.about)?;
        for point in &self.points {
            to.write_all(b"\n")?;
            serde_json::to_writer(&mut to, point)?;
        }
        to.flush()
    }
}
