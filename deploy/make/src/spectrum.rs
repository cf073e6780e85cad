//! The power spectrum of matter today, to first order.
//!
//! Eisenstein and Hu 1998, "Baryonic Features in the Matter Transfer Function", equations 2 to 24 (numbers below), for
//! cold matter and baryons without neutrinos' mass.

use std::f64::consts::{E, PI};

/// What a universe is made of; it is flat.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Universe {
    /// Part of matter, baryons included, in the density today.
    pub omega_m: f64,
    /// Root mean square contrast of matter in balls of 8 Mpc/h today, to first order.
    pub sigma_8: f64,
    /// Index of the primordial spectrum.
    pub n_s: f64,
    /// Hubble's constant in 100 km/s/Mpc.
    pub h: f64,
}

/// Part of baryons in the density today, the same in all universes.
pub const OMEGA_B: f64 = 0.0486;

/// The temperature of the background radiation, in 2.7 K.
const THETA: f64 = 2.7255 / 2.7;

/// Wave numbers of the integral for σ8, in h/Mpc, and its steps in their logarithm.
const INTEGRATED: (f64, f64, usize) = (1e-4, 1e2, 4096);

/// The spectrum of a universe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spectrum {
    universe: Universe,
    transfer: Transfer,
    amplitude: f64,
}

impl Spectrum {
    pub(crate) fn of(universe: Universe) -> Self {
        let mut spectrum = Self {
            universe,
            transfer: Transfer::of(universe),
            amplitude: 1.0,
        };
        spectrum.amplitude = (universe.sigma_8 / spectrum.contrast(8.0)).powi(2);
        spectrum
    }

    /// In (Mpc/h)³, of a wave number in h/Mpc above 0.
    pub(crate) fn at(&self, k: f64) -> f64 {
        let transfer = self.transfer.at(k * self.universe.h);
        self.amplitude * k.powf(self.universe.n_s) * transfer * transfer
    }

    /// Root mean square contrast in balls of this radius in Mpc/h: `σ² = ∫ P(k) k² W(k r)² dk / 2π²`, with
    /// `W(x) = 3 (sin x − x cos x) / x³`.
    pub(crate) fn contrast(&self, radius: f64) -> f64 {
        let (least, most, steps) = INTEGRATED;
        let step = (most / least).ln() / steps as f64;
        let middles = (0..steps).map(|number| least * ((number as f64 + 0.5) * step).exp());
        let parts = middles.map(|k| {
            let x = k * radius;
            let window = match x < 1e-2 {
                true => 1.0 - x * x / 10.0,
                false => 3.0 * (x.sin() - x * x.cos()) / x.powi(3),
            };
            self.at(k) * k.powi(3) * window * window * step
        });
        (parts.sum::<f64>() / (2.0 * PI * PI)).sqrt()
    }
}

/// What equations name; lengths in Mpc.
#[derive(Clone, Copy, Debug)]
struct Transfer {
    baryons: f64,
    k_eq: f64,
    k_silk: f64,
    sound: f64,
    alpha_c: f64,
    beta_c: f64,
    alpha_b: f64,
    beta_b: f64,
    beta_node: f64,
}

impl Transfer {
    fn of(universe: Universe) -> Self {
        let matter = universe.omega_m * universe.h * universe.h;
        let baryon = OMEGA_B * universe.h * universe.h;
        let baryons = OMEGA_B / universe.omega_m;
        let z_eq = 2.5e4 * matter * THETA.powi(-4); // (2)
        let k_eq = 7.46e-2 * matter * THETA.powi(-2); // (3)
        let b1 = 0.313 * matter.powf(-0.419) * (1.0 + 0.607 * matter.powf(0.674));
        let b2 = 0.238 * matter.powf(0.223);
        let z_d = 1291.0 * matter.powf(0.251) / (1.0 + 0.659 * matter.powf(0.828))
            * (1.0 + b1 * baryon.powf(b2)); // (4)
        let ratio = |z: f64| 31.5 * baryon * THETA.powi(-4) * 1e3 / z; // (5)
        let (r_d, r_eq) = (ratio(z_d), ratio(z_eq));
        let sound = 2.0 / (3.0 * k_eq)
            * (6.0 / r_eq).sqrt()
            * (((1.0 + r_d).sqrt() + (r_d + r_eq).sqrt()) / (1.0 + r_eq.sqrt())).ln(); // (6)
        let k_silk =
            1.6 * baryon.powf(0.52) * matter.powf(0.73) * (1.0 + (10.4 * matter).powf(-0.95)); // (7)
        let a1 = (46.9 * matter).powf(0.670) * (1.0 + (32.1 * matter).powf(-0.532));
        let a2 = (12.0 * matter).powf(0.424) * (1.0 + (45.0 * matter).powf(-0.582));
        let alpha_c = a1.powf(-baryons) * a2.powf(-baryons.powi(3)); // (11)
        let b1 = 0.944 / (1.0 + (458.0 * matter).powf(-0.708));
        let b2 = (0.395 * matter).powf(-0.0266);
        let beta_c = 1.0 / (1.0 + b1 * ((1.0 - baryons).powf(b2) - 1.0)); // (12)
        let y = (1.0 + z_eq) / (1.0 + z_d);
        let root = (1.0 + y).sqrt();
        let g = y * (-6.0 * root + (2.0 + 3.0 * y) * ((root + 1.0) / (root - 1.0)).ln()); // (15)
        let alpha_b = 2.07 * k_eq * sound * (1.0 + r_d).powf(-0.75) * g; // (14)
        let beta_node = 8.41 * matter.powf(0.435); // (23)
        let beta_b = 0.5 + baryons + (3.0 - 2.0 * baryons) * ((17.2 * matter).powi(2) + 1.0).sqrt(); // (24)
        Self {
            baryons,
            k_eq,
            k_silk,
            sound,
            alpha_c,
            beta_c,
            alpha_b,
            beta_b,
            beta_node,
        }
    }

    /// Of a wave number in 1/Mpc.
    fn at(&self, k: f64) -> f64 {
        let pressureless = |alpha: f64, beta: f64| {
            let q = k / (13.41 * self.k_eq); // (10)
            let c = 14.2 / alpha + 386.0 / (1.0 + 69.9 * q.powf(1.08)); // (20)
            let log = (E + 1.8 * beta * q).ln();
            log / (log + c * q * q) // (19)
        };
        let ks = k * self.sound;
        let f = 1.0 / (1.0 + (ks / 5.4).powi(4)); // (18)
        let cold = f * pressureless(1.0, self.beta_c)
            + (1.0 - f) * pressureless(self.alpha_c, self.beta_c); // (17)
        let shifted = ks / (1.0 + (self.beta_node / ks).powi(3)).cbrt(); // (22)
        let damped = self.alpha_b / (1.0 + (self.beta_b / ks).powi(3))
            * (-(k / self.k_silk).powf(1.4)).exp();
        let waves = pressureless(1.0, 1.0) / (1.0 + (ks / 5.2).powi(2)) + damped;
        let baryons = waves * shifted.sin() / shifted; // (21)
        self.baryons * baryons + (1.0 - self.baryons) * cold // (8), (16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spectrum_has_the_contrast_asked_for_and_the_known_slopes() {
        let universe = Universe {
            omega_m: 0.3089,
            sigma_8: 0.8159,
            n_s: 0.9667,
            h: 0.6774,
        };
        let spectrum = Spectrum::of(universe);
        assert!((spectrum.contrast(8.0) - 0.8159).abs() < 1e-9);
        // Long waves keep the primordial slope.
        let slope = |k: f64| (spectrum.at(1.01 * k) / spectrum.at(k)).ln() / 1.01f64.ln();
        assert!((slope(1e-4) - 0.9667).abs() < 0.02, "{}", slope(1e-4));
        // Short ones lose the fourth power, up to a logarithm squared.
        assert!((-3.0..-2.4).contains(&slope(10.0)), "{}", slope(10.0));
        // It turns where matter and radiation were as dense: at 0.0165 h/Mpc in this universe.
        let peak = (10..40).map(|n| f64::from(n) * 1e-3);
        let peak = peak.max_by(|a, b| spectrum.at(*a).total_cmp(&spectrum.at(*b)));
        assert!((0.014..0.019).contains(&peak.unwrap()), "{peak:?}");
    }
}
