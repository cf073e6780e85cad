//! What the processes of a run are given to show each other, by whoever starts them.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use anyhow::Context;
use tradewind_common::identity::{Identity, PersonName};
use tradewind_common::{GroupId, Rank, RunId, ServerId, run_files};
use tradewind_config::{Config, Security};
use tradewind_folder::cluster::Access;
use tradewind_folder::input::BadInput;
use tradewind_folder::member::Member;
use tradewind_folder::run::RunFolder;
use tradewind_process::whole;
use tradewind_proto::authority::Authority;

use crate::programs::environment;

/// The token of a run, and under TLS its authority. Neither follows from the run's seed.
#[derive(Debug)]
pub struct Secrets {
    token: String,
    authority: Option<Authority>,
    people: Vec<PersonName>,
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
        let people = people(config, security)?;
        Ok(Self {
            token,
            authority,
            people,
        })
    }

    /// A token alone.
    pub fn of_token(token: &str) -> Self {
        Self {
            token: token.to_owned(),
            authority: None,
            people: Vec::new(),
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
        forget_people(folder.path())?;
        let authority = self.authority.as_ref();
        authority.map_or(Ok(()), |authority| {
            certify_people(folder.path(), authority, &self.people)
        })
    }
}

/// Removes what people have shown in an earlier start of the run or fleet in this folder.
pub(crate) fn forget_people(folder: &Path) -> anyhow::Result<()> {
    let own = fs::remove_file(folder.join(run_files::PERSON));
    for removed in [own, fs::remove_dir_all(folder.join(run_files::PEOPLE))] {
        if let Err(error) = removed
            && error.kind() != ErrorKind::NotFound
        {
            return Err(error).context("cannot remove the certificates of an earlier start");
        }
    }
    Ok(())
}

/// Writes down what the owner of the run or fleet in this folder shows, and what these people do.
pub(crate) fn certify_people(
    folder: &Path,
    authority: &Authority,
    people: &[PersonName],
) -> anyhow::Result<()> {
    let pass = |name| {
        let pass = authority.pass(&Identity::Person(name));
        pass.context("no certificate can be issued")
    };
    whole::write_secret(&folder.join(run_files::PERSON), pass(None)?)?;
    if people.is_empty() {
        return Ok(());
    }
    let within = folder.join(run_files::PEOPLE);
    let made = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&within);
    made.with_context(|| format!("cannot make {}", within.display()))?;
    for name in people {
        let file = folder.join(run_files::person(name.as_str()));
        whole::write_secret(&file, pass(Some(name.clone()))?)?;
    }
    Ok(())
}

/// Who has a certificate besides the owner.
///
/// # Errors
/// The configuration says it wrong.
pub(crate) fn people(config: &Config, security: Security) -> Result<Vec<PersonName>, BadInput> {
    config.cluster.people(security).map_err(BadInput)
}

/// Who a process of a run is.
pub(crate) fn identity(run: &RunId, member: Member) -> Identity {
    match member {
        Member::Server(server) => Identity::Server(Some(ServerId(server))),
        Member::Rank { group, rank: of } => rank(run, group, Some(of)),
    }
}

/// A rank of a group; without a number, who reads as any of them does: an evaluation.
pub(crate) fn rank(run: &RunId, group: u32, rank: Option<u32>) -> Identity {
    Identity::Rank {
        run: run.clone(),
        group: GroupId(group),
        rank: rank.map(Rank),
    }
}

/// What guards a run whose servers are reached over the loopback interface alone, or over a network.
///
/// # Errors
/// Over a network, less than TLS has to be asked for twice.
pub(crate) fn security(config: &Config, on_loopback: bool) -> Result<Security, BadInput> {
    let security = config.cluster.security(on_loopback).map_err(BadInput)?;
    // Said before anything begins.
    people(config, security)?;
    Ok(security)
}

/// A secret word, from the system's randomness: it must not follow from the run's seed.
pub fn secret() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
