//! Samples moved at random: rolled, mirrored, turned. How a sample is moved follows from the seed, the epoch and
//! its number alone, and is the same for all of its fields, such as an image and its mask.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::{Batch, DataError, Field, Place};

/// Bytes 24 to 31 of the key: keeps this stream apart from others that come from the run's seed, and is
/// renumbered if the derivation ever changes.
const DOMAIN: &[u8; 8] = b"augment1";

/// Most extents that are moved along.
const EXTENTS_MAX: usize = 3;

/// How samples may be moved. Channels come first: what is moved are the last extents of a field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// How many of the last extents there are to move along: 2 of `[channels, y, x]` and `[y, x]`, 3 of
    /// `[channels, z, y, x]`.
    pub extents: usize,
    /// Along which of them samples are rolled, by any number of places; what leaves at one end comes in at the
    /// other. 0 is the first of them, y or z.
    pub roll: Vec<usize>,
    /// Along which of them samples are mirrored, every second one.
    pub mirror: Vec<usize>,
    /// Whether samples are turned and mirrored in all ways that a square (8) or a cube (48) has. The extents must
    /// be equal.
    pub turn: bool,
}

/// Moves fields of samples.
#[derive(Clone, Debug)]
pub struct Augmentation {
    moves: Moves,
    names: Vec<String>,
    extents: [usize; EXTENTS_MAX],
}

/// How one sample is moved. Extents are counted so that the last is 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Motion {
    /// Along which extent numbers are taken for each one.
    from: [usize; EXTENTS_MAX],
    /// Whether backwards.
    mirrored: [bool; EXTENTS_MAX],
    /// From which place on.
    rolled: [usize; EXTENTS_MAX],
}

impl Motion {
    /// Nothing is moved.
    pub const NONE: Self = Self {
        from: [0, 1, 2],
        mirrored: [false; EXTENTS_MAX],
        rolled: [0; EXTENTS_MAX],
    };

    /// All symmetries of a square (2 extents) or a cube (3), the first of which moves nothing.
    ///
    /// # Panics
    /// If there are other than 2 or 3 extents.
    pub fn symmetries(extents: usize) -> Vec<Self> {
        let orders: &[[usize; EXTENTS_MAX]] = match extents {
            2 => &[[0, 1, 2], [0, 2, 1]],
            3 => &[
                [0, 1, 2],
                [0, 2, 1],
                [1, 0, 2],
                [1, 2, 0],
                [2, 0, 1],
                [2, 1, 0],
            ],
            _ => panic!("symmetries of {extents} extents"),
        };
        let mirrors = 0..1usize << extents;
        let symmetry = |from: &[usize; EXTENTS_MAX], mirrors: usize| Self {
            from: *from,
            mirrored: std::array::from_fn(|at| {
                let last = EXTENTS_MAX - 1 - at;
                last < extents && mirrors >> last & 1 == 1
            }),
            ..Self::NONE
        };
        let of_order = |from| mirrors.clone().map(move |mirrors| symmetry(from, mirrors));
        orders.iter().flat_map(of_order).collect()
    }

    /// Moves back, with extents of so many places.
    #[must_use]
    pub fn inverse(self, extents: [usize; EXTENTS_MAX]) -> Self {
        let mut inverse = Self::NONE;
        for (at, from) in self.from.into_iter().enumerate() {
            inverse.from[from] = at;
            inverse.mirrored[from] = self.mirrored[at];
            inverse.rolled[from] = match self.mirrored[at] {
                true => self.rolled[at],
                false => (extents[at] - self.rolled[at]) % extents[at],
            };
        }
        inverse
    }

    /// Moves numbers of `N` bytes: volumes of these extents, one after the other.
    fn apply<const N: usize>(
        &self,
        extents: [usize; EXTENTS_MAX],
        from: &[[u8; N]],
        to: &mut [[u8; N]],
    ) {
        let volume: usize = extents.iter().product();
        let strides = [extents[1] * extents[2], extents[2], 1];
        // For each extent: where the numbers at each of its places come from.
        let [first, second, third]: [Vec<usize>; EXTENTS_MAX] = std::array::from_fn(|at| {
            let places = 0..extents[at];
            let source = |place| match self.mirrored[at] {
                true => extents[at] - 1 - place,
                false => place,
            };
            let rolled = |place| (source(place) + self.rolled[at]) % extents[at];
            places
                .map(|place| rolled(place) * strides[self.from[at]])
                .collect()
        });
        let is_straight = self.from[2] == 2 && !self.mirrored[2];
        let head = extents[2] - self.rolled[2];
        let volumes = from.chunks_exact(volume).zip(to.chunks_exact_mut(volume));
        for (from, to) in volumes {
            let begins = first
                .iter()
                .flat_map(|first| second.iter().map(move |second| first + second));
            for (begin, row) in begins.zip(to.chunks_exact_mut(extents[2])) {
                if is_straight {
                    let whole = &from[begin..begin + extents[2]];
                    row[..head].copy_from_slice(&whole[extents[2] - head..]);
                    row[head..].copy_from_slice(&whole[..extents[2] - head]);
                } else {
                    for (number, third) in row.iter_mut().zip(&third) {
                        *number = from[begin + third];
                    }
                }
            }
        }
    }
}

impl Augmentation {
    /// Of these of a source's fields, which are moved together.
    ///
    /// # Errors
    /// A field that there is not, whose rows vary, or that has too few extents; fields of different last extents;
    /// extents to move along that there are not; turning where extents differ.
    pub fn new(fields: &[Field], names: &[&str], moves: Moves) -> Result<Self, DataError> {
        let asked = |text: String| Err(DataError::Asked(text));
        let count = moves.extents;
        if !(1..=EXTENTS_MAX).contains(&count) {
            return asked(format!(
                "samples are moved along 1 to {EXTENTS_MAX} extents, asked for {count}"
            ));
        }
        let mut axes = moves.roll.iter().chain(&moves.mirror);
        if let Some(axis) = axes.find(|axis| **axis >= count) {
            return asked(format!(
                "samples are moved along extents 0..{count}, asked for {axis}"
            ));
        }
        let mut first: Option<(&str, &[usize])> = None;
        for name in names {
            let Some(field) = fields.iter().find(|field| field.name == *name) else {
                let there: Vec<_> = fields.iter().map(|field| field.name.as_str()).collect();
                let there = there.join(", ");
                return asked(format!(
                    "there is no field {name:?} to move; there are {there}"
                ));
            };
            if field.varies() || field.shape.len() < count {
                return asked(format!(
                    "{field} cannot be moved: it must have {count} extents, and no rows that vary"
                ));
            }
            let last = &field.shape[field.shape.len() - count..];
            match first {
                Some((other, extents)) if extents != last => {
                    return asked(format!(
                        "{name} has the last extents {last:?}, and {other} has {extents:?}: they cannot be moved together"
                    ));
                }
                _ => first = Some((name, last)),
            }
        }
        let Some((name, last)) = first else {
            return asked("there is no field to move".into());
        };
        if moves.turn && (count < 2 || last.iter().any(|extent| *extent != last[0])) {
            return asked(format!(
                "{name} cannot be turned: its last extents are {last:?}, and two or three equal ones are needed"
            ));
        }
        let mut extents = [1; EXTENTS_MAX];
        extents[EXTENTS_MAX - count..].copy_from_slice(last);
        Ok(Self {
            moves,
            names: names.iter().map(ToString::to_string).collect(),
            extents,
        })
    }

    /// How a sample is moved in an epoch.
    ///
    /// The derivation is fixed: ChaCha8 with the 32-byte key `seed ‖ epoch ‖ sample ‖ "augment1"` (integers
    /// little-endian); a draw from `0..n` is `⌊u·n / 2⁶⁴⌋` of the stream's next 64-bit `u`; first the symmetry,
    /// then whether each extent of `mirror` is, then how far each of `roll`, in their order.
    pub fn motion(&self, seed: u64, epoch: u64, sample: usize) -> Motion {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..16].copy_from_slice(&epoch.to_le_bytes());
        key[16..24].copy_from_slice(&(sample as u64).to_le_bytes());
        key[24..].copy_from_slice(DOMAIN);
        let mut stream = ChaCha8Rng::from_seed(key);
        let mut draw = |n: usize| ((u128::from(stream.next_u64()) * n as u128) >> 64) as usize;
        let mut motion = Motion::NONE;
        if self.moves.turn {
            let symmetries = Motion::symmetries(self.moves.extents);
            motion = symmetries[draw(symmetries.len())];
        }
        let first = EXTENTS_MAX - self.moves.extents;
        for axis in &self.moves.mirror {
            motion.mirrored[first + axis] ^= draw(2) == 1;
        }
        for axis in &self.moves.roll {
            motion.rolled[first + axis] = draw(self.extents[first + axis]);
        }
        motion
    }

    /// Moves the values of one sample's field; `scratch` is memory that is used again.
    ///
    /// # Panics
    /// If they are no whole volumes of this augmentation's extents.
    pub fn apply(&self, motion: Motion, field: &Field, values: &mut [u8], scratch: &mut Vec<u8>) {
        let volume = self.extents.iter().product::<usize>() * field.kind.bytes();
        assert!(
            values.len().is_multiple_of(volume.max(1)),
            "{field} is moved"
        );
        if motion == Motion::NONE || volume == 0 {
            return;
        }
        scratch.clear();
        scratch.extend_from_slice(values);
        let extents = self.extents;
        match field.kind.bytes() {
            1 => motion.apply(
                extents,
                scratch.as_chunks::<1>().0,
                values.as_chunks_mut().0,
            ),
            2 => motion.apply(
                extents,
                scratch.as_chunks::<2>().0,
                values.as_chunks_mut().0,
            ),
            _ => motion.apply(
                extents,
                scratch.as_chunks::<4>().0,
                values.as_chunks_mut().0,
            ),
        }
    }

    /// Moves each sample of a batch.
    ///
    /// # Panics
    /// If the batch has other fields than the source that this was made for.
    pub fn batch<P: Place>(&self, batch: &mut Batch<P>, seed: u64, epoch: u64) {
        let samples = batch.samples.iter();
        let motions: Vec<_> = samples
            .map(|sample| self.motion(seed, epoch, *sample))
            .collect();
        let mut scratch = Vec::new();
        for name in &self.names {
            let mut columns = batch.columns.iter_mut();
            let column = columns.find(|column| column.field.name == *name);
            let column = column.expect("a batch has the fields of its source");
            let bytes = column.field.row_bytes().max(1);
            let rows = column.values.bytes_mut().chunks_exact_mut(bytes);
            for (motion, row) in motions.iter().zip(rows) {
                self.apply(*motion, &column.field, row, &mut scratch);
            }
        }
    }
}

#[cfg(test)]
mod tests;
