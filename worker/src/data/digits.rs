//! Handwritten digits: MNIST's four files, as they are.

use std::path::{Path, PathBuf};

use tch::Tensor;

use super::idx;
use super::{Asked, Batch, DataError, Dataset, Field, Kind as Number, Split};

/// Height and width of an image, pixels.
pub const SIDE: usize = 28;

/// Kinds of images.
pub const CLASSES: usize = 10;

const PIXELS: usize = SIDE * SIDE;

/// One training image in so many, the last ones, is for validation: 10,000 of MNIST's 60,000.
const VALIDATION_PART: usize = 6;

/// All images, in memory: a byte a pixel, 55 MB of MNIST.
pub struct Digits {
    training: Labelled,
    test: Labelled,
}

impl Digits {
    /// Reads `train-images-idx3-ubyte`, `train-labels-idx1-ubyte` and the same of `t10k` in
    /// `folder`.
    ///
    /// # Errors
    /// A file that is missing, damaged or of another format, images of another size, labels that
    /// are no digits or not as many as images, and splits without an image.
    pub fn open(folder: &Path) -> Result<Self, DataError> {
        Ok(Self {
            training: Labelled::open(folder, "train", VALIDATION_PART)?,
            test: Labelled::open(folder, "t10k", 1)?,
        })
    }

    /// The file's images that a split has, and where in the file they begin.
    fn part(&self, split: Split) -> (&Labelled, usize, usize) {
        let all = self.training.labels.len();
        let kept = all - all / VALIDATION_PART;
        match split {
            Split::Train => (&self.training, 0, kept),
            Split::Validation => (&self.training, kept, all - kept),
            Split::HeldOut => (&self.test, 0, self.test.labels.len()),
        }
    }
}

impl Dataset for Digits {
    /// `image`: 0 for paper to 255 for ink; `digit`.
    fn fields(&self) -> Vec<Field> {
        vec![
            Field::new("image", Number::U8, &[1, SIDE, SIDE]),
            Field::new("digit", Number::U8, &[]).classes(CLASSES as u32),
        ]
    }

    fn len(&self, split: Split) -> usize {
        self.part(split).2
    }

    fn batch(&self, asked: Asked<'_>) -> Result<Batch, DataError> {
        let Asked { split, samples, .. } = asked;
        let (labelled, begin, len) = self.part(split);
        let mut pixels = Vec::with_capacity(samples.len() * PIXELS);
        let mut digits = Vec::with_capacity(samples.len());
        for &sample in samples {
            if sample >= len {
                return Err(DataError::Sample { split, sample, len });
            }
            let at = begin + sample;
            pixels.extend_from_slice(&labelled.pixels[at * PIXELS..][..PIXELS]);
            digits.push(labelled.labels[at]);
        }
        let shape = [samples.len() as i64, 1, SIDE as i64, SIDE as i64];
        Ok(Batch::of(samples)
            .with("image", Tensor::from_slice(&pixels).view(shape))
            .with("digit", Tensor::from_slice(&digits)))
    }
}

/// Images with their labels.
struct Labelled {
    /// [`PIXELS`] of each image.
    pixels: Vec<u8>,
    labels: Vec<u8>,
}

impl Labelled {
    /// At least `least` images.
    fn open(folder: &Path, name: &str, least: usize) -> Result<Self, DataError> {
        let file = |what: &str| folder.join(format!("{name}-{what}-ubyte"));
        let (images_file, labels_file) = (file("images-idx3"), file("labels-idx1"));
        let images = idx::read::<3>(&images_file)?;
        let labels = idx::read::<1>(&labels_file)?;
        let [count, height, width] = images.extents;
        if [height, width] != [SIDE, SIDE] {
            let reason = format!("its images are {height} × {width} instead of {SIDE} × {SIDE}");
            return Err(no_digits(images_file, reason));
        }
        if count < least {
            let reason = format!("it has {count} images, but at least {least} are needed");
            return Err(no_digits(images_file, reason));
        }
        if labels.values.len() != count {
            let own = labels.values.len();
            let reason = format!("it has {own} labels for {count} images");
            return Err(no_digits(labels_file, reason));
        }
        let strange = (labels.values.iter()).position(|label| usize::from(*label) >= CLASSES);
        if let Some(at) = strange {
            let label = labels.values[at];
            return Err(no_digits(
                labels_file,
                format!("label {at} is {label}, which is no digit"),
            ));
        }
        Ok(Self {
            pixels: images.values,
            labels: labels.values,
        })
    }
}

fn no_digits(file: PathBuf, reason: String) -> DataError {
    DataError::NotDigits { file, reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::fixture;

    #[test]
    fn splits_are_parts_of_the_files() {
        let folder = tempfile::tempdir().unwrap();
        fixture::digits(folder.path(), 60, 20);
        let digits = Digits::open(folder.path()).unwrap();
        let lengths = [Split::Train, Split::Validation, Split::HeldOut].map(|s| digits.len(s));
        assert_eq!(lengths, [50, 10, 20]);
        for (split, file, begin) in [
            (Split::Train, 0, 0),
            (Split::Validation, 0, 50),
            (Split::HeldOut, 1, 0),
        ] {
            let samples = [3, 0, 9, 3];
            let batch = digits.batch(Asked::of(split, &samples)).unwrap();
            assert_eq!(batch["image"].size(), [4, 1, 28, 28]);
            let told = Vec::<u8>::try_from(&batch["digit"]).unwrap();
            let pixels = Vec::<u8>::try_from(&batch["image"].view([-1])).unwrap();
            for (row, sample) in samples.into_iter().enumerate() {
                let want = begin + sample;
                assert_eq!(told[row], fixture::digit(want), "{split:?}");
                for at in [0, 400, PIXELS - 1] {
                    let pixel = fixture::pixel(file, want, at);
                    assert_eq!(pixels[row * PIXELS + at], pixel, "{split:?}");
                }
            }
            let len = digits.len(split);
            let error = digits.batch(Asked::of(split, &[len])).unwrap_err();
            assert!(error.to_string().contains(&format!("0..{len}, asked")));
        }
    }

    #[test]
    fn files_that_do_not_fit_are_named() {
        let check = |damage: &dyn Fn(&Path), name: &str, want: &str| {
            let folder = tempfile::tempdir().unwrap();
            fixture::digits(folder.path(), 12, 5);
            damage(folder.path());
            let error = Digits::open(folder.path()).err().unwrap().to_string();
            assert!(error.contains(name) && error.contains(want), "{error}");
        };
        let (images, labels) = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte");
        let remove = |folder: &Path| std::fs::remove_file(folder.join(labels)).unwrap();
        check(&remove, labels, "`make mnist`");
        let smaller = |folder: &Path| fixture::idx(&folder.join(images), &[12, 27, 28], &[0; 9072]);
        check(&smaller, images, "27 × 28 instead of 28 × 28");
        let few = |folder: &Path| fixture::digits(folder, 5, 5);
        check(&few, images, "has 5 images, but at least 6");
        let none = |folder: &Path| fixture::digits(folder, 12, 0);
        check(&none, "t10k-images-idx3-ubyte", "at least 1");
        let fewer = |folder: &Path| fixture::idx(&folder.join(labels), &[11], &[1; 11]);
        check(&fewer, labels, "11 labels for 12 images");
        let strange = |folder: &Path| {
            let mut own = [1; 12];
            own[7] = 10;
            fixture::idx(&folder.join(labels), &[12], &own);
        };
        check(&strange, labels, "label 7 is 10");
        let mixed = |folder: &Path| {
            std::fs::copy(folder.join(labels), folder.join(images)).unwrap();
        };
        check(&mixed, images, "1 extents instead of 3");
    }
}
