//! How fast structures grow in a flat universe of matter and a cosmological constant.

/// Intervals of the integral.
const INTERVALS: usize = 512;

/// The growth of matter's contrasts up to redshift `z`, 1 today: `D(a) ∝ H(a) ∫ da / (a H(a))³` from 0 to a (Heath
/// 1977).
pub(crate) fn first(omega_m: f64, z: f64) -> f64 {
    let hubble = |a: f64| (omega_m / a.powi(3) + 1.0 - omega_m).sqrt();
    let grown = |a: f64| {
        let width = a / INTERVALS as f64;
        let middles = (0..INTERVALS).map(|interval| (interval as f64 + 0.5) * width);
        let sum: f64 = middles.map(|a| (a * hubble(a)).powi(-3)).sum();
        hubble(a) * sum * width
    };
    grown(1.0 / (1.0 + z)) / grown(1.0)
}

/// That of the second order, with the sign of Scoccimarro 1998, appendix B: `−3/7 D² Ωm(z)^(−1/143)` (Bouchet et al.
/// 1995).
pub(crate) fn second(omega_m: f64, z: f64) -> f64 {
    let matter = omega_m * (1.0 + z).powi(3);
    let omega_z = matter / (matter + 1.0 - omega_m);
    -3.0 / 7.0 * first(omega_m, z).powi(2) * omega_z.powf(-1.0 / 143.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_that_of_known_universes() {
        // Of matter alone D = a.
        assert!((first(1.0, 3.0) - 0.25).abs() < 1e-4);
        // Carroll, Press and Turner's fit (their equation 29): g(z) / (1 + z) / g(0).
        let fit = |z: f64| {
            let (m, total) = (0.3 * (1.0f64 + z).powi(3), 0.3 * (1.0f64 + z).powi(3) + 0.7);
            let (m, l) = (m / total, 0.7 / total);
            2.5 * m / (m.powf(4.0 / 7.0) - l + (1.0 + m / 2.0) * (1.0 + l / 70.0))
        };
        for z in [0.5, 1.0, 2.0] {
            let want = fit(z) / (1.0 + z) / fit(0.0);
            assert!((first(0.3, z) / want - 1.0).abs() < 0.01, "{z}");
        }
        assert!((second(1.0, 0.0) + 3.0 / 7.0).abs() < 1e-12);
    }
}
