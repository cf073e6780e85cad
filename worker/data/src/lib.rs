//! Samples on disk: what a sample is made of, the forms in which files hold samples, and reading them ahead.
//!
//! A form is one file here that implements [`Source`]. A batch is read from a source into memory that the
//! caller chooses ([`read_batch`]), by several readers ahead of its use ([`Readers`]).
//!
//! ```
//! use tradewind_data::{Field, Kind, Memory, Source, packed, read_batch};
//!
//! # let folder = tempfile::tempdir()?;
//! let path = folder.path().join("digits.pack");
//! let fields = [Field::new("image", Kind::U8, &[28, 28]), Field::new("label", Kind::U8, &[])];
//! let mut writer = packed::Writer::create(&path, &fields, packed::Settings::default())?;
//! for digit in 0..10u8 {
//!     writer.push(&format!("digit {digit}"), &[&[digit; 28 * 28], &[digit]])?;
//! }
//! writer.finish()?;
//!
//! let digits = packed::Packed::open(&path)?;
//! let batch = read_batch(&digits, &[7, 3], &mut Memory::default())?;
//! assert_eq!(digits.len(), 10);
//! assert_eq!(&*batch.column("label").unwrap().values, [7, 3]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod arrays;
pub mod augment;
mod batch;
mod cache;
mod convert;
mod error;
mod field;
mod files;
pub mod hdf5;
pub mod idx;
mod joined;
pub mod layout;
pub mod manifest;
mod names;
mod once;
mod open;
mod origin;
pub mod packed;
mod part;
mod pool;
pub mod processes;
mod ragged;
mod readers;
mod sound;
mod source;
mod stage;
mod staging;
pub mod stats;
pub mod walk;

pub use self::arrays::Arrays;
pub use self::augment::{Augmentation, Motion, Moves};
pub use self::batch::{Batch, Column, Filling, Memory, Place, Places, batch_bytes, read_batch};
pub use self::cache::{Cache, CacheCounts, Held};
pub use self::error::DataError;
pub use self::field::{Field, Kind, Rows};
pub use self::hdf5::Hdf5Folder;
pub use self::joined::Joined;
pub use self::layout::Layout;
pub use self::names::nearest;
pub use self::open::open;
pub use self::part::Part;
pub use self::pool::{Pool, Pooled};
pub use self::processes::Processes;
pub use self::readers::{Ahead, Ended, Full, Readers};
pub use self::sound::{LeftOut, Sound};
pub use self::source::{Appended, Room, Source};
pub use self::stage::{Staged, stage, stage_and_tell};
pub use self::staging::Staging;
