//! Connections of browsers, in clear or under TLS: so many at a time, none of which may stay without asking for something.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::certificate::Certificate;

/// Most connections at a time: a browser has up to six. Who comes then waits for one of them to end.
const CONNECTIONS_MAX: usize = 256;

/// How long a handshake may take, and how long a connection may stay open without a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// Answers whoever connects, until it is dropped.
pub(crate) async fn serve(listener: TcpListener, certificate: Option<Certificate>, site: Router) {
    serve_with(PATIENCE, listener, certificate, site).await;
}

async fn serve_with(
    patience: Duration,
    mut listener: TcpListener,
    certificate: Option<Certificate>,
    site: Router,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // It is never closed.
    while let Ok(place) = places.clone().acquire_owned().await {
        // Of axum, as it waits where the process has no descriptors left.
        let (stream, _) = Listener::accept(&mut listener).await;
        let (certificate, site) = (certificate.clone(), site.clone());
        // Not supervised: a browser has one connection less, and asks again.
        tokio::spawn(async move {
            let _place = place;
            match certificate {
                None => answer(patience, stream, site).await,
                Some(certificate) => {
                    let shaken = timeout(patience, certificate.acceptor.accept(stream)).await;
                    if let Ok(Ok(stream)) = shaken {
                        answer(patience, stream, site).await;
                    }
                }
            }
        });
    }
}

async fn answer(patience: Duration, stream: impl AsyncRead + AsyncWrite + Unpin, site: Router) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(patience);
    // A browser that goes away is nobody's fault.
    let _ = http
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(site))
        .await;
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn who_asks_for_nothing_is_not_kept() {
        let made = Certificate::for_hosts(vec!["localhost".into()]).unwrap();
        for certificate in [None, Some(made)] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let soon = Duration::from_millis(100);
            let served = tokio::spawn(serve_with(soon, listener, certificate, Router::new()));
            let mut silent = TcpStream::connect(address).await.unwrap();
            let ended = timeout(2 * PATIENCE, silent.read_to_end(&mut Vec::new())).await;
            assert!(ended.is_ok(), "it is kept");
            served.abort();
        }
    }
}
