//! `tradewind chaos`: a run on this machine while processes die, hang, crawl and are cut off, and a
//! watcher checks what must hold.

mod ask;
mod compare;
mod hooks;
mod inject;
mod leftover;
mod proxy;
mod report;
mod schedule;
mod session;
mod shared;
mod soak;
mod socket;
mod victim;
mod watch;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use tradewind_common::exit::Exit;
use tradewind_common::record::StepRecord;
use tradewind_config::Config;

use hooks::Chaos;
use report::ChaosReport;
use schedule::{Fault, FaultKind, Field};
use session::FaultPlan;
use tradewind_folder::config::{self, with_command};
use tradewind_folder::events::Events;
use tradewind_folder::input;
use tradewind_folder::lines::Metrics;
use tradewind_folder::runtime::one_thread;
use tradewind_launch::run::{RunHooks, launch};
use tradewind_process::Docs;
use tradewind_process::log::say;
use tradewind_process::whole;

/// What is typed behind `tradewind chaos`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The configuration.
    #[arg(default_value = "deploy/configs/chaos.toml")]
    config: PathBuf,
    /// Override a key: key=value. May be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// The folder of the run; runs/NAME if not given.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Kinds, victims and times of faults follow from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Train for so many minutes, whatever the budget, then recover and end; 5 if nothing else says
    /// when faults end.
    #[arg(long, value_name = "M")]
    minutes: Option<f64>,
    /// So many faults, and then train to the end of the budget.
    #[arg(long, value_name = "K", conflicts_with = "minutes")]
    faults: Option<usize>,
    /// Seconds between two faults, on average.
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    every: f64,
    /// Kinds of faults.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "kill,stop,slow,cut,full",
        conflicts_with = "script"
    )]
    kinds: Vec<String>,
    /// Faults from a file instead, one a line: SECONDS kill|stop|slow|cut|full VICTIM, then DURATION
    /// and reset if wanted, then + and others of the same moment. VICTIM is `server N`, `primary SHARD`,
    /// `coordinator`, `servers`, `group N`, `group N rank N`, `node N` (server and group N) or `all`.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["faults", "seed"])]
    script: Option<PathBuf>,
    /// Faults do not come together: each waits until all holders of all shards are back and full.
    /// With two copies or more nothing at all may be lost then.
    #[arg(long)]
    one_at_a_time: bool,
    /// Run twice, without faults and with them, and compare the steps done in the same time.
    #[arg(long, conflicts_with_all = ["faults", "convergence"])]
    efficiency: bool,
    /// Run pairs of this many seeds of the run, without faults and with them, and compare the final
    /// metric; ten faults in each run if --faults does not say otherwise.
    #[arg(long, value_name = "PAIRS", conflicts_with_all = ["minutes", "script"])]
    convergence: Option<u64>,
    /// Command of a PyTorch script of your own, which then is each rank: python train.py …
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Minutes of a run with faults, if nothing says how long.
const MINUTES: f64 = 5.0;

/// A budget that no run of some minutes applies.
const NO_BUDGET: &str = "train.samples=1000000000";

/// One run with its faults.
struct Order {
    config: Config,
    out: PathBuf,
    /// Of the faults; 0 with a script.
    seed: u64,
    plan: FaultPlan,
}

/// Trains while faults happen, and judges.
pub fn run(arguments: &Arguments) -> ExitCode {
    let checked = arguments.check();
    if let Err(error) = checked {
        return input::refuse(&error, Docs::FAULTS).into();
    }
    let done = match arguments.convergence {
        Some(pairs) => compare::convergence(arguments, pairs),
        None if arguments.efficiency => compare::efficiency(arguments),
        None => arguments.one(),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => input::fail(&error, Docs::FAULTS).into(),
    }
}

impl Arguments {
    fn check(&self) -> anyhow::Result<()> {
        let positive = self.every > 0.0 && self.minutes.is_none_or(|minutes| minutes > 0.0);
        anyhow::ensure!(positive, "--every and --minutes are more than 0");
        self.kinds()?;
        let config = self.config(&[])?;
        self.faults(&config).map(drop)
    }

    /// The configuration, with `more` overrides below those that were given.
    fn config(&self, more: &[String]) -> anyhow::Result<Config> {
        let mut set = more.to_vec();
        set.extend(with_command(&self.set, &self.command));
        config::read(&self.config, &set)
    }

    fn kinds(&self) -> anyhow::Result<Vec<FaultKind>> {
        let kinds = self.kinds.iter().map(|word| {
            FaultKind::of(word)
                .with_context(|| format!("`{word}` is none of {}", FaultKind::words()))
        });
        kinds.collect()
    }

    /// The folder of a run.
    fn folder(&self, config: &Config) -> PathBuf {
        let own = || Path::new("runs").join(config.name.as_str());
        self.out.clone().unwrap_or_else(own)
    }

    /// The faults of a run, without end if they are drawn.
    fn faults(&self, config: &Config) -> anyhow::Result<Box<dyn Iterator<Item = Fault> + Send>> {
        if let Some(path) = &self.script {
            let text = std::fs::read_to_string(path);
            let text = text.with_context(|| format!("cannot read {}", path.display()))?;
            let faults = schedule::parse(&text).with_context(|| path.display().to_string())?;
            let (servers, groups) = (config.cluster.servers, &config.cluster.groups);
            for fault in &faults {
                let there = fault.victim.exists(servers, groups);
                there.with_context(|| format!("{}: `{fault}`", path.display()))?;
            }
            return Ok(Box::new(faults.into_iter()));
        }
        let field = self.field(config)?;
        Ok(Box::new(schedule::drawn(field, self.seed, self.every)))
    }

    fn field(&self, config: &Config) -> anyhow::Result<Field> {
        Ok(Field {
            servers: config.cluster.servers,
            groups: config.cluster.groups.clone(),
            lease: config.liveness.lease_ms as f64 / 1000.0,
            kinds: self.kinds()?,
            hurt_servers: config.faults.replication > 1 || !self.one_at_a_time(),
            combinations: !self.one_at_a_time(),
        })
    }

    /// What is compared has lost nothing.
    fn one_at_a_time(&self) -> bool {
        self.one_at_a_time || self.efficiency || self.convergence.is_some()
    }

    /// Seconds; `None` until the budget is applied.
    fn lasts(&self) -> Option<f64> {
        let open = self.faults.is_none() && self.script.is_none();
        let minutes = self.minutes.or(open.then_some(MINUTES));
        minutes.map(|minutes| minutes * 60.0)
    }

    fn one(&self) -> anyhow::Result<bool> {
        let lasts = self.lasts();
        let more: Vec<String> = lasts.iter().map(|_| NO_BUDGET.to_owned()).collect();
        let config = self.config(&more)?;
        let faults = self.faults(&config)?;
        let order = Order {
            out: self.folder(&config),
            seed: if self.script.is_some() { 0 } else { self.seed },
            plan: FaultPlan {
                faults: match self.faults {
                    Some(most) => Box::new(faults.take(most)),
                    None => faults,
                },
                lasts,
                one_at_a_time: self.one_at_a_time(),
            },
            config,
        };
        let report = order.carry_out()?;
        Ok(report.violations.is_empty())
    }
}

impl Order {
    /// Carries the run out, writes `chaos.json` into its folder, and tells what came of it.
    fn carry_out(self) -> anyhow::Result<ChaosReport> {
        let Self {
            config,
            out,
            seed,
            plan,
        } = self;
        let mut chaos = Chaos::new(&config, plan)?;
        let runtime = one_thread()?;
        let exit = runtime.block_on(launch(&config, &out, false, &mut chaos))?;
        let roster = chaos.roster().clone();
        let (injected, left_out, outcome) = chaos.results();
        let mut outcome = outcome.unwrap_or_default();
        if outcome.looked.rounds == 0 {
            outcome.violations.push("nothing was watched".into());
        }
        if !matches!(exit, Exit::Done | Exit::DoneWithLosses) {
            let what = format!("the run was to complete, and did not: {exit:?}");
            outcome.violations.push(what);
        }
        outcome
            .violations
            .extend(leftover::processes(&roster, &out));
        let records: Vec<StepRecord> = Metrics::new(out.join("metrics.jsonl")).fresh()?;
        let events = Events::of(&out, &config.name).fresh()?;
        let lease = config.liveness.lease_ms as f64 / 1000.0;
        let faults = (&injected[..], left_out);
        let report = ChaosReport::new((seed, lease), faults, outcome, &records, &events);
        let text = serde_json::to_string_pretty(&report)?;
        whole::write(&out.join("chaos.json"), text)?;
        report.lines().iter().for_each(say);
        for violation in &report.violations {
            say(format_args!("VIOLATED: {violation}"));
        }
        match report.violations.is_empty() {
            true => say("everything held"),
            false => say(format_args!(
                "not everything held; seed {seed}, configuration {}",
                out.join("config.toml").display()
            )),
        }
        Ok(report)
    }
}
