//! Finds where the bulk bytes of a message begin, from its first bytes.

use prost::encoding::{WireType, decode_varint, encode_key, encode_varint};

/// What the first bytes of a message say.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Scan {
    /// Bulk bytes begin at `start` and last to the end of the message; `head` is the message
    /// without them.
    Found {
        /// A whole message.
        head: Vec<u8>,
        /// Where the bulk bytes begin.
        start: usize,
    },
    /// The bytes end before the head does.
    More,
    /// There is no bulk field at the end, or the bytes make no sense: prost shall tell.
    Plain,
}

/// Scans `bytes`, the first ones of a message of `length` bytes. `paths` leads to its bulk fields.
pub(super) fn scan(bytes: &[u8], length: usize, paths: &[&[u32]]) -> Scan {
    let mut at = 0;
    let mut depth = 0;
    let mut outer: Option<(usize, u32, usize)> = None;
    let mut paths: Vec<&[u32]> = paths.to_vec();
    loop {
        if at >= length {
            return Scan::Plain;
        }
        let key_at = at;
        let Some(key) = varint(bytes, &mut at) else {
            return ended(bytes, length);
        };
        // A key is a number of 32 bits: of a longer one the rest must not pass for a field of ours.
        let Ok(number) = u32::try_from(key).map(|key| key >> 3) else {
            return Scan::Plain;
        };
        match key & 7 {
            0 => {
                if varint(bytes, &mut at).is_none() {
                    return ended(bytes, length);
                }
            }
            1 => at += 8,
            5 => at += 4,
            2 => {
                let Some(size) = varint(bytes, &mut at) else {
                    return ended(bytes, length);
                };
                let Some(end) = (at as u64)
                    .checked_add(size)
                    .filter(|e| *e <= length as u64)
                else {
                    return Scan::Plain;
                };
                let mut on_path = paths.iter().filter(|path| path.get(depth) == Some(&number));
                match on_path.next() {
                    // Only the last field can be received as it comes.
                    Some(_) if end != length as u64 => return Scan::Plain,
                    Some(path) if path.len() == depth + 1 => {
                        let head = without_bulk(bytes, outer, key_at);
                        return Scan::Found { head, start: at };
                    }
                    Some(_) => {
                        outer = Some((key_at, number, at));
                        paths.retain(|path| path.get(depth) == Some(&number));
                        depth += 1;
                    }
                    None => at = end as usize,
                }
            }
            _ => return Scan::Plain,
        }
        if at > bytes.len() {
            return ended(bytes, length);
        }
    }
}

/// Those of the first bytes of a message that are whole fields.
pub(super) fn complete(bytes: &[u8]) -> &[u8] {
    let mut end = 0;
    while let Some(next) = field_end(bytes, end).filter(|next| *next <= bytes.len()) {
        end = next;
    }
    &bytes[..end]
}

/// Where the field ends that begins there.
fn field_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    let key = varint(bytes, &mut at)?;
    match key & 7 {
        0 => varint(bytes, &mut at).map(|_| at),
        1 => Some(at + 8),
        5 => Some(at + 4),
        2 => {
            let size = varint(bytes, &mut at)?;
            at.checked_add(usize::try_from(size).ok()?)
        }
        _ => None,
    }
}

/// The message up to the key of its bulk field, the enclosing message's length put right.
fn without_bulk(bytes: &[u8], outer: Option<(usize, u32, usize)>, key_at: usize) -> Vec<u8> {
    let Some((outer_at, number, inner_at)) = outer else {
        return bytes[..key_at].to_vec();
    };
    let mut head = bytes[..outer_at].to_vec();
    encode_key(number, WireType::LengthDelimited, &mut head);
    encode_varint((key_at - inner_at) as u64, &mut head);
    head.extend_from_slice(&bytes[inner_at..key_at]);
    head
}

/// The bytes have come to their end inside a field.
fn ended(bytes: &[u8], length: usize) -> Scan {
    if bytes.len() < length {
        Scan::More
    } else {
        Scan::Plain
    }
}

fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut rest = bytes.get(*at..)?;
    let before = rest.len();
    let value = decode_varint(&mut rest).ok()?;
    *at += before - rest.len();
    Some(value)
}
