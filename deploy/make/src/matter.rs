//! Boxes of matter by Lagrangian perturbation theory of the second order, which says where particles go that begin on
//! a grid. It is no N-body simulation: particles pass through each other where they would fall together.
//!
//! Scoccimarro 1998, "Transients from initial conditions", appendix B, and Crocce, Pueblas, Scoccimarro 2006,
//! "Transients from initial conditions in cosmological simulations", appendix D:
//!
//! ```text
//! x = q − D₁ ∇φ₁ + D₂ ∇φ₂
//! ∇²φ₁ = δ                                     the contrast today, to first order
//! ∇²φ₂ = Σ (φ₁,ᵢᵢ φ₁,ⱼⱼ − φ₁,ᵢⱼ²)   over i > j
//! ```

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::RngCore;

use crate::fft::{Complex32, Cubes};
use crate::growth;
use crate::spectrum::{Spectrum, Universe};

/// How particles move in one box: one particle for each cell, displacements in cells per growth.
pub(crate) struct Matter {
    n: usize,
    omega_m: f64,
    /// `−∇φ₁`, along x, y, z.
    first: [Vec<f32>; 3],
    /// `∇φ₂`.
    second: [Vec<f32>; 3],
}

/// Makes boxes of one size; memory is used again.
pub(crate) struct Maker {
    n: usize,
    /// Mpc/h.
    side: f64,
    cubes: Cubes,
}

impl Maker {
    /// Of boxes of `n` cells and `side` Mpc/h along an edge.
    pub(crate) fn new(n: usize, side: f64) -> Self {
        Self {
            n,
            side,
            cubes: Cubes::new(n),
        }
    }

    /// Draws a box of a universe.
    pub(crate) fn draw(&mut self, universe: Universe, random: &mut ChaCha8Rng) -> Matter {
        let contrast = self.contrast(universe, random);
        self.moved(universe.omega_m, &contrast)
    }

    /// How particles move where the contrast is `δ(k)`.
    fn moved(&mut self, omega_m: f64, contrast: &[Complex32]) -> Matter {
        let n = self.n;
        let imaginary = Complex32::new(0.0, 1.0);
        // φ(k) = −δ(k) / k²; two real fields are transformed as one complex one.
        let [x, y] = self.pair(contrast, |k, d| [d[0] / k, d[1] / k], imaginary);
        let [z, xx] = self.each(contrast, |k, w, d| {
            let along_z = imaginary * (d[2] / k) as f32;
            along_z + imaginary * (w[0] * w[0] / k) as f32
        });
        let [yy, zz] = self.each(contrast, |k, w, _| {
            Complex32::new((w[1] * w[1] / k) as f32, (w[2] * w[2] / k) as f32)
        });
        let [xy, xz] = self.each(contrast, |k, _, d| {
            Complex32::new((d[0] * d[1] / k) as f32, (d[0] * d[2] / k) as f32)
        });
        let [yz, _] = self.each(contrast, |k, _, d| {
            Complex32::new((d[1] * d[2] / k) as f32, 0.0)
        });
        let source = (0..n.pow(3)).map(|cell| {
            let product = xx[cell] * yy[cell] + xx[cell] * zz[cell] + yy[cell] * zz[cell];
            let crossed = xy[cell].powi(2) + xz[cell].powi(2) + yz[cell].powi(2);
            Complex32::new(product - crossed, 0.0)
        });
        let mut source: Vec<Complex32> = source.collect();
        self.cubes.forward(&mut source);
        // ∇φ₂(k) = −i k S(k) / k²
        let [sx, sy] = self.pair(&source, |k, d| [d[0] / k, d[1] / k], -imaginary);
        let [sz, _] = self.each(&source, |k, _, d| -imaginary * (d[2] / k) as f32);
        Matter {
            n,
            omega_m,
            first: [x, y, z],
            second: [sx, sy, sz],
        }
    }

    /// `δ(k)`: white noise with the spectrum's power, `⟨|δ(k)|²⟩ = P(k) n⁶ / V`.
    fn contrast(&mut self, universe: Universe, random: &mut ChaCha8Rng) -> Vec<Complex32> {
        let (n, spectrum) = (self.n, Spectrum::of(universe));
        let mut noise = normal(n.pow(3), random);
        self.cubes.forward(&mut noise);
        // By the squares of whole wave numbers, of which there are few.
        let unit = std::f64::consts::TAU / self.side;
        let cells = n.pow(3) as f64 / self.side.powi(3);
        let size = |square: usize| match square {
            0 => 0.0,
            _ => (spectrum.at(unit * (square as f64).sqrt()) * cells).sqrt() as f32,
        };
        let half = n / 2;
        let sizes: Vec<f32> = (0..=3 * half * half).map(size).collect();
        let square = |place: usize| place.min(n - place).pow(2);
        for (cell, value) in noise.iter_mut().enumerate() {
            let (z, y, x) = (cell / (n * n), cell / n % n, cell % n);
            *value *= sizes[square(z) + square(y) + square(x)];
        }
        noise
    }

    /// Two real fields: those of `field(k) × factor(k², wave, derivative)`, of which the first is the real part and the
    /// second the imaginary one; waves along x, y, z in radians a cell.
    fn each(
        &mut self,
        field: &[Complex32],
        factor: impl Fn(f64, [f64; 3], [f64; 3]) -> Complex32,
    ) -> [Vec<f32>; 2] {
        let n = self.n;
        let waves: Vec<(f64, f64)> = (0..n).map(|place| self.cubes.wave(place)).collect();
        let values = field.iter().enumerate().map(|(cell, value)| {
            let [x, y, z] = [cell % n, cell / n % n, cell / (n * n)].map(|place| waves[place]);
            let wave = [x.0, y.0, z.0];
            let square: f64 = wave.iter().map(|wave| wave * wave).sum();
            match cell {
                0 => Complex32::default(),
                _ => value * factor(square, wave, [x.1, y.1, z.1]),
            }
        });
        let mut cube: Vec<Complex32> = values.collect();
        self.cubes.inverse(&mut cube);
        [
            cube.iter().map(|value| value.re).collect(),
            cube.iter().map(|value| value.im).collect(),
        ]
    }

    /// The same of two factors that both have a phase.
    fn pair(
        &mut self,
        field: &[Complex32],
        factors: impl Fn(f64, [f64; 3]) -> [f64; 2],
        phase: Complex32,
    ) -> [Vec<f32>; 2] {
        self.each(field, |square, _, derivative| {
            let [real, imaginary] = factors(square, derivative);
            phase * Complex32::new(real as f32, imaginary as f32)
        })
    }
}

impl Matter {
    /// How many particles are in each cell at a redshift, of `mesh` cells along an edge; cell (z, y, x) is
    /// `(z mesh + y) mesh + x`.
    pub(crate) fn counts(&self, z: f64, mesh: usize) -> Vec<i16> {
        let n = self.n;
        let finer = mesh as f32 / n as f32;
        let first = growth::first(self.omega_m, z) as f32;
        let second = growth::second(self.omega_m, z) as f32;
        let mut counts = vec![0i16; mesh.pow(3)];
        for cell in 0..n.pow(3) {
            let moved = |axis: usize, place: usize| {
                let by = first * self.first[axis][cell] + second * self.second[axis][cell];
                // From the middle of the cell.
                let to = (finer * (place as f32 + 0.5 + by)).floor() as i64;
                to.rem_euclid(mesh as i64) as usize
            };
            let (x, y, z) = (
                moved(0, cell % n),
                moved(1, cell / n % n),
                moved(2, cell / (n * n)),
            );
            let count = &mut counts[(z * mesh + y) * mesh + x];
            *count = count.saturating_add(1);
        }
        counts
    }
}

/// Normal numbers of mean 0 and deviation 1 (Box and Muller 1958).
fn normal(count: usize, random: &mut ChaCha8Rng) -> Vec<Complex32> {
    let mut numbers = Vec::with_capacity(count + 1);
    while numbers.len() < count {
        let size = (-2.0 * (1.0 - uniform(random)).ln()).sqrt();
        let (sine, cosine) = (std::f64::consts::TAU * uniform(random)).sin_cos();
        numbers.extend([size * cosine, size * sine].map(|of| Complex32::new(of as f32, 0.0)));
    }
    numbers.truncate(count);
    numbers
}

/// From 0 to less than 1.
pub(crate) fn uniform(random: &mut ChaCha8Rng) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use rand_chacha::rand_core::SeedableRng;

    use super::*;
    use crate::cosmology::MIDDLE;

    /// Edge of a box in Mpc/h: twice that of the data, so that many waves fit in where linear theory holds.
    const SIDE: f64 = 256.0;

    /// Power of counts in (Mpc/h)³ in shells of `width` whole wave numbers: the mean wave number in h/Mpc and the
    /// power. The part that cells take off waves is given back.
    fn measured(n: usize, side: f64, counts: &[i16], width: f64) -> Vec<(f64, f64)> {
        let mut cubes = Cubes::new(n);
        let contrast = counts
            .iter()
            .map(|count| Complex32::new(f32::from(*count), 0.0));
        let mut contrast: Vec<Complex32> = contrast.collect();
        cubes.forward(&mut contrast);
        let mut shells = vec![(0.0, 0.0, 0.0); n];
        for (cell, value) in contrast.iter().enumerate().skip(1) {
            let waves = [cell % n, cell / n % n, cell / (n * n)].map(|place| cubes.wave(place).0);
            let window: f64 = waves
                .map(|w| {
                    if w == 0.0 {
                        1.0
                    } else {
                        (w / 2.0).sin() / (w / 2.0)
                    }
                })
                .iter()
                .product();
            let number = waves.iter().map(|wave| wave * wave).sum::<f64>().sqrt() * n as f64
                / std::f64::consts::TAU;
            let shell = (number / width) as usize;
            if shell < n {
                let power = f64::from(value.norm_sqr()) / window.powi(2);
                let (count, numbers, powers) = &mut shells[shell];
                (*count, *numbers, *powers) = (*count + 1.0, *numbers + number, *powers + power);
            }
        }
        let unit = std::f64::consts::TAU / side;
        let all: f64 = counts.iter().map(|count| f64::from(*count)).sum();
        let per_mode = side.powi(3) / all.powi(2);
        let shells = shells.into_iter().filter(|shell| shell.0 > 0.0);
        shells
            .map(|(count, number, power)| (unit * number / count, per_mode * power / count))
            .collect()
    }

    #[test]
    fn made_boxes_have_the_spectrum_of_linear_theory() {
        // Counted in finer cells than samples are, so that waves shorter than two cells add nothing.
        let (n, mesh, side, boxes, z) = (64, 128, SIDE, 12, 2.0);
        let mut maker = Maker::new(n, side);
        let mut sums: Vec<(f64, f64)> = Vec::new();
        for seed in 0..boxes {
            let matter = maker.draw(MIDDLE, &mut ChaCha8Rng::seed_from_u64(seed));
            let found = measured(mesh, side, &matter.counts(z, mesh), 2.0);
            sums.resize(found.len(), (0.0, 0.0));
            for (sum, (k, power)) in sums.iter_mut().zip(found) {
                *sum = (sum.0 + k / boxes as f64, sum.1 + power / boxes as f64);
            }
        }
        let spectrum = Spectrum::of(MIDDLE);
        let grown = growth::first(MIDDLE.omega_m, z).powi(2);
        // Without the first shell, in which are few waves, and up to a quarter of the shortest wave.
        for (k, power) in &sums[1..6] {
            let ratio = power / (grown * spectrum.at(*k));
            println!("k {k:.4} h/Mpc: {power:.3} (Mpc/h)³, {ratio:.3} of linear theory");
            assert!((0.9..1.1).contains(&ratio), "k {k:.3} h/Mpc: {ratio:.3}");
        }
    }

    /// With φ₁ = a cos(κx) + b cos(κy): φ₁,xx φ₁,yy = a b κ⁴ cos(κx) cos(κy), of which φ₂ is −1/(2κ²) times, so
    /// that ∂φ₂/∂x = a b κ³/2 sin(κx) cos(κy).
    #[test]
    fn the_second_order_of_two_crossed_waves_is_known() {
        let n = 16;
        let mut maker = Maker::new(n, 1.0);
        let wave = std::f64::consts::TAU / n as f64;
        let (a, b) = (3.0, 0.5);
        let place = |cell: usize| (wave * (cell % n) as f64, wave * (cell / n % n) as f64);
        // δ = ∇²φ₁
        let contrast = (0..n.pow(3)).map(|cell| {
            let (x, y) = place(cell);
            let value = -wave * wave * (a * x.cos() + b * y.cos());
            Complex32::new(value as f32, 0.0)
        });
        let mut contrast: Vec<Complex32> = contrast.collect();
        maker.cubes.forward(&mut contrast);
        let matter = maker.moved(1.0, &contrast);
        for cell in 0..n.pow(3) {
            let (x, y) = place(cell);
            let near = |got: f32, want: f64, what: &str| {
                assert!(
                    (f64::from(got) - want).abs() < 1e-4,
                    "{what} {cell}: {got}, {want}"
                );
            };
            near(matter.first[0][cell], a * wave * x.sin(), "first x");
            near(matter.first[1][cell], b * wave * y.sin(), "first y");
            near(matter.first[2][cell], 0.0, "first z");
            let second = a * b * wave.powi(3) / 2.0;
            near(
                matter.second[0][cell],
                second * x.sin() * y.cos(),
                "second x",
            );
            near(
                matter.second[1][cell],
                second * x.cos() * y.sin(),
                "second y",
            );
            near(matter.second[2][cell], 0.0, "second z");
        }
    }

    #[test]
    fn no_particle_is_lost_and_structures_grow() {
        let mut maker = Maker::new(32, SIDE / 2.0);
        let matter = maker.draw(MIDDLE, &mut ChaCha8Rng::seed_from_u64(3));
        let mut before = 0;
        for z in [2.0, 1.0, 0.5, 0.0] {
            let counts = matter.counts(z, 32);
            let all: i64 = counts.iter().map(|count| i64::from(*count)).sum();
            assert_eq!(all, 32i64.pow(3));
            let squares = counts.iter().map(|count| i64::from(*count).pow(2)).sum();
            assert!(squares > before, "{z}: {squares}, {before} before");
            before = squares;
        }
    }
}
