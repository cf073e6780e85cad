//! The authority of a run or a fleet: says by certificates who belongs to it. It lives in the process that starts the
//! others, and its key is written nowhere.

use std::ops::Range;
use std::sync::OnceLock;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, Error, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType,
    SignatureAlgorithm,
};
use time::{Duration, OffsetDateTime};
use tradewind_common::identity::Identity;

use crate::certificate::renewed_at;
use crate::tls::SERVER_NAME;

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
/// Its own has no end: its key is in the memory of one process, and lives no longer than that.
pub struct Authority {
    /// The name of its run or fleet, for people.
    of: String,
    issuer: CertifiedIssuer<'static, KeyPair>,
    /// Those that it issues are valid for so long, seconds.
    life_s: u32,
    /// Where it renews them, host:port.
    renews_at: OnceLock<String>,
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
        let mut params = params(&format!("authority of {of}"), endless());
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Ok(Self {
            of: of.to_owned(),
            issuer: CertifiedIssuer::self_signed(
                params,
                KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?,
            )?,
            life_s,
            renews_at: OnceLock::new(),
        })
    }

    /// From now on whoever has a certificate issued is told that it is renewed at this host:port; said once.
    pub fn renews_at(&self, address: String) {
        let _ = self.renews_at.set(address);
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
        self.issuer.pem()
    }

    /// A new key with its certificate, as a process on this machine is given them.
    pub fn pass(&self, identity: &Identity) -> Result<String, Error> {
        self.pass_for(identity, self.valid_s())
    }

    /// The same, valid for as long as the authority: for its own process, which could have another one at any time.
    pub fn own_pass(&self, identity: &Identity) -> Result<String, Error> {
        let key = Key::new()?;
        let certificate = self.sign(identity, key.public(), endless())?;
        Ok(key.pass(&(certificate + &self.certificate())))
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
        let issued = self.sign(identity, public, valid_s)? + &self.certificate();
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
        Ok(params.signed_by(&Public(public), &*self.issuer)?.pem())
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
