//! Numbers as files have them, and as fields do.

use half::{bf16, f16};

use crate::Kind;

/// Does something with the numbers of a file, which come one after the other, whatever they are stored as.
macro_rules! of_numbers {
    ($stored:expr, $from:expr, $numbers:ident => $what:expr) => {
        match $stored {
            Stored::Bool | Stored::U8 => of_numbers!(u8, i64::from, $from, $numbers, $what),
            Stored::I8 => of_numbers!(i8, i64::from, $from, $numbers, $what),
            Stored::U16 => of_numbers!(u16, i64::from, $from, $numbers, $what),
            Stored::I16 => of_numbers!(i16, i64::from, $from, $numbers, $what),
            Stored::U32 => of_numbers!(u32, i64::from, $from, $numbers, $what),
            Stored::I32 => of_numbers!(i32, i64::from, $from, $numbers, $what),
            Stored::U64 => of_numbers!(u64, u64::from, $from, $numbers, $what),
            Stored::I64 => of_numbers!(i64, i64::from, $from, $numbers, $what),
            Stored::F16 => of_numbers!(f16, f64::from, $from, $numbers, $what),
            Stored::F32 => of_numbers!(f32, f64::from, $from, $numbers, $what),
            Stored::F64 => of_numbers!(f64, f64::from, $from, $numbers, $what),
        }
    };
    ($type:ty, $number:path, $from:expr, $numbers:ident, $what:expr) => {{
        let chunks = $from.as_chunks::<{ size_of::<$type>() }>().0.iter();
        let $numbers = chunks.map(|one| $number(<$type>::from_le_bytes(*one)));
        $what
    }};
}

/// What a number is in a file; little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// A byte that is 0 or 1.
    Bool,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    U64,
    I64,
    F16,
    F32,
    F64,
}

impl Stored {
    /// Bytes of a number.
    pub fn bytes(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// The kind that holds all such numbers; of numbers that no kind holds, the one that holds the usual ones.
    pub fn kind(self) -> Kind {
        match self {
            Self::Bool | Self::U8 => Kind::U8,
            Self::I8 | Self::I16 => Kind::I16,
            Self::U16 | Self::I32 | Self::U32 | Self::I64 | Self::U64 => Kind::I32,
            Self::F16 => Kind::F16,
            Self::F32 | Self::F64 => Kind::F32,
        }
    }

    /// The place of the first of these numbers that is one of `missing`, and it.
    pub fn first_of(self, from: &[u8], missing: &[f64]) -> Option<(usize, f64)> {
        of_numbers!(self, from, numbers => {
            let mut numbers = numbers.map(Number::real).enumerate();
            numbers.find(|(_, value)| missing.contains(value))
        })
    }

    /// These numbers, if all of them are whole.
    pub fn whole_numbers(self, from: &[u8]) -> Option<Vec<i64>> {
        of_numbers!(self, from, numbers => numbers.map(Number::whole).collect())
    }

    /// Whether its bytes are those of the kind.
    pub fn is(self, kind: Kind) -> bool {
        matches!(
            (self, kind),
            (Self::Bool | Self::U8, Kind::U8)
                | (Self::I16, Kind::I16)
                | (Self::I32, Kind::I32)
                | (Self::F16, Kind::F16)
                | (Self::F32, Kind::F32)
        )
    }
}

/// How numbers of a file become those that they stand for: the conventions for NetCDF, CF 1.11, section 8.1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Packing {
    /// Is multiplied by first.
    pub scale: f64,
    /// Is added then.
    pub offset: f64,
}

/// A number that a kind does not hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Unfit {
    /// Its place among the numbers.
    pub at: usize,
    /// It.
    pub value: f64,
}

/// Turns numbers of a file into those of a kind. Whole numbers are never changed; others are rounded to the
/// nearest.
///
/// # Errors
/// The first one that the kind does not hold: out of its range, or not whole where the kind is.
///
/// # Panics
/// If the numbers of `from` and of `into` are not equally many.
pub(crate) fn convert(
    stored: Stored,
    from: &[u8],
    kind: Kind,
    into: &mut [u8],
) -> Result<(), Unfit> {
    assert_eq!(
        from.len() / stored.bytes(),
        into.len() / kind.bytes(),
        "{stored:?} as {kind:?}"
    );
    if stored.is(kind) {
        into.copy_from_slice(from);
        return Ok(());
    }
    of_numbers!(stored, from, numbers => fill(numbers, kind, into))
}

/// Turns packed numbers of a file into those that they stand for, computed in f64 and rounded to the nearest.
///
/// # Errors
/// As of [`convert`].
///
/// # Panics
/// As [`convert`].
pub(crate) fn unpack(
    Packing { scale, offset }: Packing,
    stored: Stored,
    from: &[u8],
    kind: Kind,
    into: &mut [u8],
) -> Result<(), Unfit> {
    assert_eq!(
        from.len() / stored.bytes(),
        into.len() / kind.bytes(),
        "{stored:?} as {kind:?}"
    );
    of_numbers!(stored, from, numbers => {
        fill(numbers.map(|number| number.real() * scale + offset), kind, into)
    })
}

/// A number on its way.
trait Number: Copy {
    fn real(self) -> f64;
    /// If it is whole.
    fn whole(self) -> Option<i64>;
}

impl Number for i64 {
    fn real(self) -> f64 {
        self as f64
    }

    fn whole(self) -> Option<i64> {
        Some(self)
    }
}

impl Number for u64 {
    fn real(self) -> f64 {
        self as f64
    }

    fn whole(self) -> Option<i64> {
        self.try_into().ok()
    }
}

impl Number for f64 {
    fn real(self) -> f64 {
        self
    }

    fn whole(self) -> Option<i64> {
        // Beyond that no kind holds a whole number.
        let in_range = self.abs() <= 2f64.powi(53) && self.fract() == 0.0;
        in_range.then_some(self as i64)
    }
}

fn fill<N: Number>(
    numbers: impl Iterator<Item = N>,
    kind: Kind,
    into: &mut [u8],
) -> Result<(), Unfit> {
    fn whole<N: Number, T: TryFrom<i64>>(number: N) -> Option<T> {
        number.whole().and_then(|whole| whole.try_into().ok())
    }
    /// What is infinite or NaN in the file stays so: whether it may is not decided here.
    fn real<N: Number>(number: N, is_finite: impl Fn(f64) -> bool) -> bool {
        is_finite(number.real()) || !number.real().is_finite()
    }
    match kind {
        Kind::U8 => put(numbers, into, |n| whole(n).map(u8::to_le_bytes)),
        Kind::I16 => put(numbers, into, |n| whole(n).map(i16::to_le_bytes)),
        Kind::I32 => put(numbers, into, |n| whole(n).map(i32::to_le_bytes)),
        Kind::F16 => put(numbers, into, |n| {
            let fits = real(n, |value| f16::from_f64(value).is_finite());
            fits.then(|| f16::from_f64(n.real()).to_le_bytes())
        }),
        Kind::BF16 => put(numbers, into, |n| {
            let fits = real(n, |value| bf16::from_f64(value).is_finite());
            fits.then(|| bf16::from_f64(n.real()).to_le_bytes())
        }),
        Kind::F32 => put(numbers, into, |n| {
            let fits = real(n, |value| (value as f32).is_finite());
            fits.then(|| (n.real() as f32).to_le_bytes())
        }),
    }
}

fn put<N: Number, const BYTES: usize>(
    numbers: impl Iterator<Item = N>,
    into: &mut [u8],
    narrowed: impl Fn(N) -> Option<[u8; BYTES]>,
) -> Result<(), Unfit> {
    let places = into.as_chunks_mut::<BYTES>().0;
    for (at, (number, place)) in numbers.zip(places).enumerate() {
        let value = number.real();
        *place = narrowed(number).ok_or(Unfit { at, value })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn converted(stored: Stored, from: &[u8], kind: Kind) -> Result<Vec<f64>, Unfit> {
        let mut into = vec![0; from.len() / stored.bytes() * kind.bytes()];
        convert(stored, from, kind, &mut into)?;
        Ok(kind.numbers(&into).collect())
    }

    #[test]
    fn numbers_that_fit_keep_their_value() {
        let check = |stored, from: &[u8], kind, want: &[f64]| {
            assert_eq!(
                converted(stored, from, kind).as_deref(),
                Ok(want),
                "{stored:?} {kind:?}"
            );
        };
        for kind in Kind::ALL {
            check(Stored::Bool, &[0, 1], kind, &[0.0, 1.0]);
            check(Stored::U8, &[7, 100], kind, &[7.0, 100.0]);
            check(Stored::I8, &[7, 100], kind, &[7.0, 100.0]);
            check(Stored::U16, &[7, 0, 100, 0], kind, &[7.0, 100.0]);
            check(Stored::I16, &[7, 0], kind, &[7.0]);
            check(Stored::U32, &9u32.to_le_bytes(), kind, &[9.0]);
            check(Stored::I32, &9i32.to_le_bytes(), kind, &[9.0]);
            check(Stored::U64, &9u64.to_le_bytes(), kind, &[9.0]);
            check(Stored::I64, &9i64.to_le_bytes(), kind, &[9.0]);
            check(Stored::F16, &f16::from_f32(3.0).to_le_bytes(), kind, &[3.0]);
            check(Stored::F32, &3f32.to_le_bytes(), kind, &[3.0]);
            check(Stored::F64, &3f64.to_le_bytes(), kind, &[3.0]);
        }
        check(Stored::I8, &[0xFF], Kind::I16, &[-1.0]);
        check(
            Stored::F64,
            &0.1f64.to_le_bytes(),
            Kind::F32,
            &[f64::from(0.1f32)],
        );
        check(
            Stored::F32,
            &f32::INFINITY.to_le_bytes(),
            Kind::BF16,
            &[f64::INFINITY],
        );
    }

    #[test]
    fn packed_numbers_become_what_they_stand_for() {
        let unpacked = |packing, stored, from: &[u8], kind| {
            let mut into = vec![0; from.len() / Stored::bytes(stored) * Kind::bytes(kind)];
            unpack(packing, stored, from, kind, &mut into)?;
            Ok::<Vec<f64>, Unfit>(kind.numbers(&into).collect())
        };
        let kelvin = Packing {
            scale: 0.01,
            offset: 273.15,
        };
        let from = [-5000i16, 0, 1].map(i16::to_le_bytes).concat();
        let want = [223.15, 273.15, 273.16].map(|value: f64| f64::from(value as f32));
        assert_eq!(
            unpacked(kelvin, Stored::I16, &from, Kind::F32).unwrap(),
            want
        );
        // In f32 the product has lost what the sum needs.
        let fine = Packing {
            scale: 1.0 / 3.0,
            offset: -5_592_405.0,
        };
        let from = 16_777_217i32.to_le_bytes();
        let got = unpacked(fine, Stored::I32, &from, Kind::F32).unwrap();
        assert_eq!(got, [f64::from((16_777_217.0 / 3.0 - 5_592_405.0) as f32)]);
        let large = Packing {
            scale: 1e6,
            offset: 0.0,
        };
        let unfit = unpacked(large, Stored::U8, &[0, 1], Kind::F16).unwrap_err();
        assert_eq!((unfit.at, unfit.value), (1, 1e6));
    }

    #[test]
    fn missing_numbers_are_found_as_they_are_stored() {
        let from = [1.0f64, -9e33, 2.0].map(f64::to_le_bytes).concat();
        let found = Stored::F64.first_of(&from, &[7.0, -9e33]);
        assert_eq!(found, Some((1, -9e33)));
        assert_eq!(Stored::F64.first_of(&from, &[7.0]), None);
        assert_eq!(Stored::U8.first_of(&[3, 255], &[255.0]), Some((1, 255.0)));
    }

    #[test]
    fn numbers_that_do_not_fit_are_told_with_their_place() {
        let check = |stored, from: &[u8], kind, value: f64| {
            let good = vec![0; from.len()];
            let unfit = converted(stored, &[&good, from].concat(), kind).unwrap_err();
            assert_eq!((unfit.at, unfit.value), (1, value), "{stored:?} {kind:?}");
        };
        check(Stored::U16, &300u16.to_le_bytes(), Kind::U8, 300.0);
        check(Stored::I8, &[0xFF], Kind::U8, -1.0);
        check(
            Stored::I64,
            &(1i64 << 40).to_le_bytes(),
            Kind::I32,
            (1i64 << 40) as f64,
        );
        check(
            Stored::U64,
            &u64::MAX.to_le_bytes(),
            Kind::I32,
            u64::MAX as f64,
        );
        check(Stored::F32, &1.5f32.to_le_bytes(), Kind::I32, 1.5);
        check(Stored::F64, &1e300f64.to_le_bytes(), Kind::I32, 1e300);
        check(Stored::F64, &1e300f64.to_le_bytes(), Kind::F32, 1e300);
        check(Stored::F32, &1e5f32.to_le_bytes(), Kind::F16, 1e5);
        let nan = converted(Stored::F32, &f32::NAN.to_le_bytes(), Kind::I16).unwrap_err();
        assert!(nan.value.is_nan());
    }

    #[test]
    fn every_stored_number_has_a_kind_that_holds_small_ones() {
        for (stored, kind) in [
            (Stored::Bool, Kind::U8),
            (Stored::I8, Kind::I16),
            (Stored::U16, Kind::I32),
            (Stored::I64, Kind::I32),
            (Stored::F16, Kind::F16),
            (Stored::F64, Kind::F32),
        ] {
            assert_eq!(stored.kind(), kind);
            assert!(
                stored.is(kind) == (stored.bytes() == kind.bytes()),
                "{stored:?}"
            );
        }
    }
}
