//! The token of a fleet: sent with every call, compared on the server.

use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Request, Status};
use tradewind_common::environment;

use crate::refusal::{self, Reason};

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

/// The server's side: compares the token, in time that does not depend on where it differs.
#[derive(Clone, Debug, Default)]
pub struct AskToken(pub Token);

impl Interceptor for AskToken {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let Some(wanted) = &self.0.0 else {
            return Ok(request);
        };
        let shown = request
            .metadata()
            .get("authorization")
            .map_or(&b""[..], |v| v.as_bytes());
        let wanted = wanted.as_bytes();
        let differs = wanted
            .iter()
            .zip(shown)
            .fold(0, |acc, (a, b)| acc | (a ^ b));
        if shown.len() == wanted.len() && differs == 0 {
            Ok(request)
        } else {
            Err(refusal::status(
                Reason::BadToken,
                "the call shows no token, or another one than this server asks for".into(),
            ))
        }
    }
}
