//! The sending end: frames as the body of an HTTP/2 request or response.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame};
use tokio_stream::Stream;
use tonic::Status;

use super::{Bulk, TOGETHER_BYTES_MAX, head};

/// A message that is ready to be sent: its head, and its bulk bytes as the buffer they are in.
#[derive(Clone, Debug)]
pub struct Framed {
    head: Bytes,
    bulk: Bytes,
}

impl Framed {
    /// `message` with `bulk` for its values, which it has none of itself.
    pub fn new<M: Bulk>(message: &M, bulk: Bytes) -> Self {
        let mut head = head(message, bulk.len());
        if bulk.len() > TOGETHER_BYTES_MAX {
            let head = head.freeze();
            return Self { head, bulk };
        }
        head.extend_from_slice(&bulk);
        Self {
            head: head.freeze(),
            bulk: Bytes::new(),
        }
    }
}

/// A body of the messages that a stream brings. HTTP/2 asks for the next one when it has room, so
/// a slow reader holds the stream up. The body of a response ends with the call's status: `OK`, or
/// the first that the stream brings.
#[derive(Debug)]
pub struct Outgoing<S> {
    messages: Option<S>,
    next: VecDeque<Bytes>,
    trailers: bool,
}

impl<S> Outgoing<S> {
    /// The body of a request.
    pub fn request(messages: S) -> Self {
        Self {
            messages: Some(messages),
            next: VecDeque::with_capacity(2),
            trailers: false,
        }
    }

    /// The body of a response.
    pub fn response(messages: S) -> Self {
        Self {
            trailers: true,
            ..Self::request(messages)
        }
    }

    fn end(&mut self, status: Status) -> Option<Result<Frame<Bytes>, Status>> {
        self.messages = None;
        if !self.trailers {
            return (status.code() != tonic::Code::Ok).then_some(Err(status));
        }
        let mut trailers = HeaderMap::new();
        Some(
            status
                .add_header(&mut trailers)
                .map(|()| Frame::trailers(trailers)),
        )
    }
}

impl<S: Stream<Item = Result<Framed, Status>> + Unpin> Body for Outgoing<S> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if let Some(bytes) = this.next.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        let Some(messages) = &mut this.messages else {
            return Poll::Ready(None);
        };
        Poll::Ready(match ready!(Pin::new(messages).poll_next(context)) {
            Some(Ok(Framed { head, bulk })) => {
                if !bulk.is_empty() {
                    this.next.push_back(bulk);
                }
                Some(Ok(Frame::data(head)))
            }
            Some(Err(status)) => this.end(status),
            None => this.end(Status::ok("")),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.messages.is_none() && self.next.is_empty()
    }
}
