//! Messages of calls in small HTTP/2 frames. A server's room for what it reads on a connection grows with the largest
//! frame, and mostly stays as large for as long as the connection lasts: that of each rank, which says the whole run's
//! description when it joins.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Frame;
use tonic::Status;
use tonic::body::Body;
use tower_service::Service;

/// Bytes in a frame. Room of 8 KiB, which HTTP/2's library begins with, holds a frame of that length wherever in it
/// the frame begins to be read, or is free for it again.
const FRAME_BYTES: usize = 2 << 10;

/// A channel that sends small frames.
#[derive(Clone, Debug)]
pub struct SmallFrames<S>(pub(crate) S);

impl<S: Service<http::Request<Body>>> Service<http::Request<Body>> for SmallFrames<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> S::Future {
        let rest = Bytes::new();
        self.0
            .call(request.map(|body| Body::new(InFrames { body, rest })))
    }
}

/// What a body says, in parts of at most [`FRAME_BYTES`].
struct InFrames {
    body: Body,
    rest: Bytes,
}

impl http_body::Body for InFrames {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        while self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                ended => return Poll::Ready(ended),
            }
        }
        let length = self.rest.len().min(FRAME_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(length)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::{Ready, ready};

    use http_body_util::combinators::Collect;
    use http_body_util::{BodyExt, StreamBody};

    use super::*;

    /// Answers with what it was sent.
    struct Echo;

    impl Service<http::Request<Body>> for Echo {
        type Response = Body;
        type Error = Infallible;
        type Future = Ready<Result<Body, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: http::Request<Body>) -> Self::Future {
            ready(Ok(request.into_body()))
        }
    }

    async fn sent(parts: Vec<Result<Frame<Bytes>, Status>>) -> Body {
        let body = Body::new(StreamBody::new(tokio_stream::iter(parts)));
        let called = SmallFrames(Echo).call(http::Request::new(body)).await;
        called.unwrap()
    }

    #[tokio::test]
    async fn a_long_message_goes_in_small_frames() {
        let long: Bytes = (0..5_000u32).map(|byte| byte as u8).collect();
        let parts = [long.clone(), Bytes::new(), Bytes::from_static(b"short")];
        let mut body = sent(Vec::from(parts.map(|part| Ok(Frame::data(part))))).await;
        let mut heard: Vec<Bytes> = Vec::new();
        while let Some(frame) = body.frame().await {
            heard.push(frame.unwrap().into_data().unwrap());
        }
        let lengths: Vec<_> = heard.iter().map(Bytes::len).collect();
        assert_eq!(lengths, [2048, 2048, 904, 5]);
        assert_eq!(heard.concat(), [&long[..], b"short"].concat());
    }

    #[tokio::test]
    async fn what_comes_after_messages_is_kept() {
        let mut trailers = http::HeaderMap::new();
        trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
        let parts = vec![
            Ok(Frame::data(Bytes::from_static(b"a"))),
            Ok(Frame::trailers(trailers.clone())),
        ];
        let collected: Collect<Body> = sent(parts).await.collect();
        assert_eq!(collected.await.unwrap().trailers(), Some(&trailers));

        let fails = vec![Err(Status::cancelled("enough"))];
        let error = sent(fails).await.collect().await.unwrap_err();
        assert_eq!(error.code(), tonic::Code::Cancelled);
    }
}
