use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::*;
use crate::{DataError, Kind, Memory, Source, read_batch};

fn fields() -> [Field; 3] {
    [
        Field::new("image", Kind::F32, &[2, 3]),
        Field::varying("boxes", Kind::I16, &[4], 9),
        Field::new("label", Kind::U8, &[]).classes(10),
    ]
}

fn image(sample: usize) -> Vec<u8> {
    let numbers = (0..6).map(|at| (sample * 10 + at) as f32 / 4.0);
    numbers.flat_map(f32::to_le_bytes).collect()
}

fn boxes(sample: usize) -> Vec<u8> {
    let numbers = (0..sample % 4 * 4).map(|at| (sample * 100 + at) as i16 - 300);
    numbers.flat_map(i16::to_le_bytes).collect()
}

fn written(folder: &Path, compression: Compression, samples: usize) -> PathBuf {
    let path = folder.join("some.pack");
    let settings = Settings {
        compression,
        ..Settings::default()
    };
    let mut writer = Writer::create(&path, &fields(), settings).unwrap();
    for sample in 0..samples {
        let values = [&image(sample)[..], &boxes(sample), &[sample as u8 % 10]];
        writer.push(&format!("from {sample}"), &values).unwrap();
    }
    writer.finish().unwrap();
    path
}

const BOTH: [Compression; 2] = [Compression::None, Compression::Lz4];

#[test]
fn samples_come_back_as_they_were() {
    for compression in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let packed = Packed::open(&written(folder.path(), compression, 70)).unwrap();
        assert_eq!((packed.len(), packed.compression()), (70, compression));
        let mut want = fields();
        want[1].rows = crate::Rows::Varying { most: 3 };
        assert_eq!(packed.fields(), want);
        // The second time without checking.
        for _ in 0..2 {
            let samples = [69, 3, 4, 3];
            let batch = read_batch(&packed, &samples, &mut Memory {}).unwrap();
            let all = |of: fn(usize) -> Vec<u8>| samples.map(of).concat();
            assert_eq!(batch.column("image").unwrap().values, all(image));
            assert_eq!(batch.column("boxes").unwrap().values, all(boxes));
            assert_eq!(batch.column("label").unwrap().values, [9, 3, 4, 3]);
            let offsets = batch.column("boxes").unwrap().offsets.as_deref();
            assert_eq!(offsets, Some(&[0, 1, 4, 4, 7][..]));
        }
        assert!(packed.name(5).ends_with("(from 5)"), "{}", packed.name(5));
    }
}

#[test]
fn names_are_one_line_each() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("some.pack");
    let mut writer = Writer::create(&path, &fields()[..1], Settings::default()).unwrap();
    for name in ["", "two\r\nlines", "last\n"] {
        writer.push(name, &[&image(0)]).unwrap();
    }
    writer.finish().unwrap();
    let packed = Packed::open(&path).unwrap();
    let names = [0, 1, 2].map(|sample| packed.name(sample));
    for (name, end) in names.iter().zip(["()", "(two  lines)", "(last )"]) {
        assert!(name.ends_with(end), "{name}");
    }
}

#[test]
fn there_is_no_file_until_it_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("some.pack");
    let mut writer = Writer::create(&path, &fields()[..1], Settings::default()).unwrap();
    writer.push("one", &[&image(0)]).unwrap();
    assert!(!path.exists());
    drop(writer);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn what_does_not_fit_is_refused_with_the_samples_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("some.pack");
    let check = |values: [&[u8]; 3], want: &str| {
        let mut writer = Writer::create(&path, &fields(), Settings::default()).unwrap();
        writer.push("a", &[&image(0), &[], &[0]]).unwrap();
        let error = writer.push("b.h5", &values).unwrap_err();
        assert_eq!(error.to_string(), format!("sample 1, b.h5: {want}"));
    };
    let mut bad = image(0);
    bad[4..8].copy_from_slice(&f32::NAN.to_le_bytes());
    check([&bad, &[], &[1]], "image is NaN at [0, 1]");
    check(
        [&bad[..20], &[], &[1]],
        "image has 20 bytes, and f32 [2, 3] has 24",
    );
    check(
        [&image(0), &[0; 7], &[1]],
        "boxes has 7 bytes, and i16 [4] has 8",
    );
    check(
        [&image(0), &[], &[10]],
        "label is 10, and there are classes 0..10",
    );
    let any = Settings {
        any_numbers: true,
        ..Settings::default()
    };
    let mut writer = Writer::create(&path, &fields(), any).unwrap();
    writer.push("a", &[&bad, &[], &[1]]).unwrap();
    let two = [fields()[0].clone(), fields()[0].clone()];
    let error = Writer::create(&path, &two, any).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("two fields have the name \"image\"")
    );
}

#[test]
fn files_that_are_not_whole_are_refused() {
    for compression in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let whole = std::fs::read(written(folder.path(), compression, 20)).unwrap();
        let check = |content: &[u8], want: &str| {
            let path = folder.path().join("bad.pack");
            std::fs::write(&path, content).unwrap();
            let error = Packed::open(&path).unwrap_err().to_string();
            assert!(
                error.contains("bad.pack") && error.contains(want),
                "{error}"
            );
        };
        check(b"", "no packed file of samples");
        check(b"\x89HDF\r\n\x1a\n and so on", "no packed file");
        for bytes in [8, 30, 1000, whole.len() - 1] {
            check(&whole[..bytes], "cut short or damaged at its end");
        }
        let packed = Packed::open(&folder.path().join("some.pack")).unwrap();
        let mut holed = whole.clone();
        holed[packed.description.index.begin as usize + 3] ^= 1;
        check(&holed, "its index is damaged");
        let mut holed = whole.clone();
        holed[packed.description.names.begin as usize + 3] ^= 1;
        check(&holed, "its names are damaged");
        let missing = Packed::open(&folder.path().join("none")).unwrap_err();
        assert!(missing.to_string().contains("No such file"), "{missing}");
    }
}

/// Every byte of every record is looked at.
#[test]
fn a_sample_that_is_damaged_is_named_and_others_are_read() {
    for compression in BOTH {
        let folder = tempfile::tempdir().unwrap();
        let path = written(folder.path(), compression, 5);
        let packed = Packed::open(&path).unwrap();
        let entry = packed.entry(3);
        let stored: usize = packed.sizes(&entry).iter().map(|(_, stored)| stored).sum();
        let whole = std::fs::read(&path).unwrap();
        for at in 0..stored {
            let mut holed = whole.clone();
            holed[entry.begin as usize + at] ^= 0x10;
            std::fs::write(&path, &holed).unwrap();
            let packed = Packed::open(&path).unwrap();
            let error = read_batch(&packed, &[3], &mut Memory {}).unwrap_err();
            let DataError::Sample {
                number: 3,
                name,
                reason,
            } = error
            else {
                panic!("{error}");
            };
            assert!(name.ends_with("(from 3)") && reason.contains("checksum"));
            read_batch(&packed, &[0, 1, 2, 4], &mut Memory {}).unwrap();
        }
    }
}

#[test]
fn a_file_that_changes_while_it_is_read_is_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path(), Compression::None, 5);
    let packed = Packed::open(&path).unwrap();
    read_batch(&packed, &[3], &mut Memory {}).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    // Of a sample that was checked.
    file.write_all_at(&[9; 4], packed.entry(3).begin).unwrap();
    let error = read_batch(&packed, &[3], &mut Memory {}).unwrap_err();
    assert!(error.to_string().contains("while it was read"), "{error}");
    file.set_len(100).unwrap();
    let error = read_batch(&packed, &[1], &mut Memory {}).unwrap_err();
    assert!(error.to_string().contains("while it was read"), "{error}");
}
