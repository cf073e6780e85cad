//! What the processes of a run are given to show each other, by whoever starts them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use anyhow::Context;
use tradewind_common::identity::{Identity, PersonName};
use tradewind_common::{GroupId, Rank, RunId, ServerId, run_files};
use tradewind_config::{Config, Security};
use tradewind_folder::cluster::Access;
use tradewind_folder::input::BadInput;
use tradewind_folder::member::Member;
use tradewind_folder::run::RunFolder;
use tradewind_proto::authority::Authority;

use crate::issuing::{Issuing, Site};
use crate::people::{certify_people, forget_people};
use crate::programs::environment;

/// The token of a run, and under TLS its authority. Neither follows from the run's seed.
#[derive(Debug)]
pub struct Secrets {
    token: String,
    authority: Option<Arc<Authority>>,
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
            Security::Tls => {
                let name = config.name.as_str();
                let authority = Authority::lasting(name, config.cluster.certificate_s)?;
                Some(Arc::new(authority))
            }
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

    /// The right to ask the servers what such a one may, for this process itself.
    pub(crate) fn access(&self, identity: &Identity) -> anyhow::Result<Access> {
        let authority = self.authority.as_ref();
        let pass = authority.map(|authority| authority.own_pass(identity));
        let pass = pass.transpose().context("no certificate can be issued")?;
        Access::new(&self.token, pass.as_deref())
    }

    /// Writes down what a person shows, and under TLS renews certificates from now on, reached at this host. The
    /// authority's key is written nowhere. Must be called in a runtime.
    pub(crate) async fn begin(&self, folder: &RunFolder, host: &str) -> anyhow::Result<()> {
        folder.write_secret(run_files::TOKEN, &self.token)?;
        forget_people(folder.path())?;
        if let Some(authority) = &self.authority {
            let site = Site {
                folder: folder.path().to_owned(),
                host: host.to_owned(),
                people: self.people.clone(),
            };
            authority.renews_at(Issuing::begin(authority, &site, None).await?);
            certify_people(&site.folder, authority, &site.people)?;
        }
        Ok(())
    }
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
