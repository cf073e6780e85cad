//! The authority of a run or a fleet: says by certificates who belongs to it. It lives in the process that starts the
//! others, and its key is written nowhere.

use std::ops::Range;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, Error, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SanType,
    SignatureAlgorithm,
};
use time::{Duration, OffsetDateTime};
use tradewind_common::identity::Identity;

use crate::tls::SERVER_NAME;

/// From when to when a certificate is valid, seconds from its issue: clocks of machines may be an hour apart. A
/// process that is started again has a new one.
pub const VALID_S: Range<i64> = -3600..365 * 24 * 3600;

/// Issues certificates.
pub struct Authority {
    /// The name of its run or fleet, for people.
    of: String,
    issuer: CertifiedIssuer<'static, KeyPair>,
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
    /// A new one, for the run or the fleet of this name.
    pub fn new(of: &str) -> Result<Self, Error> {
        let mut params = params(&format!("authority of {of}"), VALID_S);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Ok(Self {
            of: of.to_owned(),
            issuer: CertifiedIssuer::self_signed(
                params,
                KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?,
            )?,
        })
    }

    /// Its own certificate, PEM: by it others know what it has issued. No secret.
    pub fn certificate(&self) -> String {
        self.issuer.pem()
    }

    /// A new key with its certificate, as a process on this machine is given them.
    pub fn pass(&self, identity: &Identity) -> Result<String, Error> {
        self.pass_for(identity, VALID_S)
    }

    /// The same, valid at other times.
    pub fn pass_for(&self, identity: &Identity, valid_s: Range<i64>) -> Result<String, Error> {
        let key = Key::new()?;
        let certificates = self.issue_for(identity, key.public(), valid_s)?;
        Ok(key.pass(&certificates))
    }

    /// The certificate of a [public key](Key::public), and behind it the authority's own.
    pub fn issue(&self, identity: &Identity, public: &[u8]) -> Result<String, Error> {
        self.issue_for(identity, public, VALID_S)
    }

    fn issue_for(
        &self,
        identity: &Identity,
        public: &[u8],
        valid_s: Range<i64>,
    ) -> Result<String, Error> {
        let params = of_identity(identity, &self.of, valid_s)?;
        let certificate = params.signed_by(&Public(public), &*self.issuer)?;
        Ok(certificate.pem() + &self.certificate())
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

fn params(name: &str, valid_s: Range<i64>) -> CertificateParams {
    let now = OffsetDateTime::now_utc();
    let mut params = CertificateParams::default();
    params.not_before = now + Duration::seconds(valid_s.start);
    params.not_after = now + Duration::seconds(valid_s.end);
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
