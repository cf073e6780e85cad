//! A run of `tradewind run`, or of `tradewind experiment`, in a folder of its own.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use tradewind_common::environment::OMP_NUM_THREADS;
use tradewind_common::record::StepRecord;
use tradewind_config::Config;

use super::process::{alive, signal};
use super::{programs, root, wait_for};

/// A small configuration, and how it is run.
pub struct Run {
    folder: TempDir,
    keys: Vec<(String, String)>,
    /// An experiment's file; the configuration is its base.
    experiment: Option<String>,
    arguments: Vec<String>,
    environment: Vec<(String, OsString)>,
    /// Where libraries are looked for first.
    libraries: Option<PathBuf>,
}

/// A row of `processes.json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// `server` or `worker`.
    pub role: String,
    /// Number of a server, global rank of a worker.
    pub index: u64,
    /// A worker's group.
    pub group: Option<u64>,
    /// A worker's rank in its group.
    pub group_rank: Option<u64>,
    /// Its process.
    pub pid: u32,
    /// Where it listens.
    pub address: String,
}

/// A run that has been started.
pub struct Running {
    run: Run,
    child: Child,
}

/// A run that has ended.
pub struct Ended {
    run: Run,
    /// How the launcher ended.
    pub status: ExitStatus,
    /// What it printed.
    pub stdout: String,
    /// What it complained about.
    pub stderr: String,
}

impl Default for Run {
    fn default() -> Self {
        Self::new()
    }
}

impl Run {
    /// One server and one group of one rank on the CPU, a very small network, a budget of 8 steps.
    pub fn new() -> Self {
        let data = root().join(".deps/data/E1_north_america.nc");
        let keys = [
            ("run.name", "\"small\"".into()),
            // What is expected of it holds bit for bit on every machine.
            ("compute.device", "\"cpu\"".into()),
            ("model.channels", "2".into()),
            ("model.depth", "0".into()),
            ("data.files", format!("[{:?}]", data.display().to_string())),
            ("data.variable", "\"air_temperature\"".into()),
            ("data.validation", "[180, 190]".into()),
            ("data.held_out", "[200, 210]".into()),
            ("train.samples", "64".into()),
            ("optimizer.learning_rate", "0.01".into()),
            ("exchange.block_bytes", "256".into()),
            ("exchange.bucket_bytes", "512".into()),
        ];
        Self::with_keys(
            keys.map(|(name, value): (&str, String)| (name.into(), value))
                .into(),
        )
    }

    /// The same without a model and without data: a script brings them, which the command line names.
    pub fn script() -> Self {
        let mut run = Self::new();
        run.keys
            .retain(|(key, _)| !key.starts_with("model.") && !key.starts_with("data."));
        run
    }

    /// A run of a configuration that is shipped.
    ///
    /// # Panics
    /// If it cannot be read.
    pub fn shipped(name: &str) -> Self {
        let path = root().join("deploy/configs").join(name);
        let text = fs::read_to_string(&path).expect("a configuration that is shipped");
        let folder = path.parent().expect("a folder");
        let config = Config::parse(&text, name, folder, &[]).expect("it is right");
        let mut section = "";
        let mut keys = Vec::new();
        let resolved = config.resolved();
        for line in resolved.lines() {
            if let Some((key, value)) = line.split_once(" = ") {
                keys.push((format!("{section}.{key}"), value.to_owned()));
            } else if let Some(rest) = line.strip_prefix('[') {
                section = rest.trim_end_matches(']');
            }
        }
        Self::with_keys(keys)
    }

    fn with_keys(keys: Vec<(String, String)>) -> Self {
        Self {
            folder: tempfile::tempdir().expect("a temporary folder"),
            keys,
            experiment: None,
            arguments: Vec::new(),
            environment: Vec::new(),
            libraries: None,
        }
    }

    /// A run that goes on until it is ended.
    pub fn endless() -> Self {
        Self::new().key("train.samples", "1000000000000")
    }

    /// Sets a key; the value is TOML.
    #[must_use]
    pub fn key(mut self, name: &str, value: impl Into<String>) -> Self {
        self.keys.retain(|(key, _)| key != name);
        self.keys.push((name.to_owned(), value.into()));
        self
    }

    /// Makes the configuration the base, `config.toml`, of this experiment.
    #[must_use]
    pub fn experiment(mut self, text: impl Into<String>) -> Self {
        self.experiment = Some(text.into());
        self
    }

    /// Adds an argument of the command line.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Sets a variable for the launcher and all that it starts.
    #[must_use]
    pub fn variable(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// Has libraries looked for in this folder first.
    #[must_use]
    pub fn libraries(mut self, folder: &Path) -> Self {
        self.libraries = Some(folder.to_owned());
        self
    }

    /// The folder that holds the configuration and the run's folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The run's folder.
    pub fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    /// The configuration as it is written.
    pub fn text(&self) -> String {
        let mut keys = self.keys.clone();
        keys.sort();
        let mut text = String::new();
        for (name, value) in keys {
            let _ = writeln!(text, "{name} = {value}");
        }
        text
    }

    /// Starts it in the background.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(self) -> Running {
        let file = |name: &str| self.folder.path().join(name);
        fs::write(file("config.toml"), self.text()).expect("the configuration is written");
        let mut verb = ("run", "config.toml");
        if let Some(text) = &self.experiment {
            verb = ("experiment", "experiment.toml");
            fs::write(file(verb.1), text).expect("the experiment is written");
        }
        let output = |name| File::create(file(name)).expect("a file for output");
        let mut command = Command::new(programs().join("tradewind"));
        match &self.libraries {
            Some(folder) => command.env("LD_LIBRARY_PATH", folder),
            None => command.env_remove("LD_LIBRARY_PATH"),
        };
        let child = command
            // That of the tests is not a person's choice.
            .env_remove(OMP_NUM_THREADS)
            .arg(verb.0)
            .arg(file(verb.1))
            .arg("--out")
            .arg(self.out())
            .args(&self.arguments)
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(output("stdout"))
            .stderr(output("stderr"))
            .spawn()
            .expect("tradewind starts");
        Running { run: self, child }
    }

    /// Runs it to its end.
    pub fn complete(self) -> Ended {
        self.start().end()
    }
}

impl Running {
    /// The launcher's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The run's folder.
    pub fn out(&self) -> PathBuf {
        self.run.out()
    }

    /// Whether the launcher has ended.
    ///
    /// # Panics
    /// If the system cannot tell.
    pub fn over(&mut self) -> bool {
        let status = self.child.try_wait();
        status.expect("a child can be waited for").is_some()
    }

    /// `metrics.jsonl` as far as it has been written.
    pub fn records(&self) -> Vec<StepRecord> {
        records(&self.out())
    }

    /// The processes, once they have been started.
    pub fn processes(&mut self) -> Vec<Row> {
        let path = self.out().join("processes.json");
        self.wait("processes.json", |_| fs::read_to_string(&path).ok());
        rows(&self.out())
    }

    /// Waits until every group has exchanged something.
    pub fn trains(&mut self, groups: u32) -> Vec<Row> {
        let processes = self.processes();
        self.wait("a first exchange of every group", |out| {
            let records = records(out);
            let has = |group| records.iter().any(|record| record.group == group);
            (0..groups).all(has).then_some(())
        });
        processes
    }

    /// Waits for the launcher's end.
    pub fn end(mut self) -> Ended {
        let status = wait_for("the end of the run", || {
            self.child.try_wait().expect("a child can be waited for")
        });
        let text = |name: &str| {
            let path = self.run.folder.path().join(name);
            fs::read_to_string(path).expect("the output is text")
        };
        let (stdout, stderr) = (text("stdout"), text("stderr"));
        let run = std::mem::take(&mut self.run);
        Ended {
            run,
            status,
            stdout,
            stderr,
        }
    }

    /// Waits until there is a file in its folder.
    pub fn leaves(&mut self, name: &str) {
        self.wait(name, |out| out.join(name).exists().then_some(()));
    }

    fn wait<T>(&mut self, what: &str, mut look: impl FnMut(&Path) -> Option<T>) -> T {
        let out = self.out();
        wait_for(what, || {
            if let Some(found) = look(&out) {
                return Some(found);
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                let path = self.run.folder.path().join("stderr");
                let stderr = fs::read_to_string(path).unwrap_or_default();
                panic!("the run ended ({status}) before {what}:\n{stderr}");
            }
            None
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if self.out().join("processes.json").exists() {
            for row in rows(&self.out()) {
                if alive(row.pid) && !std::thread::panicking() {
                    // They die with the launcher; a moment may pass.
                    wait_for("the end of a process of the run", || {
                        (!alive(row.pid)).then_some(())
                    });
                }
            }
        }
    }
}

impl Ended {
    /// The run's folder.
    pub fn out(&self) -> PathBuf {
        self.run.out()
    }

    /// A JSON file of the run's folder.
    pub fn json(&self, name: &str) -> Value {
        let path = self.out().join(name);
        let text = fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}\n{}", path.display(), self.stderr));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// `summary.json`.
    pub fn summary(&self) -> Value {
        self.json("summary.json")
    }

    /// `metrics.jsonl`.
    pub fn records(&self) -> Vec<StepRecord> {
        records(&self.out())
    }

    /// `processes.json`.
    pub fn processes(&self) -> Vec<Row> {
        rows(&self.out())
    }

    /// The folder back, to run in it again.
    pub fn again(self) -> Run {
        self.run
    }
}

/// Ends a process without asking it.
pub fn kill(pid: u32) {
    signal(pid, Signal::KILL);
}

/// Whole lines only: the last one may be under way.
pub(super) fn records(out: &Path) -> Vec<StepRecord> {
    let text = fs::read_to_string(out.join("metrics.jsonl")).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let parse = |line| serde_json::from_str(line).expect("a line of metrics.jsonl");
    whole.lines().map(parse).collect()
}

fn rows(out: &Path) -> Vec<Row> {
    let text = fs::read_to_string(out.join("processes.json")).expect("processes.json");
    let rows: Vec<Value> = serde_json::from_str(&text).expect("processes.json is a list");
    let row = |row: &Value| Row {
        role: row["role"].as_str().expect("a role").to_owned(),
        index: row["index"].as_u64().expect("an index"),
        group: row["group"].as_u64(),
        group_rank: row["group_rank"].as_u64(),
        pid: row["pid"].as_u64().expect("a pid") as u32,
        address: row["address"].as_str().expect("an address").to_owned(),
    };
    rows.iter().map(row).collect()
}
