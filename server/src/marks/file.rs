//! The bytes of a file of marks.

use std::fs;
use std::io;
use std::path::Path;

use tradewind_common::{BlockId, ServerId, ShardId};

use super::Mark;

/// Bytes that are written back together.
pub const PAGE: usize = 4096;

const MAGIC: &[u8; 8] = b"TW-MARKS";
const FORMAT: u32 = 1;

/// What the checksum of the head covers besides the blocks' numbers, and how long that is.
const HEAD_BYTES: usize = 24;
const DIGEST_BYTES: usize = 32;

/// The blocks' numbers are after the head and two reservations.
const IDS_AT: usize = 3 * PAGE;

/// Bytes of a mark: lineage, version, samples.
const ENTRY_BYTES: usize = 24;

/// Word of the change: its number, then the block's place, lineage, version, samples.
pub(super) const CHANGE_WORD: usize = 64 / 8;

/// Words of a change.
const CHANGE_WORDS: usize = 5;

/// Words of a reservation.
const RESERVATION_WORDS: usize = 8;

/// First word of the reservation 0 or 1.
pub(super) fn reservation_word(slot: usize) -> usize {
    (1 + slot) * PAGE / 8
}

/// Where the marks of so many blocks begin.
pub(super) fn entries_at(blocks: usize) -> usize {
    (IDS_AT + 4 * blocks).next_multiple_of(PAGE)
}

/// Which time since it was started a machine is in: what is in its memory is gone in the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boot([u8; 16]);

impl Boot {
    /// Nobody's: whatever was written under it counts as another machine's.
    pub const UNKNOWN: Self = Self([0; 16]);

    /// This machine's, as its kernel says.
    pub fn of_this_machine() -> Self {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id");
        text.ok()
            .and_then(|text| Self::parse(text.trim()))
            .unwrap_or(Self::UNKNOWN)
    }

    /// From 32 hexadecimal digits, with dashes between them.
    pub fn parse(text: &str) -> Option<Self> {
        let digits: String = text.split('-').collect();
        let number = u128::from_str_radix(&digits, 16).ok();
        let number = number.filter(|_| digits.len() == 32)?;
        Some(Self(number.to_be_bytes()))
    }
}

/// What a file is of.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head {
    holder: (ServerId, ShardId),
    blocks: Vec<BlockId>,
}

impl Head {
    pub(super) fn new(holder: (ServerId, ShardId), blocks: &[BlockId]) -> Self {
        let blocks = blocks.to_vec();
        Self { holder, blocks }
    }

    /// Length of the file.
    pub(super) fn file_bytes(&self) -> usize {
        (entries_at(self.blocks.len()) + ENTRY_BYTES * self.blocks.len()).next_multiple_of(PAGE)
    }

    /// A file in which nothing is noted yet.
    pub(super) fn fresh(&self) -> Vec<u8> {
        let (server, shard) = self.holder;
        let numbers = [FORMAT, self.blocks.len() as u32, server.0, shard.0];
        let mut bytes = MAGIC.to_vec();
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        let ids = self.blocks.iter().flat_map(|block| block.0.to_le_bytes());
        let ids: Vec<u8> = ids.collect();
        let digest = digest(&bytes, &ids);
        bytes.extend(digest);
        bytes.resize(self.file_bytes(), 0);
        bytes[IDS_AT..][..ids.len()].copy_from_slice(&ids);
        let reservation = Reservation {
            number: 1,
            boot: Boot::UNKNOWN,
            ceiling: Mark::default(),
            settled: true,
        };
        for (word, at) in reservation.encode().iter().zip(reservation_word(0)..) {
            bytes[8 * at..][..8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// What a file's bytes say, if they are all there.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() < IDS_AT || &bytes[..8] != MAGIC {
            return Err("it is not a file of marks".to_owned());
        }
        let number = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let (format, blocks) = (number(8), number(12) as usize);
        if format != FORMAT {
            return Err(format!(
                "it has format {format}, this program reads {FORMAT}"
            ));
        }
        let ids = bytes.get(IDS_AT..IDS_AT + 4 * blocks);
        let ids = ids.ok_or("it is cut off")?;
        if digest(&bytes[..HEAD_BYTES], ids) != bytes[HEAD_BYTES..][..DIGEST_BYTES] {
            return Err("its header is damaged".to_owned());
        }
        let ids = ids.chunks_exact(4).enumerate();
        let head = Self {
            holder: (ServerId(number(16)), ShardId(number(20))),
            blocks: ids
                .map(|(at, _)| BlockId(number(IDS_AT + 4 * at)))
                .collect(),
        };
        match bytes.len() == head.file_bytes() {
            true => Ok(head),
            false => Err("it is cut off".to_owned()),
        }
    }
}

fn digest(head: &[u8], ids: &[u8]) -> [u8; DIGEST_BYTES] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(head).update(ids);
    *hasher.finalize().as_bytes()
}

/// Up to where a holder may go before it says so again, and who said it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reservation {
    /// Later ones have higher ones.
    pub(super) number: u64,
    pub(super) boot: Boot,
    pub(super) ceiling: Mark,
    /// What is noted is synced, and nothing was noted since.
    pub(super) settled: bool,
}

impl Reservation {
    /// Whether what is noted is all that was, for a reader of this boot.
    pub(super) fn is_exact(&self, boot: &Boot) -> bool {
        self.settled || (self.boot == *boot && self.boot != Boot::UNKNOWN)
    }

    pub(super) fn encode(&self) -> [u64; RESERVATION_WORDS] {
        let boot = u128::from_le_bytes(self.boot.0);
        let [lineage, version, samples] = self.ceiling.words();
        let mut words = [
            self.number,
            boot as u64,
            (boot >> 64) as u64,
            lineage,
            version,
            samples,
            self.settled.into(),
            0,
        ];
        words[7] = sum(&words[..7]);
        words
    }

    /// What these words say, if they are whole.
    pub(super) fn decode(words: [u64; RESERVATION_WORDS]) -> Option<Self> {
        let [number, low, high, lineage, version, samples, settled, check] = words;
        let boot = u128::from(high) << 64 | u128::from(low);
        let is_whole = number > 0 && check == sum(&words[..7]);
        is_whole.then_some(Self {
            number,
            boot: Boot(boot.to_le_bytes()),
            ceiling: Mark {
                exact: false,
                ..Mark::of([lineage, version, samples])
            },
            settled: settled != 0,
        })
    }

    /// The later one of a whole file's two.
    pub(super) fn newest(bytes: &[u8]) -> Option<Self> {
        let slot = |slot| {
            let at = reservation_word(slot);
            Self::decode(std::array::from_fn(|word| word_of(bytes, at + word)))
        };
        let slots = [slot(0), slot(1)].into_iter().flatten();
        slots.max_by_key(|reservation| reservation.number)
    }
}

fn sum(words: &[u64]) -> u64 {
    let mut hasher = blake3::Hasher::new();
    for word in words {
        hasher.update(&word.to_le_bytes());
    }
    let digest = hasher.finalize();
    u64::from_le_bytes(std::array::from_fn(|i| digest.as_bytes()[i]))
}

/// A change that was not brought to its end: the block's place, and its new mark.
pub(super) fn change(words: [u64; CHANGE_WORDS], blocks: usize) -> Option<(usize, Mark)> {
    let [number, index, lineage, version, samples] = words;
    let index = usize::try_from(index).ok();
    let index = index.filter(|index| number % 2 == 1 && *index < blocks)?;
    Some((index, Mark::of([lineage, version, samples])))
}

/// All bytes of a file.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    fs::read(path)
}

/// What a file's bytes claim of each block that anything was noted of.
pub(super) fn marks(bytes: &[u8], boot: &Boot) -> Result<Vec<(BlockId, Mark)>, String> {
    let head = Head::decode(bytes)?;
    let reservation = Reservation::newest(bytes).ok_or("its reservation is damaged")?;
    let exact = reservation.is_exact(boot);
    let words = std::array::from_fn(|word| word_of(bytes, CHANGE_WORD + word));
    let changed = change(words, head.blocks.len());
    let first = entries_at(head.blocks.len()) / 8;
    let marks = head.blocks.iter().enumerate().map(|(index, block)| {
        let at = first + 3 * index;
        let noted = Mark::of([0, 1, 2].map(|word| word_of(bytes, at + word)));
        let noted = match changed {
            Some((of, mark)) if of == index => mark,
            _ => noted,
        };
        match exact {
            true => (*block, noted),
            // Its memory is lost: it may have had everything up to there.
            false => {
                let noted = Mark {
                    exact: false,
                    ..noted
                };
                (*block, noted.max(reservation.ceiling))
            }
        }
    });
    let is_noted = |mark: &Mark| mark.words() != [0; 3];
    Ok(marks.filter(|(_, mark)| is_noted(mark)).collect())
}

fn word_of(bytes: &[u8], word: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[8 * word + i]))
}
