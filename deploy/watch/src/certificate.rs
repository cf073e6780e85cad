//! The certificate of a page under TLS: one of the user's, or one that is made for this page alone and whose fingerprint
//! is told.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use rcgen::{CertificateParams, KeyPair};
use ring::digest::{SHA256, digest};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::version::TLS13;
use tradewind_folder::input::BadInput;

/// What the page shows to prove where it is.
#[derive(Clone)]
pub(crate) struct Certificate {
    pub(crate) acceptor: TlsAcceptor,
    /// SHA-256 of the certificate as browsers show it, hexadecimal with colons.
    pub(crate) fingerprint: String,
}

impl Certificate {
    /// A user's: the certificate, with those between it and its authority behind it, and its key, both PEM.
    ///
    /// # Errors
    /// Files that cannot be read, or that are no such things; a key of another certificate.
    pub(crate) fn of_files(certificate: &Path, key: &Path) -> anyhow::Result<Self> {
        let chain: Result<Vec<_>, _> =
            CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
        let chain = chain.map_err(|why| unusable("certificate", certificate, &why))?;
        let Some(first) = chain.first() else {
            return Err(unusable("certificate", certificate, &"it has none as PEM"));
        };
        ParsedCertificate::try_from(first)
            .map_err(|why| unusable("certificate", certificate, &why))?;
        let own = PrivateKeyDer::from_pem_file(key).map_err(|why| unusable("key", key, &why))?;
        Self::new(chain, own).map_err(|why| unusable("key", key, &why))
    }

    /// One that is signed by itself, for a page on hosts of these names or addresses.
    pub(crate) fn for_hosts(hosts: Vec<String>) -> anyhow::Result<Self> {
        let key = KeyPair::generate().context("no key can be made")?;
        let own = CertificateParams::new(hosts)
            .and_then(|params| params.self_signed(&key))
            .context("no certificate can be made")?;
        let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
        Ok(Self::new(vec![own.der().clone()], key)?)
    }

    fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, tokio_rustls::rustls::Error> {
        let own = digest(&SHA256, &chain[0]);
        let mut fingerprint = String::new();
        for byte in own.as_ref() {
            let colon = if fingerprint.is_empty() { "" } else { ":" };
            let _ = write!(fingerprint, "{colon}{byte:02X}");
        }
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&TLS13])?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        Ok(Self {
            acceptor: Arc::new(config).into(),
            fingerprint,
        })
    }
}

fn unusable(option: &str, path: &Path, why: &dyn std::fmt::Display) -> anyhow::Error {
    BadInput(format!("--{option} {}: {why}", path.display())).into()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use axum::Router;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::pki_types::ServerName;
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};
    use tradewind_folder::runtime::one_thread;

    use super::*;
    use crate::connections::serve;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

    /// A certificate for localhost with its key, PEM.
    fn made() -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    #[test]
    fn a_page_is_told_to_who_trusts_its_certificate_and_in_no_clear_text() {
        let root = tempfile::tempdir().unwrap();
        let (own, key) = (root.path().join("own.pem"), root.path().join("own.key"));
        let (certificate, private) = made();
        fs::write(&own, &certificate).unwrap();
        fs::write(&key, private).unwrap();
        let shown = Certificate::of_files(&own, &key).unwrap();
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap())
            .unwrap();
        let client = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let trusting = TlsConnector::from(Arc::new(client));
        one_thread().unwrap().block_on(async {
            let page = Router::new().route("/", get(|| async { "the page" }));
            let serves = |shown: Certificate| async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let address = listener.local_addr().unwrap();
                (
                    address,
                    tokio::spawn(serve(listener, Some(shown), page.clone())),
                )
            };
            let named = ServerName::try_from("localhost").unwrap();
            let (address, served) = serves(shown).await;
            // It says nothing, and keeps nobody else waiting.
            let _silent = TcpStream::connect(address).await.unwrap();
            let mut clear = TcpStream::connect(address).await.unwrap();
            clear.write_all(REQUEST).await.unwrap();
            let mut answer = Vec::new();
            // An alert of TLS, or the connection's end.
            let _ = clear.read_to_end(&mut answer).await;
            assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
            let stream = TcpStream::connect(address).await.unwrap();
            let mut stream = trusting.connect(named.clone(), stream).await.unwrap();
            stream.write_all(REQUEST).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(
                answer.starts_with("HTTP/1.1 200") && answer.ends_with("the page"),
                "{answer}"
            );
            served.abort();

            // Another one's certificate.
            let (address, served) =
                serves(Certificate::for_hosts(vec!["localhost".into()]).unwrap()).await;
            let stream = TcpStream::connect(address).await.unwrap();
            let error = trusting
                .connect(named, stream)
                .await
                .unwrap_err()
                .to_string();
            assert!(error.contains("certificate"), "{error}");
            served.abort();
        });
    }

    #[test]
    fn files_that_are_no_certificate_with_its_key_are_named() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        let (certificate, key) = made();
        fs::write(path("own.pem"), certificate).unwrap();
        fs::write(path("own.key"), key).unwrap();
        fs::write(path("other.key"), made().1).unwrap();
        fs::write(path("empty"), "").unwrap();
        let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        fs::write(path("garbage.pem"), garbage).unwrap();
        let error = |own: &str, key: &str| {
            let made = Certificate::of_files(&path(own), &path(key));
            made.err().map(|error| error.to_string())
        };
        assert_eq!(error("own.pem", "own.key"), None);
        let told = |option: &str, name: &str| format!("--{option} {}: ", path(name).display());
        for (own, key, begins) in [
            ("missing", "own.key", told("certificate", "missing")),
            ("empty", "own.key", told("certificate", "empty")),
            ("garbage.pem", "own.key", told("certificate", "garbage.pem")),
            ("own.pem", "missing", told("key", "missing")),
            ("own.pem", "empty", told("key", "empty")),
            ("own.pem", "own.pem", told("key", "own.pem")),
            ("own.pem", "other.key", told("key", "other.key")),
        ] {
            let text = error(own, key).unwrap();
            assert!(text.starts_with(&begins), "{text}");
        }
    }
}
