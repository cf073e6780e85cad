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
pub(crate) async fn serve(
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
                None => answer(stream, site).await,
                Some(certificate) => {
                    let shaken = timeout(PATIENCE, certificate.acceptor.accept(stream)).await;
                    if let Ok(Ok(stream)) = shaken {
                        answer(stream, site).await;
                    }
                }
            }
        });
    }
}

async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, site: Router) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
    // A browser that goes away is nobody's fault.
    let _ = http
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(site))
        .await;
}
