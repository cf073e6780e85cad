//! Examples that are right, changed in a few places. Bytes that are drawn at random seldom come past the first check of
//! a format; these come to the last one.
//!
//! What is drawn is drawn at random, without a look at what the code does with it.

use std::ops::Range;

use bolero::{Driver, ValueGenerator};

use crate::message;

/// Most changes of an example.
const EDITS_MAX: usize = 6;

/// Longest piece that a change takes out, repeats or takes from another example.
const PIECE_MAX: usize = 64;

/// Longest input of which nothing is an example.
const RANDOM_MAX: usize = 256;

/// Numbers at which something ends: of bytes, of words, of clocks (2⁴⁸), and around what f32 can be.
pub(crate) const ENDS: [u64; 16] = [
    0,
    1,
    2,
    0x7f,
    0x80,
    0xff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    0x7f80_0000,
    0x7fc0_0000,
    1 << 32,
    1 << 48,
    (1 << 63) - 1,
    1 << 63,
    u64::MAX,
];

/// Examples of a format, and what becomes of them by changes.
#[derive(Debug)]
pub struct Changed {
    examples: Vec<Vec<u8>>,
}

/// Changes of these examples, of which there is at least one.
pub fn changed<E: Into<Vec<u8>>>(examples: impl IntoIterator<Item = E>) -> Changed {
    let examples: Vec<Vec<u8>> = examples.into_iter().map(Into::into).collect();
    assert!(!examples.is_empty(), "there is an example");
    Changed { examples }
}

impl ValueGenerator for Changed {
    type Output = Vec<u8>;

    fn generate<D: Driver>(&self, driver: &mut D) -> Option<Vec<u8>> {
        if within(driver, 16)? == 15 {
            let length = within(driver, RANDOM_MAX)?;
            return (0..length).map(|_| driver.produce::<u8>()).collect();
        }
        let mut bytes = self.example(driver)?.clone();
        for _ in 0..within(driver, EDITS_MAX + 1)? {
            self.edit(&mut bytes, driver)?;
        }
        Some(bytes)
    }
}

impl Changed {
    /// As they are.
    pub(crate) fn examples(&self) -> &[Vec<u8>] {
        &self.examples
    }

    fn example<D: Driver>(&self, driver: &mut D) -> Option<&Vec<u8>> {
        Some(&self.examples[within(driver, self.examples.len())?])
    }

    fn edit<D: Driver>(&self, bytes: &mut Vec<u8>, driver: &mut D) -> Option<()> {
        let kind = within(driver, 12)?;
        let at = within(driver, bytes.len() + 1)?;
        match kind {
            0 => change(
                bytes,
                at,
                |byte, by| *byte ^= 1 << (by % 8),
                driver.produce()?,
            ),
            1 => change(bytes, at, |byte, by| *byte = by, driver.produce()?),
            2 => change(
                bytes,
                at,
                |byte, by| *byte = byte.wrapping_add(by % 9).wrapping_sub(4),
                driver.produce()?,
            ),
            3 => bytes.truncate(at),
            4 => drop(bytes.drain(piece(bytes.len(), at, driver)?)),
            5 => {
                let again = bytes[piece(bytes.len(), at, driver)?].to_vec();
                bytes.splice(at..at, again);
            }
            6 => {
                let other = self.example(driver)?;
                let from = within(driver, other.len() + 1)?;
                let taken = other[piece(other.len(), from, driver)?].to_vec();
                let instead = match driver.produce::<bool>()? {
                    true => at..at,
                    false => at..(at + taken.len()).min(bytes.len()),
                };
                bytes.splice(instead, taken);
            }
            7 => {
                let number = ENDS[within(driver, ENDS.len())?];
                let width = 1 << within(driver, 4)?;
                let written = match driver.produce::<bool>()? {
                    true => number.to_le_bytes()[..width].to_vec(),
                    false => number.to_be_bytes()[8 - width..].to_vec(),
                };
                bytes.splice(at..(at + width).min(bytes.len()), written);
            }
            8 => {
                let mut lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
                let line = within(driver, lines.len().max(1))?;
                match (line < lines.len(), driver.produce::<bool>()?) {
                    (false, _) => {}
                    (true, true) => drop(lines.remove(line)),
                    (true, false) => lines.insert(line, lines[line]),
                }
                *bytes = lines.concat();
            }
            9 | 10 => *bytes = message::edited(bytes, driver)?,
            // In texts numbers are digits.
            _ => {
                let number = ENDS[within(driver, ENDS.len())?].to_string();
                let is_digit = |byte: &u8| byte.is_ascii_digit();
                let begin = at + bytes[at..].iter().position(is_digit).unwrap_or(0);
                let digits = bytes[begin..]
                    .iter()
                    .take_while(|byte| is_digit(byte))
                    .count();
                bytes.splice(begin..begin + digits, number.into_bytes());
            }
        }
        Some(())
    }
}

/// A number below `end`.
pub(crate) fn within<D: Driver>(driver: &mut D, end: usize) -> Option<usize> {
    (0..end).generate(driver)
}

fn change(bytes: &mut [u8], at: usize, how: impl Fn(&mut u8, u8), by: u8) {
    if let Some(byte) = bytes.get_mut(at) {
        how(byte, by);
    }
}

/// A piece of so many bytes that begins there.
fn piece<D: Driver>(length: usize, at: usize, driver: &mut D) -> Option<Range<usize>> {
    let end = (at + within(driver, PIECE_MAX + 1)?).min(length);
    Some(at..end)
}
