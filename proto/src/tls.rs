//! Mutual TLS between the processes of a run or a fleet: version 1.3, and certificates of the one authority that they
//! all know. A client's handshake ends unless its peer is a server of that authority. A server lets a handshake end
//! well whatever the client shows, and [judges](Tls::judge) it then, so that each call can be refused in words.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, RwLock};

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::client::{ResolvesClientCert, Resumption};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{
    CertificateError, CipherSuite, ClientConfig, DigitallySignedStruct, DistinguishedName, Error,
    RootCertStore, ServerConfig, SignatureScheme,
};
use tradewind_common::identity::{Identity, ShutOut};
use webpki::EndEntityCert;

use crate::certificate::{validity, where_renewed};
use crate::refusal::Reason;

/// The name that every server's certificate has, and no other one: clients ask for it, whatever the address.
pub const SERVER_NAME: &str = "server.tradewind";

/// The protocol that is spoken inside: HTTP/2.
const ALPN: &[u8] = b"h2";

/// What a process shows under TLS, and what it asks of others. Clones show the same, also once it is
/// [replaced](Self::replace).
#[derive(Clone)]
pub struct Tls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    judge: Arc<dyn ClientCertVerifier>,
    authority: CertificateDer<'static>,
    shown: Arc<Shown>,
    renewed_at: Option<Arc<str>>,
    renewals_failed: Arc<AtomicU32>,
}

/// The key and the certificate that every handshake from now on shows, on either side.
#[derive(Debug)]
struct Shown(RwLock<Arc<CertifiedKey>>);

impl Shown {
    fn now(&self) -> Arc<CertifiedKey> {
        // Nothing can fail while it is replaced.
        self.0.read().unwrap_or_else(|e| e.into_inner()).clone()
    }
}

impl ResolvesClientCert for Shown {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.now())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.now())
    }
}

/// A private key with its certificates that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{variable} holds no private key with its certificate and that of the authority, as PEM: {why}",
    variable = tradewind_common::environment::CERTIFICATE
)]
pub struct BadCertificate {
    why: String,
}

/// Why what a caller shows makes it nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// It shows none.
    #[error("the caller shows no certificate, and this server asks for one of its run or fleet")]
    NoCertificate,
    /// Nobody says so but itself.
    #[error(
        "the caller's certificate is signed by itself, and not by the authority of this server's run or fleet"
    )]
    SelfSigned,
    /// That of another run or fleet, or of an earlier start of this one.
    #[error(
        "the caller's certificate is of another run or fleet, or of an earlier start of this one"
    )]
    OtherAuthority,
    /// Or not valid yet.
    #[error(
        "the caller's certificate has expired, or is not valid yet: start the process again for a new one, and compare the clocks of both machines"
    )]
    Expired,
    /// A person has taken it back.
    #[error("the caller's certificate is revoked: {0} was shut out of the run")]
    Revoked(ShutOut),
    /// It is not understood, or names no identity.
    #[error("the caller's certificate names nobody of a run or fleet")]
    Nobody,
}

impl Unfit {
    /// The word of the refusal.
    pub fn reason(self) -> Reason {
        match self {
            Self::NoCertificate => Reason::NoCertificate,
            Self::SelfSigned => Reason::SelfSigned,
            Self::OtherAuthority => Reason::OtherAuthority,
            Self::Expired => Reason::ExpiredCertificate,
            Self::Revoked(_) => Reason::RevokedCertificate,
            Self::Nobody => Reason::BadCertificate,
        }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads a private key, its certificate, and that of the authority, in this order; and where they are renewed, if
    /// that is said.
    pub fn from_pem(pem: &str) -> Result<Self, BadCertificate> {
        let (key, own, authority) = read(pem)?;
        let made = Self::new(key, own, authority).map_err(|why| bad(&why))?;
        Ok(Self {
            renewed_at: where_renewed(pem).map(Into::into),
            renewals_failed: Arc::default(),
            ..made
        })
    }

    fn new(
        key: PrivateKeyDer<'static>,
        own: CertificateDer<'static>,
        authority: CertificateDer<'static>,
    ) -> Result<Self, Error> {
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone())?;
        let (roots, provider) = (Arc::new(roots), Arc::new(provider()));
        let own = CertifiedKey::from_der(vec![own], key, &provider)?;
        let shown = Arc::new(Shown(RwLock::new(Arc::new(own))));
        let client = client(roots.clone(), provider.clone(), Some(shown.clone()))?;
        let judge = WebPkiClientVerifier::builder_with_provider(roots, provider.clone())
            .build()
            .map_err(|error| Error::General(error.to_string()))?;
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(Arc::new(TakeAny(provider)))
            .with_cert_resolver(shown.clone());
        server.alpn_protocols = vec![ALPN.to_vec()];
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Ok(Self {
            client,
            server: Arc::new(server),
            judge,
            authority,
            shown,
            renewed_at: None,
            renewals_failed: Arc::default(),
        })
    }

    /// From now on every handshake shows this key and certificate, which are as in [`from_pem`](Self::from_pem) and of
    /// the same authority. Connections that are open stay as they are.
    pub fn replace(&self, pem: &str) -> Result<(), BadCertificate> {
        let (key, own, authority) = read(pem)?;
        if authority != self.authority {
            return Err(bad(&"it is of another authority"));
        }
        let own = CertifiedKey::from_der(vec![own], key, &provider()).map_err(|why| bad(&why))?;
        *self.shown.0.write().unwrap_or_else(|e| e.into_inner()) = Arc::new(own);
        Ok(())
    }

    /// Where what is shown is renewed, as it was told, if it was.
    pub(crate) fn renewed_at(&self) -> Option<&str> {
        self.renewed_at.as_deref()
    }

    /// How often it was asked for another certificate and got none.
    pub fn renewals_failed(&self) -> u32 {
        self.renewals_failed.load(Ordering::Relaxed)
    }

    pub(crate) fn count_failed_renewal(&self) {
        self.renewals_failed.fetch_add(1, Ordering::Relaxed);
    }

    /// The last byte of the certificate that is shown now: of its signature, so it may be any.
    pub(crate) fn last_byte(&self) -> u8 {
        let shown = self.shown.now();
        let own = shown.end_entity_cert().ok();
        own.and_then(|own| own.last().copied()).unwrap_or(0)
    }

    /// From when to when what is shown now is valid, seconds from 1970.
    pub(crate) fn valid(&self) -> Option<Range<i64>> {
        validity(self.shown.now().end_entity_cert().ok()?)
    }

    /// The authority's certificate, DER: no two authorities have the same.
    pub fn authority(&self) -> &[u8] {
        &self.authority
    }

    /// The client's side.
    pub(crate) fn client(&self) -> Arc<ClientConfig> {
        self.client.clone()
    }

    /// The server's side.
    pub fn acceptor(&self) -> TlsAcceptor {
        self.server.clone().into()
    }

    /// Who has connected, by the certificates that it has shown. That it has their key the handshake has proved.
    pub fn judge(&self, shown: Option<&[CertificateDer<'_>]>) -> Result<Identity, Unfit> {
        let (own, between) = shown
            .and_then(<[_]>::split_first)
            .ok_or(Unfit::NoCertificate)?;
        let certificate = EndEntityCert::try_from(own).map_err(|_| Unfit::Nobody)?;
        if certificate.issuer() == certificate.subject() {
            return Err(Unfit::SelfSigned);
        }
        self.judge
            .verify_client_cert(own, between, UnixTime::now())
            .map_err(|error| match error {
                Error::InvalidCertificate(why) => unfit(&why),
                _ => Unfit::Nobody,
            })?;
        let mut names = certificate.valid_uri_names();
        names.find_map(Identity::of_uri).ok_or(Unfit::Nobody)
    }
}

fn bad(why: &dyn fmt::Display) -> BadCertificate {
    BadCertificate {
        why: why.to_string(),
    }
}

/// A private key, its certificate, and that of the authority.
type Pass = (
    PrivateKeyDer<'static>,
    CertificateDer<'static>,
    CertificateDer<'static>,
);

fn read(pem: &str) -> Result<Pass, BadCertificate> {
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|why| bad(&why))?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let certificates = certificates.map_err(|why| bad(&why))?;
    let [own, authority] = <[_; 2]>::try_from(certificates)
        .map_err(|found| bad(&format_args!("there are {} certificates", found.len())))?;
    Ok((key, own, authority))
}

fn unfit(why: &CertificateError) -> Unfit {
    match why {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => Unfit::OtherAuthority,
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => Unfit::Expired,
        _ => Unfit::Nobody,
    }
}

/// The client's side of somebody who knows the authority's certificate, PEM, and has none of its own yet.
pub(crate) fn without_certificate(authority: &str) -> Result<Arc<ClientConfig>, BadCertificate> {
    let authority = CertificateDer::from_pem_slice(authority.as_bytes());
    let made = authority
        .map_err(|why| why.to_string())
        .and_then(|authority| {
            let mut roots = RootCertStore::empty();
            let added = roots.add(authority);
            let made = added.and_then(|()| client(Arc::new(roots), Arc::new(provider()), None));
            made.map_err(|why| why.to_string())
        });
    made.map_err(|why| BadCertificate { why })
}

fn client(
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
    shown: Option<Arc<Shown>>,
) -> Result<Arc<ClientConfig>, Error> {
    let client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots);
    let mut client = match shown {
        Some(shown) => client.with_client_cert_resolver(shown),
        None => client.with_no_client_auth(),
    };
    client.alpn_protocols = vec![ALPN.to_vec()];
    // Connections are few and last long; each is judged anew.
    client.resumption = Resumption::disabled();
    Ok(Arc::new(client))
}

/// Why a peer is no server of one's own run or fleet; other errors as they are.
pub(crate) fn in_words(error: io::Error) -> io::Error {
    let tls = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Error>());
    let why = match tls {
        Some(Error::InvalidCertificate(why)) => match unfit(why) {
            Unfit::OtherAuthority => {
                "its certificate is of another run or fleet, or of an earlier start of this one"
            }
            Unfit::Expired => "its certificate has expired, or is not valid yet",
            Unfit::NoCertificate | Unfit::SelfSigned | Unfit::Revoked(_) | Unfit::Nobody => {
                "its certificate is not a server's"
            }
        },
        Some(Error::InvalidMessage(_)) => "it speaks no TLS",
        _ => return error,
    };
    let text = format!("no server of this run or fleet answers there: {why}");
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

/// Ciphers by which gigabytes are moved at the least cost, where processors have AES; and without that the other one.
fn provider() -> CryptoProvider {
    let mut provider = ring::default_provider();
    let wanted = [
        CipherSuite::TLS13_AES_128_GCM_SHA256,
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    let place = |suite| wanted.iter().position(|wanted| *wanted == suite);
    provider
        .cipher_suites
        .retain(|suite| place(suite.suite()).is_some());
    provider
        .cipher_suites
        .sort_by_key(|suite| place(suite.suite()));
    provider
}

/// Asks a client for a certificate and for the proof that it has the key, and takes any: see [`Tls::judge`].
#[derive(Debug)]
struct TakeAny(Arc<CryptoProvider>);

impl ClientCertVerifier for TakeAny {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("only TLS 1.3 is spoken".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::{Authority, VALID_S, self_signed};
    use tradewind_common::{GroupId, RunId, ServerId};

    fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
        let all = CertificateDer::pem_slice_iter(pem.as_bytes());
        all.take(1).map(Result::unwrap).collect()
    }

    #[test]
    fn who_shows_what_is_told_apart() {
        let (own, other) = (
            Authority::new("climate").unwrap(),
            // Of the same name: an earlier start.
            Authority::new("climate").unwrap(),
        );
        let rank = Identity::Rank {
            run: RunId::new("climate").unwrap(),
            group: GroupId(1),
            rank: None,
        };
        let server = Tls::from_pem(&own.pass(&Identity::Server(None)).unwrap()).unwrap();
        for identity in [Identity::Server(None), rank.clone(), Identity::Person(None)] {
            let shown = own.pass(&identity).unwrap();
            assert_eq!(server.judge(Some(&certificates(&shown))), Ok(identity));
        }
        let hour = 3600;
        let cases = [
            (other.pass(&rank), Unfit::OtherAuthority),
            (
                Authority::new("x").unwrap().pass(&rank),
                Unfit::OtherAuthority,
            ),
            (self_signed(&rank), Unfit::SelfSigned),
            (own.pass_for(&rank, -2 * hour..-hour), Unfit::Expired),
            (own.pass_for(&rank, hour..VALID_S.end), Unfit::Expired),
        ];
        for (shown, unfit) in cases {
            let shown = certificates(&shown.unwrap());
            assert_eq!(server.judge(Some(&shown)), Err(unfit));
        }
        assert_eq!(server.judge(None), Err(Unfit::NoCertificate));
        assert_eq!(server.judge(Some(&[])), Err(Unfit::NoCertificate));
        let garbage = [CertificateDer::from(vec![1, 2, 3])];
        assert_eq!(server.judge(Some(&garbage)), Err(Unfit::Nobody));
    }

    #[test]
    fn what_a_successor_issues_is_good_for_who_knows_the_founder_alone() {
        let founder = Authority::new("climate").unwrap();
        let server = Tls::from_pem(&founder.pass(&Identity::Server(None)).unwrap()).unwrap();
        let successor = Authority::taken_over(founder.hand_on(), &server).unwrap();
        for identity in [Identity::Server(Some(ServerId(1))), Identity::Person(None)] {
            let shown = successor.pass(&identity).unwrap();
            assert_eq!(server.judge(Some(&certificates(&shown))), Ok(identity));
            // And its process shows it from then on.
            assert_eq!(server.replace(&shown), Ok(()));
        }
    }

    #[test]
    fn what_cannot_be_shown_is_refused_by_name() {
        let authority = Authority::new("climate").unwrap();
        let pass = authority.pass(&Identity::Person(None)).unwrap();
        let lone = pass.replacen(&authority.certificate(), "", 1);
        let other = authority.pass(&Identity::Person(None)).unwrap();
        let key_of_other = format!(
            "{}{}",
            other.split_once("-----BEGIN CERT").unwrap().0,
            &pass[pass.find("-----BEGIN CERT").unwrap()..]
        );
        for bad in ["", &lone, &key_of_other, &authority.certificate()] {
            let error = Tls::from_pem(bad).unwrap_err().to_string();
            assert!(
                error.starts_with("TRADEWIND_CERTIFICATE holds no "),
                "{error}"
            );
        }
        assert!(Tls::from_pem(&pass).is_ok());
    }
}
