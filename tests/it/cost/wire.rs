//! A proxy between a rank and a server that counts what goes through it: all bytes, and the
//! messages in them.

use std::sync::{Arc, Mutex};

use bytes::{Buf, BytesMut};
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tradewind_common::cost::Flow;
use tradewind_proto::v1::{PullFrame, PushFrame, push_frame};

/// What an HTTP/2 client says first.
const PREFACE_BYTES: usize = 24;

const HTTP2_HEAD_BYTES: usize = 9;

/// Flag, and length.
const PREFIX_BYTES: usize = 5;

/// What has gone one way.
type Counted = Arc<Mutex<Flow>>;

/// A way to one server.
pub(super) struct Proxy {
    /// Where it listens, host:port.
    pub(super) address: String,
    up: Counted,
    down: Counted,
}

impl Proxy {
    /// A proxy to the server at `server`, host:port.
    pub(super) async fn start(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound port").to_string();
        let [up, down] = [Counted::default(), Counted::default()];
        let counted = (up.clone(), down.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.expect("a server");
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                let (up, down) = (counted.0.clone(), counted.1.clone());
                let pushes = Messages::new(PREFACE_BYTES, pushed);
                let pulls = Messages::new(0, pulled);
                tokio::spawn(copy(from_client, to_server, up, pushes));
                tokio::spawn(copy(from_server, to_client, down, pulls));
            }
        });
        Self { address, up, down }
    }

    /// What has gone up and down so far.
    pub(super) fn counted(&self) -> [Flow; 2] {
        [&self.up, &self.down].map(|flow| *flow.lock().unwrap())
    }
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    counted: Counted,
    mut messages: Messages,
) {
    let mut buffer = vec![0; 256 << 10];
    while let Ok(bytes @ 1..) = from.read(&mut buffer).await {
        {
            let mut counted = counted.lock().unwrap();
            counted.wire += bytes as u64;
            messages.read(&buffer[..bytes], &mut counted);
        }
        if to.write_all(&buffer[..bytes]).await.is_err() {
            return;
        }
    }
}

/// Bytes of the values of a push.
fn pushed(message: &[u8]) -> usize {
    let frame = PushFrame::decode(message).expect("a push");
    match frame.action {
        Some(push_frame::Action::Gradient(gradient)) => gradient.values.len(),
        _ => 0,
    }
}

fn pulled(message: &[u8]) -> usize {
    let frame = PullFrame::decode(message).expect("an answer");
    frame.values.len()
}

/// The messages of a connection that carries one stream of them.
struct Messages {
    /// Bytes before the first frame.
    preface: usize,
    frames: BytesMut,
    data: BytesMut,
    values: fn(&[u8]) -> usize,
}

impl Messages {
    fn new(preface: usize, values: fn(&[u8]) -> usize) -> Self {
        Self {
            preface,
            frames: BytesMut::new(),
            data: BytesMut::new(),
            values,
        }
    }

    fn read(&mut self, bytes: &[u8], counted: &mut Flow) {
        let preface = self.preface.min(bytes.len());
        self.preface -= preface;
        self.frames.extend_from_slice(&bytes[preface..]);
        while let Some([a, b, c, kind, flags, ..]) = self.frames.get(..HTTP2_HEAD_BYTES) {
            let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
            let (data, padded) = (*kind == 0, flags & 8 != 0);
            if self.frames.len() < HTTP2_HEAD_BYTES + length {
                return;
            }
            self.frames.advance(HTTP2_HEAD_BYTES);
            let payload = self.frames.split_to(length);
            if data {
                assert!(!padded, "nobody pads");
                self.data.extend_from_slice(&payload);
                self.messages(counted);
            }
        }
    }

    fn messages(&mut self, counted: &mut Flow) {
        while let Some([_, length @ ..]) = self.data.first_chunk::<PREFIX_BYTES>() {
            let length = u32::from_be_bytes(*length) as usize;
            if self.data.len() < PREFIX_BYTES + length {
                return;
            }
            self.data.advance(PREFIX_BYTES);
            let message = self.data.split_to(length);
            counted.messages += 1;
            counted.payload += (self.values)(&message) as u64;
        }
    }
}
