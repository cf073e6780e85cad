//! How every process connects: a tuned socket, and TLS on it where the process has a certificate.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::socket;
use crate::tls::{BadCertificate, SERVER_NAME, Tls, in_words, without_certificate};

/// Opens connections that are tuned for exchanges.
#[derive(Clone, Debug)]
pub struct Connector(Option<Arc<ClientConfig>>);

/// An open connection.
#[derive(Debug)]
pub enum Connected {
    /// What is said can be read on the way.
    Clear(TcpStream),
    /// The peer is a server of one's own run or fleet.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connector {
    /// In clear, or under TLS.
    pub fn new(tls: Option<&Tls>) -> Self {
        Self(tls.map(Tls::client))
    }

    /// Under TLS, by somebody who knows the authority's certificate, PEM, and has none of its own yet.
    pub fn without_certificate(authority: &str) -> Result<Self, BadCertificate> {
        Ok(Self(Some(without_certificate(authority)?)))
    }
}

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<Connected>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let tls = self.0.clone();
        Box::pin(async move {
            let authority = uri.authority().map_or("", |authority| authority.as_str());
            let connection = TcpStream::connect(authority).await?;
            socket::tune(&connection);
            socket::give_up_in_time(&connection);
            let Some(tls) = tls else {
                return Ok(TokioIo::new(Connected::Clear(connection)));
            };
            let name = ServerName::try_from(SERVER_NAME).map_err(io::Error::other)?;
            let shaken = TlsConnector::from(tls).connect(name, connection).await;
            let shaken = shaken.map_err(in_words)?;
            Ok(TokioIo::new(Connected::Tls(Box::new(shaken))))
        })
    }
}

impl AsyncRead for Connected {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(stream) => Pin::new(stream).poll_read(context, into),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, into),
        }
    }
}

impl AsyncWrite for Connected {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Clear(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Clear(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Clear(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Clear(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
