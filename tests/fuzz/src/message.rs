//! Changes of protobuf messages that leave them messages: the lengths around a change are put right.

use std::ops::Range;

use bolero::Driver;

use crate::changed::{ENDS, within};

/// Before each message of a stream: a flag and the length.
const PREFIX_BYTES: usize = 5;

/// Messages are in each other to this depth at most.
const DEPTH_MAX: u32 = 8;

/// The kind of a field whose length comes before it.
const DELIMITED: u64 = 2;

/// A stream of messages, or one, with one field changed; what is neither comes back as it is.
pub(crate) fn edited<D: Driver>(bytes: &[u8], driver: &mut D) -> Option<Vec<u8>> {
    let mut messages = Vec::new();
    let mut at = 0;
    while let Some([0, length @ ..]) = bytes[at..].first_chunk::<PREFIX_BYTES>() {
        let begin = at + PREFIX_BYTES;
        let end = begin + u32::from_be_bytes(*length) as usize;
        if end > bytes.len() {
            break;
        }
        messages.push(begin..end);
        at = end;
    }
    if messages.is_empty() {
        return message(bytes, DEPTH_MAX, driver);
    }
    let chosen = messages[within(driver, messages.len())?].clone();
    let changed = message(&bytes[chosen.clone()], DEPTH_MAX, driver)?;
    let length = u32::try_from(changed.len()).ok()?.to_be_bytes();
    let before = &bytes[..chosen.start - length.len()];
    Some([before, &length, &changed, &bytes[chosen.end..]].concat())
}

/// A field: where it is, and its value without key and length.
struct Field {
    all: Range<usize>,
    value: Range<usize>,
    kind: u64,
}

fn message<D: Driver>(bytes: &[u8], depth: u32, driver: &mut D) -> Option<Vec<u8>> {
    let Some(fields) = fields(bytes).filter(|fields| !fields.is_empty()) else {
        return Some(bytes.to_vec());
    };
    let field = &fields[within(driver, fields.len())?];
    let (all, value) = (&bytes[field.all.clone()], &bytes[field.value.clone()]);
    let instead = match within(driver, 8)? {
        0 => Vec::new(),
        1 => [all, all].concat(),
        2 => {
            let other = &fields[within(driver, fields.len())?];
            [&bytes[other.all.clone()], all].concat()
        }
        _ if field.kind == 0 => {
            let mut key = bytes[field.all.start..field.value.start].to_vec();
            put(ENDS[within(driver, ENDS.len())?], &mut key);
            key
        }
        _ if field.kind == DELIMITED && depth > 0 => {
            let inner = message(value, depth - 1, driver)?;
            let (key, _) = number(bytes, field.all.start)?;
            let mut changed = Vec::new();
            put(key, &mut changed);
            put(inner.len() as u64, &mut changed);
            changed.extend(inner);
            changed
        }
        _ => all.to_vec(),
    };
    Some([&bytes[..field.all.start], &instead, &bytes[field.all.end..]].concat())
}

/// All fields, if the bytes are nothing else.
fn fields(bytes: &[u8]) -> Option<Vec<Field>> {
    let (mut fields, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let start = at;
        let (key, mut begin) = number(bytes, at)?;
        at = match key & 7 {
            0 => number(bytes, begin)?.1,
            1 => begin + 8,
            5 => begin + 4,
            DELIMITED => {
                let (length, after) = number(bytes, begin)?;
                begin = after;
                after.checked_add(usize::try_from(length).ok()?)?
            }
            _ => return None,
        };
        if at > bytes.len() {
            return None;
        }
        fields.push(Field {
            all: start..at,
            value: begin..at,
            kind: key & 7,
        });
    }
    Some(fields)
}

/// The number of variable length that begins there, and where it ends.
fn number(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let mut number = 0;
    for (index, byte) in bytes.get(at..)?.iter().take(9).enumerate() {
        number |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((number, at + index + 1));
        }
    }
    None
}

fn put(mut number: u64, into: &mut Vec<u8>) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}
