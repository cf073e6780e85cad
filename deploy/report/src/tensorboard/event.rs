//! Events as TensorBoard reads them, and the file that they are in: records with a length and checksums.
//!
//! Numbers of fields are those of TensorFlow's event.proto, summary.proto and tensor.proto; only what is written here
//! has a field.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use prost::{Message, Oneof};

use super::histogram::Histogram;

/// What the first event of a file says.
const VERSION: &str = "brain.Event:2";

/// The number of strings among types of tensors.
const STRINGS: i32 = 7;

/// The number of the start among states of a session.
const START: i32 = 1;

/// When something was.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// Seconds since the Unix epoch.
    pub(super) wall: f64,
    /// Samples that were applied.
    samples: u64,
}

impl Moment {
    pub(super) fn new(wall: f64, samples: u64) -> Self {
        Self { wall, samples }
    }
}

/// One event.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    #[prost(double, tag = "1")]
    pub(super) wall_time: f64,
    #[prost(int64, tag = "2")]
    pub(super) step: i64,
    #[prost(oneof = "What", tags = "3, 5, 7")]
    pub(super) what: Option<What>,
}

/// What happened.
#[derive(Clone, PartialEq, Oneof)]
pub(super) enum What {
    #[prost(string, tag = "3")]
    FileVersion(String),
    #[prost(message, tag = "5")]
    Summary(Summary),
    #[prost(message, tag = "7")]
    SessionLog(SessionLog),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SessionLog {
    #[prost(int32, tag = "1")]
    status: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Summary {
    #[prost(message, repeated, tag = "1")]
    pub(super) value: Vec<Tagged>,
}

/// A value with its name.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Tagged {
    #[prost(string, tag = "1")]
    pub(super) tag: String,
    #[prost(message, optional, tag = "9")]
    metadata: Option<Metadata>,
    #[prost(oneof = "Shown", tags = "2, 5, 8")]
    shown: Option<Shown>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Shown {
    #[prost(float, tag = "2")]
    Simple(f32),
    #[prost(message, tag = "5")]
    Counted(Counted),
    #[prost(message, tag = "8")]
    Tensor(Tensor),
}

/// A histogram: buckets by their upper ends.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Counted {
    #[prost(double, tag = "1")]
    pub(super) min: f64,
    #[prost(double, tag = "2")]
    pub(super) max: f64,
    #[prost(double, tag = "3")]
    pub(super) num: f64,
    #[prost(double, tag = "4")]
    pub(super) sum: f64,
    #[prost(double, tag = "5")]
    pub(super) sum_squares: f64,
    #[prost(double, repeated, tag = "6")]
    pub(super) bucket_limit: Vec<f64>,
    #[prost(double, repeated, tag = "7")]
    pub(super) bucket: Vec<f64>,
}

/// Strings, as many as the one extent says.
#[derive(Clone, PartialEq, Message)]
struct Tensor {
    #[prost(int32, tag = "1")]
    dtype: i32,
    #[prost(message, optional, tag = "2")]
    shape: Option<Shape>,
    #[prost(bytes = "vec", repeated, tag = "8")]
    strings: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct Shape {
    #[prost(message, repeated, tag = "2")]
    extents: Vec<Extent>,
}

#[derive(Clone, PartialEq, Message)]
struct Extent {
    #[prost(int64, tag = "1")]
    size: i64,
}

/// Which plugin of TensorBoard shows a value.
#[derive(Clone, PartialEq, Message)]
struct Metadata {
    #[prost(message, optional, tag = "1")]
    plugin: Option<Plugin>,
}

#[derive(Clone, PartialEq, Message)]
struct Plugin {
    #[prost(string, tag = "1")]
    name: String,
}

impl Tagged {
    fn new(tag: &str, shown: Shown) -> Self {
        Self {
            tag: tag.into(),
            metadata: None,
            shown: Some(shown),
        }
    }
}

/// A file of events: what is put into it is kept until it is written.
#[derive(Debug)]
pub(super) struct EventFile {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl EventFile {
    /// One that begins `wall` seconds after the Unix epoch. TensorBoard reads the files of a folder in the order of
    /// their names.
    pub(super) fn new(folder: &Path, wall: f64) -> Self {
        let name = format!("events.out.tfevents.{:014.3}.tradewind", wall.max(0.0));
        Self {
            path: folder.join(name),
            bytes: Vec::new(),
        }
    }

    /// Which form it has: its first event.
    pub(super) fn version(&mut self, at: Moment) {
        let at = Moment::new(at.wall, 0);
        self.put(at, What::FileVersion(VERSION.into()));
    }

    /// From here on it is trained, for the first time or again: what former files say of later steps is void.
    pub(super) fn start(&mut self, at: Moment) {
        self.put(at, What::SessionLog(SessionLog { status: START }));
    }

    pub(super) fn scalars(&mut self, at: Moment, scalars: &[(&str, f64)]) {
        let values = scalars.iter();
        let values = values.map(|(tag, value)| Tagged::new(tag, Shown::Simple(*value as f32)));
        let value = values.collect();
        self.put(at, What::Summary(Summary { value }));
    }

    /// A histogram, unless nothing was counted.
    pub(super) fn histogram(&mut self, at: Moment, tag: &str, histogram: Histogram) {
        let counted = histogram.finish();
        let counted = counted.map(|counted| Tagged::new(tag, Shown::Counted(counted)));
        if let Some(value) = counted {
            let value = vec![value];
            self.put(at, What::Summary(Summary { value }));
        }
    }

    /// Text that is shown as it is: in Markdown, lines that begin with four blanks.
    pub(super) fn text(&mut self, at: Moment, tag: &str, text: &str) {
        let text: String = text.lines().map(|line| format!("    {line}\n")).collect();
        let tensor = Tensor {
            dtype: STRINGS,
            shape: Some(Shape {
                extents: vec![Extent { size: 1 }],
            }),
            strings: vec![text.into_bytes()],
        };
        let plugin = Plugin {
            name: "text".into(),
        };
        let value = vec![Tagged {
            metadata: Some(Metadata {
                plugin: Some(plugin),
            }),
            ..Tagged::new(tag, Shown::Tensor(tensor))
        }];
        self.put(at, What::Summary(Summary { value }));
    }

    fn put(&mut self, at: Moment, what: What) {
        let event = Event {
            wall_time: at.wall,
            step: i64::try_from(at.samples).unwrap_or(i64::MAX),
            what: Some(what),
        };
        let event = event.encode_to_vec();
        let length = (event.len() as u64).to_le_bytes();
        for part in [&length[..], &event] {
            self.bytes.extend_from_slice(part);
            self.bytes.extend_from_slice(&masked(part).to_le_bytes());
        }
    }

    /// Appends what was put into it to the file.
    pub(super) fn write(&mut self) -> io::Result<()> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        let told = |error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", self.path.display()))
        };
        let folder = self.path.parent().unwrap_or(Path::new(""));
        fs::create_dir_all(folder).map_err(told)?;
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.path);
        let mut file = file.map_err(told)?;
        file.write_all(&self.bytes).map_err(told)?;
        self.bytes.clear();
        Ok(())
    }
}

/// The checksum of a record: CRC-32C, turned by 15 bits, plus a constant, so that checksums of checksums differ.
fn masked(bytes: &[u8]) -> u32 {
    let crc = crc32c::crc32c(bytes);
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
pub(super) fn read(mut bytes: &[u8]) -> Vec<Event> {
    let mut events = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_at(8);
        let (sum, rest) = rest.split_at(4);
        assert_eq!(sum, masked(length).to_le_bytes());
        let length = u64::from_le_bytes(length.try_into().unwrap()) as usize;
        let (event, rest) = rest.split_at(length);
        let (sum, rest) = rest.split_at(4);
        assert_eq!(sum, masked(event).to_le_bytes());
        events.push(Event::decode(event).unwrap());
        bytes = rest;
    }
    events
}

#[cfg(test)]
impl Tagged {
    pub(super) fn simple(&self) -> Option<f32> {
        match &self.shown {
            Some(Shown::Simple(value)) => Some(*value),
            _ => None,
        }
    }

    pub(super) fn counted(&self) -> Option<&Counted> {
        match &self.shown {
            Some(Shown::Counted(counted)) => Some(counted),
            _ => None,
        }
    }

    pub(super) fn told(&self) -> Option<String> {
        match &self.shown {
            Some(Shown::Tensor(tensor)) => String::from_utf8(tensor.strings[0].clone()).ok(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_form() {
        // RFC 3720, B.4: 32 bytes of zeros; then as TensorFlow masks it.
        assert_eq!(crc32c::crc32c(&[0; 32]), 0x8a91_36aa);
        let turned = 0x8a91_36aa_u32.rotate_right(15);
        assert_eq!(masked(&[0; 32]), turned.wrapping_add(0xa282_ead8));
    }
}
