//! Writing HDF5 files of one sample each.

use std::path::Path;

use hdf5_metno::{File, FileBuilder, H5Type};

use crate::{DataError, Field, Kind};

/// Writes a sample into a file of its own: a data set of each field's name (`group/set`: in a group), in one piece, as
/// CosmoFlow's and DeepCAM's are. The first extent of a field whose rows vary counts them. Equal samples are equal files.
///
/// # Errors
/// A file that cannot be written; numbers of a kind that HDF5 does not have (`bf16`).
pub fn write_sample(path: &Path, fields: &[Field], values: &[Vec<u8>]) -> Result<(), DataError> {
    let written = || -> hdf5_metno::Result<()> {
        // In the form of before HDF5 1.8: later ones note when a group was made. And without the library's lock: a
        // process that another thread starts meanwhile inherits the file's descriptor, and the lock would hold for as
        // long as that process lives.
        let file = FileBuilder::new()
            .with_fapl(|access| access.libver_earliest().file_locking(false))
            .create(path)?;
        for (field, values) in fields.iter().zip(values) {
            let set = Set {
                file: &file,
                field,
                values,
            };
            match field.kind {
                Kind::U8 => set.write(|[byte]: [u8; 1]| byte),
                Kind::I16 => set.write(i16::from_le_bytes),
                Kind::I32 => set.write(i32::from_le_bytes),
                Kind::F16 => set.write(half::f16::from_le_bytes),
                Kind::F32 => set.write(f32::from_le_bytes),
                Kind::BF16 => Err(format!("{field} is of a kind that is not written").into()),
            }?;
        }
        file.close()
    };
    written().map_err(|error| DataError::file(path, error))
}

/// A data set that is to be.
struct Set<'a> {
    file: &'a File,
    field: &'a Field,
    values: &'a [u8],
}

impl Set<'_> {
    fn write<T: H5Type, const BYTES: usize>(
        &self,
        number: impl Fn([u8; BYTES]) -> T,
    ) -> hdf5_metno::Result<()> {
        let Field { name, shape, .. } = self.field;
        let numbers = self.values.as_chunks::<BYTES>().0.iter();
        let numbers: Vec<T> = numbers.map(|bytes| number(*bytes)).collect();
        let mut extents = shape.clone();
        if self.field.varies() {
            let row = shape.iter().product::<usize>().max(1);
            extents.insert(0, numbers.len() / row);
        }
        let set = self.file.new_dataset::<T>().shape(extents);
        set.create(name.as_str())?.write_raw(&numbers)
    }
}
