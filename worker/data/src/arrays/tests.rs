use std::fs::File;
use std::io::Write;

use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::*;
use crate::{Batch, Kind, Memory, read_batch};

/// The bytes of an array, as NumPy saves it.
fn npy(descr: &str, order: &str, shape: &str, numbers: &[u8]) -> Vec<u8> {
    let mut text =
        format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}").into_bytes();
    text.resize((text.len() + 11).next_multiple_of(64) - 11, b' ');
    text.push(b'\n');
    let length = (text.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], &text, numbers].concat()
}

fn plain(descr: &str, shape: &str, numbers: &[u8]) -> Vec<u8> {
    npy(&format!("'{descr}'"), "False", shape, numbers)
}

fn images() -> Vec<u8> {
    let numbers = (0..12).flat_map(|at| (at as f32 / 2.0).to_le_bytes());
    plain("<f4", "(3, 2, 2)", &numbers.collect::<Vec<_>>())
}

fn labels() -> Vec<u8> {
    let numbers: Vec<_> = [2i64, 0, 1]
        .into_iter()
        .flat_map(i64::to_le_bytes)
        .collect();
    plain("<i8", "(3,)", &numbers)
}

fn npz(path: &Path, entries: &[(&str, Vec<u8>)], compression: CompressionMethod) {
    let mut writer = ZipWriter::new(File::create(path).unwrap());
    for (name, bytes) in entries {
        let options = SimpleFileOptions::default().compression_method(compression);
        writer.start_file(*name, options).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap();
}

fn both() -> [(&'static str, Vec<u8>); 3] {
    [
        ("image.npy", images()),
        ("label.npy", labels()),
        ("readme.txt", b"hello".into()),
    ]
}

fn read(source: &Arrays, samples: &[usize]) -> Batch<Vec<u8>> {
    read_batch(source, samples, &mut Memory {}).unwrap()
}

fn check_both(source: &Arrays) {
    let fields: Vec<_> = source.fields().iter().map(ToString::to_string).collect();
    assert_eq!(fields, ["image f32 [2, 2]", "label i32 []"]);
    for _ in 0..2 {
        let batch = read(source, &[2, 0]);
        let numbers = |name: &str| -> Vec<f64> {
            let column = batch.column(name).unwrap();
            column.field.kind.numbers(&column.values).collect()
        };
        assert_eq!(numbers("image"), [4.0, 4.5, 5.0, 5.5, 0.0, 0.5, 1.0, 1.5]);
        assert_eq!(numbers("label"), [1.0, 2.0]);
    }
}

#[test]
fn rows_that_vary_are_those_between_two_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npz");
    let numbers = |numbers: &[i64]| numbers.iter().flat_map(|n| n.to_be_bytes()).collect();
    let write = |begins: &[i64]| {
        let boxes: Vec<u8> = (0..10).flat_map(|at: i16| at.to_le_bytes()).collect();
        let begins: Vec<u8> = numbers(begins);
        let shape = format!("({},)", begins.len() / 8);
        let entries = [
            ("label.npy", labels()),
            ("boxes.npy", plain("<i2", "(5, 2)", &boxes)),
            ("begins.npy", plain(">i8", &shape, &begins)),
        ];
        npz(&path, &entries, CompressionMethod::Stored);
    };
    write(&[0, 2, 2, 5]);
    let open = |text: &str| Arrays::open(&path, Some(&text.parse().unwrap()));
    for kind in ["", ":f32"] {
        let layout = format!("label=label[samples],boxes=boxes[rows<=3 of begins]{kind}");
        let source = open(&layout).unwrap();
        for _ in 0..2 {
            let batch = read(&source, &[2, 1, 0]);
            let column = batch.column("boxes").unwrap();
            assert_eq!(column.offsets.as_deref(), Some(&[0, 3, 3, 5][..]));
            let values: Vec<f64> = column.field.kind.numbers(&column.values).collect();
            assert_eq!(values, [4, 5, 6, 7, 8, 9, 0, 1, 2, 3].map(f64::from));
        }
    }
    let source = open("boxes=boxes[rows<=2 of begins]").unwrap();
    let error = read_batch(&source, &[2], &mut Memory {})
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("a.npz [2]: \"boxes\" has 3 rows, and the layout says at most 2"),
        "{error}"
    );
    let refused = |text: &str, want: &str| {
        let error = open(text).unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    };
    refused(
        "boxes=boxes[rows<=3 of begin]",
        "there is no array \"begin\"",
    );
    refused("boxes=boxes[rows<=3]", "or boxes=boxes[rows<=64 of BEGINS]");
    write(&[0, 2, 5]);
    let text = "label=label[samples],boxes=boxes[rows<=3 of begins]";
    refused(text, "\"label\" has 3 samples and \"boxes\" has 2");
    write(&[0, 2, 2, 6]);
    refused(
        text,
        "\"begins\" of \"boxes\": the rows of the last sample end at 6",
    );
}

#[test]
fn entries_of_npz_are_fields_compressed_or_not() {
    let folder = tempfile::tempdir().unwrap();
    for compression in [CompressionMethod::Stored, CompressionMethod::Deflated] {
        let path = folder.path().join("a.npz");
        npz(&path, &both(), compression);
        let source = Arrays::open(&path, None).unwrap();
        check_both(&source);
        assert_eq!(source.len(), 3);
        assert!(source.name(1).ends_with("a.npz [1]"));
        let layout = "class=label[samples]:u8<3".parse().unwrap();
        let chosen = Arrays::open(&path, Some(&layout)).unwrap();
        assert_eq!(
            chosen.fields(),
            [Field::new("class", Kind::U8, &[]).classes(3)]
        );
        assert_eq!(read(&chosen, &[0, 1, 2]).columns[0].values, [2, 0, 1]);
    }
}

#[test]
fn files_npy_are_fields() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in both() {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    check_both(&Arrays::open(folder.path(), None).unwrap());
    let one = Arrays::open(&folder.path().join("label.npy"), None).unwrap();
    assert_eq!((one.fields()[0].name.as_str(), one.len()), ("label", 3));
}

#[test]
fn numbers_of_all_types() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npy");
    let check = |bytes: Vec<u8>, kind: Kind| {
        std::fs::write(&path, bytes).unwrap();
        let source = Arrays::open(&path, None).unwrap();
        let batch = read(&source, &[0, 1]);
        let column = &batch.columns[0];
        let numbers: Vec<_> = kind.numbers(&column.values).collect();
        assert_eq!((column.field.kind, numbers), (kind, vec![0.0, 1.0]));
    };
    check(plain("|b1", "(2,)", &[0, 1]), Kind::U8);
    check(plain("|u1", "(2,)", &[0, 1]), Kind::U8);
    check(plain("|i1", "(2,)", &[0, 1]), Kind::I16);
    check(plain("<u2", "(2,)", &[0, 0, 1, 0]), Kind::I32);
    check(plain(">i2", "(2,)", &[0, 0, 0, 1]), Kind::I16);
    check(plain("<u4", "(2,)", &[0, 0, 0, 0, 1, 0, 0, 0]), Kind::I32);
    check(plain(">i4", "(2,)", &[0, 0, 0, 0, 0, 0, 0, 1]), Kind::I32);
    let eight = |last: [u8; 8]| [[0; 8], last].concat();
    check(plain("<u8", "(2,)", &eight(1u64.to_le_bytes())), Kind::I32);
    check(plain(">i8", "(2,)", &eight(1i64.to_be_bytes())), Kind::I32);
    check(plain("<f2", "(2,)", &[0, 0, 0, 0x3C]), Kind::F16);
    check(plain(">f8", "(2,)", &eight(1f64.to_be_bytes())), Kind::F32);
    // One extent has no order.
    check(
        npy("'<f8'", "True", "(2,)", &eight(1f64.to_le_bytes())),
        Kind::F32,
    );
}

#[test]
fn bad_numbers_are_errors_of_their_sample() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npz");
    let numbers: Vec<_> = [0.0, f32::NAN]
        .into_iter()
        .flat_map(f32::to_le_bytes)
        .collect();
    let x = plain("<f4", "(2, 1)", &numbers);
    let y = plain("|u1", "(2,)", &[9, 1]);
    npz(
        &path,
        &[("x.npy", x), ("y.npy", y)],
        CompressionMethod::Stored,
    );
    let check = |layout: &str, sample: usize, want: &str| {
        let source = Arrays::open(&path, Some(&layout.parse().unwrap())).unwrap();
        let error = read_batch(&source, &[sample], &mut Memory {}).unwrap_err();
        let want = format!("sample {sample}, {} [{sample}]: {want}", path.display());
        assert_eq!(error.to_string(), want);
        read(&source, &[1 - sample]);
    };
    check("x=x[samples]", 1, "x is NaN at [0]");
    check(
        "x=x[samples]:i16",
        1,
        "x is NaN at [0], which i16 does not hold",
    );
    check("y=y[samples]<9", 0, "y is 9, and there are classes 0..9");
}

#[test]
fn what_cannot_be_used_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |path: &Path, layout: Option<&str>, want: &str| {
        let layout = layout.map(|layout| layout.parse().unwrap());
        let error = Arrays::open(path, layout.as_ref()).unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    };
    refused(
        &folder.path().join("none.npy"),
        None,
        "none.npy: No such file",
    );
    refused(folder.path(), None, "there is no array in it");
    let path = folder.path().join("x.npy");
    let check = |bytes: &[u8], want: &str| {
        std::fs::write(&path, bytes).unwrap();
        refused(&path, None, want);
    };
    let whole = images();
    check(b"", "it is no array of NumPy, or damaged");
    check(b"<html>", "it is no array of NumPy");
    check(&whole[..40], "it is no array of NumPy, or damaged");
    check(
        &whole[..whole.len() - 1],
        "it is cut short: \"x\" has the shape [3, 2, 2], and there are",
    );
    check(
        &plain("|O", "(2,)", &[0; 9]),
        "no number that is understood",
    );
    check(
        &plain("<U3", "(2,)", &[0; 24]),
        "no number that is understood",
    );
    check(
        &plain("<c8", "(2,)", &[0; 16]),
        "no number that is understood",
    );
    check(
        &npy("[('a', '<f4')]", "False", "(2,)", &[0; 8]),
        "is an array of records",
    );
    check(&npy("'<f4'", "True", "(2, 2)", &[0; 16]), "Fortran's order");
    for shape in ["(9223372036854775808, 2)", "(4611686018427387904,)"] {
        check(&npy("'<f4'", "False", shape, &[0; 16]), "it is cut short");
    }
    check(&plain("<f4", "()", &[0; 4]), "\"x\" is a single number");
    check(&plain("<f4", "(0, 2)", &[]), "its arrays have no sample");
    check(&plain("<f4", "(2, 0)", &[]), "there are no numbers in it");
    check(
        &plain("<f4", "(1152921504606846976, 4)", &[0; 16]),
        "it is cut short",
    );
    std::fs::write(&path, &whole).unwrap();
    refused(&path, Some("a=y[samples]"), "there is no array \"y\"");
    refused(&path, Some("a=x"), "write a=x[samples] in the layout");
    refused(
        &path,
        Some("a=x[samples],b=x[samples]"),
        "there is no array \"x\" (or it is a field already)",
    );
    std::fs::write(folder.path().join("y.npy"), plain("|u1", "(2,)", &[0; 2])).unwrap();
    refused(folder.path(), None, "\"x\" has 3 samples and \"y\" has 2");
}

#[test]
fn archives_that_are_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npz");
    let check = |compression, change: &dyn Fn(&mut Vec<u8>), want: &str| {
        npz(&path, &both(), compression);
        let mut bytes = std::fs::read(&path).unwrap();
        change(&mut bytes);
        std::fs::write(&path, bytes).unwrap();
        let error = Arrays::open(&path, None).unwrap_err().to_string();
        assert!(error.contains("a.npz: ") && error.contains(want), "{error}");
    };
    let damaged = "it is cut short or damaged (";
    check(
        CompressionMethod::Stored,
        &|bytes| bytes.truncate(100),
        damaged,
    );
    check(
        CompressionMethod::Deflated,
        &|bytes| bytes.truncate(bytes.len() - 10),
        damaged,
    );
    // In the compressed numbers of an image, whose checksum no longer fits, or in its description.
    check(
        CompressionMethod::Deflated,
        &|bytes| bytes[100] ^= 0x55,
        "damaged (",
    );
    npz(
        &path,
        &[("x.npy", b"hello".into())],
        CompressionMethod::Stored,
    );
    let error = Arrays::open(&path, None).unwrap_err().to_string();
    assert!(
        error.contains("entry \"x\": it is no array of NumPy"),
        "{error}"
    );
}

#[test]
fn files_that_change_are_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npy");
    std::fs::write(&path, images()).unwrap();
    let source = Arrays::open(&path, None).unwrap();
    read(&source, &[0]);
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(150).unwrap();
    for sample in [0, 2] {
        let error = read_batch(&source, &[sample], &mut Memory {})
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("x.npy: it was written or cut while it was read"),
            "{error}"
        );
    }
}
