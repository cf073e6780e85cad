//! `tradewind slurm render`, `submit` and `serve`: a configuration becomes jobs.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use tradewind_common::run_files;
use tradewind_config::{Config, Security};
use tradewind_process::log;

use super::asked::{Asked, check};
use super::cancel::cancel_now;
use super::handing_in::{NotTaken, hand_in};
use super::job::{self, Component, What};
use super::jobs::Job;
use super::render::{Purpose, Script};
use super::standing::unfinished;
use super::{client, enrol, fleet};
use crate::run::{accepted, changed, newest_snapshot};
use crate::secrets::{secret, security};
use tradewind_folder::found::{FLEET, IS_FLEET};
use tradewind_folder::input::BadInput;
use tradewind_folder::run::{RunFolder, forget_end, make_folder};
use tradewind_process::log::say;

/// What is typed behind `tradewind slurm render`.
#[derive(Debug, clap::Args)]
pub struct Render {
    #[command(flatten)]
    asked: Asked,
    /// On the servers of this fleet.
    #[arg(long, value_name = "DIR")]
    fleet: Option<PathBuf>,
}

/// What is typed behind `tradewind slurm submit`.
#[derive(Debug, clap::Args)]
pub struct Submit {
    #[command(flatten)]
    asked: Asked,
    /// On the servers of this fleet, which `tradewind slurm serve` has started.
    #[arg(long, value_name = "DIR")]
    fleet: Option<PathBuf>,
    /// Go on from the newest snapshot in the run's folder.
    #[arg(long)]
    resume: bool,
    /// Say what sbatch thinks of the scripts, and submit nothing.
    #[arg(long, conflicts_with_all = ["watch", "resume"])]
    dry_run: bool,
    /// Follow the run until it ends; Ctrl-C leaves it alone.
    #[arg(long)]
    watch: bool,
}

/// What is typed behind `tradewind slurm serve`.
#[derive(Debug, clap::Args)]
pub struct Serve {
    /// Of its keys those of the servers count: cluster.servers, liveness, slurm.
    #[command(flatten)]
    asked: Asked,
    /// Go on in the folder of a fleet that has ended, where the snapshots of its runs are.
    #[arg(long)]
    resume: bool,
}

/// The components of a run: on a fleet it has groups alone.
fn components(config: &Config, fleet: Option<&PathBuf>) -> Vec<Component> {
    match fleet {
        Some(_) => job::of_groups(config),
        None => job::of_run(config),
    }
}

/// Prints the script of a run.
pub fn render(arguments: &Render) -> anyhow::Result<()> {
    let (config, out) = arguments.asked.read()?;
    check(&config)?;
    let script = Script {
        config: &config,
        components: &components(&config, arguments.fleet.as_ref()),
        purpose: Purpose::Run { after: None },
        folder: &out,
        program: &program()?,
    };
    log::print(&script.text()).context("the script cannot be printed")
}

/// Hands the run in. Its folder, if it is to be followed.
pub fn submit(arguments: &Submit) -> anyhow::Result<Option<PathBuf>> {
    let (config, out) = arguments.asked.read()?;
    check(&config)?;
    if arguments.fleet.is_none() {
        // A fleet's own configuration says what guards it.
        security(&config, false)?;
    } else if !config.cluster.people.is_empty() {
        let why = "cluster.people names who gets a certificate of the fleet: it belongs into the configuration of `tradewind slurm serve`";
        return Err(BadInput(why.into()).into());
    }
    let components = components(&config, arguments.fleet.as_ref());
    let script = Script {
        config: &config,
        components: &components,
        purpose: Purpose::Run { after: None },
        folder: &out,
        program: &program()?,
    };
    if arguments.dry_run {
        return dry_run(&script).map(|()| None);
    }
    let fleet = arguments.fleet.as_deref().map(fleet::find).transpose()?;
    let after = fleet.as_ref().map(fleet::job).transpose()?;
    check_free(&out)?;
    if arguments.resume {
        let at = fleet.as_ref().map_or(&out, |fleet| &fleet.path);
        newest_snapshot(at, &config.name)?;
    }
    if let Some(fleet) = &fleet {
        fleet::claim(&fleet.path, &config.name, &out, arguments.resume)?;
    }
    let folder = match arguments.resume {
        true => RunFolder::reopen(&out)?,
        false => RunFolder::create(&out)?,
    };
    let token = match &fleet {
        Some(fleet) => {
            folder.write(FLEET, &fleet.path.display().to_string())?;
            fleet.token()?
        }
        None => new_token(&config)?,
    };
    let out = folder.path().to_owned();
    let script = Script {
        folder: &out,
        purpose: Purpose::Run { after },
        ..script
    };
    if let Some(accepted) = accepted(&out) {
        say(accepted);
    }
    if let Some(changed) = changed(&config, &folder) {
        say(changed);
    }
    let lead = hand_in_lead(folder, &script, &token)?;
    if let Err(error) = hand_in_groups(&script, lead) {
        // All of it or nothing: what is there has begun to wait for the others.
        return Err(match cancel_now(&out) {
            Ok(()) => error.context("the run's jobs were cancelled"),
            Err(why) => error.context(format!(
                "the run's jobs are still there ({why:#}); `tradewind slurm cancel {}` ends them",
                out.display()
            )),
        });
    }
    say(format_args!("the run is in {}", out.display()));
    if let Some(note) = lone_nodes(&components) {
        say(note);
    }
    Ok(arguments.watch.then_some(out))
}

/// Makes the scripts of the groups that are jobs of their own.
fn each_group(
    script: &Script<'_>,
    beside: Option<u32>,
    mut act: impl FnMut(u32, &Script<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let config = script.config;
    let sizes = config.cluster.groups.iter().zip(0..);
    for (size, number) in sizes.skip(config.groups_together()) {
        let more = Script {
            components: &[job::group(&config.slurm, number, *size)],
            purpose: Purpose::Groups { beside },
            ..*script
        };
        act(number, &more)?;
    }
    Ok(())
}

/// Hands in the groups that are jobs of their own.
fn hand_in_groups(script: &Script<'_>, lead: u32) -> anyhow::Result<()> {
    let out = script.folder;
    each_group(script, Some(lead), |number, more| {
        let path = out.join(format!("slurm/group-{number}.sh"));
        std::fs::write(&path, more.text())
            .with_context(|| format!("cannot write {}", path.display()))?;
        let job = hand_in(out, &path, &[], of(more))
            .with_context(|| format!("group {number} is not taken"))?;
        say(format_args!("job {job}: {}", about(more.components)));
        Ok(())
    })
}

/// Says what sbatch thinks of the scripts.
fn dry_run(script: &Script<'_>) -> anyhow::Result<()> {
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let path = folder.path().join("job.sh");
    let test = |script: &Script<'_>| -> anyhow::Result<()> {
        std::fs::write(&path, script.text())?;
        say(client::test(&path).with_context(|| about(script.components))?);
        Ok(())
    };
    test(script)?;
    each_group(script, None, |_, more| test(more))
}

/// Components that end the whole job when Slurm loses their only node, if there are some.
fn lone_nodes(components: &[Component]) -> Option<String> {
    if components.len() == 1 {
        return None;
    }
    let lone = components.iter().filter(|component| component.nodes() == 1);
    let lone: Vec<String> = lone
        .map(|component| match component.what {
            What::Servers => "the servers".to_owned(),
            What::Group(number) => format!("group {number}"),
        })
        .collect();
    let (last, before) = lone.split_last()?;
    let (who, verb) = match before {
        [] => (last.clone(), "has"),
        _ => (format!("{} and {last}", before.join(", ")), "have"),
    };
    Some(format!(
        "note: {who} {verb} a single node; should Slurm lose it, it ends and requeues the whole job. \
         Components of two nodes, or groups that are jobs of their own (slurm.min_groups), go on"
    ))
}

/// Hands servers in that many runs can be on.
pub fn serve(arguments: &Serve) -> anyhow::Result<()> {
    let (config, out) = arguments.asked.read()?;
    security(&config, false)?;
    check_free(&out)?;
    let (folder, token) = match arguments.resume {
        true => {
            let token = fleet::find(&out)?.token()?;
            (RunFolder::reopen(&out)?, token)
        }
        false => (RunFolder::create(&out)?, new_token(&config)?),
    };
    make_folder(&folder.file("slurm"))?;
    folder.write(IS_FLEET, "")?;
    let out = folder.path().to_owned();
    let script = Script {
        config: &config,
        components: &[job::servers(&config)],
        purpose: Purpose::Fleet,
        folder: &out,
        program: &program()?,
    };
    hand_in_lead(folder, &script, &token)?;
    say(format_args!(
        "the fleet is in {}; `tradewind slurm submit CONFIG --fleet` puts runs on it",
        out.display()
    ));
    Ok(())
}

/// Hands in the job that a folder is about; its number.
fn hand_in_lead(folder: RunFolder, script: &Script<'_>, token: &str) -> anyhow::Result<u32> {
    make_folder(&folder.file("slurm"))?;
    folder.write_secret(run_files::CONFIG, script.config.resolved())?;
    folder.write_secret(run_files::TOKEN, token)?;
    if of(script).servers {
        let security = security(script.config, false)?;
        enrol::prepare(&folder, security == Security::Tls)?;
    }
    folder.write("slurm/job.sh", &script.text())?;
    match hand_in(folder.path(), &folder.file("slurm/job.sh"), &[], of(script)) {
        Ok(job) => {
            // Whoever looks at a run that goes on is not told how it ended before.
            forget_end(folder.path())?;
            if let Some(moved) = &folder.moved {
                say(format_args!("what was there is now in {}", moved.display()));
            }
            say(format_args!("job {job}: {}", about(script.components)));
            Ok(job)
        }
        Err(error) => {
            let out = folder.path().display().to_string();
            let was_there = folder.moved.is_some() || folder.before().is_some();
            folder.discard();
            if !error.is::<NotTaken>() {
                return Err(error);
            }
            let more = match was_there {
                true => format!(", and {out} is as it was"),
                false => String::new(),
            };
            bail!("{error:#}\nnothing was handed in{more}")
        }
    }
}

/// What the processes of a run or a fleet show each other, beside certificates.
fn new_token(config: &Config) -> anyhow::Result<String> {
    match security(config, false)? {
        Security::None => Ok(String::new()),
        Security::Tls | Security::Token => secret(),
    }
}

/// A job that waits holds no lock; its folder is not to be moved aside.
fn check_free(out: &Path) -> anyhow::Result<()> {
    match unfinished(out)? {
        Some(job) => bail!(
            "{} has job {job}, which is not over; wait for it, cancel it (tradewind slurm cancel), or choose another folder with --out or --set run.name=…",
            out.display()
        ),
        None => Ok(()),
    }
}

/// The job that comes of a script, without its number.
pub(super) fn of(script: &Script<'_>) -> Job {
    let components = script.components;
    let groups = components
        .iter()
        .filter_map(|component| match component.what {
            What::Group(number) => Some(number),
            What::Servers => None,
        });
    Job {
        job: 0,
        leads: !matches!(script.purpose, Purpose::Groups { .. }),
        servers: components[0].what == What::Servers,
        groups: groups.collect(),
    }
}

/// `4 servers on 4 nodes, group 0 on 2, group 1 on 2`.
pub(super) fn about(components: &[Component]) -> String {
    let one = |component: &Component| {
        let nodes = match component.nodes() {
            1 => "1 node".to_owned(),
            n => format!("{n} nodes"),
        };
        match component.what {
            What::Servers => format!("{} servers on {nodes}", component.tasks),
            What::Group(number) => format!("group {number} on {nodes}"),
        }
    };
    components.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// `tradewind` itself, which nodes run as well.
pub(super) fn program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("cannot tell where tradewind lies")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_of_one_node_are_pointed_out() {
        let component = |what, tasks| Component {
            what,
            tasks,
            tasks_per_node: 2,
            cpus: 1,
            gpus: 0,
            options: Vec::new(),
        };
        let servers = |tasks| component(What::Servers, tasks);
        let group = |number, tasks| component(What::Group(number), tasks);
        assert_eq!(lone_nodes(&[group(0, 2)]), None, "it is all of the job");
        assert_eq!(lone_nodes(&[servers(3), group(0, 4)]), None);
        let note = lone_nodes(&[servers(2), group(0, 4), group(1, 1)]).unwrap();
        assert!(
            note.starts_with("note: the servers and group 1 have a single node; "),
            "{note}"
        );
        let note = lone_nodes(&[servers(4), group(0, 1)]).unwrap();
        assert!(
            note.starts_with("note: group 0 has a single node; "),
            "{note}"
        );
    }
}
