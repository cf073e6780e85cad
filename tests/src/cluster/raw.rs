//! A client that sends bytes, where a well-behaved one could not send what the test needs.

use bytes::Bytes;
use http::{HeaderMap, Method, Request};
use tokio::net::TcpStream;

use super::client::ANSWER;

/// How a request's body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The client says that it is complete.
    Closed,
    /// The client takes the call back.
    Reset,
    /// The connection breaks.
    Cut,
}

/// What a call came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// `grpc-status`, if one came.
    pub code: Option<i32>,
    /// `grpc-message`, as it is on the wire.
    pub message: String,
    /// `tradewind-refusal`.
    pub reason: Option<String>,
    /// Bytes of the answer.
    pub received: usize,
}

/// A message as gRPC frames it: a flag, a length, the bytes.
pub fn framed(message: &[u8]) -> Vec<u8> {
    let mut frame = prefix(message.len() as u32);
    frame.extend(message);
    frame
}

/// What stands before a message of this length.
pub fn prefix(length: u32) -> Vec<u8> {
    let mut prefix = vec![0];
    prefix.extend(length.to_be_bytes());
    prefix
}

/// Calls `path` (`/package.Service/Method`) with `body`. With `answers` bytes to come back first,
/// the end of the body is held back until they have.
///
/// # Panics
/// If the server does not speak HTTP/2, or has not answered after a minute.
pub async fn call(address: &str, token: &str, path: &str, sent: (Vec<u8>, usize, End)) -> Outcome {
    let call = send(address, token, path, sent);
    tokio::time::timeout(ANSWER, call).await.expect("an answer")
}

async fn send(
    address: &str,
    token: &str,
    path: &str,
    (body, answers, end): (Vec<u8>, usize, End),
) -> Outcome {
    let socket = TcpStream::connect(address).await.expect("a server listens");
    let (mut sender, connection) = h2::client::handshake(socket).await.expect("HTTP/2");
    let connection = tokio::spawn(connection);
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("http://{address}{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("authorization", format!("Bearer {token}"))
        .body(())
        .expect("a request");
    let (response, mut stream) = sender.send_request(request, false).expect("it is sent");
    let closed = end == End::Closed && answers == 0;
    stream
        .send_data(Bytes::from(body), closed)
        .expect("it is sent");
    let mut outcome = Outcome::default();
    let mut incoming = None;
    let mut response = Some(response);
    if answers > 0 {
        let arrived = response
            .take()
            .expect("not taken")
            .await
            .expect("an answer");
        outcome.take(arrived.headers());
        let mut body = arrived.into_body();
        while outcome.received < answers {
            let data = body.data().await.expect("more comes").expect("data");
            outcome.received += data.len();
            let _ = body.flow_control().release_capacity(data.len());
        }
        incoming = Some(body);
    }
    match end {
        End::Closed if closed => {}
        End::Closed => stream.send_data(Bytes::new(), true).expect("it is sent"),
        End::Reset => stream.send_reset(h2::Reason::CANCEL),
        End::Cut => {
            connection.abort();
            let _ = connection.await;
            return outcome;
        }
    }
    if let Some(response) = response
        && let Ok(arrived) = response.await
    {
        outcome.take(arrived.headers());
        incoming = Some(arrived.into_body());
    }
    if let Some(mut body) = incoming {
        while let Some(Ok(data)) = body.data().await {
            outcome.received += data.len();
            let _ = body.flow_control().release_capacity(data.len());
        }
        if let Ok(Some(trailers)) = body.trailers().await {
            outcome.take(&trailers);
        }
    }
    outcome
}

impl Outcome {
    fn take(&mut self, headers: &HeaderMap) {
        let text = |name: &str| Some(headers.get(name)?.to_str().ok()?.to_owned());
        self.code = self
            .code
            .or(text("grpc-status").and_then(|s| s.parse().ok()));
        self.message = text("grpc-message").unwrap_or(std::mem::take(&mut self.message));
        self.reason = self.reason.take().or(text("tradewind-refusal"));
    }
}
