//! `tradewind run`: a whole run on this machine.

use std::fs::File;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use tradewind_common::config::Config;

use crate::cluster;
use crate::config::{self, EXIT_BAD_INPUT};
use crate::folder::RunFolder;
use crate::launch::{Ended, LOOK, Local, Process, Programs, Role, environment};
use crate::metrics::Metrics;
use crate::progress::Progress;
use crate::results::finish;
use crate::say;
use crate::summary::{Fault, Status};

/// Exit status after an interruption, as shells have it for Ctrl-C.
pub(crate) const EXIT_INTERRUPTED: u8 = 130;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The configuration.
    config: PathBuf,
    /// Override a key: key=value. May be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The run's folder; runs/NAME if not given.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// How long servers may take to tell their status; one that is frozen never does.
const STATUS: Duration = Duration::from_secs(5);

/// How a run, or a part of it, came to its end.
enum Outcome {
    Completed,
    Failed(Failure),
    Interrupted,
}

/// What went wrong, for people and for the summary.
struct Failure {
    text: String,
    fault: Fault,
}

impl From<Ended> for Failure {
    fn from(ended: Ended) -> Self {
        Self {
            text: ended.to_string(),
            fault: Fault::from(&ended),
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        let text = format!("{error:#}");
        match error.downcast::<Ended>() {
            Ok(ended) => ended.into(),
            Err(_) => Self {
                fault: Fault::of_launcher(text.clone()),
                text,
            },
        }
    }
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
    let check = helpers
        .run(Role::Check, &["check"], &mut interruption)
        .await;
    match check.unwrap_or_else(|error| Outcome::Failed(error.into())) {
        Outcome::Completed => {}
        Outcome::Failed(failure) => {
            eprintln!("nothing was started: {}", failure.text);
            folder.discard();
            return Ok(Status::Failed);
        }
        Outcome::Interrupted => {
            folder.discard();
            return Ok(Status::Interrupted);
        }
    }
    if let Some(moved) = &folder.moved {
        say(format_args!(
            "a former run of this name is now in {}",
            moved.display()
        ));
    }
    say(format_args!(
        "{}: {} servers and {} groups ({} ranks) in {}",
        config.name,
        config.cluster.servers,
        config.cluster.groups.len(),
        config.world_size(),
        folder.path().display()
    ));
    // Whatever goes wrong from here on stands in the summary.
    let mut local = Local::new();
    let mut outcome = match local.start(config, &programs, &folder, &token) {
        Ok(()) => watch(config, &folder, &mut local, &mut interruption).await,
        Err(error) => Err(error),
    };
    let asked = cluster::status(&local.coordinator, &token, &config.name);
    let status = tokio::select! {
        status = tokio::time::timeout(STATUS, asked) => status.ok().and_then(Result::ok),
        _ = interruption.wait() => None,
    };
    if matches!(outcome, Ok(Outcome::Completed)) {
        say("training is done; evaluating the servers' parameters");
        let coordinator = format!("--coordinator={}", local.coordinator);
        let out = format!("--out={}", folder.path().display());
        let verb = ["evaluate", &coordinator, &out];
        outcome = helpers
            .run(Role::Evaluation, &verb, &mut interruption)
            .await;
    }
    local.stop();
    let (state, faults) = match outcome.unwrap_or_else(|error| Outcome::Failed(error.into())) {
        Outcome::Completed => (Status::Completed, vec![]),
        Outcome::Failed(failure) => {
            eprintln!("the run failed: {}", failure.text);
            (Status::Failed, vec![failure.fault])
        }
        Outcome::Interrupted => (Status::Interrupted, vec![]),
    };
    finish(config, &folder, (state, faults), status, began.elapsed())
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
    let mut metrics = Metrics::new(folder.file("metrics.jsonl"));
    loop {
        let done = local.workers_done()?;
        for record in metrics.fresh()? {
            progress.record(&record);
        }
        if let Some(ended) = local.casualty()? {
            progress.message(&format!("{} {}: ending the run", ended.role, ended.how));
            progress.finish();
            return Ok(Outcome::Failed(ended.into()));
        }
        if done {
            progress.finish();
            return Ok(Outcome::Completed);
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
                Some(ended) => return Ok(Outcome::Failed(ended.into())),
                None => {}
            }
            tokio::select! {
                by = interruption.wait() => {
                    say(format_args!("{by}: ending {role}"));
                    Process::stop_all(vec![&mut process]);
                    return Ok(Outcome::Interrupted);
                }
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }
}

/// Ctrl-C and SIGTERM.
pub(crate) struct Interruption {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Interruption {
    pub(crate) fn new() -> anyhow::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    pub(crate) async fn wait(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "interrupted",
            _ = self.terminate.recv() => "asked to terminate",
        }
    }
}

/// A token for this run's processes: the one thing that must not follow from the seed.
pub(crate) fn secret() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
