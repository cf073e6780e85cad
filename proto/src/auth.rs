//! What the processes of a run or a fleet show each other: a token with every call, and under TLS certificates.

use http::HeaderMap;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Request, Status};
use tradewind_common::environment;

use crate::connector::Connector;
use crate::refusal::{self, Reason};
use crate::renewal::Renewing;
use crate::tls::{BadCertificate, Tls};

/// What a process shows to others of its run or fleet, and asks of them.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    token: Token,
    tls: Option<Tls>,
}

/// Credentials that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCredentials {
    /// The token.
    #[error(transparent)]
    Token(#[from] BadToken),
    /// The certificate.
    #[error(transparent)]
    Certificate(#[from] BadCertificate),
}

impl Credentials {
    /// A token, and a [key with its certificates](Tls::from_pem) for TLS, if that is spoken.
    pub fn new(token: &str, pem: Option<&str>) -> Result<Self, BadCredentials> {
        Ok(Self {
            token: Token::new(token)?,
            tls: pem.map(Tls::from_pem).transpose()?,
        })
    }

    /// Those of the environment; what is not there is neither shown nor asked for.
    pub fn from_env() -> Result<Self, BadCredentials> {
        let pem = std::env::var_os(environment::CERTIFICATE).filter(|pem| !pem.is_empty());
        let pem = pem.map(|pem| Tls::from_pem(&pem.to_string_lossy()));
        Ok(Self {
            token: Token::from_env()?,
            tls: pem.transpose()?,
        })
    }

    /// The token.
    pub fn token(&self) -> &Token {
        &self.token
    }

    /// Under TLS, what is shown and asked for.
    pub fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// What keeps the certificate valid, if it is renewed.
    pub fn renewing(&self) -> Option<Renewing> {
        self.tls.as_ref().and_then(Renewing::of)
    }

    /// How often the certificate was to be renewed and was not.
    pub fn renewals_failed(&self) -> u32 {
        self.tls.as_ref().map_or(0, Tls::renewals_failed)
    }

    /// What shows the token with each call.
    pub fn show(&self) -> ShowToken {
        ShowToken(self.token.clone())
    }

    /// What connects to servers.
    pub fn connector(&self) -> Connector {
        Connector::new(self.tls.as_ref())
    }
}

/// Whether a secret that was shown is the wanted one, in time that does not depend on where they differ.
pub fn is_same(shown: &[u8], wanted: &[u8]) -> bool {
    let pairs = shown.iter().zip(wanted);
    shown.len() == wanted.len() && pairs.fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

/// A secret that clients must show; empty means that none is asked for.
#[derive(Clone, Debug, Default)]
pub struct Token(Option<MetadataValue<Ascii>>);

/// A token that cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the token has characters that cannot be sent in a header; use visible ASCII")]
pub struct BadToken;

impl Token {
    /// The token of the environment; none is asked for where the variable is not set.
    pub fn from_env() -> Result<Self, BadToken> {
        match std::env::var(environment::TOKEN) {
            Ok(secret) => Self::new(&secret),
            Err(std::env::VarError::NotPresent) => Ok(Self::default()),
            Err(std::env::VarError::NotUnicode(_)) => Err(BadToken),
        }
    }

    /// A token of visible ASCII; an empty one asks for nothing.
    pub fn new(secret: &str) -> Result<Self, BadToken> {
        if secret.is_empty() {
            return Ok(Self(None));
        }
        let mut value: MetadataValue<Ascii> =
            format!("Bearer {secret}").parse().map_err(|_| BadToken)?;
        value.set_sensitive(true);
        Ok(Self(Some(value)))
    }

    /// Whether a call shows it, found in time that does not depend on where it differs.
    ///
    /// # Errors
    /// The refusal.
    pub fn ask(&self, headers: &HeaderMap) -> Result<(), Status> {
        let Some(wanted) = &self.0 else {
            return Ok(());
        };
        let shown = headers.get("authorization");
        let shown = shown.map_or(&b""[..], |value| value.as_bytes());
        if is_same(shown, wanted.as_bytes()) {
            Ok(())
        } else {
            Err(refusal::status(
                Reason::BadToken,
                "the call shows no token, or another one than this server asks for".into(),
            ))
        }
    }

    /// What keys are derived from; empty where no token is asked for. It is never logged.
    pub fn secret(&self) -> &[u8] {
        self.0.as_ref().map_or(&[], |value| value.as_bytes())
    }
}

/// The client's side: shows the token.
#[derive(Clone, Debug, Default)]
pub struct ShowToken(pub Token);

impl Interceptor for ShowToken {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0.0 {
            request
                .metadata_mut()
                .insert("authorization", value.clone());
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_the_same_or_not() {
        for (shown, want) in [
            ("secret", true),
            ("", false),
            ("secre", false),
            ("secrets", false),
            ("Secret", false),
        ] {
            assert_eq!(is_same(shown.as_bytes(), b"secret"), want, "{shown:?}");
        }
    }
}
