//! Fourier transforms of cubes.

use std::sync::Arc;

pub(crate) use rustfft::num_complex::Complex32;
use rustfft::{Fft, FftPlanner};

/// Transforms cubes of `n` cells along an edge, rows along x one after the other: cell (z, y, x) is `(z n + y) n + x`.
pub(crate) struct Cubes {
    n: usize,
    forward: Arc<dyn Fft<f32>>,
    inverse: Arc<dyn Fft<f32>>,
    turned: Vec<Complex32>,
    scratch: Vec<Complex32>,
}

impl Cubes {
    pub(crate) fn new(n: usize) -> Self {
        let mut planner = FftPlanner::new();
        let (forward, inverse) = (planner.plan_fft_forward(n), planner.plan_fft_inverse(n));
        let zero = Complex32::default();
        let scratch = forward
            .get_inplace_scratch_len()
            .max(inverse.get_inplace_scratch_len());
        Self {
            n,
            forward,
            inverse,
            turned: vec![zero; n.pow(3)],
            scratch: vec![zero; scratch],
        }
    }

    /// `f(k) = Σ f(x) exp(−i k x)`.
    pub(crate) fn forward(&mut self, cube: &mut Vec<Complex32>) {
        let plan = Arc::clone(&self.forward);
        self.transform(&*plan, cube);
    }

    /// `f(x) = Σ f(k) exp(i k x) / n³`.
    pub(crate) fn inverse(&mut self, cube: &mut Vec<Complex32>) {
        let plan = Arc::clone(&self.inverse);
        self.transform(&*plan, cube);
        let part = 1.0 / self.n.pow(3) as f32;
        for value in cube {
            *value *= part;
        }
    }

    /// Along x, then turned so that y is where x was; three times all is where it was.
    fn transform(&mut self, plan: &dyn Fft<f32>, cube: &mut Vec<Complex32>) {
        let (n, rows) = (self.n, self.n * self.n);
        for _ in 0..3 {
            plan.process_with_scratch(cube, &mut self.scratch);
            for (x, turned) in self.turned.chunks_exact_mut(rows).enumerate() {
                for (value, row) in turned.iter_mut().zip(cube.chunks_exact(n)) {
                    *value = row[x];
                }
            }
            std::mem::swap(cube, &mut self.turned);
        }
    }

    /// Wave numbers of a place along an edge, in radians a cell: of the value, and of its derivative, to which
    /// the shortest wave, whose sign is unknown, adds nothing.
    pub(crate) fn wave(&self, place: usize) -> (f64, f64) {
        let n = self.n as i64;
        let number = place as i64;
        let signed = if number > n / 2 { number - n } else { number };
        let wave = std::f64::consts::TAU * signed as f64 / n as f64;
        (wave, if 2 * number == n { 0.0 } else { wave })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wave_has_its_place_and_comes_back() {
        let mut cubes = Cubes::new(8);
        let wave = |cell: usize| {
            let (z, y, x) = (cell / 64, cell / 8 % 8, cell % 8);
            let phase = std::f32::consts::TAU * (z + 2 * y + 3 * x) as f32 / 8.0;
            Complex32::new(phase.cos(), phase.sin())
        };
        let before: Vec<Complex32> = (0..512).map(wave).collect();
        let mut cube = before.clone();
        cubes.forward(&mut cube);
        for (cell, value) in cube.iter().enumerate() {
            let want = if cell == 64 + 2 * 8 + 3 { 512.0 } else { 0.0 };
            assert!((value - want).norm() < 1e-3, "{cell}: {value}");
        }
        cubes.inverse(&mut cube);
        for (after, before) in cube.iter().zip(&before) {
            assert!((after - before).norm() < 1e-5);
        }
    }
}
