//! Files of samples: packed, arrays of NumPy, lists of files, IDX. (HDF5 and NetCDF are read by HDF5's own library.)

use std::fs;
use std::path::Path;

use serde_json::Value;
use tradewind_data::idx::Idx;
use tradewind_data::packed::{Compression, Packed, Settings, Writer};
use tradewind_data::{Arrays, Field, Hdf5Folder, Kind, Memory, Source, batch_bytes, read_batch};
use tradewind_fuzz::target;

/// Largest batch that is read: memory for it is had before.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// Each sample, as a batch of its own.
fn read_all(source: &dyn Source) {
    let fields = source.fields();
    assert!(!fields.is_empty());
    for sample in 0..source.len().min(64) {
        assert!(!source.name(sample).is_empty());
        if batch_bytes(fields, 1) > BATCH_BYTES_MAX {
            continue;
        }
        match read_batch(source, &[sample], &mut Memory::default()) {
            Ok(batch) => assert_eq!(batch.columns.len(), fields.len()),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

fn packed(path: &Path, compression: Compression) -> Vec<u8> {
    let fields = [
        Field::new("image", Kind::F32, &[2, 3]),
        Field::varying("boxes", Kind::I16, &[2], 3),
    ];
    let settings = Settings {
        compression,
        any_numbers: false,
    };
    let mut writer = Writer::create(path, &fields, settings).expect("a file");
    for sample in 0..3u8 {
        let image: Vec<u8> = (0..6)
            .flat_map(|at| (f32::from(sample) + at as f32).to_le_bytes())
            .collect();
        let boxes = vec![sample; 4 * usize::from(sample)];
        writer
            .push(&format!("sample {sample}"), &[&image, &boxes])
            .expect("it is written");
    }
    writer.finish().expect("it is written");
    fs::read(path).expect("it is there")
}

#[test]
fn a_packed_file_is_read_or_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("samples.pack");
    let examples =
        [Compression::None, Compression::Lz4].map(|compression| packed(&path, compression));
    target!(examples).each(|bytes, mut turn| {
        let sealed = turn.flip().then(|| sealed(bytes)).flatten();
        fs::write(&path, sealed.as_deref().unwrap_or(bytes)).expect("it is written");
        if let Ok(packed) = Packed::open(&path) {
            read_all(&packed);
        }
    });
}

/// The same with checksums that fit, if its end says where things are.
fn sealed(bytes: &[u8]) -> Option<Vec<u8>> {
    let (before, end) = bytes.split_last_chunk::<16>()?;
    let length = u32::from_le_bytes(end[4..8].try_into().ok()?) as usize;
    let (body, text) = before.split_at_checked(before.len().checked_sub(length)?)?;
    let mut text = text.to_vec();
    if let Ok(mut description) = serde_json::from_slice::<Value>(&text) {
        for section in ["index", "names"] {
            let number = |key: &str| Some(description.get(section)?.get(key)?.as_u64()? as usize);
            let place = number("begin").zip(number("bytes"));
            let content =
                place.and_then(|(begin, length)| body.get(begin..begin.checked_add(length)?));
            if let Some(content) = content {
                description[section]["crc32"] = crc32fast::hash(content).into();
            }
        }
        text = serde_json::to_vec(&description).ok()?;
    }
    let mut all = body.to_vec();
    all.extend_from_slice(&text);
    all.extend(crc32fast::hash(&text).to_le_bytes());
    all.extend((text.len() as u32).to_le_bytes());
    all.extend_from_slice(&end[8..]);
    Some(all)
}

#[test]
fn arrays_are_read_or_named() {
    let npy = |kind: &str, shape: &str, numbers: usize| {
        let mut head = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}");
        head += &" ".repeat((64 - (10 + head.len() + 1) % 64) % 64);
        head.push('\n');
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((head.len() as u16).to_le_bytes());
        bytes.extend_from_slice(head.as_bytes());
        bytes.extend(std::iter::repeat_n(1, numbers));
        bytes
    };
    let examples = [
        npy("<f4", "(3, 2)", 24),
        npy(">i2", "(4,)", 8),
        npy("|b1", "(2, 2, 2)", 8),
        npz("x.npy", &npy("<f8", "(2, 1)", 16)),
    ];
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.npy");
    target!(examples).each(|bytes, _| {
        fs::write(&path, bytes).expect("it is written");
        match Arrays::open(&path, None) {
            Ok(arrays) => read_all(&arrays),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    });
}

/// A ZIP archive of one entry that is stored as it is.
fn npz(name: &str, content: &[u8]) -> Vec<u8> {
    let both = |local: bool| {
        let mut head = Vec::new();
        head.extend_from_slice(if local {
            b"PK\x03\x04"
        } else {
            b"PK\x01\x02\x14\x00"
        });
        head.extend_from_slice(&[20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0]);
        head.extend(crc32fast::hash(content).to_le_bytes());
        head.extend((content.len() as u32).to_le_bytes());
        head.extend((content.len() as u32).to_le_bytes());
        head.extend((name.len() as u16).to_le_bytes());
        head.extend_from_slice(&[0, 0]);
        head
    };
    let mut all = both(true);
    all.extend_from_slice(name.as_bytes());
    all.extend_from_slice(content);
    let directory_at = all.len() as u32;
    let mut directory = both(false);
    directory.extend_from_slice(&[0; 14]);
    directory.extend_from_slice(name.as_bytes());
    all.extend_from_slice(&directory);
    all.extend_from_slice(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
    all.extend((directory.len() as u32).to_le_bytes());
    all.extend(directory_at.to_le_bytes());
    all.extend_from_slice(&[0, 0]);
    all
}

#[test]
fn a_list_of_files_is_read_or_named() {
    let first = r#"{"tradewind_manifest":1,"layout":"image=image","fields":[{"name":"image","kind":"f32","shape":[2,3],"classes":null,"rows":"one"}]}"#;
    let examples = [
        format!("{first}\n1\t4718592\ttrain/map-1.h5\n1\t4718592\ttrain/map-2.h5\n"),
        format!(
            "{}\n3\t12\tone.h5\n",
            first.replace("image=image", "image=image[samples]")
        ),
    ];
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("samples.manifest");
    // What has been checked is noted, a bit for each sample, of which there may be 2³².
    target!(examples).within(600 << 20).each(|bytes, mut turn| {
        let mut bytes = bytes.to_vec();
        if turn.below(9) > 0 {
            let files = bytes
                .iter()
                .filter(|byte| **byte == b'\n')
                .count()
                .saturating_sub(1);
            bytes.extend(
                format!("crc32 {:08x} of {files} files\n", crc32fast::hash(&bytes)).bytes(),
            );
        }
        fs::write(&path, bytes).expect("it is written");
        match Hdf5Folder::open(&path, None) {
            Ok(files) => assert!(files.len() > 0),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    });
}

#[test]
fn an_idx_file_has_what_its_head_says() {
    let images = [
        &[0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 2][..],
        &[1, 2, 3, 4],
    ]
    .concat();
    let labels = [&[0, 0, 8, 1, 0, 0, 0, 3][..], &[7, 8, 9]].concat();
    target!([images, labels]).each(|bytes, _| {
        if let Ok(images) = Idx::<3>::parse(bytes) {
            assert_eq!(
                images.extents.iter().product::<usize>(),
                images.values.len()
            );
            assert_eq!(bytes.len(), 16 + images.values.len());
        }
        if let Ok(labels) = Idx::<1>::parse(bytes) {
            assert_eq!(bytes.len(), 8 + labels.extents[0]);
        }
    });
}
