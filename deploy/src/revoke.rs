//! `tradewind revoke`: takes back the certificates of groups.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow};

use tradewind_folder::found::FoundRun;
use tradewind_folder::input;
use tradewind_folder::runtime::one_thread;
use tradewind_process::Docs;
use tradewind_process::log::say;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The run's folder; the newest in runs/ if not given.
    run_folder: Option<PathBuf>,
    /// A group whose ranks are shut out for good, by its number; may be given several times.
    #[arg(long = "group", value_name = "GROUP", required = true)]
    groups: Vec<u32>,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match revoke(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => input::fail(&error, Docs::SECURITY).into(),
    }
}

fn revoke(arguments: &Arguments) -> anyhow::Result<()> {
    let place = FoundRun::find(arguments.run_folder.as_deref())?;
    let name = &place.config.name;
    if let Some(ended) = place.ended() {
        return Err(anyhow!(
            "run {name} is over ({ended}), and so are its certificates"
        ));
    }
    let there = place.coordinator()?;
    let there = there.with_context(|| format!("run {name} has no coordinator yet; try again"))?;
    let access = place.access()?;
    let mut groups = arguments.groups.clone();
    groups.sort_unstable();
    groups.dedup();
    let runtime = one_thread()?;
    let revoked = runtime.block_on(access.revoke(&there.address, name, &groups));
    let without =
        revoked.with_context(|| format!("nobody knows whether run {name} revokes that"))?;
    let groups: Vec<_> = groups.iter().map(u32::to_string).collect();
    let groups = match &groups[..] {
        [one] => format!("group {one}"),
        many => format!("groups {}", many.join(", ")),
    };
    say(format_args!(
        "{groups} of run {name}: certificates are revoked, connections closed, on every server that is there"
    ));
    for server in without {
        say(format_args!(
            "server {server} is gone and has not answered; it hears of it before all else if it comes back"
        ));
    }
    Ok(())
}
