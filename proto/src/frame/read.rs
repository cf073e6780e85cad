//! Reads frames out of the bytes of a stream, in whatever pieces they come.

use std::marker::PhantomData;

use bytes::{Buf, Bytes};

use super::scan::{Scan, complete, scan};
use super::{Bulk, HEAD_BYTES_MAX, PREFIX_BYTES};

/// Bytes that are no frame. The stream cannot be read any further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Above the limit.
    #[error("a message of {bytes} bytes; the limit is {max}")]
    TooLarge {
        /// What its prefix says.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// Not a message of this kind.
    #[error("{0}")]
    Unreadable(String),
}

/// What comes out of a stream.
#[derive(Debug, PartialEq)]
pub enum Part<M> {
    /// A message without its bulk bytes; so many of them follow, none if it is 0.
    Head(M, usize),
    /// The next bulk bytes of the last head, at least one.
    Bulk(Bytes),
}

enum State {
    Prefix,
    Head {
        length: usize,
        /// The values are not last, or there are none: prost reads the whole message.
        whole: bool,
    },
    Bulk {
        left: usize,
    },
    /// Values that have arrived with their head.
    Held(Bytes),
}

/// The reading end of a stream of messages.
pub struct Reader<M> {
    state: State,
    /// The beginning of what is being read.
    gathered: Vec<u8>,
    max: usize,
    /// Of a message that is gathered whole: what its first bytes say, until it is asked for.
    beginning: Option<(M, usize)>,
    message: PhantomData<M>,
}

impl<M: Bulk> Reader<M> {
    /// Reads messages of up to `max` bytes.
    pub fn new(max: usize) -> Self {
        Self {
            state: State::Prefix,
            // Most heads come whole, and many streams are idle.
            gathered: Vec::new(),
            max,
            beginning: None,
            message: PhantomData,
        }
    }

    /// The beginning of a message that is long and is gathered whole, because its values are not its last field or
    /// its head is long: fields that its first bytes have, and its bytes in all. Once for each such message, when
    /// [`next`](Self::next) asks for more bytes: whoever reads looks at it before more is kept.
    pub fn beginning(&mut self) -> Option<(M, usize)> {
        self.beginning.take()
    }

    /// Whether the stream may end here: between two messages.
    pub fn between_messages(&self) -> bool {
        matches!(self.state, State::Prefix) && self.gathered.is_empty()
    }

    /// Takes the next part out of `bytes`. `None` when more bytes are needed: all of these have
    /// been taken.
    pub fn next(&mut self, bytes: &mut Bytes) -> Result<Option<Part<M>>, FrameError> {
        loop {
            match &mut self.state {
                State::Prefix => {
                    if !self.gather(bytes, PREFIX_BYTES) {
                        return Ok(None);
                    }
                    let length = self.length()?;
                    self.gathered.clear();
                    let whole = false;
                    self.state = State::Head { length, whole };
                }
                State::Head {
                    length,
                    whole: false,
                } => {
                    let length = *length;
                    match self.find_bulk(length, bytes) {
                        Scan::Found { head, start } => {
                            bytes.advance(start - self.gathered.len());
                            self.gathered.clear();
                            let left = length - start;
                            self.state = State::Bulk { left };
                            return Ok(Some(Part::Head(decode(&head[..])?, left)));
                        }
                        Scan::More => {
                            self.gathered.extend_from_slice(bytes);
                            bytes.clear();
                            return Ok(None);
                        }
                        Scan::Plain => {
                            let first = self.first(length, bytes);
                            // What cannot be read is refused when it is decoded.
                            let message = M::decode(complete(&first)).unwrap_or_default();
                            self.beginning = Some((message, length));
                            let whole = true;
                            self.state = State::Head { length, whole };
                        }
                    }
                }
                State::Head {
                    length,
                    whole: true,
                } => {
                    let length = *length;
                    // Bytes are taken as they come: a length alone sets no memory aside.
                    if !self.gather(bytes, length) {
                        return Ok(None);
                    }
                    self.beginning = None;
                    let mut message: M = decode(Bytes::from(std::mem::take(&mut self.gathered)))?;
                    let bulk = message.take_bulk();
                    let held = bulk.len();
                    self.state = State::Held(bulk);
                    return Ok(Some(Part::Head(message, held)));
                }
                State::Bulk { left: 0 } => self.state = State::Prefix,
                State::Bulk { left } => {
                    if bytes.is_empty() {
                        return Ok(None);
                    }
                    let piece = bytes.split_to(bytes.len().min(*left));
                    *left -= piece.len();
                    return Ok(Some(Part::Bulk(piece)));
                }
                State::Held(bulk) => {
                    let bulk = std::mem::take(bulk);
                    self.state = State::Prefix;
                    if !bulk.is_empty() {
                        return Ok(Some(Part::Bulk(bulk)));
                    }
                }
            }
        }
    }

    /// Whether so many bytes are gathered now.
    fn gather(&mut self, bytes: &mut Bytes, wanted: usize) -> bool {
        let missing = wanted - self.gathered.len();
        let piece = bytes.split_to(missing.min(bytes.len()));
        self.gathered.extend_from_slice(&piece);
        self.gathered.len() == wanted
    }

    /// The first bytes of a message, of those that are gathered and have come.
    fn first(&self, length: usize, bytes: &Bytes) -> Vec<u8> {
        let room = HEAD_BYTES_MAX.min(length) - self.gathered.len();
        [&self.gathered, &bytes[..bytes.len().min(room)]].concat()
    }

    /// Looks for the bulk bytes behind what is gathered and what has come.
    fn find_bulk(&self, length: usize, bytes: &Bytes) -> Scan {
        let room = HEAD_BYTES_MAX.min(length) - self.gathered.len();
        let come = &bytes[..bytes.len().min(room)];
        let found = if self.gathered.is_empty() {
            scan(come, length, M::PATHS)
        } else {
            scan(&[&self.gathered, come].concat(), length, M::PATHS)
        };
        match found {
            // No head is so long.
            Scan::More if come.len() == room => Scan::Plain,
            found => found,
        }
    }

    fn length(&self) -> Result<usize, FrameError> {
        let [flag, a, b, c, d] = self.gathered[..] else {
            unreachable!("{PREFIX_BYTES} bytes were gathered")
        };
        let (bytes, max) = (u32::from_be_bytes([a, b, c, d]) as usize, self.max);
        if flag != 0 {
            let text = format!("compression flag {flag}: messages are not compressed as a whole");
            Err(FrameError::Unreadable(text))
        } else if bytes > max {
            Err(FrameError::TooLarge { bytes, max })
        } else {
            Ok(bytes)
        }
    }
}

fn decode<M: Bulk>(bytes: impl Buf) -> Result<M, FrameError> {
    M::decode(bytes).map_err(|error| FrameError::Unreadable(error.to_string()))
}
