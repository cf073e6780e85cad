//! `tradewind slurm attach` and `detach`: groups come to a run under way, and leave it.

use std::path::PathBuf;

use anyhow::{Context, bail};
use tradewind_common::run_files;
use tradewind_config::Config;
use tradewind_folder::run::make_folder;

use super::client::{self, Row};
use super::handing_in::{hand_in, jobs_of};
use super::job::Component;
use super::render::{Purpose, Script};
use super::submit::{about, of, program};
use super::{job, jobs, standing};
use tradewind_folder::cluster::Access;
use tradewind_folder::found::FoundRun;
use tradewind_process::log::say;

/// What is typed behind `tradewind slurm attach`.
#[derive(Debug, clap::Args)]
pub struct Attach {
    /// The run's folder.
    run: PathBuf,
    /// How many groups.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    groups: u32,
    /// Ranks of each; as many as the run's first group has if not given.
    #[arg(long)]
    ranks: Option<u32>,
    /// Option of sbatch, passed through. May be given several times.
    #[arg(long = "option", value_name = "OPTION")]
    options: Vec<String>,
}

/// What is typed behind `tradewind slurm detach`.
#[derive(Debug, clap::Args)]
pub struct Detach {
    /// The run's folder.
    run: PathBuf,
    /// The group's number.
    group: u32,
}

/// Submits more groups as a job of their own.
pub async fn attach(arguments: &Attach) -> anyhow::Result<()> {
    // The script has it, and runs in another folder perhaps.
    let run = std::path::absolute(&arguments.run)?;
    let place = FoundRun::find(Some(&run))?;
    let (access, coordinator) = reach(&place)?;
    let config = &place.config;
    let size = arguments.ranks.unwrap_or(config.cluster.groups[0]);
    let added = vec![size; arguments.groups as usize];
    let first = access.attach(&coordinator, &config.name, &added).await?;
    // Others may have been added meanwhile; theirs are before these, or after.
    let status = access.status(&coordinator, &config.name).await?;
    let known = &status.group_sizes[..(first + arguments.groups) as usize];
    let numbers: Vec<u32> = (first..first + arguments.groups).collect();
    let handed_in = with_groups(&place, known).and_then(|own| {
        let added = Added {
            place: &place,
            numbers: &numbers,
            size,
            own: own.resolved(),
        };
        added.hand_in(&arguments.options)
    });
    if let Err(error) = handed_in {
        // The run would show groups that never come.
        let undone = access.drain(&coordinator, &config.name, &numbers).await;
        return Err(match undone {
            Ok(()) => error,
            Err(why) => error.context(format!("the run still expects groups {numbers:?}: {why:#}")),
        });
    }
    Ok(())
}

/// The configuration of a run with these groups. Its chunks are cut already, and stay as they are.
fn with_groups(place: &FoundRun, groups: &[u32]) -> anyhow::Result<Config> {
    let text = std::fs::read_to_string(place.path.join(run_files::CONFIG))?;
    let chunk = place.config.train.chunk_samples;
    let changed = [
        format!("cluster.groups={groups:?}"),
        format!("train.chunk_samples={chunk}"),
    ];
    Ok(Config::parse(&text, "config.toml", &place.path, &changed)?)
}

/// Groups that the coordinator knows, and Slurm does not yet.
struct Added<'a> {
    place: &'a FoundRun,
    numbers: &'a [u32],
    /// Ranks of each.
    size: u32,
    /// A configuration that has them.
    own: &'a str,
}

impl Added<'_> {
    /// Hands them in as one job.
    fn hand_in(&self, options: &[String]) -> anyhow::Result<()> {
        let FoundRun { path, config, .. } = self.place;
        let slurm = path.join("slurm");
        make_folder(&slurm)?;
        for number in self.numbers {
            let file = slurm.join(format!("group-{number}.toml"));
            std::fs::write(&file, self.own)
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        let group = |number: &u32| job::group(&config.slurm, *number, self.size);
        let components: Vec<Component> = self.numbers.iter().map(group).collect();
        let script = Script {
            config,
            components: &components,
            folder: path,
            program: &program()?,
            purpose: Purpose::Groups {
                beside: jobs::lead(path)?,
            },
        };
        let file = slurm.join(format!("groups-from-{}.sh", self.numbers[0]));
        std::fs::write(&file, script.text())
            .with_context(|| format!("cannot write {}", file.display()))?;
        let job = hand_in(path, &file, options, of(&script))?;
        say(format_args!("job {job}: {}", about(&components)));
        Ok(())
    }
}

/// Asks a group to leave when its exchange has ended.
pub async fn detach(arguments: &Detach) -> anyhow::Result<()> {
    let place = FoundRun::find(Some(&arguments.run))?;
    let (access, coordinator) = reach(&place)?;
    let (name, group) = (&place.config.name, arguments.group);
    access.drain(&coordinator, name, &[group]).await?;
    let jobs = jobs_of(&place.path)?.into_iter();
    let mut alone = jobs.filter(|job| !job.leads && job.groups == [group]);
    let alone = alone.next_back().map(|job| job.job);
    let rows = client::queue(alone.as_slice())?;
    let all_are = |of: fn(&Row) -> bool| rows.iter().all(of);
    match alone {
        Some(job) if all_are(standing::is_over) => {
            say(format_args!("group {group}: its job {job} is over"));
        }
        Some(job) if all_are(|row| row.state == "PENDING") => {
            client::cancel(&[job])?;
            say(format_args!(
                "group {group}: its job {job} was waiting, and is taken out of the queue"
            ));
        }
        Some(job) => say(format_args!(
            "group {group} leaves when its exchange has ended; its job {job} ends then"
        )),
        None => say(format_args!(
            "group {group} leaves when its exchange has ended"
        )),
    }
    Ok(())
}

fn reach(place: &FoundRun) -> anyhow::Result<(Access, String)> {
    if let Some(status) = place.ended() {
        bail!("run {} has ended: {status}", place.config.name);
    }
    let there = place.coordinator()?.with_context(|| {
        format!(
            "run {} has no coordinator yet; try again when its job has started",
            place.config.name
        )
    })?;
    Ok((place.access()?, there.address))
}
