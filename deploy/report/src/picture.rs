//! A picture as a list of shapes, and its painting as PNG and SVG through plotters.
//!
//! plotters places everything on whole pixels. Both forms are therefore painted enlarged: the PNG
//! is averaged down, which smooths lines and text alike; the SVG states its true size with the
//! enlarged numbers as its user units.

use std::path::Path;
use std::sync::Once;

use plotters::coord::Shift;
use plotters::drawing::DrawingAreaErrorKind;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontStyle, FontTransform, register_font};
use tradewind_process::whole;

use super::{PAPER, ReportError};

/// A generic family: browsers know it, and the font in the binary is registered under it.
const FAMILY: &str = "sans-serif";
/// Painted pixels for one pixel of a PNG, in each direction.
const PNG_ENLARGED: u32 = 3;
/// User units of an SVG for one of its pixels.
const SVG_ENLARGED: u32 = 10;

/// Which point of a text is given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Anchor {
    /// Its start.
    Start,
    /// Its middle.
    Middle,
    /// Its end.
    End,
    /// Its middle, the text reading upwards.
    Upwards,
}

#[derive(Debug)]
enum Shape {
    Fill {
        corners: [(f64, f64); 2],
        color: RGBColor,
    },
    Line {
        points: Vec<(f64, f64)>,
        width: f64,
        color: RGBColor,
    },
    Text {
        at: (f64, f64),
        text: String,
        size: f64,
        anchor: Anchor,
        color: RGBColor,
    },
}

/// Shapes in the order of painting; coordinates in pixels from the upper left corner.
#[derive(Debug)]
pub struct Picture {
    width: u32,
    height: u32,
    shapes: Vec<Shape>,
}

impl Picture {
    /// An empty picture of that many pixels.
    pub fn new(width: u32, height: u32) -> Self {
        Self {
            width,
            height,
            shapes: Vec::new(),
        }
    }

    /// A filled rectangle between two corners.
    pub fn fill(&mut self, from: (f64, f64), to: (f64, f64), color: RGBColor) {
        let corners = [from, to];
        self.shapes.push(Shape::Fill { corners, color });
    }

    /// A line through points.
    pub fn line(&mut self, points: Vec<(f64, f64)>, width: f64, color: RGBColor) {
        self.shapes.push(Shape::Line {
            points,
            width,
            color,
        });
    }

    /// A text whose capitals are centred on `at` across the direction of reading; `size` is that
    /// of the font's em in pixels.
    pub fn text(
        &mut self,
        at: (f64, f64),
        anchor: Anchor,
        size: f64,
        color: RGBColor,
        text: impl Into<String>,
    ) {
        self.shapes.push(Shape::Text {
            at,
            text: text.into(),
            size,
            anchor,
            color,
        });
    }

    /// The picture as rows of 8-bit RGB.
    pub fn pixels(&self) -> Result<Vec<u8>, String> {
        let (w, h) = (self.width * PNG_ENLARGED, self.height * PNG_ENLARGED);
        let mut large = vec![0; 3 * w as usize * h as usize];
        let area = BitMapBackend::with_buffer(&mut large, (w, h)).into_drawing_area();
        self.paint(&area, &RASTER).map_err(|e| e.to_string())?;
        area.present().map_err(|e| e.to_string())?;
        drop(area);
        Ok(average(&large, w as usize))
    }

    /// Writes the picture as PNG.
    pub fn write_png(&self, path: &Path) -> Result<(), ReportError> {
        let pixels = self.pixels().map_err(|e| ReportError::draw(path, e))?;
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, self.width, self.height);
        encoder.set_color(png::ColorType::Rgb);
        let drawn = encoder
            .write_header()
            .and_then(|mut to| to.write_image_data(&pixels));
        drawn.map_err(|e| ReportError::draw(path, e))?;
        whole::write(path, file).map_err(ReportError::Write)
    }

    /// Writes the picture as SVG.
    pub fn write_svg(&self, path: &Path) -> Result<(), ReportError> {
        let text = self.svg().map_err(|e| ReportError::draw(path, e))?;
        whole::write(path, text).map_err(ReportError::Write)
    }

    fn svg(&self) -> Result<String, String> {
        let (w, h) = (self.width * SVG_ENLARGED, self.height * SVG_ENLARGED);
        let mut text = String::new();
        {
            let area = SVGBackend::with_string(&mut text, (w, h)).into_drawing_area();
            self.paint(&area, &VECTOR).map_err(|e| e.to_string())?;
            area.present().map_err(|e| e.to_string())?;
        }
        let enlarged = format!("width=\"{w}\" height=\"{h}\"");
        let size = format!("width=\"{}\" height=\"{}\"", self.width, self.height);
        Ok(text.replacen(&enlarged, &size, 1))
    }

    fn paint<DB: DrawingBackend>(
        &self,
        area: &DrawingArea<DB, Shift>,
        form: &Form,
    ) -> Result<(), DrawingAreaErrorKind<DB::ErrorType>> {
        register();
        area.fill(&PAPER)?;
        let at = |(x, y): (f64, f64)| form.place(x, y);
        for shape in &self.shapes {
            match shape {
                Shape::Fill { corners, color } => {
                    area.draw(&Rectangle::new(corners.map(at), color.filled()))?;
                }
                Shape::Line {
                    points,
                    width,
                    color,
                } => {
                    let mut points: Vec<_> = points.iter().copied().map(at).collect();
                    points.dedup();
                    let width = (width * form.enlarged).round().max(1.0) as u32;
                    let style = color.stroke_width(width);
                    if form.joins {
                        area.draw(&PathElement::new(points, style))?;
                        continue;
                    }
                    for pair in points.windows(2) {
                        area.draw(&PathElement::new(pair, style))?;
                    }
                    if width > 3 {
                        for &joint in points.iter().skip(1).rev().skip(1) {
                            area.draw(&Circle::new(joint, width / 2, color.filled()))?;
                        }
                    }
                }
                Shape::Text {
                    at,
                    text,
                    size,
                    anchor,
                    color,
                } => {
                    let ((x, y), style) = form.text(*at, *size, *anchor, *color);
                    for heavier in 0..form.strokes {
                        let position = (x + heavier, y);
                        area.draw(&Text::new(text.as_str(), position, style.clone()))?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// What the two forms do differently.
struct Form {
    enlarged: f64,
    /// Whether a line of many points is joined well by the form itself.
    joins: bool,
    /// plotters' size of a font for an em of 1.
    size_per_em: f64,
    v_pos: VPos,
    /// How often a text is painted, each time one painted pixel further to the right.
    strokes: i32,
    /// From the middle of the capitals to where plotters wants a text of `v_pos`, in ems.
    text_shift_ems: f64,
}

/// plotters hands the font's whole line height to the rasteriser (1.12 em in the registered font)
/// and puts the baseline half of it under the upper edge; capitals are 0.69 em high.
const RASTER: Form = Form {
    enlarged: PNG_ENLARGED as f64,
    joins: false,
    size_per_em: 1.12,
    v_pos: VPos::Top,
    // The registered font is a light one.
    strokes: 2,
    text_shift_ems: 0.69 / 2.0 - 1.12 / 2.0,
};

/// plotters divides the size by 1.24 and puts the baseline of a centred text half the height of an
/// x, about 0.26 em, under the given point; capitals of common fonts are 0.7 em high.
const VECTOR: Form = Form {
    enlarged: SVG_ENLARGED as f64,
    joins: true,
    size_per_em: 1.24,
    v_pos: VPos::Center,
    strokes: 1,
    text_shift_ems: 0.7 / 2.0 - 0.26,
};

impl Form {
    fn place(&self, x: f64, y: f64) -> (i32, i32) {
        (
            (x * self.enlarged).round() as i32,
            (y * self.enlarged).round() as i32,
        )
    }

    fn text(
        &self,
        (x, y): (f64, f64),
        size: f64,
        anchor: Anchor,
        color: RGBColor,
    ) -> ((i32, i32), TextStyle<'static>) {
        let shift = self.text_shift_ems * size;
        let (h_pos, transform, position) = match anchor {
            Anchor::Start => (HPos::Left, FontTransform::None, self.place(x, y + shift)),
            Anchor::Middle => (HPos::Center, FontTransform::None, self.place(x, y + shift)),
            Anchor::End => (HPos::Right, FontTransform::None, self.place(x, y + shift)),
            Anchor::Upwards => (
                HPos::Center,
                FontTransform::Rotate270,
                self.place(x + shift, y),
            ),
        };
        let font = (FAMILY, size * self.size_per_em * self.enlarged).into_font();
        let mut style = TextStyle::from(font.transform(transform));
        style.pos = Pos::new(h_pos, self.v_pos);
        style.color = color.to_backend_color();
        (position, style)
    }
}

/// The width of a text in pixels, in a font whose em is `size` pixels.
pub fn text_width(text: &str, size: f64) -> f64 {
    register();
    // Measured large, as plotters answers in whole pixels.
    let font = (FAMILY, 100.0 * RASTER.size_per_em).into_font();
    font.box_size(text)
        .map_or(0.0, |(width, _)| f64::from(width) * size / 100.0)
}

/// The font travels in the binary: a compute node may have none.
fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let font = epaint_default_fonts::UBUNTU_LIGHT;
        // The bytes are constant: if they were no font, every test that paints would fail.
        let _ = register_font(FAMILY, FontStyle::Normal, font);
    });
}

/// Every [`PNG_ENLARGED`] by [`PNG_ENLARGED`] pixels of RGB rows of `width` pixels become their mean. There are
/// millions: each step of an iterator takes a whole row of such a square, as tests draw pictures hardly optimised.
fn average(large: &[u8], width: usize) -> Vec<u8> {
    const SIDE: usize = PNG_ENLARGED as usize;
    const AREA: u16 = (SIDE * SIDE) as u16;
    let mean = |sum: u16| ((sum + AREA / 2) / AREA) as u8;
    let mut small = Vec::with_capacity(large.len() / (SIDE * SIDE));
    for band in large.chunks_exact(3 * width * SIDE) {
        let mut sums = vec![[0; 3]; width / SIDE];
        for row in band.chunks_exact(3 * width) {
            let (parts, _) = row.as_chunks::<{ 3 * SIDE }>();
            for ([red, green, blue], part) in sums.iter_mut().zip(parts) {
                let [r0, g0, b0, r1, g1, b1, r2, g2, b2] = *part;
                *red += u16::from(r0) + u16::from(r1) + u16::from(r2);
                *green += u16::from(g0) + u16::from(g1) + u16::from(g2);
                *blue += u16::from(b0) + u16::from(b1) + u16::from(b2);
            }
        }
        for [red, green, blue] in sums {
            small.extend_from_slice(&[mean(red), mean(green), mean(blue)]);
        }
    }
    small
}

/// Width and height from the head of a PNG file.
#[cfg(test)]
pub fn png_size(bytes: &[u8]) -> (u32, u32) {
    assert_eq!(&bytes[..8], b"\x89PNG\r\n\x1a\n");
    let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    (number(16), number(20))
}

/// How many pixels are close to a colour.
#[cfg(test)]
pub fn count_near(pixels: &[u8], color: RGBColor) -> usize {
    let (r, g, b) = color.rgb();
    let near = |pixel: &[u8]| {
        pixel
            .iter()
            .zip([r, g, b])
            .all(|(&a, b)| a.abs_diff(b) <= 3)
    };
    pixels.chunks_exact(3).filter(|pixel| near(pixel)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::INK;

    fn sample() -> Picture {
        let mut picture = Picture::new(200, 60);
        picture.text((100.0, 30.0), Anchor::Middle, 20.0, INK, "HIH <K> −3 °N");
        picture.line(vec![(10.0, 50.0), (190.0, 50.0)], 2.0, RGBColor(255, 0, 0));
        picture
    }

    #[test]
    fn text_is_painted_where_it_is_said_to_be() {
        let mut picture = Picture::new(200, 60);
        picture.text((100.0, 30.0), Anchor::Middle, 20.0, INK, "HIH");
        let pixels = picture.pixels().unwrap();
        let dark: Vec<(usize, usize)> = pixels
            .chunks_exact(3)
            .enumerate()
            .filter(|(_, p)| p[0] < 160)
            .map(|(i, _)| (i % 200, i / 200))
            .collect();
        let span = |pick: fn(&(usize, usize)) -> usize| {
            let values = dark.iter().map(pick);
            (values.clone().min().unwrap(), values.max().unwrap())
        };
        let ((left, right), (top, bottom)) = (span(|p| p.0), span(|p| p.1));
        assert!((left + right).abs_diff(200) <= 4, "{left}..{right}");
        assert!((top + bottom).abs_diff(60) <= 3, "{top}..{bottom}");
        assert!((11..=16).contains(&(bottom - top)), "{top}..{bottom}");
        let width = text_width("HIH", 20.0);
        assert!(((right - left) as f64 - width).abs() < 6.0, "{width}");
    }

    #[test]
    fn svg_states_its_size_and_a_generic_font() {
        let svg = sample().svg().unwrap();
        assert!(svg.contains("width=\"200\" height=\"60\" viewBox=\"0 0 2000 600\""));
        assert!(svg.contains("font-family=\"sans-serif\""));
        assert!(svg.contains("HIH &lt;K&gt; −3 °N"));
        assert!(svg.contains("<polyline"));
    }

    #[test]
    fn png_has_the_size_and_the_pixels() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.png");
        sample().write_png(&path).unwrap();
        assert_eq!(png_size(&std::fs::read(&path).unwrap()), (200, 60));
        let pixels = sample().pixels().unwrap();
        assert_eq!(count_near(&pixels, RGBColor(255, 0, 0)), 360);
    }

    #[test]
    fn a_pixel_is_the_rounded_mean_of_its_square() {
        // Two rows of two squares; of each number, one painted pixel differs.
        let mut large = vec![90; 3 * 6 * 6];
        let mut painted =
            |x: usize, y: usize, channel: usize, value| large[3 * (6 * y + x) + channel] = value;
        painted(3, 0, 1, 99);
        painted(2, 5, 0, 94);
        painted(4, 4, 2, 95);
        let small = average(&large, 6);
        assert_eq!(small, [90, 90, 90, 90, 91, 90, 90, 90, 90, 90, 90, 91]);
    }

    #[test]
    fn a_picture_that_cannot_be_written_names_its_file() {
        let path = Path::new("/nowhere/at/all.png");
        for error in [sample().write_png(path), sample().write_svg(path)] {
            assert!(
                error
                    .unwrap_err()
                    .to_string()
                    .contains("/nowhere/at/all.png")
            );
        }
    }
}
