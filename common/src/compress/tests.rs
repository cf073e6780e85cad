//! What holds for every form.

use super::*;

const TOP: Compression = Compression::TopK { fraction: 0.1 };
const FORMS: [Compression; 4] = [Compression::None, Compression::Bf16, Compression::Int8, TOP];
const LENGTHS: [usize; 12] = [0, 1, 2, 3, 7, 16, 17, 511, 512, 513, 1027, 70_001];

/// Values of either sign, of which most are small: the cube of something like a normal.
pub(super) fn noise(seed: u64, n: usize) -> Vec<f32> {
    let mut state = seed;
    let mut uniform = || {
        // Steele et al. 2014, "Fast Splittable Pseudorandom Number Generators", figure 16.
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ z >> 31) >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    let mut value = || (uniform() + uniform() + uniform() + uniform()).powi(3);
    (0..n).map(|_| value()).collect()
}

/// What arrives of `values`, without feedback.
pub(super) fn sent(form: Compression, values: &[f32]) -> Vec<f32> {
    let (mut bytes, mut out) = (Vec::new(), vec![f32::NAN; values.len()]);
    form.encode(values, None, &mut bytes);
    form.decode(&bytes, &mut out).unwrap();
    out
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn what_arrives_and_what_is_left_out_are_the_sum() {
    for (form, n) in FORMS.into_iter().flat_map(|f| LENGTHS.map(|n| (f, n))) {
        let values = noise(1, n);
        let before: Vec<f32> = noise(2, n).iter().map(|x| x / 100.0).collect();
        let mut residual = before.clone();
        let mut bytes = vec![0xAB; 3];
        form.encode(&values, Some(&mut residual), &mut bytes);
        assert_eq!(bytes[..3], [0xAB; 3], "{form}: the encoding is appended");
        assert_eq!(bytes.len() - 3, form.encoded_max(n), "{form} of {n}");
        let mut arrived = vec![f32::NAN; n];
        form.decode(&bytes[3..], &mut arrived).unwrap();
        if form == Compression::None {
            assert_eq!(bits(&arrived), bits(&values));
            assert_eq!(bits(&residual), bits(&before));
            continue;
        }
        for i in 0..n {
            // Both parts are multiples of the sum's last place: nothing is rounded away.
            let parts = f64::from(arrived[i]) + f64::from(residual[i]);
            let sum = f64::from(values[i] + before[i]);
            assert_eq!(parts, sum, "{form}: value {i} of {n}");
        }
    }
}

#[test]
fn feedback_telescopes() {
    let (n, rounds) = (1500, 300);
    for form in [Compression::Bf16, Compression::Int8, TOP] {
        let mut feedback = Feedback::new(n);
        let (mut given, mut arrived) = (vec![0.0; n], vec![0.0; n]);
        for round in 0..rounds {
            let values = noise(round, n);
            let (mut bytes, mut out) = (Vec::new(), vec![0.0; n]);
            form.encode(&values, Some(feedback.block(0..n)), &mut bytes);
            form.decode(&bytes, &mut out).unwrap();
            for i in 0..n {
                given[i] += f64::from(values[i]);
                arrived[i] += f64::from(out[i]);
            }
        }
        for i in 0..n {
            let left = f64::from(feedback.block(i..i + 1)[0]);
            // A rounding of each round's sum, which is below 16.
            let rounding = rounds as f64 * 16.0 * 24f64.exp2().recip();
            let difference = (arrived[i] + left - given[i]).abs();
            assert!(difference <= rounding, "{form}: {difference} at {i}");
        }
    }
}

#[test]
fn without_feedback_is_feedback_of_zeros() {
    for (form, n) in FORMS.into_iter().flat_map(|f| LENGTHS.map(|n| (f, n))) {
        let values = noise(5, n);
        let (mut without, mut with) = (Vec::new(), Vec::new());
        form.encode(&values, None, &mut without);
        form.encode(&values, Some(&mut vec![0.0; n]), &mut with);
        assert_eq!(without, with, "{form} of {n}");
    }
}

#[test]
fn plain_values_keep_their_bits() {
    let values = [-0.0, 1e-45, f32::MIN_POSITIVE, f32::MAX, f32::MIN, 0.1];
    assert_eq!(bits(&sent(Compression::None, &values)), bits(&values));
}

#[test]
fn sums_that_overflow_stay_finite() {
    for form in [Compression::Bf16, Compression::Int8, TOP] {
        let mut residual = [f32::MAX, f32::MIN, -1.0, 0.0];
        for _ in 0..5 {
            let mut bytes = Vec::new();
            let values = [f32::MAX, f32::MIN, 1.0, f32::MAX];
            form.encode(&values, Some(&mut residual), &mut bytes);
            let mut out = [0.0; 4];
            form.decode(&bytes, &mut out).unwrap();
            assert!(crate::finite::all_finite(&residual), "{form}");
            assert!(out[0] > 1e38, "{form}: {out:?}");
        }
    }
}

#[test]
fn adding_is_decoding_and_a_sum() {
    for (form, n) in FORMS.into_iter().flat_map(|f| LENGTHS.map(|n| (f, n))) {
        let (values, mut out) = (noise(6, n), noise(7, n));
        let mut bytes = Vec::new();
        form.encode(&values, None, &mut bytes);
        let want: Vec<f32> = sent(form, &values)
            .iter()
            .zip(&out)
            .map(|(a, b)| a + b)
            .collect();
        form.decode_add(&bytes, &mut out).unwrap();
        assert_eq!(out, want, "{form} of {n}");
    }
}

/// Both ways of decoding `bytes` fail with `want`, and adding changes nothing.
fn check_error(form: Compression, bytes: &[u8], n: usize, want: DecodeError) {
    let before = noise(8, n);
    let mut out = before.clone();
    assert_eq!(form.decode_add(bytes, &mut out), Err(want), "{form}");
    assert_eq!(bits(&out), bits(&before), "{form}: {want}");
    assert_eq!(form.decode(bytes, &mut out), Err(want), "{form}");
}

#[test]
fn a_wrong_number_of_bytes_is_refused() {
    for (form, values) in FORMS.into_iter().flat_map(|f| LENGTHS.map(|n| (f, n))) {
        let wanted = form.encoded_max(values);
        for bytes in [0, wanted.saturating_sub(1), wanted + 1, 2 * wanted + 4] {
            if bytes != wanted {
                let want = DecodeError::Length {
                    bytes,
                    values,
                    wanted,
                };
                check_error(form, &vec![0; bytes], values, want);
            }
        }
    }
}

#[test]
fn values_and_scales_that_are_not_finite_are_refused() {
    let encoded = |form: Compression, n| {
        let mut bytes = Vec::new();
        form.encode(&noise(9, n), None, &mut bytes);
        bytes
    };
    let n = 1100;
    for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for position in [0, 511, 512, 1023, 1099] {
            let want = DecodeError::Value { position };
            let mut bytes = encoded(Compression::None, n);
            bytes[4 * position..][..4].copy_from_slice(&bad.to_le_bytes());
            bytes[4 * (n - 1)..].copy_from_slice(&bad.to_le_bytes());
            check_error(Compression::None, &bytes, n, want);

            let mut bytes = encoded(Compression::Bf16, n);
            bytes[2 * position..][..2].copy_from_slice(&bad.to_le_bytes()[2..]);
            bytes[2 * (n - 1)..].copy_from_slice(&bad.to_le_bytes()[2..]);
            check_error(Compression::Bf16, &bytes, n, want);
        }
    }
    for scale in [f32::INFINITY, f32::MAX / 127.5, -1.0, -0.0] {
        for piece in [0, 2] {
            let mut bytes = encoded(Compression::Int8, n);
            bytes[516 * piece..][..4].copy_from_slice(&scale.to_le_bytes());
            let position = 512 * piece;
            let want = DecodeError::Scale { position, scale };
            check_error(Compression::Int8, &bytes, n, want);
        }
    }
    let mut bytes = encoded(Compression::Int8, n);
    bytes[..4].copy_from_slice(&f32::NAN.to_le_bytes());
    let error = Compression::Int8.decode(&bytes, &mut vec![0.0; n]);
    let error = error.unwrap_err().to_string();
    assert_eq!(error, "the scale of the values from 0 on is NaN");
}

#[test]
fn top_k_that_contradicts_itself_is_refused() {
    /// One page of values, all with index and value.
    fn block(counts: &[u32], lows: &[u16], values: &[f32]) -> Vec<u8> {
        let counts = counts.iter().flat_map(|x| x.to_le_bytes());
        let lows = lows.iter().flat_map(|x| x.to_le_bytes());
        let values = values.iter().flat_map(|x| x.to_le_bytes());
        counts.chain(lows).chain(values).collect()
    }
    let top = |k: f64, n: f64| Compression::TopK { fraction: k / n };
    let (small, large) = (top(3.0, 20.0), top(3.0, 65_546.0));
    let check = |counts: &[u32], lows: [u16; 3], values: [f32; 3], want| {
        let bytes = block(counts, &lows, &values);
        match counts.len() {
            1 => check_error(small, &bytes, 20, want),
            _ => check_error(large, &bytes, 65_546, want),
        }
    };
    let entries = |entries| DecodeError::Entries { entries, wanted: 3 };
    let order = |entry, index| DecodeError::Order { entry, index };
    let past = |entry, index, values| DecodeError::Index {
        entry,
        index,
        values,
    };
    let good = [1.0, 2.0, 3.0];
    check(&[2], [1, 2, 3], good, entries(2));
    check(&[4], [1, 2, 3], good, entries(4));
    check(
        &[u32::MAX, u32::MAX],
        [1, 2, 3],
        good,
        entries(8_589_934_590),
    );
    check(&[3], [1, 1, 3], good, order(1, 1));
    check(&[3], [0, 3, 2], good, order(2, 2));
    check(&[3], [1, 2, 20], good, past(2, 20, 20));
    check(&[1, 2], [u16::MAX, 0, 0], good, order(2, 65_536));
    check(&[1, 2], [0, 9, 10], good, past(2, 65_546, 65_546));
    let value = DecodeError::Value { position: 7 };
    check(&[3], [1, 7, 9], [1.0, f32::NAN, f32::INFINITY], value);
    check(&[3], [1, 7, 9], [1.0, f32::NEG_INFINITY, 1.0], value);
}

#[test]
fn a_sum_that_is_not_finite_is_refused() {
    for form in FORMS {
        let n = 1030;
        let mut values = vec![0.0; n];
        values[600] = 1e38;
        values[1029] = -1.6e38;
        let mut bytes = Vec::new();
        form.encode(&values, None, &mut bytes);
        for (position, start) in [(600, 3.4e38), (1029, f32::MIN)] {
            let mut out = vec![1.0; n];
            out[position] = start;
            let before = out.clone();
            let error = form.decode_add(&bytes, &mut out);
            assert_eq!(error, Err(DecodeError::Sum { position }), "{form}");
            assert_eq!(out, before, "{form}");
        }
    }
}

#[test]
fn words_and_fractions() {
    assert_eq!(
        FORMS.map(|f| f.to_string()),
        ["none", "bf16", "int8", "topk"]
    );
    assert_eq!(FORMS.map(Compression::lossy), [false, true, true, true]);
    assert_eq!(FORMS.map(|f| f.encoded_max(1000)), [4000, 2000, 1008, 604]);
    for fraction in [1.0, 0.01, f64::MIN_POSITIVE] {
        assert_eq!(Compression::TopK { fraction }.check(), Ok(()));
    }
    for fraction in [0.0, -0.5, 1.001, f64::INFINITY, f64::NAN] {
        let error = Compression::TopK { fraction }.check().unwrap_err();
        let named = error.to_string().starts_with("exchange.topk_fraction is");
        assert!(named, "{error}");
    }
    assert_eq!(Compression::Int8.check(), Ok(()));
}
