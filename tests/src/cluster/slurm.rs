//! A real Slurm cluster on this machine, as `deploy/slurm/cluster.sh up` brings it up, and runs on it.
//! There may be several, whose folders `SLURM_CLUSTER_DIRS` names: tests use them beside each other.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Condvar, LazyLock, Mutex, PoisonError};
use std::thread;

use serde_json::Value;
use tempfile::TempDir;
use tradewind_common::record::StepRecord;
use tradewind_common::run_files;

use super::run::{Run, records};
use super::{programs, root, wait_for};

/// What cluster.sh knows a cluster by.
const FOLDER: &str = "SLURM_CLUSTER_DIR";

/// The clusters that no test has: the folder of each, `None` for that of cluster.sh's own choice.
static FREE: LazyLock<Mutex<Vec<Option<OsString>>>> = LazyLock::new(|| {
    Mutex::new(match env::var_os("SLURM_CLUSTER_DIRS") {
        None => vec![env::var_os(FOLDER)],
        Some(folders) => env::split_paths(&folders)
            .map(|folder| Some(folder.into_os_string()))
            .collect(),
    })
});
static FREED: Condvar = Condvar::new();

/// A cluster, of which one test at a time has the nodes: n1 to n4 have CPUs, n5 to n8 what stands for GPUs
/// besides.
pub struct Slurm {
    folder: Option<OsString>,
}

/// A run that was handed in.
pub struct Submitted<'a> {
    slurm: &'a Slurm,
    folder: TempDir,
}

/// A line of squeue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// `4`, or `4+1` for a component.
    pub number: String,
    /// `RUNNING`, `PENDING`, …
    pub state: String,
    /// Its nodes, or why it has none.
    pub reason: String,
}

impl Slurm {
    /// A cluster, with all its nodes idle.
    ///
    /// # Panics
    /// If there is none.
    pub fn take() -> Self {
        let free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        let free = FREED.wait_while(free, |free| free.is_empty());
        let folder = free.unwrap_or_else(PoisonError::into_inner).pop();
        let slurm = Self {
            folder: folder.expect("it has waited for one"),
        };
        slurm.run(&["scancel", "--user=root"]);
        slurm.is_idle();
        slurm
    }

    /// Waits until all nodes are idle.
    pub fn is_idle(&self) {
        wait_for("all nodes to be idle", || {
            let told = self.run(&["sinfo", "--noheader", "--format=%T"]);
            (told.trim() == "idle").then_some(())
        });
    }

    /// What a command on the head prints.
    ///
    /// # Panics
    /// If it fails.
    pub fn run(&self, command: &[&str]) -> String {
        let output = self.call(command);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, errors) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{command:?}: {out}{errors}");
        out
    }

    /// The same, however it ends.
    pub fn call(&self, command: &[&str]) -> Output {
        let mut all = vec!["run"];
        all.extend_from_slice(command);
        self.cluster(&all)
    }

    /// What `tradewind` prints on the head.
    pub fn tradewind(&self, arguments: &[&str]) -> String {
        let program = programs().join("tradewind").display().to_string();
        self.run(&[&[program.as_str()], arguments].concat())
    }

    /// `off`, `on`, `cut` or `uncut` a node.
    pub fn node(&self, what: &str, node: &str) {
        let output = self.cluster(&[what, node]);
        assert!(output.status.success(), "{what} {node}: {output:?}");
    }

    /// Starts `tradewind` on the head in the background. Ending this process does not end it.
    pub fn start(&self, arguments: &[&str]) -> Child {
        let program = programs().join("tradewind").display().to_string();
        let mut command = self.script(&[&["run", program.as_str()], arguments].concat());
        command.stdout(Stdio::null()).stderr(Stdio::inherit());
        command.spawn().expect("the cluster's script starts")
    }

    /// Hands a run in.
    pub fn submit(&self, run: &Run) -> Submitted<'_> {
        self.handed_in("submit", run, &[])
    }

    /// Hands a run in and follows it to its end, while something else is done; what was shown.
    pub fn watch_beside(
        &self,
        run: &Run,
        meanwhile: impl FnOnce(&Submitted<'_>),
    ) -> (Submitted<'_>, String) {
        let submitted = self.prepare(run);
        let shown = thread::scope(|scope| {
            let watching = scope.spawn(|| submitted.hand_in("submit", &["--watch"]));
            meanwhile(&submitted);
            watching.join().expect("it is followed")
        });
        (submitted, shown)
    }

    /// Hands a run in and follows it to its end; what was shown.
    pub fn watch(&self, run: &Run) -> (Submitted<'_>, String) {
        self.watch_beside(run, |_| ())
    }

    /// Hands a run in that has its servers on a fleet.
    pub fn submit_on(&self, fleet: &Submitted<'_>, run: &Run) -> Submitted<'_> {
        self.handed_in("submit", run, &["--fleet", &fleet.path("out")])
    }

    /// Hands a fleet in, for runs whose servers are as this one's.
    pub fn serve(&self, run: &Run) -> Submitted<'_> {
        self.handed_in("serve", run, &[])
    }

    fn handed_in(&self, verb: &str, run: &Run, more: &[&str]) -> Submitted<'_> {
        let submitted = self.prepare(run);
        submitted.hand_in(verb, more);
        submitted
    }

    fn prepare(&self, run: &Run) -> Submitted<'_> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let submitted = Submitted {
            slurm: self,
            folder,
        };
        fs::write(submitted.file("config.toml"), run.text()).expect("the configuration is written");
        submitted
    }

    fn cluster(&self, arguments: &[&str]) -> Output {
        let output = self.script(arguments).output();
        output.expect("the cluster's script starts")
    }

    fn script(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(root().join("deploy/slurm/cluster.sh"));
        command.args(arguments).current_dir(root());
        if let Some(folder) = &self.folder {
            command.env(FOLDER, folder);
        }
        command
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        free.push(self.folder.take());
        FREED.notify_one();
    }
}

impl Submitted<'_> {
    /// What is printed about it.
    fn hand_in(&self, verb: &str, more: &[&str]) -> String {
        let (config, out) = (self.path("config.toml"), self.path("out"));
        self.slurm
            .tradewind(&[&["slurm", verb, &config, "--out", &out], more].concat())
    }

    /// The run's folder.
    pub fn out(&self) -> PathBuf {
        self.file("out")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn path(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }

    /// What `tradewind status` prints about it.
    pub fn status(&self) -> String {
        self.slurm.tradewind(&["status", &self.path("out")])
    }

    /// What has happened, oldest first, of which `tradewind status` shows the last dozen.
    pub fn events(&self) -> Vec<String> {
        let words = |event: Value| event["text"].as_str().expect("a text").to_owned();
        self.event_lines().into_iter().map(words).collect()
    }

    /// The same with all that is written of each.
    pub fn event_lines(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.out().join(run_files::EVENTS)).unwrap_or_default();
        let lines = text.lines().map(serde_json::from_str::<Value>);
        // The last line may be under way.
        lines.filter_map(Result::ok).collect()
    }

    /// Waits until an event has these words.
    pub fn tells(&self, words: &str) {
        wait_for(words, || {
            let mut events = self.events().into_iter();
            events.find(|event| event.contains(words))
        });
    }

    /// What a verb of `tradewind slurm` prints about this run.
    pub fn verb(&self, verb: &str, more: &[&str]) -> String {
        let out = self.path("out");
        self.slurm
            .tradewind(&[&["slurm", verb, out.as_str()], more].concat())
    }

    /// Exchanges, as far as they are written down.
    pub fn records(&self) -> Vec<StepRecord> {
        records(&self.out())
    }

    /// How far a group has come; `None` before its first exchange.
    pub fn clock(&self, group: u32) -> Option<u64> {
        let records = self.records();
        let own = records.iter().filter(|record| record.group == group);
        own.map(|record| record.clock).max()
    }

    /// Waits until a group has finished so many exchanges more.
    pub fn goes_on(&self, group: u32, exchanges: u64) {
        let before = self.clock(group);
        wait_for("exchanges of a group", || {
            let now = self.clock(group)?;
            (before.map_or(now, |before| now - before) >= exchanges).then_some(())
        });
    }

    /// The jobs that squeue shows of it.
    pub fn jobs(&self) -> Vec<Job> {
        let entries = fs::read_dir(self.file("out/slurm/jobs")).expect("it has jobs");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let names = names.filter_map(|name| name.into_string().ok());
        let numbers: Vec<String> = names
            .filter_map(|name| name.strip_suffix(".json").map(str::to_owned))
            .collect();
        let list = format!("--jobs={}", numbers.join(","));
        let format = "--format=%i|%T|%R";
        let told = self
            .slurm
            .run(&["squeue", "--noheader", "--states=all", format, &list]);
        let job = |line: &str| {
            let mut fields = line.split('|').map(|field| field.trim().to_owned());
            let mut next = || fields.next().expect("three fields");
            Job {
                number: next(),
                state: next(),
                reason: next(),
            }
        };
        told.lines().map(job).collect()
    }

    /// Waits for the end of the run; its summary.
    pub fn summary(&self) -> Value {
        let path = self.out().join("summary.json");
        let text = wait_for("the summary", || fs::read_to_string(&path).ok());
        serde_json::from_str(&text).expect("a summary")
    }

    /// Waits for an end of this kind: what is requeued has ended in another one before.
    pub fn summary_of(&self, status: &str) -> Value {
        let path = self.out().join("summary.json");
        wait_for("the summary", || {
            let summary: Value = serde_json::from_str(&fs::read_to_string(&path).ok()?).ok()?;
            (summary["status"] == status).then_some(summary)
        })
    }

    /// What the leading job has printed.
    pub fn log(&self) -> String {
        let logs = fs::read_dir(self.out().join("logs")).into_iter().flatten();
        let own = logs.flatten().map(|entry| entry.path());
        let name = |path: &Path| path.file_name().and_then(|n| n.to_str()).map(str::to_owned);
        let mut own: Vec<PathBuf> = own
            .filter(|path| name(path).is_some_and(|name| name.starts_with("slurm-")))
            .collect();
        own.sort();
        let texts = own
            .iter()
            .map(|path| fs::read_to_string(path).unwrap_or_default());
        texts.collect()
    }
}

impl Drop for Submitted<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
        let out = self.path("out");
        let program = programs().join("tradewind").display().to_string();
        // It may have no jobs any more.
        let _ = self.slurm.call(&[&program, "slurm", "cancel", &out]);
    }
}
