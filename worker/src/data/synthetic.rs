//! Images that follow from a seed: each kind has a pattern of its own, and an image is the pattern
//! of its kind with noise over it. They cost little to make, so that measurements of training
//! measure no storage, and there is something to learn.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use tch::Tensor;

use super::{Asked, Batch, DataError, Dataset, Field, Kind as Number, Split};

/// Colours of a pixel.
pub const CHANNELS: usize = 3;

/// A pattern is a grid of so many squares a side, each with a colour of its own.
const SQUARES: usize = 4;

/// The noise of an image begins at one of so many places of a table.
const PLACES: usize = 65_521;

/// Bytes 16 to 31 of the key of the random stream, which keep it apart from others of the seed.
const DOMAIN: &[u8; 16] = b"tradewind image1";

/// What images there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImagesSpec {
    /// Height and width, pixels, at least 1.
    pub size: usize,
    /// Kinds of images, at least 1.
    pub classes: usize,
    /// Images for training; a tenth as many, but at least one, in each of the other splits.
    pub samples: usize,
}

/// The images of a seed.
pub struct Images {
    spec: ImagesSpec,
    seed: u64,
    /// `[classes, CHANNELS, SQUARES, SQUARES]`, mean 0 and variance 1.
    patterns: Vec<f32>,
    /// Mean 0 and variance 1, an image's length longer than [`PLACES`].
    noise: Vec<f32>,
}

impl Images {
    /// Draws patterns and noise; images are made when they are asked for.
    pub fn new(spec: ImagesSpec, seed: u64) -> Self {
        let mut stream = stream(seed, u64::MAX);
        let mut draw = |count: usize| -> Vec<f32> {
            let uniform = |bits: u32| (f64::from(bits) / f64::from(u32::MAX) * 2.0 - 1.0) as f32;
            (0..count)
                .map(|_| uniform(stream.next_u32()) * 3f32.sqrt())
                .collect()
        };
        Self {
            patterns: draw(spec.classes * CHANNELS * SQUARES * SQUARES),
            noise: draw(PLACES + CHANNELS * spec.size * spec.size),
            spec,
            seed,
        }
    }

    /// What images there are.
    pub fn spec(&self) -> ImagesSpec {
        self.spec
    }

    /// The kind of an image, from 0, and where its noise begins.
    fn drawn(&self, split: Split, sample: usize) -> (usize, usize) {
        let split = match split {
            Split::Train => 0,
            Split::Validation => 1,
            Split::HeldOut => 2,
        };
        let mut stream = stream(self.seed, (split << 48) | sample as u64);
        let mut below = |bound: usize| (stream.next_u64() % bound as u64) as usize;
        (below(self.spec.classes), below(PLACES))
    }

    /// Appends the image of a kind, `[CHANNELS, size, size]`.
    fn paint(&self, class: usize, place: usize, pixels: &mut Vec<f32>) {
        let size = self.spec.size;
        let pattern = &self.patterns[class * CHANNELS * SQUARES * SQUARES..];
        let mut noise = self.noise[place..].chunks_exact(size);
        for row in 0..CHANNELS * size {
            let (channel, y) = (row / size, row % size);
            let squares = &pattern[(channel * SQUARES + y * SQUARES / size) * SQUARES..][..SQUARES];
            let noise = noise.next().expect("the table is long enough");
            for (square, colour) in squares.iter().enumerate() {
                // The pixels x with ⌊x · SQUARES / size⌋ = square.
                let edge = |square: usize| (square * size).div_ceil(SQUARES);
                let part = &noise[edge(square)..edge(square + 1)];
                pixels.extend(part.iter().map(|noise| colour + noise));
            }
        }
    }
}

impl Dataset for Images {
    /// `image`: red, green, blue, without unit; `kind`: a number from 0.
    fn fields(&self) -> Vec<Field> {
        let size = self.spec.size;
        vec![
            Field::new("image", Number::F32, &[CHANNELS, size, size]),
            Field::new("kind", Number::F32, &[]),
        ]
    }

    fn len(&self, split: Split) -> usize {
        match split {
            Split::Train => self.spec.samples,
            Split::Validation | Split::HeldOut => (self.spec.samples / 10).max(1),
        }
    }

    fn batch(&self, asked: Asked<'_>) -> Result<Batch, DataError> {
        let Asked { split, samples, .. } = asked;
        let size = self.spec.size;
        let mut input = Vec::with_capacity(samples.len() * CHANNELS * size * size);
        let mut target = Vec::with_capacity(samples.len());
        for &sample in samples {
            let len = self.len(split);
            if sample >= len {
                return Err(DataError::Sample { split, sample, len });
            }
            let (class, place) = self.drawn(split, sample);
            self.paint(class, place, &mut input);
            target.push(class as f32);
        }
        let (count, size) = (samples.len() as i64, size as i64);
        Ok(Batch::of(samples)
            .with(
                "image",
                Tensor::from_slice(&input).view([count, CHANNELS as i64, size, size]),
            )
            .with("kind", Tensor::from_slice(&target)))
    }
}

fn stream(seed: u64, number: u64) -> ChaCha8Rng {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key[8..16].copy_from_slice(&number.to_le_bytes());
    key[16..].copy_from_slice(DOMAIN);
    ChaCha8Rng::from_seed(key)
}

#[cfg(test)]
mod tests {
    use tch::Kind;

    use super::*;

    const SPEC: ImagesSpec = ImagesSpec {
        size: 10,
        classes: 5,
        samples: 200,
    };

    #[test]
    fn an_image_follows_from_seed_split_and_number() {
        let all: Vec<usize> = (0..20).collect();
        let input = |seed, split| {
            Images::new(SPEC, seed)
                .batch(Asked::of(split, &all))
                .unwrap()["image"]
                .shallow_clone()
        };
        let first = input(1, Split::Train);
        assert!(first == input(1, Split::Train));
        assert!(first != input(2, Split::Train));
        assert!(first != input(1, Split::HeldOut));
        let images = Images::new(SPEC, 1);
        let twice = images.batch(Asked::of(Split::Train, &[7, 3, 7])).unwrap();
        assert!(
            twice["image"].get(0) == twice["image"].get(2) && twice["image"].get(0) == first.get(7)
        );
        assert!(twice["image"].get(1) == first.get(3));
    }

    #[test]
    fn images_of_a_kind_look_alike_and_kinds_are_equally_frequent() {
        let images = Images::new(SPEC, 1);
        let all: Vec<usize> = (0..200).collect();
        let batch = images.batch(Asked::of(Split::Train, &all)).unwrap();
        assert_eq!(batch["image"].size(), [200, 3, 10, 10]);
        let kinds = Vec::<f32>::try_from(&batch["kind"]).unwrap();
        for kind in 0..5 {
            let count = kinds.iter().filter(|k| **k == kind as f32).count();
            assert!((20..=60).contains(&count), "kind {kind}: {count} of 200");
        }
        // What two images have in common is the pattern: variance 1 of 2.
        let common = |a: usize, b: usize| {
            let [a, b] = [a, b].map(|at| batch["image"].get(at as i64));
            (a * b).mean(Kind::Float).double_value(&[])
        };
        let pair = |same: bool| {
            (1..200)
                .find(|at| (kinds[*at] == kinds[0]) == same)
                .unwrap()
        };
        let (same, other) = (common(0, pair(true)), common(0, pair(false)));
        assert!(same > 0.6, "{same}");
        assert!(other < 0.5, "{other}");
    }

    #[test]
    fn every_pixel_has_its_place_whatever_the_size() {
        for size in [1, 3, 8, 17] {
            let spec = ImagesSpec { size, ..SPEC };
            let images = Images::new(spec, 1);
            assert_eq!(images.len(Split::Validation), 20);
            let batch = images
                .batch(Asked::of(Split::Validation, &[0, 19]))
                .unwrap();
            assert_eq!(batch["image"].numel(), 2 * CHANNELS * size * size);
        }
        let error = Images::new(SPEC, 1)
            .batch(Asked::of(Split::HeldOut, &[20]))
            .unwrap_err();
        assert!(error.to_string().contains("0..20, asked for 20"), "{error}");
    }
}
