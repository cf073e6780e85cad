//! `forecast.png`: truth, forecast and error of one held-out case as maps.

use std::io::Read as _;
use std::path::Path;

use plotters::style::RGBColor;
use safetensors::{Dtype, SafeTensors};

use super::axes::{LABEL_SIZE, Panel, Scale, TICK_SIZE, Tick, stepped_ticks};
use super::picture::{Anchor, Picture};
use super::{GREY, INK, MISSING, ReportError, diverging, sequential};

const SIZE: (u32, u32) = (1600, 520);
/// No file of maps is larger: a larger one is a mistake.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Longer texts of the file would not fit the picture.
const TEXT_CHARS_MAX: usize = 60;

/// The maps of one case; coordinates ascend, and a map holds its rows from south to north.
#[derive(Debug)]
pub(crate) struct Maps {
    latitude: Vec<f64>,
    longitude: Vec<f64>,
    truth: Vec<f32>,
    forecast: Vec<f32>,
    /// Which case, such as `A1B 2080`.
    label: String,
    /// Of the values, such as `K`.
    unit: String,
    /// Such as `air_temperature`.
    variable: String,
}

impl Maps {
    /// Reads `forecast.safetensors`: `truth` and `forecast` of shape \[lat, lon\], `latitude`,
    /// `longitude` in degrees, all f32; metadata `label`, `unit`, `variable`.
    pub(crate) fn read(path: &Path) -> Result<Self, ReportError> {
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
            latitude: latitude.values,
            longitude: longitude.values,
        })
    }

    /// Root of the mean squared error over all grid points that both maps have; each counts the
    /// same. NaN if there is none.
    pub(crate) fn rmse(&self) -> f64 {
        let errors = self.errors();
        let finite: Vec<f64> = errors.into_iter().filter(|e| e.is_finite()).collect();
        (finite.iter().map(|e| e * e).sum::<f64>() / finite.len() as f64).sqrt()
    }

    /// Forecast minus truth.
    fn errors(&self) -> Vec<f64> {
        let pairs = self.forecast.iter().zip(&self.truth);
        pairs.map(|(&f, &t)| f64::from(f) - f64::from(t)).collect()
    }
}

/// Draws truth, forecast and error as three maps.
pub(crate) fn draw_forecast(maps: &Maps, png: &Path) -> Result<(), ReportError> {
    forecast_picture(maps).write_png(png)
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

fn floats(tensors: &SafeTensors, name: &str, shape: &[usize]) -> Result<Vec<f32>, String> {
    let tensor = tensors
        .tensor(name)
        .map_err(|_| format!("no tensor `{name}`"))?;
    if tensor.dtype() != Dtype::F32 {
        return Err(format!("`{name}` is {:?}, not F32", tensor.dtype()));
    }
    if tensor.shape() != shape {
        return Err(format!(
            "`{name}` has shape {:?}, not {shape:?} as `latitude` and `longitude` demand",
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

fn forecast_picture(maps: &Maps) -> Picture {
    let mut picture = Picture::new(SIZE.0, SIZE.1);
    let unit = &maps.unit;
    let errors = maps.errors();
    let values = |map: &[f32]| map.iter().map(|&v| f64::from(v)).collect::<Vec<_>>();
    let (truth, forecast) = (values(&maps.truth), values(&maps.forecast));
    let (low, high) = range(truth.iter().chain(&forecast));
    let finite = errors.iter().filter(|e| e.is_finite());
    let most = match finite.fold(0.0, |most: f64, e| most.max(e.abs())) {
        0.0 => 1.0,
        most => most,
    };

    let variable = maps.variable.replace('_', " ");
    let title = format!("{}: {variable}", maps.label);
    let rmse = match maps.rmse() {
        rmse if rmse.is_finite() => format!("RMSE of this map: {rmse:.3} {unit}"),
        _ => "RMSE of this map: no grid point to compare".to_owned(),
    };
    let absolute = Scale::Linear(low, high);
    let signed = Scale::Linear(-most, most);
    let columns = [70.0, 580.0, 1090.0];
    let frames = columns.map(|left| map_frame(maps, left, left + 460.0));
    let (first, last) = (frames[0].across.0, frames[2].across.1);
    picture.text((first, 28.0), Anchor::Start, 23.0, INK, title);
    picture.text((last, 28.0), Anchor::End, 19.0, INK, rmse);
    let panels: [(&str, &[f64], Scale, Palette); 3] = [
        ("truth", &truth, absolute, sequential),
        ("forecast", &forecast, absolute, sequential),
        ("error (forecast − truth)", &errors, signed, diverging),
    ];
    for ((name, values, scale, palette), frame) in panels.into_iter().zip(&frames) {
        let above = ((frame.across.0 + frame.across.1) / 2.0, frame.down.0 - 18.0);
        picture.text(above, Anchor::Middle, LABEL_SIZE, INK, name);
        draw_map(&mut picture, frame, maps, values, scale, palette);
    }
    let below = frames[0].down.1 + 42.0;
    let shared = (frames[0].across.0 + 120.0, frames[1].across.1 - 120.0);
    let label = format!("{variable} ({unit})");
    draw_bar(&mut picture, shared, below, absolute, sequential, &label);
    let own = (frames[2].across.0 + 20.0, frames[2].across.1 - 20.0);
    let label = format!("error ({unit})");
    draw_bar(&mut picture, own, below, signed, diverging, &label);
    if truth.iter().chain(&forecast).any(|v| !v.is_finite()) {
        let right = (last, f64::from(SIZE.1) - 14.0);
        picture.text(right, Anchor::End, 13.0, GREY, "grey: no value");
    }
    picture
}

type Palette = fn(f64) -> RGBColor;

/// The finite values' range, widened where it is a point.
fn range<'a>(values: impl IntoIterator<Item = &'a f64>) -> (f64, f64) {
    let finite = values.into_iter().filter(|v| v.is_finite());
    let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), &v| {
        (l.min(v), h.max(v))
    });
    match high - low {
        width if width > 1e-6 * high.abs().max(1e-3) => (low, high),
        width if width.is_finite() => (low - 0.5, high + 0.5),
        _ => (0.0, 1.0),
    }
}

/// Where the map lies: degrees of longitude are narrowed as at the map's mean latitude, so that
/// shapes there are true, as far as the room between `left` and `right` allows.
fn map_frame(maps: &Maps, left: f64, right: f64) -> Panel {
    let (top, height) = (86.0, 310.0);
    let (west, east) = ends(&edges(&maps.longitude, f64::INFINITY));
    let (south, north) = ends(&edges(&maps.latitude, 90.0));
    let narrowed = ((south + north) / 2.0).to_radians().cos().max(0.2);
    let aspect = ((east - west) * narrowed / (north - south)).clamp(0.3, 4.0);
    let width = (right - left).min(height * aspect).round();
    let center = (left + right) / 2.0;
    let middle = top + height / 2.0;
    Panel {
        across: (
            center - (width / 2.0).round(),
            center + (width / 2.0).round(),
        ),
        down: (
            middle - (width / aspect / 2.0).round(),
            middle + (width / aspect / 2.0).round(),
        ),
        x: Scale::Linear(west, east),
        y: Scale::Linear(south, north),
    }
}

fn ends(edges: &[f64]) -> (f64, f64) {
    (edges[0], edges[edges.len() - 1])
}

/// The borders of the cells around ascending coordinates, none beyond `limit` on either side.
fn edges(centers: &[f64], limit: f64) -> Vec<f64> {
    let count = centers.len();
    let half = |a: usize, b: usize| match count {
        1 => 0.5,
        _ => (centers[b] - centers[a]) / 2.0,
    };
    let mut edges = vec![centers[0] - half(0, 1.min(count - 1))];
    edges.extend(centers.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0));
    edges.push(centers[count - 1] + half(count.saturating_sub(2), count - 1));
    edges.into_iter().map(|e| e.clamp(-limit, limit)).collect()
}

fn draw_map(
    picture: &mut Picture,
    frame: &Panel,
    maps: &Maps,
    values: &[f64],
    scale: Scale,
    palette: Palette,
) {
    let columns = cells(
        &edges(&maps.longitude, f64::INFINITY),
        frame.across,
        frame.x,
    );
    let rows = cells(&edges(&maps.latitude, 90.0), frame.down, frame.y);
    let count = maps.longitude.len();
    for &(row, south, north) in &rows {
        // Latitudes rise upwards, pixels downwards.
        let flip = |y: f64| frame.down.0 + frame.down.1 - y;
        for &(column, west, east) in &columns {
            let value = values[row * count + column];
            let color = if value.is_finite() {
                palette(scale.position(value))
            } else {
                MISSING
            };
            picture.fill((west, flip(north)), (east, flip(south)), color);
        }
    }
    let x = degree_ticks(frame.x, 5, longitude_label);
    let y = degree_ticks(frame.y, 5, latitude_label);
    frame.draw_frame(picture, &x, &y);
}

/// Index, first and last pixel of every cell that is to be drawn: of cells narrower than a pixel
/// only as many as there are pixels, so that a fine grid costs no more than a coarse one.
fn cells(edges: &[f64], pixels: (f64, f64), scale: Scale) -> Vec<(usize, f64, f64)> {
    let count = edges.len() - 1;
    let pixel = |edge: f64| pixels.0 + scale.position(edge) * (pixels.1 - pixels.0);
    let mut cells: Vec<(usize, f64, f64)> = Vec::new();
    let mut from = pixels.0;
    for index in 0..count {
        let to = pixel(edges[index + 1]);
        if to - from >= 1.0 || index + 1 == count {
            cells.push((index, from, to));
            from = to;
        }
    }
    cells
}

fn degree_ticks(scale: Scale, wanted: usize, label: fn(f64) -> String) -> Vec<Tick> {
    let Scale::Linear(low, high) = scale else {
        return Vec::new();
    };
    let rough = (high - low) / wanted as f64;
    let steps = [1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0];
    match steps.into_iter().find(|&step| step >= rough) {
        Some(step) if high - low >= 2.0 => stepped_ticks(low, high, step, label),
        Some(_) => scale.ticks(2),
        None => stepped_ticks(low, high, 90.0, label),
    }
}

fn latitude_label(degrees: f64) -> String {
    match degrees {
        0.0 => "0°".to_owned(),
        north if north > 0.0 => format!("{north:.0}°N"),
        south => format!("{:.0}°S", -south),
    }
}

fn longitude_label(degrees: f64) -> String {
    match (degrees + 180.0).rem_euclid(360.0) - 180.0 {
        0.0 => "0°".to_owned(),
        -180.0 => "180°".to_owned(),
        east if east > 0.0 => format!("{east:.0}°E"),
        west => format!("{:.0}°W", -west),
    }
}

fn draw_bar(
    picture: &mut Picture,
    (left, right): (f64, f64),
    top: f64,
    scale: Scale,
    palette: Palette,
    label: &str,
) {
    let bar = Panel {
        across: (left, right),
        down: (top, top + 14.0),
        x: scale,
        y: Scale::Linear(0.0, 1.0),
    };
    let steps = (right - left) as usize;
    for step in 0..steps {
        let x = left + step as f64;
        let color = palette((step as f64 + 0.5) / steps as f64);
        picture.fill((x, bar.down.0), ((x + 1.0).min(right), bar.down.1), color);
    }
    bar.draw_frame(picture, &scale.ticks(6), &[]);
    let below = ((left + right) / 2.0, bar.down.1 + TICK_SIZE + 27.0);
    picture.text(below, Anchor::Middle, LABEL_SIZE, INK, label);
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::path::PathBuf;

    use safetensors::tensor::TensorView;

    use super::super::picture::{count_near, png_size};
    use super::*;

    type Tensors = Vec<(&'static str, Vec<usize>, Vec<f32>)>;

    /// A map of North America with made-up temperatures, north first as in many files.
    pub(crate) fn tensors() -> Tensors {
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

    const KEYS: [&str; 3] = ["label", "unit", "variable"];

    fn read(tensors: &Tensors, keys: &[&str]) -> Result<Maps, String> {
        let folder = tempfile::tempdir().unwrap();
        let path: PathBuf = folder.path().join("forecast.safetensors");
        write(tensors, keys, &path);
        Maps::read(&path).map_err(|e| e.to_string())
    }

    #[test]
    fn the_picture_shows_the_maps() {
        let maps = read(&tensors(), &KEYS).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let png = folder.path().join("forecast.png");
        draw_forecast(&maps, &png).unwrap();
        assert_eq!(png_size(&std::fs::read(&png).unwrap()), SIZE);

        // South is warm in this map: light at the bottom of the frame, dark at its top.
        let pixels = forecast_picture(&maps).pixels().unwrap();
        let frame = map_frame(&maps, 70.0, 530.0);
        let light = |y: f64| {
            let x = (frame.across.0 + frame.across.1) / 2.0;
            let at = 3 * (y as usize * SIZE.0 as usize + x as usize);
            pixels[at..at + 3]
                .iter()
                .map(|&v| u32::from(v))
                .sum::<u32>()
        };
        assert!(light(frame.down.1 - 8.0) > light(frame.down.0 + 8.0) + 100);
    }

    #[test]
    #[ignore]
    fn look() {
        let maps = read(&tensors(), &KEYS).unwrap();
        draw_forecast(&maps, Path::new("/tmp/look/forecast.png")).unwrap();
    }

    #[test]
    fn errors_are_forecast_minus_truth_at_points_that_both_have() {
        let mut tensors = tensors();
        tensors[0].2 = vec![280.0; 37 * 49];
        tensors[1].2 = vec![282.0; 37 * 49];
        tensors[1].2[3] = f32::NAN;
        let maps = read(&tensors, &KEYS).unwrap();
        assert!((maps.rmse() - 2.0).abs() < 1e-9);
        let pixels = forecast_picture(&maps).pixels().unwrap();
        assert!(count_near(&pixels, diverging(1.0)) > 50_000);
        assert!(count_near(&pixels, MISSING) > 50);
    }

    #[test]
    fn maps_of_any_extent_are_drawn() {
        let sizes = [(1, 1), (2, 3), (1, 400), (700, 2)];
        for (rows, columns) in sizes {
            let spread = |count: usize, low: f32, high: f32| -> Vec<f32> {
                let step = (high - low) / count as f32;
                (0..count).map(|i| low + step * i as f32).collect()
            };
            let tensors = vec![
                ("truth", vec![rows, columns], vec![f32::NAN; rows * columns]),
                ("forecast", vec![rows, columns], vec![1.0; rows * columns]),
                ("latitude", vec![rows], spread(rows, -90.0, 90.0)),
                ("longitude", vec![columns], spread(columns, 0.0, 360.0)),
            ];
            let maps = read(&tensors, &KEYS).unwrap();
            assert!(maps.rmse().is_nan());
            forecast_picture(&maps).pixels().unwrap();
        }
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

    #[test]
    fn degrees_are_labelled_by_hemisphere() {
        let cases = [
            (0.0, "0°", "0°"),
            (45.0, "45°N", "45°E"),
            (-30.0, "30°S", "30°W"),
        ];
        for (degrees, latitude, longitude) in cases {
            assert_eq!(latitude_label(degrees), latitude);
            assert_eq!(longitude_label(degrees), longitude);
        }
        for (degrees, longitude) in [(225.0, "135°W"), (180.0, "180°"), (360.0, "0°")] {
            assert_eq!(longitude_label(degrees), longitude);
        }
    }
}
