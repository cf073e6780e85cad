//! Inline SVG as text: shapes in the user units of a view box. Colours of ink, grid and paper are the
//! page's, by class.

use std::fmt::Write;

use maud::{Escaper, Markup, PreEscaped};
use plotters::style::{Color, RGBColor};

/// A drawing under way.
#[derive(Debug)]
pub(super) struct Svg {
    width: f64,
    height: f64,
    body: String,
}

/// Where a text stands relative to its point.
#[derive(Clone, Copy, Debug)]
pub(super) enum At {
    Start,
    Middle,
    End,
}

impl Svg {
    pub(super) fn new(width: f64, height: f64) -> Self {
        Self {
            width,
            height,
            body: String::new(),
        }
    }

    /// A line through points; `style` is what else the element has, such as `class="grid"`.
    pub(super) fn line(&mut self, points: &[(f64, f64)], style: &str) {
        if points.len() > 1 {
            let points = path(points);
            let _ = write!(self.body, "<polyline points=\"{points}\" {style}/>");
        }
    }

    /// A filled area.
    pub(super) fn area(&mut self, points: &[(f64, f64)], style: &str) {
        if points.len() > 2 {
            let points = path(points);
            let _ = write!(self.body, "<polygon points=\"{points}\" {style}/>");
        }
    }

    /// A rectangle with a text that is shown under the pointer.
    pub(super) fn rectangle(&mut self, at: (f64, f64), size: (f64, f64), style: &str, title: &str) {
        let _ = write!(
            self.body,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.2}\" height=\"{:.2}\" {style}>{}</rect>",
            at.0,
            at.1,
            size.0.max(0.0),
            size.1.max(0.0),
            titled(title)
        );
    }

    pub(super) fn circle(&mut self, at: (f64, f64), radius: f64, style: &str, title: &str) {
        let _ = write!(
            self.body,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius}\" {style}>{}</circle>",
            at.0,
            at.1,
            titled(title)
        );
    }

    pub(super) fn text(&mut self, at: (f64, f64), anchor: At, class: &str, text: &str) {
        let anchor = match anchor {
            At::Start => "start",
            At::Middle => "middle",
            At::End => "end",
        };
        let _ = write!(
            self.body,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{}</text>",
            at.0,
            at.1,
            escape(text)
        );
    }

    /// Puts a piece of SVG in as it is.
    pub(super) fn raw(&mut self, text: &str) {
        self.body += text;
    }

    /// Rules for what is drawn.
    pub(super) fn style(&mut self, css: &str) {
        let _ = write!(self.body, "<style>{css}</style>");
    }

    /// Puts an element in that [`Svg::finish`] has made, at a place and in a size.
    pub(super) fn inside(&mut self, at: (f64, f64), size: (f64, f64), element: &Markup) {
        let place = format!(
            "<svg x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" ",
            at.0, at.1, size.0, size.1
        );
        self.body += &element.0.replacen("<svg ", &place, 1);
    }

    /// A file of its own, on white.
    pub(super) fn finish_alone(self, label: &str) -> String {
        let (width, height) = (self.width, self.height);
        let element = self.finish(label);
        let head = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" style=\"background:#fff;font-family:sans-serif\" "
        );
        element.0.replacen("<svg ", &head, 1) + "\n"
    }

    /// The element; `label` is what a screen reader says.
    pub(super) fn finish(self, label: &str) -> Markup {
        PreEscaped(format!(
            "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">{}</svg>",
            self.width,
            self.height,
            escape(label),
            self.body
        ))
    }
}

fn titled(title: &str) -> String {
    match title {
        "" => String::new(),
        title => format!("<title>{}</title>", escape(title)),
    }
}

fn path(points: &[(f64, f64)]) -> String {
    let mut text = String::new();
    for (x, y) in points {
        let _ = write!(text, "{x:.1},{y:.1} ");
    }
    text.pop();
    text
}

/// A colour as CSS has it.
pub(super) fn css(color: RGBColor) -> String {
    let (r, g, b) = color.rgb();
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// Text as it may stand in SVG, also inside quotes.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let _ = Escaper::new(&mut escaped).write_str(text);
    escaped
}
