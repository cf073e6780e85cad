//! `tradewind doctor`: what this node has for training on GPUs, and what is missing.
//!
//! One file a subject. Each reads a `System`, which names where to look: a node's own files, or
//! in tests a folder that looks like one.

mod driver;
mod host;
mod libtorch;
mod loader;
mod nccl;
mod network;
mod places;
mod system;
mod text;
mod verdict;

use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use driver::Driver;
use host::Host;
use libtorch::Libtorch;
use nccl::Nccl;
use network::Network;
use system::System;
use tradewind_folder::config::read;
use tradewind_folder::input;
use tradewind_process::Docs;
use tradewind_process::log::say;
use verdict::{Missing, cannot, missing};

/// What is typed behind `tradewind doctor`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Also say whether this node can do what a configuration asks for; if not, end with 1.
    #[arg(long)]
    config: Option<PathBuf>,
    /// Override a key of the configuration: key=value. May be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "config")]
    set: Vec<String>,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// What a node has.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Node {
    driver: Driver,
    libtorch: Libtorch,
    nccl: Nccl,
    network: Network,
    host: Host,
}

/// What a node has, and what follows from it.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct DoctorReport {
    #[serde(flatten)]
    node: Node,
    missing: Vec<Missing>,
    /// Why the node cannot do what the configuration asks for; empty if it can, absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    cannot: Option<Vec<String>>,
}

impl Node {
    fn look(system: &System) -> Self {
        let libtorch = Libtorch::look(system);
        Self {
            driver: Driver::look(system),
            nccl: Nccl::look(system, &libtorch),
            libtorch,
            network: Network::look(system),
            host: Host::look(system),
        }
    }
}

/// Looks at this node and prints what it finds.
pub fn run(arguments: &Arguments) -> ExitCode {
    let config = arguments.config.as_deref();
    let config = match config.map(|path| read(path, &arguments.set)).transpose() {
        Ok(config) => config,
        Err(error) => {
            return input::refuse(&error, Docs::GPU).into();
        }
    };
    let node = Node::look(&System::this());
    let report = DoctorReport {
        missing: missing(&node),
        cannot: config.as_ref().map(|config| cannot(config, &node)),
        node,
    };
    if arguments.json {
        say(serde_json::to_string_pretty(&report).expect("a report is plain data"));
    } else {
        say(text::all(&report));
    }
    match report.cannot {
        Some(why) if !why.is_empty() => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

#[cfg(test)]
mod tests;
