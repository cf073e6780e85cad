//! What a sample is made of.

use serde::{Deserialize, Serialize};

use crate::convert::Unfit;

/// What a number is, on disk and in a batch; little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A byte: pixels, masks, labels of up to 256 classes.
    U8,
    /// A signed integer of 16 bits: packed fields, counts.
    I16,
    /// A signed integer of 32 bits: labels, offsets, indices.
    I32,
    /// A half-precision number (IEEE 754 binary16).
    F16,
    /// The upper half of an f32.
    BF16,
    /// A single-precision number.
    F32,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::U8,
        Self::I16,
        Self::I32,
        Self::F16,
        Self::BF16,
        Self::F32,
    ];

    /// Bytes of a number.
    pub fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::I16 | Self::F16 | Self::BF16 => 2,
            Self::I32 | Self::F32 => 4,
        }
    }

    /// As files and messages have it: `u8`, `i16`, `i32`, `f16`, `bf16`, `f32`.
    pub fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::F32 => "f32",
        }
    }

    /// The numbers of these bytes, one after the other.
    ///
    /// # Panics
    /// If they are no whole numbers.
    pub fn numbers(self, values: &[u8]) -> impl Iterator<Item = f64> + '_ {
        assert_eq!(values.len() % self.bytes(), 0, "{values:?} as {self:?}");
        values
            .chunks_exact(self.bytes())
            .map(move |one| match self {
                Self::U8 => f64::from(one[0]),
                Self::I16 => f64::from(i16::from_le_bytes([one[0], one[1]])),
                Self::F16 => f64::from(half::f16::from_le_bytes([one[0], one[1]])),
                Self::BF16 => f64::from(half::bf16::from_le_bytes([one[0], one[1]])),
                Self::I32 => f64::from(i32::from_le_bytes([one[0], one[1], one[2], one[3]])),
                Self::F32 => f64::from(f32::from_le_bytes([one[0], one[1], one[2], one[3]])),
            })
    }
}

/// How often a sample has a field's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rows {
    /// Once: an image, a label.
    One,
    /// So often as the sample says, 0 included: boxes, atoms, edges of a graph.
    Varying {
        /// In the sample that has most.
        most: usize,
    },
}

/// One tensor of every sample.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// Its name, such as `image`.
    pub name: String,
    /// What its numbers are.
    pub kind: Kind,
    /// Extents: of the sample's tensor, or of one row where their number varies.
    pub shape: Vec<usize>,
    /// How many rows a sample has.
    pub rows: Rows,
    /// Of class numbers: how many classes there are, so that all numbers are less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<u32>,
}

impl Field {
    /// A field that has one shape in all samples; no extents for a single number.
    pub fn new(name: &str, kind: Kind, shape: &[usize]) -> Self {
        Self {
            name: name.into(),
            kind,
            shape: shape.into(),
            rows: Rows::One,
            classes: None,
        }
    }

    /// A field of as many rows of this shape as a sample has, at most `most`.
    pub fn varying(name: &str, kind: Kind, shape: &[usize], most: usize) -> Self {
        Self {
            rows: Rows::Varying { most },
            ..Self::new(name, kind, shape)
        }
    }

    /// The same, of numbers from 0 to less than `classes`.
    #[must_use]
    pub fn classes(self, classes: u32) -> Self {
        Self {
            classes: Some(classes),
            ..self
        }
    }

    /// Several in words, with commas between.
    pub fn listed(fields: &[Self]) -> String {
        let fields: Vec<String> = fields.iter().map(ToString::to_string).collect();
        fields.join(", ")
    }

    /// Whether they are the same but for the most rows.
    pub fn is_like(&self, other: &Self) -> bool {
        let rows = self.rows;
        self.varies() == other.varies()
            && *self
                == Self {
                    rows,
                    ..other.clone()
                }
    }

    /// Whether the number of rows differs from sample to sample.
    pub fn varies(&self) -> bool {
        matches!(self.rows, Rows::Varying { .. })
    }

    /// Bytes of a row; `usize::MAX` where there are more than can be counted, as a damaged description may say.
    pub fn row_bytes(&self) -> usize {
        let extents = self.shape.iter();
        // An extent of 0 wins, wherever it is.
        match self.shape.contains(&0) {
            true => 0,
            false => extents.fold(self.kind.bytes(), |all, extent| all.saturating_mul(*extent)),
        }
    }

    /// Bytes of so many rows; `usize::MAX` as for [one](Self::row_bytes).
    pub fn rows_bytes(&self, rows: usize) -> usize {
        self.row_bytes().saturating_mul(rows)
    }

    /// Most rows of a sample.
    pub(crate) fn rows_max(&self) -> usize {
        match self.rows {
            Rows::One => 1,
            Rows::Varying { most } => most,
        }
    }

    /// Bytes of the largest sample; `usize::MAX` as for a [row](Self::row_bytes).
    pub fn bytes_max(&self) -> usize {
        self.rows_bytes(self.rows_max())
    }
}

impl Field {
    /// Checks numbers of this field: finite, and classes that exist.
    ///
    /// # Errors
    /// The first one that is not, with its place: `image is NaN at [0, 3, 7]`.
    pub fn check(&self, values: &[u8]) -> Result<(), String> {
        if let Some(at) = self.first_bad(values) {
            let value = self.kind.numbers(&values[at * self.kind.bytes()..]).next();
            let value = value.expect("it was found there");
            let (name, place) = (&self.name, self.place(at));
            return Err(match self.classes {
                Some(classes) if value.is_finite() => {
                    format!("{name} is {value}{place}, and there are classes 0..{classes}")
                }
                _ => format!("{name} is {value}{place}"),
            });
        }
        Ok(())
    }

    /// The place of the first number that is not finite or no class.
    fn first_bad(&self, values: &[u8]) -> Option<usize> {
        if let Some(classes) = self.classes {
            let fits = |value: f64| (0.0..f64::from(classes)).contains(&value);
            return self.kind.numbers(values).position(|value| !fits(value));
        }
        // Exponents of ones only, looked for without leaving early: so it goes at the rate of memory.
        match self.kind {
            Kind::U8 | Kind::I16 | Kind::I32 => None,
            Kind::F32 => first(values.as_chunks::<4>().0, |one| {
                u32::from_le_bytes(*one) & 0x7F80_0000 == 0x7F80_0000
            }),
            Kind::F16 => first(values.as_chunks::<2>().0, |one| {
                u16::from_le_bytes(*one) & 0x7C00 == 0x7C00
            }),
            Kind::BF16 => first(values.as_chunks::<2>().0, |one| {
                u16::from_le_bytes(*one) & 0x7F80 == 0x7F80
            }),
        }
    }

    /// What is wrong with a file's number that the field's kind does not hold.
    pub(crate) fn unfit(&self, Unfit { at, value }: Unfit) -> String {
        let (name, place, kind) = (&self.name, self.place(at), self.kind.name());
        format!("{name} is {value}{place}, which {kind} does not hold")
    }

    /// What is wrong with a number that stands for a missing one.
    pub(crate) fn missing(&self, at: usize, value: f64) -> String {
        let (name, place) = (&self.name, self.place(at));
        format!("{name} is missing{place}: {value:e} is the fill value")
    }

    /// ` at [0, 3, 7]`, or nothing of a single number.
    fn place(&self, at: usize) -> String {
        let index = self.index(at);
        match index.is_empty() {
            true => String::new(),
            false => format!(" at {index:?}"),
        }
    }

    /// Where the number of this place is in the tensor.
    fn index(&self, mut at: usize) -> Vec<usize> {
        let mut index = vec![0; self.shape.len()];
        for (place, extent) in index.iter_mut().zip(&self.shape).rev() {
            (*place, at) = (at % extent, at / extent);
        }
        if self.varies() {
            index.insert(0, at);
        }
        index
    }
}

fn first<T>(values: &[T], is_bad: impl Fn(&T) -> bool) -> Option<usize> {
    let any = values.iter().fold(false, |any, one| any | is_bad(one));
    any.then(|| values.iter().position(is_bad)).flatten()
}

/// As in `image f32 [3, 64, 64]`, `boxes f32 [≤ 12, 5]`.
impl std::fmt::Display for Field {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rows = match self.rows {
            Rows::One => None,
            Rows::Varying { most } => Some(format!("≤ {most}")),
        };
        let extents = self.shape.iter().map(ToString::to_string);
        let extents: Vec<_> = rows.into_iter().chain(extents).collect();
        let kind = self.kind.name();
        write!(out, "{} {kind} [{}]", self.name, extents.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_all_kinds() {
        let check = |kind: Kind, bytes: &[u8], want: &[f64]| {
            assert_eq!(kind.numbers(bytes).collect::<Vec<_>>(), want, "{kind:?}");
            assert_eq!(bytes.len(), kind.bytes() * want.len());
        };
        check(Kind::U8, &[0, 255], &[0.0, 255.0]);
        check(Kind::I16, &[0xFE, 0xFF, 1, 1], &[-2.0, 257.0]);
        check(Kind::I32, &[0, 0, 0, 0x80], &[-2_147_483_648.0]);
        check(Kind::F16, &[0, 0x3C, 0, 0xC0], &[1.0, -2.0]);
        check(Kind::BF16, &[0x80, 0x3F, 0x40, 0xC0], &[1.0, -3.0]);
        check(Kind::F32, &1.5f32.to_le_bytes(), &[1.5]);
    }

    #[test]
    fn names_are_those_of_files() {
        for kind in Kind::ALL {
            let written = serde_json::to_string(&kind).unwrap();
            assert_eq!(written, format!("\"{}\"", kind.name()));
        }
        let boxes = Field::varying("boxes", Kind::F32, &[5], 12);
        assert_eq!(boxes.to_string(), "boxes f32 [≤ 12, 5]");
        assert_eq!((boxes.row_bytes(), boxes.bytes_max()), (20, 240));
        let none = Field::new("none", Kind::F32, &[usize::MAX, 2, 0]);
        assert_eq!((none.row_bytes(), none.bytes_max()), (0, 0));
        for shape in [&[1 << 62, 4][..], &[1 << 40, 1 << 40, 1 << 40]] {
            let endless = Field::varying("endless", Kind::F32, shape, 3);
            assert_eq!(endless.row_bytes(), usize::MAX, "{shape:?}");
            assert_eq!(endless.bytes_max(), usize::MAX, "{shape:?}");
        }
        let label = Field::new("label", Kind::I32, &[]);
        assert_eq!(
            (label.to_string().as_str(), label.bytes_max()),
            ("label i32 []", 4)
        );
    }

    #[test]
    fn numbers_that_cannot_be_are_named_with_their_place() {
        let check = |field: Field, values: &[u8], want: &str| {
            assert_eq!(field.check(values).err().unwrap_or_default(), want);
        };
        let image = Field::new("image", Kind::F32, &[2, 3]);
        let mut values = [1.5f32, 0.0, -2.0, f32::MAX, 0.0, 1e-40].map(f32::to_le_bytes);
        check(image.clone(), values.as_flattened(), "");
        values[4] = f32::NEG_INFINITY.to_le_bytes();
        check(image, values.as_flattened(), "image is -inf at [1, 1]");
        let rows = Field::varying("boxes", Kind::BF16, &[2], 9);
        check(rows, &[0, 0, 0, 0, 0xC0, 0x7F], "boxes is NaN at [1, 0]");
        check(
            Field::new("half", Kind::F16, &[]),
            &[0, 0x7C],
            "half is inf",
        );
        let label = Field::new("label", Kind::I16, &[]).classes(3);
        check(label.clone(), &[2, 0], "");
        check(
            label.clone(),
            &[3, 0],
            "label is 3, and there are classes 0..3",
        );
        check(
            label,
            &[0xFF, 0xFF],
            "label is -1, and there are classes 0..3",
        );
        check(Field::new("byte", Kind::U8, &[2]), &[0xFF, 0xFF], "");
    }
}
