//! What the processes of a run are given to show each other, by whoever starts them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};

use anyhow::Context;
use tradewind_common::identity::Identity;
use tradewind_common::{GroupId, RunId, run_files};
use tradewind_config::{Config, Security};
use tradewind_folder::cluster::Access;
use tradewind_folder::input::BadInput;
use tradewind_folder::member::Member;
use tradewind_folder::run::RunFolder;
use tradewind_proto::authority::Authority;

use crate::programs::environment;

/// The token of a run, and under TLS its authority. Neither follows from the run's seed.
#[derive(Debug)]
pub struct Secrets {
    token: String,
    authority: Option<Authority>,
}

impl Secrets {
    /// New ones for a run on this machine, as its configuration says.
    ///
    /// # Errors
    /// The configuration asks for less than its network needs.
    pub fn new(config: &Config) -> anyhow::Result<Self> {
        let security = security(config, config.cluster.is_on_loopback())?;
        let token = match security {
            Security::None => String::new(),
            Security::Tls | Security::Token => secret()?,
        };
        let authority = match security {
            Security::Tls => Some(Authority::new(config.name.as_str())?),
            Security::Token | Security::None => None,
        };
        Ok(Self { token, authority })
    }

    /// A token alone.
    pub fn of_token(token: &str) -> Self {
        Self {
            token: token.to_owned(),
            authority: None,
        }
    }

    /// Under TLS a new key and its certificates, for a process on this machine.
    fn pass(&self, identity: &Identity) -> anyhow::Result<Option<String>> {
        let authority = self.authority.as_ref();
        let pass = authority.map(|authority| authority.pass(identity));
        pass.transpose().context("no certificate can be issued")
    }

    /// What such a process is told that computes with so many threads.
    pub(crate) fn environment(
        &self,
        identity: &Identity,
        threads: impl ToString,
    ) -> anyhow::Result<BTreeMap<&'static str, String>> {
        let pass = self.pass(identity)?;
        Ok(environment(&self.token, pass.as_deref(), threads))
    }

    /// The right to ask the servers what such a one may.
    pub(crate) fn access(&self, identity: &Identity) -> anyhow::Result<Access> {
        Access::new(&self.token, self.pass(identity)?.as_deref())
    }

    /// Writes down what a person shows; the authority's key is written nowhere.
    pub(crate) fn write(&self, folder: &RunFolder) -> anyhow::Result<()> {
        folder.write_secret(run_files::TOKEN, &self.token)?;
        match self.pass(&Identity::Person)? {
            Some(pass) => folder.write_secret(run_files::PERSON, &pass),
            // Of an earlier start.
            None => match fs::remove_file(folder.file(run_files::PERSON)) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    Err(error).context("cannot remove the certificate of an earlier start")
                }
                _ => Ok(()),
            },
        }
    }
}

/// Who a process of a run is.
pub(crate) fn identity(run: &RunId, member: Member) -> Identity {
    match member {
        Member::Server(_) => Identity::Server,
        Member::Rank { group, .. } => rank(run, group),
    }
}

/// A rank of a group.
pub(crate) fn rank(run: &RunId, group: u32) -> Identity {
    Identity::Rank {
        run: run.clone(),
        group: GroupId(group),
    }
}

/// What guards a run whose servers are reached over the loopback interface alone, or over a network.
///
/// # Errors
/// Over a network, less than TLS has to be asked for twice.
pub(crate) fn security(config: &Config, on_loopback: bool) -> Result<Security, BadInput> {
    config.cluster.security(on_loopback).map_err(BadInput)
}

/// A secret word, from the system's randomness: it must not follow from the run's seed.
pub fn secret() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
