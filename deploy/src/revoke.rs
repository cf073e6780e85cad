//! `tradewind revoke`: takes back the certificates of groups, ranks, servers and people.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow};

use tradewind_common::run_files;
use tradewind_folder::cluster::Whom;
use tradewind_folder::found::FoundRun;
use tradewind_folder::input::{self, BadInput};
use tradewind_folder::runtime::one_thread;
use tradewind_process::Docs;
use tradewind_process::log::say;

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("whom").required(true).multiple(true))]
pub(crate) struct Arguments {
    /// The run's folder; the newest in runs/ if not given.
    run_folder: Option<PathBuf>,
    /// A group whose ranks are shut out, by its number; may be given several times. With --rank only that
    /// rank's certificates are revoked.
    #[arg(long = "group", value_name = "GROUP", group = "whom")]
    groups: Vec<u32>,
    /// A rank of the one --group, by its number; may be given several times. Its group is asked to leave: it does not
    /// train without one of its ranks.
    #[arg(long = "rank", value_name = "RANK", requires = "groups")]
    ranks: Vec<u32>,
    /// A server that is shut out, by its number. Others take over what it holds: one at a time, so that there is
    /// always one that can.
    #[arg(long = "server", value_name = "SERVER", group = "whom")]
    server: Option<u32>,
    /// Somebody of cluster.people who is shut out; may be given several times.
    #[arg(long = "person", value_name = "NAME", group = "whom")]
    people: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match revoke(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => input::fail(&error, Docs::SECURITY).into(),
    }
}

fn revoke(arguments: &Arguments) -> anyhow::Result<()> {
    let whom = whom_of(arguments)?;
    let place = FoundRun::find(arguments.run_folder.as_deref())?;
    let name = &place.config.name;
    if let Some(ended) = place.ended() {
        return Err(anyhow!(
            "run {name} is over ({ended}), and so are its certificates"
        ));
    }
    for person in &whom.people {
        // The servers know nobody by name before they come.
        if !place.fleet.join(run_files::person(person)).is_file() {
            let why = format!(
                "--person {person}: nobody has a certificate of this name; cluster.people names who has one. To shut out \
                 whoever has person.pem, end the run, correct who can read its folder, and resume it"
            );
            return Err(BadInput(why).into());
        }
    }
    let there = place.coordinator()?;
    let there = there.with_context(|| format!("run {name} has no coordinator yet; try again"))?;
    let access = place.access()?;
    let runtime = one_thread()?;
    let revoked = runtime.block_on(access.revoke(&there.address, name, &whom));
    let without =
        revoked.with_context(|| format!("nobody knows whether run {name} revokes that"))?;
    say(format_args!(
        "{} of run {name}: certificates are revoked, connections closed, on every server that is there",
        words(&whom)
    ));
    for server in without {
        say(format_args!(
            "server {server} is gone and has not answered; it hears of it before all else if it comes back"
        ));
    }
    Ok(())
}

/// Whom the arguments name: each once, in order.
fn whom_of(arguments: &Arguments) -> Result<Whom, BadInput> {
    let groups = each_once(&arguments.groups);
    let ranks = each_once(&arguments.ranks);
    let (groups, ranks) = match (&groups[..], ranks.is_empty()) {
        (_, true) => (groups, Vec::new()),
        ([group], false) => {
            let ranks = ranks.into_iter().map(|rank| (*group, rank));
            (Vec::new(), ranks.collect())
        }
        _ => {
            let why = "--rank is a rank of one group; give one --group with it";
            return Err(BadInput(why.into()));
        }
    };
    Ok(Whom {
        groups,
        ranks,
        servers: arguments.server.into_iter().collect(),
        people: each_once(&arguments.people),
    })
}

/// For people: `group 3 and server 1`.
fn words(whom: &Whom) -> String {
    let ranks: Vec<_> = whom.ranks.iter().map(|(_, rank)| *rank).collect();
    let group = whom.ranks.first().map(|(group, _)| group);
    let all = [
        listed("group", &whom.groups),
        listed("rank", &ranks)
            .zip(group)
            .map(|(ranks, group)| format!("{ranks} of group {group}")),
        listed("server", &whom.servers),
        (!whom.people.is_empty()).then(|| whom.people.join(", ")),
    ];
    let all: Vec<_> = all.into_iter().flatten().collect();
    all.join(" and ")
}

fn each_once<T: Ord + Clone>(given: &[T]) -> Vec<T> {
    let mut all = given.to_vec();
    all.sort_unstable();
    all.dedup();
    all
}

/// `group 3`, `groups 3, 4`; `None` of none.
fn listed(word: &str, numbers: &[u32]) -> Option<String> {
    let all: Vec<_> = numbers.iter().map(u32::to_string).collect();
    match &all[..] {
        [] => None,
        [one] => Some(format!("{word} {one}")),
        many => Some(format!("{word}s {}", many.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn whom(given: &[&str]) -> Result<String, String> {
        let line = Line::try_parse_from([&["revoke", "runs/climate"], given].concat());
        let line = line.map_err(|error| error.to_string())?;
        let whom = whom_of(&line.arguments);
        whom.map(|whom| words(&whom)).map_err(|error| error.0)
    }

    #[test]
    fn who_is_shut_out_is_said_in_words() {
        for (words, want) in [
            ("--group 3", "group 3"),
            ("--group 4 --group 3 --group 4", "groups 3, 4"),
            ("--group 3 --rank 1", "rank 1 of group 3"),
            ("--group 3 --rank 1 --rank 0", "ranks 0, 1 of group 3"),
            ("--server 1 --person bob", "server 1 and bob"),
            (
                "--group 2 --rank 0 --server 1",
                "rank 0 of group 2 and server 1",
            ),
        ] {
            let words: Vec<_> = words.split(' ').collect();
            assert_eq!(whom(&words).as_deref(), Ok(want), "{words:?}");
        }
        let refused = |words: &[&str], want: &str| {
            let error = whom(words).unwrap_err();
            assert!(error.contains(want), "{error}");
        };
        refused(&[], "required");
        let copies = ["--server", "0", "--server", "1"];
        refused(&copies, "cannot be used multiple times");
        refused(&["--rank", "1"], "--group");
        let two = ["--group", "1", "--group", "2", "--rank", "1"];
        refused(&two, "give one --group");
    }
}
