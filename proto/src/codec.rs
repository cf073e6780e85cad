//! How messages of calls are written and read.

use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, EncodeBuf, Encoder};
use tonic_prost::ProstCodec;

/// First room for messages in either direction of a call; longer ones find more. A server keeps it for as long as
/// the call lasts, for each rank's heartbeats, which take some 50 bytes. tonic's own is 8 KiB.
const BUFFER_BYTES: usize = 256;

/// Messages that are ready together are sent together up to so many bytes, as tonic has it.
const TOGETHER_BYTES: usize = 32 << 10;

/// prost's messages, as `tonic_prost::ProstCodec` has them, in small buffers.
#[derive(Clone, Debug)]
pub struct SlimCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for SlimCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Message + Send + 'static, U: Message + Default + Send + 'static> Codec for SlimCodec<T, U> {
    type Encode = T;
    type Decode = U;
    type Encoder = SlimEncoder<T>;
    type Decoder = <ProstCodec<T, U> as Codec>::Decoder;

    fn encoder(&mut self) -> Self::Encoder {
        SlimEncoder(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(buffers())
    }
}

/// Makes as much room as a message takes, at once: small room would be doubled many times for a long one.
#[derive(Clone, Debug)]
pub struct SlimEncoder<T>(PhantomData<T>);

impl<T: Message> Encoder for SlimEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, message: T, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.reserve(message.encoded_len());
        message.encode_raw(into);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffers()
    }
}

fn buffers() -> BufferSettings {
    BufferSettings::new(BUFFER_BYTES, TOGETHER_BYTES)
}

#[cfg(test)]
mod tests {
    use tonic::codec::{EncodeBody, Streaming};

    use super::*;
    use crate::v1::LeaveRequest;

    /// What is read of messages with so many finished chunks each.
    async fn read_back(chunks: &[usize]) -> Vec<usize> {
        let message = |chunks: &usize| LeaveRequest {
            finished: (0..*chunks as u64).collect(),
            ..LeaveRequest::default()
        };
        let messages: Vec<Result<_, Status>> = chunks.iter().map(|c| Ok(message(c))).collect();
        let mut codec = SlimCodec::<LeaveRequest, LeaveRequest>::default();
        let stream = tokio_stream::iter(messages);
        let body = EncodeBody::new_client(codec.encoder(), stream, None, None);
        let mut read = Streaming::new_request(codec.decoder(), body, None, None);
        let mut all = Vec::new();
        while let Some(message) = read.message().await.unwrap() {
            all.push(message.finished.len());
        }
        all
    }

    #[tokio::test]
    async fn messages_of_any_length_find_room() {
        let lengths = [0, 1, 200, 100_000, 3];
        assert_eq!(read_back(&lengths).await, lengths);
    }
}
