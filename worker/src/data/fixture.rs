//! Small files for tests, and the real ones.

use std::path::{Path, PathBuf};

use hdf5_metno::types::FixedAscii;
use hdf5_metno::{Dataset, File};
use ndarray::{Array1, Array3};

use super::series::SeriesSpec;

/// A value that tells where it stands.
pub(crate) fn value(file: usize, step: usize, row: usize, column: usize) -> f32 {
    (file * 10_000 + step * 100 + row * 10 + column) as f32
}

/// Writes a file with the variable `t2m`, `[steps, rows, columns]`, and what NetCDF-4 would put
/// beside it.
pub(crate) fn write(path: &Path, shape: [usize; 3], value: impl Fn(usize, usize, usize) -> f32) {
    let file = File::create(path).unwrap();
    let values = Array3::from_shape_fn(shape, |(t, y, x)| value(t, y, x));
    let variable = file
        .new_dataset_builder()
        .with_data(&values)
        .create("t2m")
        .unwrap();
    unit(&variable, "K");
    let coordinate = |name: &str, length: usize, first: f32, measured: &str| {
        let degrees: Array1<f32> = (0..length).map(|i| first + 1.25 * i as f32).collect();
        let dataset = file
            .new_dataset_builder()
            .with_data(&degrees)
            .create(name)
            .unwrap();
        unit(&dataset, measured);
    };
    coordinate("rows", shape[1], 15.0, "degrees_north");
    coordinate("lon", shape[2], 225.0, "");
    let label = file.new_dataset::<FixedAscii<8>>().shape([3, 2, 2]);
    label.create("label").unwrap();
    file.close().unwrap();
}

/// Writes the attribute `units`, as the NetCDF library does.
fn unit(of: &Dataset, unit: &str) {
    let unit = FixedAscii::<16>::from_ascii(unit).unwrap();
    of.new_attr::<FixedAscii<16>>()
        .create("units")
        .unwrap()
        .write_scalar(&unit)
        .unwrap();
}

/// Adds a number as an attribute of one element.
pub(crate) fn attribute(path: &Path, variable: &str, name: &str, number: f32) {
    let file = File::open_rw(path).unwrap();
    let variable = file.dataset(variable).unwrap();
    variable
        .new_attr_builder()
        .with_data(&[number])
        .create(name)
        .unwrap();
}

/// Two files of 40 steps on a 3 × 4 grid, in `folder`: training targets 2..20, validation 20..28,
/// held out 30..40; held in memory.
pub(crate) fn spec(folder: &Path) -> SeriesSpec {
    let files: Vec<PathBuf> = ["wet_here.nc", "dry_here.nc"]
        .map(|name| folder.join(name))
        .into();
    for (index, file) in files.iter().enumerate() {
        write(file, [40, 3, 4], |t, y, x| value(index, t, y, x));
    }
    SeriesSpec {
        files,
        variable: "t2m".into(),
        history: 2,
        validation: 20..28,
        held_out: 30..40,
        time_origin: 1900,
        memory_bytes: 1 << 20,
    }
}

/// The climate scenarios that `make setup` fetches, with the ranges of the demo.
pub(crate) fn climate() -> SeriesSpec {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.deps/data");
    let files = ["A1B_north_america.nc", "E1_north_america.nc"].map(|name| folder.join(name));
    SeriesSpec {
        files: files.into(),
        variable: "air_temperature".into(),
        history: 8,
        validation: 180..200,
        held_out: 200..240,
        time_origin: 1860,
        memory_bytes: 1 << 30,
    }
}

/// Writes an IDX file of bytes.
pub(crate) fn idx(path: &Path, extents: &[u32], values: &[u8]) {
    let mut bytes = vec![0, 0, 8, extents.len() as u8];
    bytes.extend(extents.iter().flat_map(|extent| extent.to_be_bytes()));
    bytes.extend(values);
    std::fs::write(path, bytes).unwrap();
}

/// The label of an image, from its number in its file.
pub(crate) fn digit(number: usize) -> u8 {
    (number * 7 % 10) as u8
}

/// A pixel of an image: a bar where its digit says, over noise that tells file and number.
pub(crate) fn pixel(file: usize, number: usize, at: usize) -> u8 {
    let bar = at % 28 / 2 == 2 + usize::from(digit(number));
    let noise = (file * 13 + number * 31 + at * 17) % 23;
    (if bar { 200 + noise } else { noise }) as u8
}

/// Writes the four files of MNIST with so many images.
pub(crate) fn digits(folder: &Path, training: usize, test: usize) {
    for (file, (name, count)) in [("train", training), ("t10k", test)]
        .into_iter()
        .enumerate()
    {
        let path = |what: &str| folder.join(format!("{name}-{what}-ubyte"));
        let pixels = (0..count * 784).map(|at| pixel(file, at / 784, at % 784));
        let pixels: Vec<u8> = pixels.collect();
        let labels: Vec<u8> = (0..count).map(digit).collect();
        idx(&path("images-idx3"), &[count as u32, 28, 28], &pixels);
        idx(&path("labels-idx1"), &[count as u32], &labels);
    }
}
