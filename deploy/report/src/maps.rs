//! `forecast.safetensors`: the maps of one held-out case, read without trust.

use std::io::Read as _;
use std::path::Path;

use safetensors::{Dtype, SafeTensors};

use super::ReportError;

/// No file of maps is larger: a larger one is a mistake.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// More could not be told apart.
const OUTLINES_MAX: usize = 10_000;
/// Longer texts of the file would not fit the picture.
const TEXT_CHARS_MAX: usize = 40;

/// The maps of one case; coordinates ascend, and a map holds its rows from south to north.
#[derive(Debug)]
pub struct Maps {
    /// Degrees north.
    pub latitude: Vec<f64>,
    /// Degrees east.
    pub longitude: Vec<f64>,
    /// What came, by latitude, then longitude.
    pub truth: Vec<f32>,
    /// What the model said, in the same order.
    pub forecast: Vec<f32>,
    /// Which case, such as `A1B 2080`.
    pub label: String,
    /// Of the values, such as `K`.
    pub unit: String,
    /// Such as `air_temperature`.
    pub variable: String,
    /// Rectangles on the map of truth and on the forecast.
    pub outlines: [Vec<Outline>; 2],
}

/// A rectangle on a map, in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outline {
    /// Its south and north edge.
    pub latitude: [f64; 2],
    /// Its west and east edge.
    pub longitude: [f64; 2],
    /// What kind of thing is there, from 1 on.
    pub class: usize,
}

impl Maps {
    /// Reads `forecast.safetensors`: `truth` and `forecast` of shape \[lat, lon\], `latitude`,
    /// `longitude` in degrees, all f32; metadata `label`, `unit`, `variable`. There may be `truth.outlines` and
    /// `forecast.outlines` of shape \[n, 5\]: south, west, north, east, and a class from 1 on.
    pub fn read(path: &Path) -> Result<Self, ReportError> {
        let bytes = read_bounded(path)?;
        let content = |reason: String| ReportError::content(path, reason);
        let not_maps = |e| content(format!("not a readable safetensors file: {e}"));
        let (_, head) = SafeTensors::read_metadata(&bytes).map_err(not_maps)?;
        let tensors = SafeTensors::deserialize(&bytes).map_err(not_maps)?;
        Self::check(&head, &tensors).map_err(content)
    }

    fn check(head: &safetensors::tensor::Metadata, tensors: &SafeTensors) -> Result<Self, String> {
        let text = |key: &str| {
            let texts = head.metadata().as_ref();
            let text = texts.and_then(|texts| texts.get(key));
            let text = text.ok_or_else(|| format!("metadata has no `{key}`"))?;
            let shown = text.chars().filter(|c| !c.is_control());
            Ok::<String, String>(shown.take(TEXT_CHARS_MAX).collect())
        };
        let latitude = coordinate(tensors, "latitude", (-90.0, 90.0))?;
        let longitude = coordinate(tensors, "longitude", (-360.0, 720.0))?;
        let shape = [latitude.values.len(), longitude.values.len()];
        let map = |name: &str| {
            let values = floats(tensors, name, &shape)?;
            Ok::<Vec<f32>, String>(ascending(values, &latitude, &longitude))
        };
        Ok(Self {
            truth: map("truth")?,
            forecast: map("forecast")?,
            label: text("label")?,
            unit: text("unit")?,
            variable: text("variable")?,
            outlines: [
                outlines(tensors, "truth.outlines")?,
                outlines(tensors, "forecast.outlines")?,
            ],
            latitude: latitude.values,
            longitude: longitude.values,
        })
    }

    /// Root of the mean squared error over all grid points that both maps have; each counts the
    /// same. NaN if there is none.
    pub fn rmse(&self) -> f64 {
        let errors = self.errors();
        let finite: Vec<f64> = errors.into_iter().filter(|e| e.is_finite()).collect();
        (finite.iter().map(|e| e * e).sum::<f64>() / finite.len() as f64).sqrt()
    }

    /// Forecast minus truth.
    pub fn errors(&self) -> Vec<f64> {
        let pairs = self.forecast.iter().zip(&self.truth);
        pairs.map(|(&f, &t)| f64::from(f) - f64::from(t)).collect()
    }
}

fn read_bounded(path: &Path) -> Result<Vec<u8>, ReportError> {
    let read = |source| ReportError::Read {
        path: path.to_owned(),
        source,
    };
    let file = std::fs::File::open(path).map_err(read)?;
    let mut bytes = Vec::new();
    let mut bounded = file.take(FILE_BYTES_MAX + 1);
    bounded.read_to_end(&mut bytes).map_err(read)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let reason = format!("larger than {FILE_BYTES_MAX} bytes");
        return Err(ReportError::content(path, reason));
    }
    Ok(bytes)
}

/// Those of a map, none where the file has none.
fn outlines(tensors: &SafeTensors, name: &str) -> Result<Vec<Outline>, String> {
    let Ok(tensor) = tensors.tensor(name) else {
        return Ok(Vec::new());
    };
    let shape = [tensor.shape().first().copied().unwrap_or(0), 5];
    if shape[0] > OUTLINES_MAX {
        return Err(format!(
            "`{name}` has {} outlines, and no map has more than {OUTLINES_MAX}",
            shape[0]
        ));
    }
    let values = floats(tensors, name, &shape)?;
    if let Some(value) = values.iter().find(|value| !value.is_finite()) {
        return Err(format!("`{name}` holds {value}"));
    }
    let (rows, _) = values.as_chunks::<5>();
    let outline = |row: &[f32; 5]| {
        let [south, west, north, east, class] = row.map(f64::from);
        Outline {
            latitude: [south, north],
            longitude: [west, east],
            class: class as usize,
        }
    };
    Ok(rows.iter().map(outline).collect())
}

fn floats(tensors: &SafeTensors, name: &str, shape: &[usize]) -> Result<Vec<f32>, String> {
    let tensor = tensors
        .tensor(name)
        .map_err(|_| format!("no tensor `{name}`"))?;
    if tensor.dtype() != Dtype::F32 {
        return Err(format!("`{name}` is {:?}, not F32", tensor.dtype()));
    }
    if tensor.shape() != shape {
        return Err(format!(
            "`{name}` has shape {:?}, not {shape:?}",
            tensor.shape()
        ));
    }
    let (values, _) = tensor.data().as_chunks::<4>();
    Ok(values.iter().map(|&b| f32::from_le_bytes(b)).collect())
}

/// Ascending degrees, and whether the file has them the other way round.
struct Coordinate {
    values: Vec<f64>,
    reversed: bool,
}

fn coordinate(
    tensors: &SafeTensors,
    name: &str,
    (low, high): (f64, f64),
) -> Result<Coordinate, String> {
    let tensor = tensors
        .tensor(name)
        .map_err(|_| format!("no tensor `{name}`"))?;
    let &[count] = tensor.shape() else {
        let shape = tensor.shape();
        return Err(format!("`{name}` has shape {shape:?}, not one dimension"));
    };
    if count == 0 {
        return Err(format!("`{name}` is empty"));
    }
    let values = floats(tensors, name, &[count])?;
    let mut values: Vec<f64> = values.into_iter().map(f64::from).collect();
    if let Some(value) = values.iter().find(|v| !(low..=high).contains(*v)) {
        return Err(format!("`{name}` holds {value}, not in {low} to {high}"));
    }
    let reversed = values[0] > values[count - 1];
    if reversed {
        values.reverse();
    }
    if !values.is_sorted_by(|a, b| a < b) {
        return Err(format!("`{name}` neither rises nor falls throughout"));
    }
    Ok(Coordinate { values, reversed })
}

fn ascending(values: Vec<f32>, latitude: &Coordinate, longitude: &Coordinate) -> Vec<f32> {
    let mut rows: Vec<&[f32]> = values.chunks(longitude.values.len()).collect();
    if latitude.reversed {
        rows.reverse();
    }
    let rows = rows.into_iter().map(|row| {
        let mut row = row.to_vec();
        if longitude.reversed {
            row.reverse();
        }
        row
    });
    rows.flatten().collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::HashMap;
    use std::path::PathBuf;

    use safetensors::tensor::TensorView;

    use super::*;

    pub type Tensors = Vec<(&'static str, Vec<usize>, Vec<f32>)>;

    /// A map of North America with made-up temperatures, north first as in many files.
    pub fn tensors() -> Tensors {
        let latitude: Vec<f32> = (0..37).rev().map(|i| 15.0 + 1.25 * i as f32).collect();
        let longitude: Vec<f32> = (0..49).map(|i| 225.0 + 1.875 * i as f32).collect();
        let (mut truth, mut forecast) = (vec![], vec![]);
        for &y in &latitude {
            for &x in &longitude {
                let warm = 301.0 - 0.012 * (y - 10.0).powi(2) + 3.0 * (x / 9.0).sin();
                truth.push(warm);
                forecast.push(warm + 0.9 * (x / 6.0).sin() * (y / 7.0).cos() + 0.1);
            }
        }
        vec![
            ("truth", vec![37, 49], truth),
            ("forecast", vec![37, 49], forecast),
            ("latitude", vec![37], latitude),
            ("longitude", vec![49], longitude),
        ]
    }

    fn write(tensors: &Tensors, keys: &[&str], path: &Path) {
        let bytes: Vec<Vec<u8>> = tensors
            .iter()
            .map(|(_, _, values)| values.iter().flat_map(|v| v.to_le_bytes()).collect())
            .collect();
        let views = tensors.iter().zip(&bytes).map(|((name, shape, _), data)| {
            let view = TensorView::new(Dtype::F32, shape.clone(), data).unwrap();
            (*name, view)
        });
        let texts = [
            ("label", "A1B 2080"),
            ("unit", "K"),
            ("variable", "air_temperature"),
        ];
        let texts = texts.iter().filter(|(key, _)| keys.contains(key));
        let texts: HashMap<_, _> = texts.map(|(k, v)| ((*k).into(), (*v).into())).collect();
        std::fs::write(path, safetensors::serialize(views, Some(texts)).unwrap()).unwrap();
    }

    pub const KEYS: [&str; 3] = ["label", "unit", "variable"];

    pub fn read(tensors: &Tensors, keys: &[&str]) -> Result<Maps, String> {
        let folder = tempfile::tempdir().unwrap();
        let path: PathBuf = folder.path().join("forecast.safetensors");
        write(tensors, keys, &path);
        Maps::read(&path).map_err(|e| e.to_string())
    }

    #[test]
    fn files_that_are_not_maps_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("forecast.safetensors");
        let break_one = |break_it: fn(&mut Tensors)| {
            let mut tensors = tensors();
            break_it(&mut tensors);
            write(&tensors, &KEYS, &path);
            std::fs::read(&path).unwrap()
        };
        write(&tensors(), &KEYS[1..], &path);
        let unlabelled = std::fs::read(&path).unwrap();
        let whole = break_one(|_| {});
        let cases = [
            (unlabelled, "no `label`"),
            (whole[..whole.len() - 1].to_vec(), "safetensors"),
            (vec![255; 64], "safetensors"),
            (vec![], "safetensors"),
            (
                break_one(|t| t[1].1 = vec![49, 37]),
                "`forecast` has shape [49, 37], not [37, 49]",
            ),
            (
                break_one(|t| t.push(("truth.outlines", vec![1, 4], vec![1.0; 4]))),
                "`truth.outlines` has shape [1, 4], not [1, 5]",
            ),
            (
                break_one(|t| t.push(("forecast.outlines", vec![1, 5], vec![f32::NAN; 5]))),
                "`forecast.outlines` holds NaN",
            ),
            (break_one(|t| drop(t.remove(0))), "no tensor `truth`"),
            (break_one(|t| t[2].1 = vec![37, 1]), "not one dimension"),
            (break_one(|t| t[2].2[3] = f32::NAN), "`latitude` holds NaN"),
            (break_one(|t| t[3].2[3] = 0.0), "`longitude` neither"),
            (
                break_one(|t| t[3] = ("longitude", vec![0], vec![])),
                "`longitude` is empty",
            ),
        ];
        for (bytes, part) in cases {
            std::fs::write(&path, bytes).unwrap();
            let error = Maps::read(&path).unwrap_err().to_string();
            let named = error.contains("forecast.safetensors");
            assert!(named && error.contains(part), "{error}, not {part}");
        }
    }
}
