//! `tradewind run`: a whole run on this machine.

use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tradewind_common::config::Config;
use tradewind_common::record::{Evaluation, StepRecord};
use tradewind_proto::auth::Token;

use crate::cluster::{self, ClusterStatus};
use crate::config::{self, EXIT_BAD_INPUT};
use crate::folder::RunFolder;
use crate::launch::{Ended, LOOK, Local, Process, Programs, Role, environment};
use crate::progress::Progress;
use crate::report::forecast::draw_forecast;
use crate::report::loss::{draw_loss, read_metrics};
use crate::report::maps::Maps;
use crate::report::table;
use crate::summary::{Fault, Inputs, Status, Summary};

/// Exit status after an interruption, as shells have it for Ctrl-C.
const EXIT_INTERRUPTED: u8 = 130;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The configuration.
    config: PathBuf,
    /// Override a key: key=value. May be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The run's folder; runs/<name> if not given.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// How watching a run came to its end.
enum Outcome {
    Completed,
    Failed(Box<Ended>),
    Interrupted,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let config = match config::read(&arguments.config, &arguments.set) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("{error:#}");
            return ExitCode::from(EXIT_BAD_INPUT);
        }
    };
    // One thread: children die with the thread that started them.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let ran = runtime.map_err(Into::into).and_then(|runtime| {
        let out = arguments.out.clone();
        let out = out.unwrap_or_else(|| Path::new("runs").join(config.name.as_str()));
        runtime.block_on(launch(&config, &out))
    });
    match ran {
        Ok(Status::Completed) => ExitCode::SUCCESS,
        Ok(Status::Failed) => ExitCode::FAILURE,
        Ok(Status::Interrupted) => ExitCode::from(EXIT_INTERRUPTED),
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the launcher's clock")]
async fn launch(config: &Config, out: &Path) -> anyhow::Result<Status> {
    let began = Instant::now();
    let programs = Programs::find()?;
    let folder = RunFolder::create(out)?;
    if let Some(moved) = &folder.moved {
        println!("a former run of this name was moved to {}", moved.display());
    }
    folder.write("config.toml", config.resolved())?;
    let token = secret()?;
    folder.write_secret("token", &token)?;
    let mut interruption = Interruption::new()?;
    let helpers = Helpers {
        programs: &programs,
        folder: &folder,
        token: &token,
    };
    // Until it has passed, nothing was started and there is no run to keep.
    match helpers
        .run(Role::Check, &["check"], &mut interruption)
        .await?
    {
        Outcome::Completed => {}
        Outcome::Failed(ended) => {
            eprintln!("{ended}");
            folder.discard();
            return Ok(Status::Failed);
        }
        Outcome::Interrupted => {
            folder.discard();
            return Ok(Status::Interrupted);
        }
    }
    let sizes = &config.cluster.groups;
    println!(
        "{}: {} servers and {} groups ({} ranks) in {}",
        config.name,
        config.cluster.servers,
        sizes.len(),
        config.world_size(),
        folder.path().display()
    );
    let mut local = Local::start(config, &programs, &folder, &token)?;
    let outcome = watch(config, &folder, &mut local, &mut interruption).await?;

    let secret = Token::new(&token)?;
    // Servers that are gone can tell nothing; the summary then says so.
    let status = cluster::status(&local.coordinator, &secret, &config.name).await;
    let outcome = match outcome {
        Outcome::Completed => {
            println!("training is done; evaluating the servers' parameters");
            let coordinator = format!("--coordinator={}", local.coordinator);
            let out = format!("--out={}", folder.path().display());
            let verb = ["evaluate", &coordinator, &out];
            helpers
                .run(Role::Evaluation, &verb, &mut interruption)
                .await?
        }
        ended => ended,
    };
    local.stop();
    let (state, faults) = match &outcome {
        Outcome::Completed => (Status::Completed, vec![]),
        Outcome::Failed(ended) => {
            eprintln!("the run failed: {ended}");
            (Status::Failed, vec![Fault::from(&**ended)])
        }
        Outcome::Interrupted => (Status::Interrupted, vec![]),
    };
    finish(
        config,
        &folder,
        (state, faults),
        status.ok(),
        began.elapsed(),
    )?;
    Ok(state)
}

/// Follows the run until it is done, fails, or is interrupted.
async fn watch(
    config: &Config,
    folder: &RunFolder,
    local: &mut Local,
    interruption: &mut Interruption,
) -> anyhow::Result<Outcome> {
    let interactive = std::io::stderr().is_terminal();
    let groups = config.cluster.groups.len();
    let out = Box::new(std::io::stdout());
    let mut progress = Progress::new(groups, config.train.samples, interactive, out);
    let mut metrics = Tail::new(folder.file("metrics.jsonl"));
    loop {
        let done = local.workers_done()?;
        for record in metrics.fresh()? {
            progress.record(&record);
        }
        let casualty = local.casualty()?.map(Box::new);
        if let Some(ended) = &casualty {
            progress.message(&format!("{} {}: ending the run", ended.role, ended.how));
        }
        if casualty.is_some() || done {
            progress.finish();
            return Ok(casualty.map_or(Outcome::Completed, Outcome::Failed));
        }
        tokio::select! {
            by = interruption.wait() => {
                progress.message(&format!("{by}: ending all processes"));
                progress.finish();
                return Ok(Outcome::Interrupted);
            }
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

/// Verbs of the worker that are no ranks.
struct Helpers<'a> {
    programs: &'a Programs,
    folder: &'a RunFolder,
    token: &'a str,
}

impl Helpers<'_> {
    /// Runs a verb to its end.
    async fn run(
        &self,
        role: Role,
        verb: &[&str],
        interruption: &mut Interruption,
    ) -> anyhow::Result<Outcome> {
        let mut arguments: Vec<String> = verb.iter().map(|s| (*s).to_owned()).collect();
        arguments.push(format!(
            "--config={}",
            self.folder.file("config.toml").display()
        ));
        let log = self.folder.file(&format!("logs/{}.log", verb[0]));
        let environment = environment(self.token);
        let mut process =
            Process::start(role, &self.programs.worker, &arguments, &environment, &log)?;
        loop {
            match process.poll()? {
                Some(ended) if ended.success => return Ok(Outcome::Completed),
                Some(ended) => return Ok(Outcome::Failed(Box::new(ended))),
                None => {}
            }
            tokio::select! {
                by = interruption.wait() => {
                    Process::stop_all(vec![&mut process]);
                    return Ok(Outcome::Interrupted);
                }
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }
}

/// Writes the summary and the pictures, and prints the table.
fn finish(
    config: &Config,
    folder: &RunFolder,
    (status, faults): (Status, Vec<Fault>),
    cluster: Option<ClusterStatus>,
    wall: Duration,
) -> anyhow::Result<()> {
    let metrics = folder.file("metrics.jsonl");
    let records = if metrics.exists() {
        read_metrics(&metrics)?
    } else {
        Vec::new()
    };
    let evaluation: Option<Evaluation> = if status == Status::Completed {
        let path = folder.file("evaluation.json");
        let text = std::fs::read_to_string(&path)?;
        Some(serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))?)
    } else {
        None
    };
    let inputs = Inputs {
        status,
        faults,
        wall_seconds: wall.as_secs_f64(),
        records: &records,
        cluster: cluster.as_ref(),
        evaluation: evaluation.as_ref(),
    };
    let summary = Summary::new(config, inputs);
    folder.write("summary.json", &serde_json::to_string_pretty(&summary)?)?;
    if !records.is_empty() {
        draw_loss(&records, &folder.file("loss.png"), &folder.file("loss.svg"))?;
    }
    if let Some(evaluation) = &evaluation {
        let maps = Maps::read(&folder.file("forecast.safetensors"))?;
        draw_forecast(&maps, &folder.file("forecast.png"))?;
        print!("{}", table::metric(evaluation));
    }
    println!("{}", table::closing(&summary, folder.path()));
    Ok(())
}

/// Ctrl-C and SIGTERM.
struct Interruption {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Interruption {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn wait(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "interrupted",
            _ = self.terminate.recv() => "asked to terminate",
        }
    }
}

/// The lines that workers append to a file.
struct Tail {
    path: PathBuf,
    reader: Option<BufReader<File>>,
    partial: String,
}

impl Tail {
    fn new(path: PathBuf) -> Self {
        Self {
            path,
            reader: None,
            partial: String::new(),
        }
    }

    /// Records that are new since the last call.
    fn fresh(&mut self) -> anyhow::Result<Vec<StepRecord>> {
        if self.reader.is_none() {
            match File::open(&self.path) {
                Ok(file) => self.reader = Some(BufReader::new(file)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(vec![]),
                Err(error) => return Err(error.into()),
            }
        }
        let reader = self.reader.as_mut().expect("opened above");
        let mut records = Vec::new();
        while reader.read_line(&mut self.partial)? > 0 {
            if !self.partial.ends_with('\n') {
                break;
            }
            let line = std::mem::take(&mut self.partial);
            let record = serde_json::from_str(&line);
            records.push(record.with_context(|| format!("reading {}", self.path.display()))?);
        }
        Ok(records)
    }
}

/// A token for this run's processes: the one thing that must not follow from the seed.
fn secret() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
