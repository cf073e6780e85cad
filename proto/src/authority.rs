//! The authority of a run or a fleet: says by certificates who belongs to it. It lives in the process that starts the
//! others, and its key is written nowhere. It can be handed on to another process, which is the same authority then.

use std::ops::Range;
use std::sync::OnceLock;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, Error, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType, SignatureAlgorithm,
};
use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};
use tradewind_common::identity::Identity;

use crate::certificate::renewed_at;
use crate::tls::{SERVER_NAME, Tls};

/// How long before its issue a certificate is valid already, seconds: clocks of machines may be an hour apart.
pub const EARLIER_S: i64 = 3600;

/// How long a certificate is valid from its issue unless it is said otherwise, seconds.
pub const LIFE_S: u32 = 365 * 24 * 3600;

/// From when to when a certificate is valid unless it is said otherwise, seconds from its issue.
pub const VALID_S: Range<i64> = -EARLIER_S..LIFE_S as i64;

/// As RFC 5280 (4.1.2.5) writes that a certificate has no end: the last second of the year 9999, from 1970.
const NO_END: i64 = 253_402_300_799;

/// Issues certificates.
///
/// Its own has no end: its key is in the memory of few processes of one start, and lives no longer than those.
pub struct Authority {
    /// The name of its run or fleet, for people.
    of: String,
    issuer: Issuer<'static, KeyPair>,
    /// Its own, PEM. Wherever the key is, the certificate is the same: by its bytes others know the authority.
    certificate: String,
    /// Those that it issues are valid for so long, seconds.
    life_s: u32,
    /// Where they are renewed: host:port, or the folder where authorities are listed.
    renews_at: OnceLock<String>,
}

/// All that makes an authority, its key with it, on the way to a process that becomes the same one.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandedOn {
    of: String,
    /// PEM.
    key: String,
    /// PEM.
    certificate: String,
    life_s: u32,
}

impl std::fmt::Debug for HandedOn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HandedOn of {}", self.of)
    }
}

/// What was handed on makes no authority.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// The key is none.
    #[error("the key that was handed on cannot be used: {0}")]
    Key(#[from] Error),
    /// It is that of another authority.
    #[error("the key that was handed on is not that of the authority by which it was asked for")]
    OtherAuthority,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Authority of {}", self.of)
    }
}

/// A key that a process has made, and has a certificate issued for.
#[derive(Debug)]
pub struct Key(KeyPair);

impl Key {
    /// A new one, from the system's randomness.
    pub fn new() -> Result<Self, Error> {
        KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map(Self)
    }

    /// The public part, which an authority is shown: a point of the curve P-256, not compressed.
    pub fn public(&self) -> &[u8] {
        self.0.public_key_raw()
    }

    /// What the process shows from then on, given the certificate of this key and that of the authority.
    pub fn pass(&self, certificates: &str) -> String {
        self.0.serialize_pem() + certificates
    }
}

/// The [public part](Key::public) of somebody's key. That its bytes are no point shows when nobody can use them.
struct Public<'a>(&'a [u8]);

impl PublicKeyData for Public<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

impl Authority {
    /// A new one, for the run or the fleet of this name, whose certificates are valid for [`LIFE_S`].
    pub fn new(of: &str) -> Result<Self, Error> {
        Self::lasting(of, LIFE_S)
    }

    /// The same with another life of its certificates, seconds.
    pub fn lasting(of: &str, life_s: u32) -> Result<Self, Error> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let params = of_authority(of);
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self {
            of: of.to_owned(),
            issuer: Issuer::new(params, key),
            certificate,
            life_s,
            renews_at: OnceLock::new(),
        })
    }

    /// What another process needs to be this authority as well. Its key is in it.
    pub fn hand_on(&self) -> HandedOn {
        HandedOn {
            of: self.of.clone(),
            key: self.issuer.key().serialize_pem(),
            certificate: self.certificate.clone(),
            life_s: self.life_s,
        }
    }

    /// The authority that was handed on, to who shows this and is certified by it: what it issues is as good as what
    /// others with its key issue. Where it renews is not said yet.
    pub fn taken_over(handed: HandedOn, by: &Tls) -> Result<Self, NotTaken> {
        let HandedOn {
            of,
            key,
            certificate,
            life_s,
        } = handed;
        let own = KeyPair::from_pem(&key)?;
        // Which asks whether they go together.
        let itself = Tls::from_pem(&format!("{key}{certificate}{certificate}")).ok();
        if itself.is_none_or(|itself| itself.authority() != by.authority()) {
            return Err(NotTaken::OtherAuthority);
        }
        Ok(Self {
            issuer: Issuer::new(of_authority(&of), own),
            of,
            certificate,
            life_s,
            renews_at: OnceLock::new(),
        })
    }

    /// From now on whoever has a certificate issued is told that it is renewed there: at this host:port, or by those that
    /// are listed in the folder of this absolute path, which is one line. Said once.
    pub fn renews_at(&self, at: String) {
        let _ = self.renews_at.set(at);
    }

    /// How long its certificates are valid, seconds.
    pub fn life_s(&self) -> u32 {
        self.life_s
    }

    fn valid_s(&self) -> Range<i64> {
        -EARLIER_S..self.life_s.into()
    }

    /// Its own certificate, PEM: by it others know what it has issued. No secret.
    pub fn certificate(&self) -> String {
        self.certificate.clone()
    }

    /// A new key with its certificate, as a process on this machine is given them.
    pub fn pass(&self, identity: &Identity) -> Result<String, Error> {
        self.pass_for(identity, self.valid_s())
    }

    /// The same, valid for as long as the authority: for its own process, which could have another one at any time.
    pub fn own_pass(&self, identity: &Identity) -> Result<String, Error> {
        let key = Key::new()?;
        let certificate = self.sign(identity, key.public(), endless())?;
        Ok(key.pass(&(certificate + &self.certificate)))
    }

    /// The same, valid at other times.
    pub fn pass_for(&self, identity: &Identity, valid_s: Range<i64>) -> Result<String, Error> {
        let key = Key::new()?;
        let certificates = self.issue_for(identity, key.public(), valid_s)?;
        Ok(key.pass(&certificates))
    }

    /// The certificate of a [public key](Key::public), and behind it the authority's own.
    pub fn issue(&self, identity: &Identity, public: &[u8]) -> Result<String, Error> {
        self.issue_for(identity, public, self.valid_s())
    }

    fn issue_for(
        &self,
        identity: &Identity,
        public: &[u8],
        valid_s: Range<i64>,
    ) -> Result<String, Error> {
        let issued = self.sign(identity, public, valid_s)? + &self.certificate;
        let renewed = self.renews_at.get().map(|at| renewed_at(at));
        Ok(issued + &renewed.unwrap_or_default())
    }

    fn sign(
        &self,
        identity: &Identity,
        public: &[u8],
        valid_s: Range<i64>,
    ) -> Result<String, Error> {
        let params = of_identity(identity, &self.of, valid_s)?;
        Ok(params.signed_by(&Public(public), &self.issuer)?.pem())
    }
}

/// A certificate of somebody whom no authority knows, with its key; it stands in the place of the authority's, too.
/// For tests, that nobody believes it.
pub fn self_signed(identity: &Identity) -> Result<String, Error> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let own = of_identity(identity, "nobody", VALID_S)?.self_signed(&key)?;
    Ok(key.serialize_pem() + &own.pem() + &own.pem())
}

fn of_identity(
    identity: &Identity,
    of: &str,
    valid_s: Range<i64>,
) -> Result<CertificateParams, Error> {
    let mut params = params(&format!("{identity} of {of}"), valid_s);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.subject_alt_names = vec![SanType::URI(identity.uri().try_into()?)];
    if let Identity::Server(_) = identity {
        // Clients ask for both.
        params
            .extended_key_usages
            .push(ExtendedKeyUsagePurpose::ServerAuth);
        params
            .subject_alt_names
            .push(SanType::DnsName(SERVER_NAME.try_into()?));
    }
    Ok(params)
}

fn of_authority(of: &str) -> CertificateParams {
    let mut params = params(&format!("authority of {of}"), endless());
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

/// Valid for ever, for [`params`].
fn endless() -> Range<i64> {
    -EARLIER_S..i64::MAX
}

fn params(name: &str, valid_s: Range<i64>) -> CertificateParams {
    let now = OffsetDateTime::now_utc();
    let last = OffsetDateTime::from_unix_timestamp(NO_END).expect("a time of four digits");
    let mut params = CertificateParams::default();
    params.not_before = now.saturating_add(Duration::seconds(valid_s.start));
    params.not_after = now.saturating_add(Duration::seconds(valid_s.end)).min(last);
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(authority: &Authority) -> Tls {
        let pass = authority.pass(&Identity::Server(None)).unwrap();
        Tls::from_pem(&pass).unwrap()
    }

    #[test]
    fn what_is_handed_on_is_the_same_authority() {
        let founder = Authority::lasting("climate", 600).unwrap();
        let own = shown(&founder);
        let successor = Authority::taken_over(founder.hand_on(), &own).unwrap();
        assert_eq!(successor.certificate(), founder.certificate());
        assert_eq!(successor.life_s(), 600);
        // So with what it hands on itself.
        let third = Authority::taken_over(successor.hand_on(), &own).unwrap();
        assert_eq!(third.certificate(), founder.certificate());
        // What is written into a log tells nobody the key.
        let told = format!("{:?} {successor:?}", founder.hand_on());
        assert!(!told.contains("PRIVATE KEY"), "{told}");
    }

    #[test]
    fn a_key_of_another_authority_is_not_taken() {
        let [founder, other] = [(); 2].map(|()| Authority::new("climate").unwrap());
        let own = shown(&founder);
        let refused = |handed| Authority::taken_over(handed, &own).unwrap_err();
        let mixed = HandedOn {
            key: other.hand_on().key,
            ..founder.hand_on()
        };
        assert_eq!(refused(mixed), NotTaken::OtherAuthority);
        assert_eq!(refused(other.hand_on()), NotTaken::OtherAuthority);
        let garbage = HandedOn {
            key: "no key".into(),
            ..founder.hand_on()
        };
        let error = refused(garbage);
        assert!(matches!(error, NotTaken::Key(_)), "{error}");
    }
}
