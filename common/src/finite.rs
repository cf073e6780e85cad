//! The check that bad values must not pass (rule 7).

/// Whether no value is NaN or infinite.
pub fn all_finite(values: &[f32]) -> bool {
    // No early exit inside a piece, so that the loop vectorises.
    let piece = |piece: &[f32]| piece.iter().fold(true, |all, x| all & x.is_finite());
    values.chunks(4096).all(piece)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bad_value_is_found_wherever_it_is() {
        assert!(all_finite(&[]));
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for at in [0, 4095, 4096, 9999] {
                let mut values = vec![f32::MAX; 10_000];
                assert!(all_finite(&values));
                values[at] = bad;
                assert!(!all_finite(&values), "{bad} at {at}");
            }
        }
    }
}
