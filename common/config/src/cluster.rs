//! Who takes part: section `cluster`.

use std::net::IpAddr;

use tradewind_common::identity::PersonName;

use super::key::Section;
use super::section::section;
use super::{Typed, Value};

section! {
    /// Who takes part.
    Cluster {
        /// Number of parameter servers. Each holds one part of the parameters, a shard; the first one also hosts the
        /// coordinator, which knows the members of the run.
        servers: u32 = "cluster.servers", int(1, 1024), default "1";
        /// Number of ranks in each group: `[4, 4]` makes two groups of four ranks, `[8]` one group of eight.
        groups: Vec<u32> = "cluster.groups", Ints { min: 1, max: 65_536, length: None }, default "[1]";
        /// Host name or IP address that servers and ranks listen on under `tradewind run`. Under Slurm
        /// `slurm.interface` takes its place.
        host: String = "cluster.host", Text, default "\"127.0.0.1\"";
        /// What guards the calls between servers, ranks and whoever looks at the run; [security](security.md)
        /// explains it. `tls`: mutual TLS, and a role for each process. `token`: a secret word in clear text, which
        /// whoever reads the network can use. `none`: nothing. `auto` is `token` where `cluster.host` is the loopback
        /// interface and `tls` elsewhere, always under Slurm.
        wanted_security: WantedSecurity = "cluster.security", Choice(&["auto", "tls", "token", "none"]), default "\"auto\"";
        /// Accept `cluster.security = "token"` or `"none"` although the run is reached over a network: everybody who
        /// can read that network, or reaches the servers, can then read and change what is trained.
        trusted_network: bool = "cluster.trusted_network", Bool, default "false";
        /// Names of people, or of tools, who get a certificate of their own under TLS besides the run's owner:
        /// `people/NAME.pem` in the run's folder, which the owner hands on. Each can be
        /// [revoked](security.md#shut-somebody-out) by its name.
        people: Vec<String> = "cluster.people", TextsOrNone, default "[]";
        /// How long a certificate is valid under TLS, seconds; 31,536,000 are 365 days. A rank or a server has another one
        /// issued when two thirds of that have passed; the files of people are written anew then
        /// ([renewal](security.md#renewal)). Where groups share a fleet's servers, the fleet's value holds.
        certificate_s: u32 = "cluster.certificate_s", int(5, 315_360_000), default "31536000";
    }
}

/// What a configuration asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantedSecurity {
    /// What the interface needs.
    Auto,
    /// This one.
    Is(Security),
}

/// What guards the calls of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// Mutual TLS, and roles.
    Tls,
    /// A word that is shown in clear text.
    Token,
    /// Nothing.
    None,
}

impl Typed for WantedSecurity {
    fn typed(value: &Value) -> Option<Self> {
        Some(match String::typed(value)?.as_str() {
            "auto" => Self::Auto,
            "tls" => Self::Is(Security::Tls),
            "token" => Self::Is(Security::Token),
            "none" => Self::Is(Security::None),
            _ => return None,
        })
    }
}

impl Cluster {
    /// Whether the run is reached over the loopback interface alone, under `tradewind run`.
    pub fn is_on_loopback(&self) -> bool {
        let ip = self.host.parse::<IpAddr>();
        ip.map_or(self.host == "localhost", |ip| ip.is_loopback())
    }

    /// Who has a certificate besides the owner, where this guards the run.
    ///
    /// # Errors
    /// A name that cannot be one, or there are no certificates.
    pub fn people(&self, security: Security) -> Result<Vec<PersonName>, String> {
        if security != Security::Tls && !self.people.is_empty() {
            return Err(
                "cluster.people has no effect without certificates; set cluster.security = \"tls\""
                    .into(),
            );
        }
        let named = self.people.iter().map(|name| PersonName::new(name));
        let named: Result<_, _> = named.collect();
        named.map_err(|why| format!("cluster.people: {why}"))
    }

    /// What guards a run.
    ///
    /// # Errors
    /// It is reached over a network, which is not called trusted, and asks for less than TLS.
    pub fn security(&self, on_loopback: bool) -> Result<Security, String> {
        let wanted = match (self.wanted_security, on_loopback) {
            (WantedSecurity::Auto, true) => Security::Token,
            (WantedSecurity::Auto, false) => Security::Tls,
            (WantedSecurity::Is(wanted), _) => wanted,
        };
        if on_loopback || self.trusted_network || wanted == Security::Tls {
            return Ok(wanted);
        }
        Err(
            "cluster.security is less than \"tls\", and the run is reached over a network, where everybody who reads it could take part; if only people you trust can, say so with cluster.trusted_network = true"
                .into(),
        )
    }
}

/// The section.
pub(super) fn section() -> Section {
    Section {
        name: "cluster",
        about: "Says how many processes there are: parameter servers, and groups of ranks. A rank is one worker process, on one GPU or some CPU cores; the ranks of a group train synchronously, as in PyTorch's DDP.",
        example: r#"[cluster]
servers = 2
groups = [4, 4]    # two groups of four ranks
"#,
        keys: Cluster::KEYS.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_than_tls_is_said_twice_off_loopback() {
        use Security::{None, Tls, Token};
        use WantedSecurity::{Auto, Is};
        let cases = [
            ("127.0.0.1", Auto, false, Some(Token)),
            ("::1", Auto, false, Some(Token)),
            ("localhost", Is(None), false, Some(None)),
            ("127.0.0.1", Is(Tls), false, Some(Tls)),
            ("10.0.0.1", Auto, false, Some(Tls)),
            ("node7", Auto, true, Some(Tls)),
            ("0.0.0.0", Is(Token), false, Option::None),
            ("node7", Is(None), false, Option::None),
            ("node7", Is(Token), true, Some(Token)),
            ("10.0.0.1", Is(None), true, Some(None)),
        ];
        for (host, wanted_security, trusted_network, want) in cases {
            let cluster = Cluster {
                servers: 1,
                groups: vec![1],
                host: host.into(),
                wanted_security,
                trusted_network,
                people: Vec::new(),
                certificate_s: 60,
            };
            let security = cluster.security(cluster.is_on_loopback());
            assert_eq!(security.clone().ok(), want, "{host} {wanted_security:?}");
            if let Err(why) = security {
                assert!(why.contains("cluster.trusted_network = true"), "{why}");
            }
        }
    }
}
