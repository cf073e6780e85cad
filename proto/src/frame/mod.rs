//! Bulk bytes of an exchange beside prost. A message is a small head, which prost writes and reads,
//! and the values of a block, which are sent as the buffer they already are and received into the
//! buffer where they are needed. On the wire it is the gRPC message of shard.proto and nothing
//! else: values are its last field, as every encoder writes it, so clients of any make can take
//! part. A message in which they are not last is read as well, through prost.

mod body;
mod read;
mod scan;

pub use body::{Framed, Outgoing};
pub use read::{FrameError, Part, Reader};

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};

use crate::v1::{Confirm, PullFrame, PushFrame, Record, push_frame, record};

/// The prefix of a gRPC message: a flag and the length.
const PREFIX_BYTES: usize = 5;

/// Largest head: names and numbers.
const HEAD_BYTES_MAX: usize = 1024;

/// Smaller bulk bytes are copied behind their head.
const TOGETHER_BYTES_MAX: usize = tradewind_common::cost::TOGETHER_BYTES_MAX as usize;

/// A message whose last field is bulk bytes.
pub trait Bulk: Message + Default {
    /// Ways to the bulk field, as field numbers from the outside in.
    const PATHS: &'static [&'static [u32]];

    /// Takes the bulk bytes out.
    fn take_bulk(&mut self) -> Bytes;

    /// Encodes the message, which has no bulk bytes, as if it had so many, up to where they begin.
    fn encode_head(&self, bulk: usize, out: &mut BytesMut);
}

/// The last number whose key takes one byte; it comes after all others.
const VALUES: u32 = 15;
const GRADIENT: u32 = 14;
const CREATE: u32 = 15;
const STATE: u32 = 14;
const UPDATE: u32 = 15;

impl Bulk for PullFrame {
    const PATHS: &'static [&'static [u32]] = &[&[VALUES]];

    fn take_bulk(&mut self) -> Bytes {
        std::mem::take(&mut self.values)
    }

    fn encode_head(&self, bulk: usize, out: &mut BytesMut) {
        self.encode_raw(out);
        if bulk > 0 {
            open(VALUES, bulk, out);
        }
    }
}

impl Bulk for PushFrame {
    const PATHS: &'static [&'static [u32]] = &[&[GRADIENT, VALUES], &[CREATE, VALUES]];

    fn take_bulk(&mut self) -> Bytes {
        match &mut self.action {
            Some(push_frame::Action::Gradient(gradient)) => std::mem::take(&mut gradient.values),
            Some(push_frame::Action::Create(create)) => std::mem::take(&mut create.values),
            Some(push_frame::Action::Skip(_) | push_frame::Action::Pull(_)) | None => Bytes::new(),
        }
    }

    fn encode_head(&self, bulk: usize, out: &mut BytesMut) {
        let mut inner = BytesMut::new();
        let number = match &self.action {
            Some(push_frame::Action::Gradient(gradient)) => {
                gradient.encode_raw(&mut inner);
                GRADIENT
            }
            Some(push_frame::Action::Create(create)) => {
                create.encode_raw(&mut inner);
                CREATE
            }
            Some(push_frame::Action::Skip(_) | push_frame::Action::Pull(_)) | None => {
                return self.encode_raw(out);
            }
        };
        let outer = Self {
            action: None,
            ..self.clone()
        };
        enclose(&outer, (number, inner), bulk, out);
    }
}

impl Bulk for Record {
    const PATHS: &'static [&'static [u32]] = &[&[STATE, VALUES], &[UPDATE, VALUES]];

    fn take_bulk(&mut self) -> Bytes {
        match &mut self.entry {
            Some(record::Entry::State(state)) => std::mem::take(&mut state.values),
            Some(record::Entry::Update(update)) => std::mem::take(&mut update.values),
            Some(record::Entry::Probe(_)) | None => Bytes::new(),
        }
    }

    fn encode_head(&self, bulk: usize, out: &mut BytesMut) {
        let mut inner = BytesMut::new();
        let number = match &self.entry {
            Some(record::Entry::State(state)) => {
                state.encode_raw(&mut inner);
                STATE
            }
            Some(record::Entry::Update(update)) => {
                update.encode_raw(&mut inner);
                UPDATE
            }
            Some(record::Entry::Probe(_)) | None => return self.encode_raw(out),
        };
        let outer = Self {
            entry: None,
            ..self.clone()
        };
        enclose(&outer, (number, inner), bulk, out);
    }
}

/// It has none; it travels on a stream of its own in the other direction.
impl Bulk for Confirm {
    const PATHS: &'static [&'static [u32]] = &[];

    fn take_bulk(&mut self) -> Bytes {
        Bytes::new()
    }

    fn encode_head(&self, _: usize, out: &mut BytesMut) {
        self.encode_raw(out);
    }
}

/// A message whose last field, `number`, is a message that ends with `bulk` bytes of values.
fn enclose<M: Message>(
    outer: &M,
    (number, mut inner): (u32, BytesMut),
    bulk: usize,
    out: &mut BytesMut,
) {
    if bulk > 0 {
        open(VALUES, bulk, &mut inner);
    }
    outer.encode_raw(out);
    open(number, inner.len() + bulk, out);
    out.put(inner);
}

/// The key and the length of a field.
fn open(number: u32, length: usize, out: &mut BytesMut) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(length as u64, out);
}

/// What goes before the bulk bytes of a message: the gRPC prefix and the head.
fn head<M: Bulk>(message: &M, bulk: usize) -> BytesMut {
    let mut out = BytesMut::with_capacity(192);
    out.put_bytes(0, PREFIX_BYTES);
    message.encode_head(bulk, &mut out);
    let length = (out.len() - PREFIX_BYTES + bulk) as u32;
    out[1..PREFIX_BYTES].copy_from_slice(&length.to_be_bytes());
    out
}

#[cfg(test)]
mod tests;
