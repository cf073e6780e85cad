//! Writing packed files.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use tradewind_process::whole::Part;

use super::{ALIGNED, Compression, Description, END, MAGIC, Section, Settings, transposed};
use crate::{DataError, Field, Rows};

/// A packed file that is being written; there is no file until [`finish`](Self::finish).
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    part: Part,
    out: BufWriter<std::fs::File>,
    fields: Vec<Field>,
    settings: Settings,
    at: u64,
    samples: u64,
    index: Vec<u8>,
    names: Vec<u8>,
    scratch: Vec<u8>,
}

impl Writer {
    /// Begins a file of samples with these fields. The most rows of fields that vary are counted.
    ///
    /// # Errors
    /// Two fields of one name, or no field; a file that cannot be created.
    pub fn create(path: &Path, fields: &[Field], settings: Settings) -> Result<Self, DataError> {
        if fields.is_empty() {
            return Err(DataError::file(path, "samples need at least one field"));
        }
        for (number, field) in fields.iter().enumerate() {
            if fields[..number]
                .iter()
                .any(|other| other.name == field.name)
            {
                let reason = format!("two fields have the name {:?}", field.name);
                return Err(DataError::file(path, reason));
            }
        }
        let part = Part::beside(path).map_err(|error| DataError::of_system(path, &error))?;
        let file = part.file().try_clone();
        let file = file.map_err(|error| DataError::of_system(path, &error))?;
        let mut fields = fields.to_vec();
        for field in &mut fields {
            if let Rows::Varying { most } = &mut field.rows {
                *most = 0;
            }
        }
        let mut writer = Self {
            path: path.into(),
            part,
            out: BufWriter::with_capacity(1 << 20, file),
            fields,
            settings,
            at: 0,
            samples: 0,
            index: Vec::new(),
            names: Vec::new(),
            scratch: Vec::new(),
        };
        writer.write(MAGIC)?;
        writer.align()?;
        Ok(writer)
    }

    /// Adds a sample: its values field by field, little-endian, and where it comes from.
    ///
    /// # Errors
    /// Values that do not fit their field, are not finite, or are no class; a full disk. The file is then
    /// worth nothing.
    pub fn push(&mut self, name: &str, values: &[&[u8]]) -> Result<(), DataError> {
        let refused = |reason: String| DataError::Sample {
            number: self.samples as usize,
            name: name.into(),
            reason,
        };
        if values.len() != self.fields.len() {
            let (got, want) = (values.len(), self.fields.len());
            return Err(refused(format!("it has {got} fields instead of {want}")));
        }
        let mut rows = Vec::new();
        for (field, values) in self.fields.iter().zip(values) {
            rows.extend(fits(field, values).map_err(refused)?);
            if !self.settings.any_numbers || field.classes.is_some() {
                field.check(values).map_err(refused)?;
            }
        }
        let begin = self.at;
        let mut crc = crc32fast::Hasher::new();
        let mut stored = Vec::new();
        for (number, values) in values.iter().enumerate() {
            match self.settings.compression {
                Compression::None => {
                    crc.update(values);
                    self.write(values)?;
                }
                Compression::Lz4 => {
                    let bytes = self.fields[number].kind.bytes();
                    transposed(values, bytes, &mut self.scratch);
                    let record = lz4_flex::block::compress(&self.scratch);
                    crc.update(&record);
                    stored.push(record.len() as u32);
                    self.write(&record)?;
                }
            }
        }
        self.index.extend(begin.to_le_bytes());
        self.index.extend(crc.finalize().to_le_bytes());
        for number in rows.iter().chain(&stored) {
            self.index.extend(number.to_le_bytes());
        }
        let varying = self
            .fields
            .iter_mut()
            .filter_map(|field| match &mut field.rows {
                Rows::Varying { most } => Some(most),
                Rows::One => None,
            });
        for (most, rows) in varying.zip(rows) {
            *most = (*most).max(rows as usize);
        }
        // A name is one line.
        self.names.extend(name.replace(['\n', '\r'], " ").bytes());
        self.names.push(b'\n');
        self.samples += 1;
        self.align()
    }

    /// Samples so far.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Bytes so far.
    pub fn bytes(&self) -> u64 {
        self.at
    }

    /// Puts the file in its place.
    ///
    /// # Errors
    /// A full disk; what was there before still is.
    pub fn finish(mut self) -> Result<(), DataError> {
        let (index, names) = (
            std::mem::take(&mut self.index),
            std::mem::take(&mut self.names),
        );
        let description = Description {
            fields: self.fields.clone(),
            samples: self.samples,
            compression: self.settings.compression,
            index: self.section(&index)?,
            names: self.section(&names)?,
        };
        let text = serde_json::to_vec(&description).expect("it has only names and numbers");
        self.write(&text)?;
        let mut end = [0; END];
        end[..4].copy_from_slice(&crc32fast::hash(&text).to_le_bytes());
        end[4..8].copy_from_slice(&(text.len() as u32).to_le_bytes());
        end[8..].copy_from_slice(MAGIC);
        self.write(&end)?;
        let path = self.path;
        let failed = |error| DataError::of_system(&path, &error);
        self.out.flush().map_err(failed)?;
        drop(self.out);
        self.part.publish(&path).map_err(failed)
    }

    fn section(&mut self, bytes: &[u8]) -> Result<Section, DataError> {
        let begin = self.at;
        self.write(bytes)?;
        Ok(Section {
            begin,
            bytes: bytes.len() as u64,
            crc32: crc32fast::hash(bytes),
        })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), DataError> {
        let written = self.out.write_all(bytes);
        written.map_err(|error| DataError::of_system(&self.path, &error))?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn align(&mut self) -> Result<(), DataError> {
        let rest = (self.at.next_multiple_of(ALIGNED) - self.at) as usize;
        self.write(&[0; ALIGNED as usize][..rest])
    }
}

/// The rows of values of a field whose rows vary.
fn fits(field: &Field, values: &[u8]) -> Result<Option<u32>, String> {
    let (row, got) = (field.row_bytes(), values.len());
    let fits = match field.rows {
        Rows::One => got == row,
        Rows::Varying { .. } => got.is_multiple_of(row.max(1)),
    };
    if !fits {
        let kind = field.kind.name();
        let (name, shape) = (&field.name, &field.shape);
        return Err(format!(
            "{name} has {got} bytes, and {kind} {shape:?} has {row}"
        ));
    }
    Ok(field.varies().then(|| (got / row.max(1)) as u32))
}
