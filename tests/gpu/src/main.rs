//! `tradewind-gpu-check`: looks at a machine with a GPU and prints one JSON object: for each part of
//! the check a verdict and figures. Progress goes to standard error.

mod bulk;
mod cluster;
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
use serde_json::json;
use tradewind_client::stopwatch::Stopwatch;
use tradewind_worker::device::{self, Seen};

use options::{On, Options};
use parts::Which;
use report::{Part, Teller, Verdict};

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
    /// Only these parts.
    #[arg(long, value_enum, value_delimiter = ',')]
    parts: Vec<Which>,
    /// Write the report into this file, too.
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
        None => return check(arguments.options, &arguments.parts, arguments.out),
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
fn check(mut options: Options, parts: &[Which], out: Option<PathBuf>) -> ExitCode {
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
    let whole = Stopwatch::start();
    let report = work_folder(&mut options).and_then(|_kept| {
        let chosen = Which::ALL
            .iter()
            .filter(|which| parts.is_empty() || parts.contains(which));
        let found = chosen
            .map(|which| one(*which, &options))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let worst = found.iter().map(|part| part.verdict);
        let verdict = worst
            .max_by_key(|verdict| *verdict as u8)
            .unwrap_or(Verdict::Error);
        let report = json!({
            "check": env!("CARGO_PKG_VERSION"),
            "device": options.size("cuda", "cpu"),
            "gpu": gpu,
            "cores": std::thread::available_parallelism().map_or(0, usize::from),
            "verdict": verdict,
            "seconds": whole.elapsed().as_secs_f64(),
            "parts": found,
        });
        let text = serde_json::to_string_pretty(&report)?;
        println!("{text}");
        if let Some(out) = out {
            std::fs::write(&out, text)
                .with_context(|| format!("cannot write {}", out.display()))?;
        }
        Ok(verdict)
    });
    match report {
        Ok(Verdict::Pass) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A folder to work in, which is deleted with what is returned unless it was named.
fn work_folder(options: &mut Options) -> anyhow::Result<Option<tempfile::TempDir>> {
    let absolute = |path: &PathBuf| std::path::absolute(path);
    options.data = absolute(&options.data)?;
    options.ddp = absolute(&options.ddp)?;
    let kept = match &options.work {
        Some(_) => None,
        None => Some(tempfile::tempdir()?),
    };
    let work = match (&options.work, &kept) {
        (None, Some(folder)) => folder.path().to_owned(),
        (Some(work), _) => absolute(work)?,
        (None, None) => unreachable!("one of them is there"),
    };
    options.work = Some(work);
    Ok(kept)
}

fn one(which: Which, options: &Options) -> anyhow::Result<Part> {
    let (name, limit) = (which.name(), options.patience(which.limit()));
    eprintln!("{name}: {}, at most {} s", which.about(), limit.as_secs());
    let watch = Stopwatch::start();
    let mut arguments = vec!["part".to_owned(), name.to_owned()];
    arguments.extend(options.arguments());
    let (told, end) = process::run_part(process::own(&arguments)?, limit)?;
    let (verdict, reason, figures) = report::judge(&told, &end);
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
