//! `tradewind-gpu-check`: looks at a machine with a GPU and prints one JSON object: for each part of
//! the check a verdict and figures. Progress goes to standard error.

mod batches;
mod bulk;
mod cluster;
mod exact;
mod options;
mod parts;
mod plain;
mod process;
mod rank;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Parser, Subcommand};
use serde_json::Map;
use tradewind_client::stopwatch::Stopwatch;
use tradewind_process::whole;
use tradewind_worker::device::{self, Seen};

use options::{On, Options};
use parts::Which;
use report::{Part, Report, Teller, Verdict};

/// There is no GPU to check.
const EXIT_NO_GPU: u8 = 2;

/// Checks what Tradewind does on this machine's GPU.
#[derive(Debug, Parser)]
#[command(
    name = "tradewind-gpu-check",
    version,
    args_conflicts_with_subcommands = true
)]
struct Arguments {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    chosen: Chosen,
}

/// What is looked at, and where the report goes.
#[derive(Clone, Debug, clap::Args)]
struct Chosen {
    /// Only these parts.
    #[arg(long, value_enum, value_delimiter = ',')]
    parts: Vec<Which>,
    /// Seconds that all of them may take: where time is short, a part is ended sooner, or not begun.
    #[arg(long, value_name = "SECONDS")]
    within: Option<u64>,
    /// Write the report into this file, too, after each part.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// One part, in a process of its own.
    #[command(hide = true)]
    Part {
        #[arg(value_enum)]
        which: Which,
        #[command(flatten)]
        options: Options,
    },
    /// A rank of a group that only reduces.
    #[command(hide = true)]
    Rank(rank::Arguments),
    /// Gradients on the device and on the CPU.
    #[command(hide = true)]
    Gradients(parts::gradients::Arguments),
    /// The plain training loop.
    #[command(hide = true)]
    Plain(plain::Arguments),
    /// A rank that trains one vector.
    #[command(hide = true)]
    Bulk(bulk::BulkArguments),
}

fn main() -> ExitCode {
    let log = tracing_subscriber::EnvFilter::try_from_env(tradewind_common::environment::LOG);
    tracing_subscriber::fmt()
        .with_env_filter(log.unwrap_or_else(|_| "warn".into()))
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    let arguments = Arguments::parse();
    let done = match arguments.verb {
        None => return check(arguments.options, arguments.chosen),
        Some(Verb::Part { which, options }) => {
            process::end_with_the_check();
            let teller = Teller;
            which.run(&options, &teller).map(|()| teller.done())
        }
        Some(Verb::Rank(rank)) => rank.run(),
        Some(Verb::Gradients(gradients)) => gradients.run(),
        Some(Verb::Plain(plain)) => plain.run(),
        Some(Verb::Bulk(bulk)) => bulk.run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// All parts, one after the other.
fn check(mut options: Options, chosen: Chosen) -> ExitCode {
    let gpu = match options.device {
        On::Cpu => None,
        On::Cuda => match device::see(device::DRIVER) {
            Seen::Gpus { gpus, .. } => Some(gpus[0].name.clone()),
            Seen::None { why } | Seen::Failing { why } => {
                eprintln!(
                    "no GPU can be checked: {why}; run this where there is one, or test the check itself with --device cpu"
                );
                return ExitCode::from(EXIT_NO_GPU);
            }
        },
    };
    let checked = work_folder(&mut options).and_then(|folder| {
        let report = check_in(&options, &chosen, gpu)?;
        println!("{}", report.text()?);
        let verdict = report.verdict();
        if let (Some(folder), false) = (folder, verdict == Verdict::Pass) {
            eprintln!("configurations and logs are in {}", folder.keep().display());
        }
        Ok(verdict)
    });
    match checked {
        Ok(Verdict::Pass) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The report is in its file as far as it goes after each part: whoever ends the check keeps it.
fn check_in(options: &Options, chosen: &Chosen, gpu: Option<String>) -> anyhow::Result<Report> {
    let watch = Stopwatch::start();
    let mut report = Report {
        check: env!("CARGO_PKG_VERSION"),
        device: options.size("cuda", "cpu"),
        gpu,
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        complete: false,
        seconds: 0.0,
        parts: Vec::new(),
    };
    let parts: Vec<Which> = Which::ALL
        .into_iter()
        .filter(|which| chosen.parts.is_empty() || chosen.parts.contains(which))
        .collect();
    for which in &parts {
        let within = chosen.within.map(Duration::from_secs);
        let left = within.map(|within| within.saturating_sub(watch.elapsed()));
        report.parts.push(one(*which, left, options)?);
        report.complete = report.parts.len() == parts.len();
        report.seconds = watch.elapsed().as_secs_f64();
        if let Some(out) = &chosen.out {
            whole::write(out, report.text()?)?;
        }
    }
    Ok(report)
}

/// A folder to work in, which is deleted with what is returned unless it was named.
fn work_folder(options: &mut Options) -> anyhow::Result<Option<tempfile::TempDir>> {
    let absolute = |path: &PathBuf| std::path::absolute(path);
    options.data = absolute(&options.data)?;
    options.configs = absolute(&options.configs)?;
    options.ddp = absolute(&options.ddp)?;
    if let Some(work) = &options.work {
        let work = absolute(work)?;
        std::fs::create_dir_all(&work)
            .with_context(|| format!("cannot make {}", work.display()))?;
        options.work = Some(work);
        return Ok(None);
    }
    let folder = tempfile::tempdir()?;
    options.work = Some(folder.path().to_owned());
    Ok(Some(folder))
}

/// One part, of which there may be so much time `left`.
fn one(which: Which, left: Option<Duration>, options: &Options) -> anyhow::Result<Part> {
    let (name, limit) = (which.name(), options.patience(which.limit()));
    let limit = left.map_or(limit, |left| limit.min(left));
    eprintln!("{name}: {}, at most {} s", which.about(), limit.as_secs());
    let watch = Stopwatch::start();
    let (verdict, reason, figures) = if limit.is_zero() {
        let why = "no time was left for it (--within)".to_owned();
        (Verdict::Error, Some(why), Map::new())
    } else {
        let options = Options {
            limit: Some(limit.as_secs()),
            ..options.clone()
        };
        let mut arguments = vec!["part".to_owned(), name.to_owned()];
        arguments.extend(options.arguments());
        let (told, end) = process::run_part(process::own(&arguments)?, limit)?;
        report::judge(&told, &end)
    };
    let seconds = watch.elapsed().as_secs_f64();
    let because = reason
        .as_ref()
        .map_or(String::new(), |why| format!(": {why}"));
    eprintln!("{name}: {verdict:?} after {seconds:.1} s{because}");
    Ok(Part {
        name,
        about: which.about(),
        verdict,
        reason,
        seconds,
        limit_seconds: Duration::as_secs(&limit),
        figures,
    })
}
