//! What a compressed block may bring: whatever the bytes are, values that come out are finite.

use tradewind_common::compress::Compression;
use tradewind_common::finite::all_finite;
use tradewind_fuzz::{Turn, target};

/// Longest block.
const VALUES_MAX: u64 = 1_200;

const FRACTIONS: [f64; 4] = [1e-9, 0.01, 0.5, 1.0];

#[test]
fn of_any_bytes_come_finite_values_or_a_refusal() {
    target!(examples()).each(|bytes, mut turn| {
        let (form, fits) = (drawn(&mut turn), turn.flip());
        let values = turn.below(VALUES_MAX) as usize;
        let mut bytes = bytes.to_vec();
        if fits {
            bytes.resize(form.encoded_max(values), 0);
        }
        decoded(form, &bytes, values);
    });
}

#[test]
fn what_is_encoded_is_decoded() {
    target!(examples()).each(|bytes, mut turn| {
        let (form, with_residual) = (drawn(&mut turn), turn.flip());
        let values: Vec<f32> = numbers(bytes);
        let mut residual: Vec<f32> = values.iter().rev().map(|value| value / 3.0).collect();
        let mut encoded = Vec::new();
        form.encode(
            &values,
            with_residual.then_some(&mut residual[..]),
            &mut encoded,
        );
        assert!(all_finite(&residual), "{form}");
        assert_eq!(encoded.len(), form.encoded_max(values.len()), "{form}");
        let out = decoded(form, &encoded, values.len()).expect("its own encoding");
        if !form.lossy() {
            assert_eq!(out, values);
        }
    });
}

/// The values of a block, if the bytes are one; both ways to have them agree.
fn decoded(form: Compression, bytes: &[u8], values: usize) -> Option<Vec<f32>> {
    let mut out = vec![f32::NAN; values];
    let result = form.decode(bytes, &mut out);
    let mut sum = vec![0.0; values];
    let added = form.decode_add(bytes, &mut sum);
    assert_eq!(
        result.is_ok(),
        added.is_ok(),
        "{form}: {result:?}, {added:?}"
    );
    if result.is_err() {
        assert_eq!(sum, vec![0.0; values], "{form} has added a part");
        return None;
    }
    assert!(all_finite(&out), "{form}");
    assert_eq!(sum, out, "{form}");
    Some(out)
}

fn forms() -> std::ops::Range<usize> {
    0..3 + FRACTIONS.len()
}

fn drawn(turn: &mut Turn) -> Compression {
    form_of(turn.below(forms().end as u64) as usize)
}

fn form_of(number: usize) -> Compression {
    match number {
        0 => Compression::None,
        1 => Compression::Bf16,
        2 => Compression::Int8,
        number => Compression::TopK {
            fraction: FRACTIONS[number - 3],
        },
    }
}

/// What the caller of an encoder has checked: finite ones.
fn numbers(bytes: &[u8]) -> Vec<f32> {
    let numbers = bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|bytes| f32::from_le_bytes(*bytes));
    numbers
        .map(|number| if number.is_finite() { number } else { 0.0 })
        .collect()
}

fn examples() -> Vec<Vec<u8>> {
    let values: Vec<f32> = (0..VALUES_MAX as usize / 2)
        .map(|at| (at as f32 - 300.0) * 1e-3)
        .collect();
    let extremes = [f32::MAX, -f32::MAX, f32::MIN_POSITIVE, 1e-45, -0.0, 1.0];
    let all = [&values[..], &values[..7], &extremes[..]];
    let pairs = all
        .iter()
        .flat_map(|values| forms().map(move |form| (*values, form)));
    let encoded = pairs.map(|(values, form)| {
        let mut bytes = Vec::new();
        form_of(form).encode(values, None, &mut bytes);
        bytes
    });
    encoded.collect()
}
