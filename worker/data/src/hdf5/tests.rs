use std::path::PathBuf;

use hdf5_metno::types::FixedAscii;
use hdf5_metno::{File, Group, H5Type};
use ndarray::{Array1, Array2, Array3, ArrayD, Dimension};

use super::*;
use crate::{Batch, Kind, Memory, read_batch};

/// Writes a data set, and the groups that it is in.
fn put<T: H5Type, D: Dimension>(file: &Group, name: &str, values: &ndarray::Array<T, D>) {
    if let Some((group, _)) = name.rsplit_once('/')
        && !file.link_exists(group)
    {
        file.create_group(group).unwrap();
    }
    let builder = file.new_dataset_builder().with_data(values);
    builder.create(name).unwrap();
}

fn map(sample: usize) -> Array3<f32> {
    Array3::from_shape_fn((2, 3, 4), |(y, x, c)| {
        (sample * 100 + y * 12 + x * 4 + c) as f32
    })
}

fn mask(sample: usize) -> Array2<i64> {
    Array2::from_shape_fn((2, 3), |(y, x)| ((sample + y + x) % 3) as i64)
}

fn write_map(path: &Path, sample: usize) {
    let file = File::create(path).unwrap();
    put(&file, "climate/data", &map(sample));
    put(&file, "climate/labels_0", &mask(sample));
}

/// A folder in DeepCAM's layout.
fn deepcam(samples: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for sample in 0..samples {
        write_map(&at(&folder, sample), sample);
    }
    let stats = File::create(folder.path().join("stats.h5")).unwrap();
    put(&stats, "climate/maxval", &Array1::<f32>::zeros(4));
    folder
}

fn at(folder: &tempfile::TempDir, sample: usize) -> PathBuf {
    folder.path().join(format!("data-{sample}.h5"))
}

fn layout(text: &str) -> Layout {
    text.parse().unwrap()
}

fn read(source: &Hdf5Folder, samples: &[usize]) -> Result<Batch<Vec<u8>>, DataError> {
    read_batch(source, samples, &mut Memory {})
}

fn bytes(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

fn refused(path: &Path, layout: Option<&Layout>) -> String {
    match Hdf5Folder::open(path, layout) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => error.to_string(),
    }
}

/// The reason why a sample cannot be read, which names its file.
fn reason(source: &Hdf5Folder, sample: usize, file: &str) -> String {
    match read(source, &[sample]).unwrap_err() {
        DataError::Sample {
            number,
            name,
            reason,
        } => {
            assert!(number == sample && name.contains(file), "{number} {name}");
            reason
        }
        other => panic!("{other}"),
    }
}

#[test]
fn one_sample_a_file() {
    let folder = deepcam(12);
    for layout in [None, Some(layout("deepcam"))] {
        let source = Hdf5Folder::open(folder.path(), layout.as_ref()).unwrap();
        assert_eq!(source.layout(), &"deepcam".parse().unwrap());
        assert_eq!(source.len(), 12, "stats.h5 is no sample");
        let want = [
            Field::new("image", Kind::F32, &[2, 3, 4]),
            Field::new("mask", Kind::U8, &[2, 3]).classes(3),
        ];
        assert_eq!(source.fields(), want);
        for _ in 0..2 {
            let batch = read(&source, &[11, 2, 11]).unwrap();
            let maps = [11, 2, 11].map(|sample| bytes(map(sample))).concat();
            assert_eq!(batch.column("image").unwrap().values, maps);
            let masks =
                [11, 2, 11].map(|sample| mask(sample).map(|class| *class as u8).into_iter());
            let masks: Vec<u8> = masks.into_iter().flatten().collect();
            assert_eq!(batch.column("mask").unwrap().values, masks);
        }
        // In natural order.
        assert!(source.name(2).ends_with("/data-2.h5"));
    }
}

#[test]
fn several_samples_a_file() {
    let folder = tempfile::tempdir().unwrap();
    for (name, begin, samples) in [("1.h5", 0, 3), ("2.h5", 3, 0), ("10.h5", 3, 4)] {
        let file = File::create(folder.path().join(name)).unwrap();
        let all: Vec<_> = (begin..begin + samples).flat_map(map).collect();
        let shape = (samples, 2, 3, 4);
        put(
            &file,
            "data",
            &ndarray::Array4::from_shape_vec(shape, all).unwrap(),
        );
        let labels: Array1<u16> = (begin..begin + samples)
            .map(|sample| sample as u16 % 2)
            .collect();
        put(&file, "label", &labels);
    }
    let check = |source: &Hdf5Folder| {
        assert_eq!(source.len(), 7);
        let want = [
            Field::new("image", Kind::F32, &[2, 3, 4]),
            Field::new("label", Kind::U8, &[]).classes(2),
        ];
        assert_eq!(source.fields(), want);
        let batch = read(source, &[6, 0, 3]).unwrap();
        let maps = [6, 0, 3].map(|sample| bytes(map(sample))).concat();
        assert_eq!(batch.column("image").unwrap().values, maps);
        assert_eq!(batch.column("label").unwrap().values, [0, 0, 1]);
        assert!(source.name(3).ends_with("10.h5 [0]"), "{}", source.name(3));
    };
    let source = Hdf5Folder::open(folder.path(), None).unwrap();
    check(&source);
    source
        .write_manifest(&folder.path().join(manifest::FILE))
        .unwrap();
    check(&Hdf5Folder::open(folder.path(), None).unwrap());
    check(&Hdf5Folder::open(&folder.path().join(manifest::FILE), None).unwrap());
    let one = Hdf5Folder::open(&folder.path().join("10.h5"), Some(&layout("hep"))).unwrap();
    assert_eq!(
        (one.len(), read(&one, &[1]).unwrap().columns[1].values[0]),
        (4, 0)
    );
}

#[test]
fn numbers_of_all_kinds_and_rows_that_vary() {
    let folder = tempfile::tempdir().unwrap();
    let file = File::create(folder.path().join("a.nc")).unwrap();
    put(&file, "x", &Array1::from(vec![1i16, -2]));
    put(&file, "half", &Array1::from(vec![half::f16::from_f32(1.5)]));
    put(&file, "double", &Array1::from(vec![0.25f64]));
    put(&file, "long", &ndarray::arr0(7i64));
    put(&file, "good", &Array1::from(vec![true, false]));
    put(&file, "boxes", &Array2::<f32>::zeros((2, 5)));
    let big = file
        .new_dataset_builder()
        .with_data(&[1.0f32, 2.0])
        .deflate(4)
        .chunk(2);
    big.create("packed").unwrap();
    drop(file);
    let file = File::create(folder.path().join("b.nc")).unwrap();
    for name in ["x", "half", "double", "good", "packed"] {
        put(
            &file,
            name,
            &Array1::from(vec![
                1u8;
                if name == "half" || name == "double" {
                    1
                } else {
                    2
                }
            ]),
        );
    }
    put(&file, "long", &ndarray::arr0(7i8));
    put(&file, "boxes", &Array2::<f32>::zeros((0, 5)));
    drop(file);
    let layout = layout(
        "x=x,half=half,double=double,long=long,good=good,packed=packed:bf16,boxes=boxes[rows<=3]",
    );
    let source = Hdf5Folder::open(folder.path(), Some(&layout)).unwrap();
    let fields: Vec<_> = source.fields().iter().map(ToString::to_string).collect();
    let want = [
        "x i16 [2]",
        "half f16 [1]",
        "double f32 [1]",
        "long i32 []",
        "good u8 [2]",
        "packed bf16 [2]",
        "boxes f32 [≤ 3, 5]",
    ];
    assert_eq!(fields, want);
    let batch = read(&source, &[0, 1, 0]).unwrap();
    let numbers = |name: &str| -> Vec<f64> {
        let column = batch.column(name).unwrap();
        column.field.kind.numbers(&column.values).collect()
    };
    assert_eq!(numbers("x"), [1.0, -2.0, 1.0, 1.0, 1.0, -2.0]);
    assert_eq!(numbers("half"), [1.5, 1.0, 1.5]);
    assert_eq!(numbers("double"), [0.25, 1.0, 0.25]);
    assert_eq!(numbers("long"), [7.0; 3]);
    assert_eq!(numbers("good"), [1.0, 0.0, 1.0, 1.0, 1.0, 0.0]);
    assert_eq!(numbers("packed"), [1.0, 2.0, 1.0, 1.0, 1.0, 2.0]);
    let offsets = batch.column("boxes").unwrap().offsets.as_deref();
    assert_eq!(offsets, Some(&[0, 2, 2, 4][..]));
}

#[test]
fn files_that_cannot_be_used_are_errors_of_their_sample() {
    let folder = deepcam(4);
    let whole = std::fs::read(at(&folder, 1)).unwrap();
    let source = Hdf5Folder::open(folder.path(), None).unwrap();
    let check = |content: &[u8], want: &str| {
        std::fs::write(at(&folder, 1), content).unwrap();
        let source = Hdf5Folder::open(folder.path(), None).unwrap();
        let reason = reason(&source, 1, "data-1.h5");
        assert!(reason.contains(want), "{reason}");
        read(&source, &[0, 2, 3]).unwrap();
    };
    check(b"", "it is empty; fetch it again");
    check(b"CDF\x01 and so on", "nccopy");
    check(b"GRIB and so on", "GRIB");
    check(b"version https://git-lfs", "Git LFS pointer");
    check(
        b"<html>",
        "it is no HDF5 or NetCDF-4 file: it does not begin",
    );
    check(&whole[..whole.len() / 2], "damaged or cut short");
    check(&whole[..100], "damaged or cut short");
    let mut holed = whole.clone();
    holed[40..400].fill(0xAA);
    check(&holed, "damaged or cut short");
    std::fs::remove_file(at(&folder, 1)).unwrap();
    std::os::unix::fs::symlink("data-1.h5", at(&folder, 1)).unwrap();
    let error = read(&source, &[1]).unwrap_err().to_string();
    assert!(error.contains("data-1.h5: Too many levels"), "{error}");
    std::fs::remove_file(at(&folder, 1)).unwrap();
    let error = read(&source, &[1]).unwrap_err();
    assert!(matches!(&error, DataError::File { .. }), "{error}");
    assert!(
        error.to_string().contains("data-1.h5: No such file"),
        "{error}"
    );
}

#[test]
fn a_file_without_permission_is_named() {
    use std::os::unix::fs::PermissionsExt;
    if rustix::process::geteuid().is_root() {
        // Root may read all; the reason is the system's own text, which another test sees.
        return;
    }
    let folder = deepcam(2);
    let none = std::fs::Permissions::from_mode(0o000);
    std::fs::set_permissions(at(&folder, 1), none).unwrap();
    let source = Hdf5Folder::open(folder.path(), None).unwrap();
    assert!(reason(&source, 1, "data-1.h5").contains("Permission denied"));
}

#[test]
fn data_sets_that_do_not_fit_are_errors_of_their_sample() {
    let folder = deepcam(70);
    let check = |write: &dyn Fn(&File), want: &str| {
        let file = File::create(at(&folder, 68)).unwrap();
        write(&file);
        drop(file);
        let source = Hdf5Folder::open(folder.path(), None).unwrap();
        let reason = reason(&source, 68, "data-68.h5");
        assert!(reason.contains(want), "{reason}");
        read(&source, &[67, 69]).unwrap();
    };
    let good = |file: &File| put(file, "climate/data", &map(1));
    check(
        &|file| put(file, "other", &map(1)),
        "it has no data set \"climate/data\"; it has other",
    );
    check(&|_| (), "it has no data set \"climate/data\"; it has none");
    check(
        &|file| {
            good(file);
            put(file, "climate/labels_1", &mask(1));
        },
        "it has no data set \"climate/labels_0\"; perhaps \"climate/labels_1\"; it has climate/data, climate/labels_1",
    );
    check(
        &|file| {
            put(file, "climate/data", &Array3::<f32>::zeros((2, 3, 5)));
            put(file, "climate/labels_0", &mask(1));
        },
        "\"climate/data\" has the shape [2, 3, 5], and it should have [2, 3, 4]",
    );
    check(
        &|file| {
            good(file);
            let text = file.new_dataset::<FixedAscii<8>>().shape([2, 3]);
            text.create("climate/labels_0").unwrap();
        },
        "\"climate/labels_0\" does not hold numbers",
    );
    check(
        &|file| {
            let mut map = map(1);
            map[[1, 0, 2]] = f32::NAN;
            put(file, "climate/data", &map);
            put(file, "climate/labels_0", &mask(1));
        },
        "image is NaN at [1, 0, 2]",
    );
    let labelled = |class: i64| {
        move |file: &File| {
            good(file);
            let mut mask = mask(1);
            mask[[0, 2]] = class;
            put(file, "climate/labels_0", &mask);
        }
    };
    check(
        &labelled(3),
        "mask is 3 at [0, 2], and there are classes 0..3",
    );
    check(
        &labelled(-1),
        "mask is -1 at [0, 2], which u8 does not hold",
    );
    check(
        &labelled(256),
        "mask is 256 at [0, 2], which u8 does not hold",
    );
}

#[test]
fn more_rows_than_the_layout_says() {
    let folder = tempfile::tempdir().unwrap();
    for (name, rows) in [("0.h5", 1), ("1.h5", 9)] {
        let file = File::create(folder.path().join(name)).unwrap();
        put(&file, "boxes", &Array2::<f32>::zeros((rows, 4)));
    }
    let layout = layout("boxes=boxes[rows<=8]");
    let source = Hdf5Folder::open(folder.path(), Some(&layout)).unwrap();
    let reason = reason(&source, 1, "1.h5");
    assert!(
        reason.contains("has 9 rows, and the layout says at most 8; raise"),
        "{reason}"
    );
    read(&source, &[0]).unwrap();
}

/// A file of samples with so many boxes each, whose numbers count on from `first`.
fn write_boxes(path: &Path, rows: &[usize], first: usize, begins: &[i64]) {
    let all = rows.iter().sum::<usize>();
    let file = File::create(path).unwrap();
    let boxes = Array2::from_shape_fn((all, 2), |(row, at)| ((first + row) * 10 + at) as f64);
    put(&file, "boxes", &boxes);
    put(&file, "at/begins", &Array1::from(begins.to_vec()));
    put(&file, "label", &Array1::from_elem(rows.len(), 1u8));
}

#[test]
fn rows_that_vary_in_files_of_several_samples() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    write_boxes(&at("0.h5"), &[2, 0, 3], 0, &[0, 2, 2, 5]);
    write_boxes(&at("1.h5"), &[0, 1], 5, &[0, 0, 1]);
    let boxes = layout("label=label[samples],boxes=boxes[rows<=3 of at/begins]:f32");
    let check = |source: &Hdf5Folder| {
        assert_eq!(source.len(), 5);
        let fields: Vec<_> = source.fields().iter().map(ToString::to_string).collect();
        assert_eq!(fields, ["label u8 []", "boxes f32 [≤ 3, 2]"]);
        for _ in 0..2 {
            let batch = read(source, &[4, 1, 2, 0, 3]).unwrap();
            let column = batch.column("boxes").unwrap();
            assert_eq!(column.offsets.as_deref(), Some(&[0, 1, 1, 4, 6, 6][..]));
            let rows = [5, 2, 3, 4, 0, 1].map(|row| [row * 10, row * 10 + 1]);
            let want = rows.concat().into_iter().map(|number| number as f32);
            assert_eq!(column.values, bytes(want));
        }
    };
    let source = Hdf5Folder::open(folder.path(), Some(&boxes)).unwrap();
    check(&source);
    source.write_manifest(&at(manifest::FILE)).unwrap();
    check(&Hdf5Folder::open(folder.path(), None).unwrap());
    std::fs::remove_file(at(manifest::FILE)).unwrap();

    let few = layout("label=label[samples],boxes=boxes[rows<=2 of at/begins]");
    let source = Hdf5Folder::open(folder.path(), Some(&few)).unwrap();
    read(&source, &[0, 1, 3, 4]).unwrap();
    let text = reason(&source, 2, "0.h5 [2]");
    assert!(
        text.contains("\"boxes\" has 3 rows, and the layout says at most 2; raise"),
        "{text}"
    );

    let refused = |begins: &[i64], want: &str| {
        let folder = tempfile::tempdir().unwrap();
        write_boxes(&folder.path().join("1.h5"), &[0, 1], 5, begins);
        let error = refused(folder.path(), Some(&boxes));
        assert!(error.contains("1.h5") && error.contains(want), "{error}");
    };
    refused(
        &[0, 1, 0],
        "\"at/begins\" of \"boxes\": the rows of sample 1 begin at 1",
    );
    refused(&[0, 1], "\"label\" has 2 samples and \"boxes\" has 1");
    let error = Hdf5Folder::open(
        folder.path(),
        Some(&layout("boxes=boxes[rows<=3 of begins]")),
    );
    let error = error.unwrap_err().to_string();
    assert!(error.contains("it has no data set \"begins\""), "{error}");
}

#[test]
fn missing_values_of_netcdf() {
    let folder = tempfile::tempdir().unwrap();
    let write = |value: f32, attribute: Option<(&str, f32)>| {
        let path = folder.path().join("a.nc");
        // The library refuses to write over one that is open.
        let _ = std::fs::remove_file(&path);
        let file = File::create(path).unwrap();
        let mut values = Array3::<f32>::zeros((5, 2, 3));
        values[[3, 1, 0]] = value;
        put(&file, "t2m", &values);
        if let Some((name, value)) = attribute {
            let dataset = file.dataset("t2m").unwrap();
            dataset
                .new_attr_builder()
                .with_data(&[value])
                .create(name)
                .unwrap();
        }
        drop(file);
        let layout = layout("t2m=t2m[samples]:f32");
        Hdf5Folder::open(folder.path(), Some(&layout)).unwrap()
    };
    let filled = write(-999.0, Some(("_FillValue", -999.0)));
    assert_eq!(filled.len(), 5);
    read(&filled, &[0, 2, 4]).unwrap();
    let text = reason(&filled, 3, "a.nc [3]");
    assert_eq!(text, "t2m is missing at [1, 0]: -9.99e2 is the fill value");
    reason(&write(1e20, Some(("missing_value", 1e20))), 3, "a.nc");
    reason(
        &write(9.969_21e36, Some(("DIMENSION_LIST", 0.0))),
        3,
        "a.nc",
    );
    read(&write(-999.0, None), &[3]).unwrap();
}

/// A folder with files of one variable `t` of three numbers, with these attributes.
fn netcdf<T: H5Type>(folder: &Path, name: &str, numbers: [T; 3], attributes: &[(&str, &[f64])]) {
    let file = File::create(folder.join(name)).unwrap();
    put(&file, "t", &Array1::from_iter(numbers));
    let dataset = file.dataset("t").unwrap();
    for (name, values) in attributes {
        let attribute = dataset.new_attr_builder().with_data(*values);
        attribute.create(*name).unwrap();
    }
}

#[test]
fn packed_variables_of_netcdf_become_what_they_stand_for() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    // Each file has numbers of its own.
    netcdf(
        at,
        "0.nc",
        [0i16, 100, -100],
        &[("scale_factor", &[0.5]), ("add_offset", &[270.0])],
    );
    netcdf(at, "1.nc", [1u8, 2, 3], &[("scale_factor", &[10.0])]);
    netcdf(at, "2.nc", [1.5f32, 2.0, 3.0], &[("add_offset", &[1.0])]);
    netcdf(at, "3.nc", [7.0f64, 8.0, 9.0], &[]);
    let open = |text: &str| Hdf5Folder::open(at, Some(&layout(text)));
    let source = open("t=t").unwrap();
    assert_eq!(source.fields(), [Field::new("t", Kind::F32, &[3])]);
    let want = [
        [270.0, 320.0, 220.0],
        [10.0, 20.0, 30.0],
        [2.5, 3.0, 4.0],
        [7.0, 8.0, 9.0],
    ];
    for _ in 0..2 {
        let batch = read(&source, &[0, 1, 2, 3]).unwrap();
        assert_eq!(batch.columns[0].values, bytes(want.concat()));
    }
    let half = read(&open("t=t:f16").unwrap(), &[0]).unwrap();
    let numbers = Kind::F16.numbers(&half.columns[0].values);
    assert_eq!(numbers.collect::<Vec<_>>(), [270.0, 320.0, 220.0]);

    let error = refused(&at.join("0.nc"), Some(&layout("t=t:i16")));
    assert!(
        error.contains(
            "\"t\" is packed (scale_factor 0.5, add_offset 270), so that its numbers are not whole, and t is i16: write \"t=t:f32\""
        ),
        "{error}"
    );
    std::fs::remove_file(at.join("0.nc")).unwrap();
    std::fs::remove_file(at.join("1.nc")).unwrap();
    netcdf(at, "1.nc", [1u8, 2, 3], &[]);
    netcdf(at, "2.nc.nc", [1u8, 2, 3], &[("scale_factor", &[10.0])]);
    let source = open("t=t").unwrap();
    assert_eq!(source.fields(), [Field::new("t", Kind::U8, &[3])]);
    let text = reason(&source, 2, "2.nc.nc");
    assert!(text.contains("write \"t=t:f32\""), "{text}");
}

#[test]
fn missing_values_are_told_as_they_are_stored() {
    let folder = tempfile::tempdir().unwrap();
    let packed = [("scale_factor", &[0.5][..]), ("add_offset", &[270.0])];
    let with =
        |name: &'static str, values: &'static [f64]| [&packed[..], &[(name, values)]].concat();
    netcdf(
        folder.path(),
        "0.nc",
        [0i16, 1, -32767],
        &with("_FillValue", &[-32767.0]),
    );
    netcdf(
        folder.path(),
        "1.nc",
        [0i16, 5, 1],
        &with("missing_value", &[4.0, 5.0]),
    );
    // What -540 stands for is 0, and 270 is what 0 stands for.
    netcdf(
        folder.path(),
        "2.nc",
        [0i16, 1, -540],
        &with("_FillValue", &[270.0]),
    );
    // As f32 it would not be the same number.
    netcdf(
        folder.path(),
        "3.nc",
        [0.1f64, 1.0, 2.0],
        &[("_FillValue", &[0.1])],
    );
    let source = Hdf5Folder::open(folder.path(), Some(&layout("t=t"))).unwrap();
    let check = |sample: usize, want: &str| {
        let text = reason(&source, sample, &format!("{sample}.nc"));
        assert_eq!(text, want);
    };
    check(0, "t is missing at [2]: -3.2767e4 is the fill value");
    check(1, "t is missing at [1]: 5e0 is the fill value");
    read(&source, &[2]).unwrap();
    check(3, "t is missing at [0]: 1e-1 is the fill value");
}

#[test]
fn attributes_that_cannot_be_computed_with_are_named() {
    let check = |attributes: &[(&str, &[f64])], want: &str| {
        let folder = tempfile::tempdir().unwrap();
        netcdf(folder.path(), "0.nc", [1i16, 2, 3], attributes);
        let error = refused(folder.path(), Some(&layout("t=t")));
        assert!(error.contains(want) && error.contains("0.nc"), "{error}");
    };
    check(
        &[("scale_factor", &[0.0])],
        "\"t\" has scale_factor = [0.0]",
    );
    check(&[("scale_factor", &[f64::NAN])], "has scale_factor = [NaN]");
    check(
        &[("add_offset", &[1.0, 2.0])],
        "has add_offset = [1.0, 2.0]",
    );
    let folder = tempfile::tempdir().unwrap();
    netcdf(folder.path(), "0.nc", [1i16, 2, 3], &[]);
    let file = File::open_rw(folder.path().join("0.nc")).unwrap();
    let text = [FixedAscii::<8>::from_ascii(b"half").unwrap()];
    let dataset = file.dataset("t").unwrap();
    let attribute = dataset.new_attr_builder().with_data(&text);
    attribute.create("scale_factor").unwrap();
    drop((dataset, file));
    let error = refused(folder.path(), Some(&layout("t=t")));
    assert!(
        error.contains("\"t\" has an attribute scale_factor that holds no numbers"),
        "{error}"
    );
}

#[test]
fn files_that_change_are_not_believed() {
    let folder = deepcam(3);
    let source = Hdf5Folder::open(folder.path(), None).unwrap();
    read(&source, &[0, 1]).unwrap();
    let whole = std::fs::read(at(&folder, 1)).unwrap();
    let later = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(9);
    std::fs::write(at(&folder, 1), &whole).unwrap();
    let file = std::fs::File::options()
        .write(true)
        .open(at(&folder, 1))
        .unwrap();
    file.set_modified(later).unwrap();
    let error = read(&source, &[1]).unwrap_err().to_string();
    assert!(
        error.contains("data-1.h5: it was written since it was read first"),
        "{error}"
    );
    read(&source, &[0, 2]).unwrap();
    // Since the manifest.
    source.write_manifest(&folder.path().join("m")).unwrap();
    let again = Hdf5Folder::open(&folder.path().join("m"), None).unwrap();
    read(&again, &[1]).unwrap();
    let again = Hdf5Folder::open(&folder.path().join("m"), None).unwrap();
    std::fs::write(at(&folder, 1), &whole[..100]).unwrap();
    let reason = reason(&again, 1, "data-1.h5");
    assert!(
        reason.contains("it has 100 bytes, and the manifest says"),
        "{reason}"
    );
    read(&again, &[0, 2]).unwrap();
}

#[test]
fn a_file_of_several_samples_that_changes() {
    let folder = tempfile::tempdir().unwrap();
    let write = |samples: usize| {
        let path = folder.path().join("a.h5");
        // A new file in its place, as a copy makes it: the one that is open stays as it was.
        let _ = std::fs::remove_file(&path);
        let file = File::create(path).unwrap();
        put(&file, "x", &Array2::<f32>::zeros((samples, 2)));
    };
    write(3);
    let layout = layout("x=x[samples]");
    let source = Hdf5Folder::open(folder.path(), Some(&layout)).unwrap();
    read(&source, &[0]).unwrap();
    write(5);
    let error = read(&source, &[1]).unwrap_err().to_string();
    assert!(error.contains("written since it was read first"), "{error}");
    let source = Hdf5Folder::open(folder.path(), Some(&layout)).unwrap();
    write(2);
    let reason = reason(&source, 1, "a.h5 [1]");
    assert_eq!(reason, "it has 2 samples, and 5 were counted");
}

#[test]
fn folders_that_cannot_be_opened() {
    let empty = tempfile::tempdir().unwrap();
    let text = refused(empty.path(), None);
    assert!(
        text.contains("there is no HDF5 file with samples in it (.h5, ")
            && text.ends_with("it is empty"),
        "{text}"
    );
    std::fs::write(empty.path().join("readme.txt"), "").unwrap();
    std::fs::write(empty.path().join("stats.h5"), "").unwrap();
    let text = refused(empty.path(), None);
    assert!(text.ends_with("it has readme.txt, stats.h5"), "{text}");
    let text = refused(&empty.path().join("none"), None);
    assert!(text.contains("No such file"), "{text}");
    std::fs::write(empty.path().join("1.h5"), "").unwrap();
    assert!(
        refused(empty.path(), None)
            .ends_with("1.h5: it is no HDF5 or NetCDF-4 file: it is empty; fetch it again")
    );
    std::fs::write(empty.path().join("2.h5"), "").unwrap();
    let text = refused(empty.path(), None);
    assert!(
        text.ends_with("1.h5: it is no HDF5 or NetCDF-4 file: it is empty; fetch it again; nor can the next 1 be used"),
        "{text}"
    );
}

#[test]
fn shapes_are_those_of_the_first_file_that_can_be_read() {
    let folder = deepcam(3);
    std::fs::write(at(&folder, 0), "").unwrap();
    let source = Hdf5Folder::open(folder.path(), None).unwrap();
    assert_eq!(source.len(), 3);
    assert!(reason(&source, 0, "data-0.h5").contains("it is empty"));
    read(&source, &[1, 2]).unwrap();
}

#[test]
fn layouts_that_do_not_fit() {
    let folder = tempfile::tempdir().unwrap();
    let file = File::create(folder.path().join("a.h5")).unwrap();
    put(&file, "wind", &Array2::<f32>::zeros((3, 2)));
    put(&file, "rain", &Array2::<f32>::zeros((4, 2)));
    put(&file, "none", &Array2::<f32>::zeros((3, 0)));
    put(&file, "scalar", &ArrayD::<f32>::zeros(vec![]));
    drop(file);
    let check = |text: &str, want: &str| {
        let text = refused(folder.path(), Some(&layout(text)));
        assert!(text.contains("a.h5: ") && text.contains(want), "{text}");
    };
    check(
        "x=wined",
        "it has no data set \"wined\"; perhaps \"wind\"; it has none, rain, scalar, wind",
    );
    check(
        "x=wind[samples],y=rain[samples]",
        "\"wind\" has 3 samples and \"rain\" has 4",
    );
    check(
        "x=none[samples]",
        "\"none\" has the shape [3, 0]: there are no numbers in it",
    );
    check(
        "x=scalar[samples]",
        "\"scalar\" is a single number, so nothing counts",
    );
    check(
        "x=scalar[rows<=3]",
        "\"scalar\" is a single number, so nothing counts",
    );
    let text = refused(folder.path(), None);
    let want = "it has none, rain, scalar, wind; say which become fields, as in \"image=none:f32\"";
    assert!(text.contains(want), "{text}");
    // Of several samples none.
    let file = File::create(folder.path().join("a.h5")).unwrap();
    put(&file, "x", &Array2::<f32>::zeros((0, 2)));
    drop(file);
    let text = refused(folder.path(), Some(&layout("x=x[samples]")));
    assert!(text.ends_with("its files have no sample"), "{text}");
    // One of several that cannot be counted.
    let file = File::create(folder.path().join("b.h5")).unwrap();
    put(&file, "y", &Array2::<f32>::zeros((1, 2)));
    drop(file);
    let text = refused(folder.path(), Some(&layout("x=x[samples]")));
    assert!(text.contains("b.h5: it has no data set \"x\""), "{text}");
}

#[test]
fn manifests_of_another_layout() {
    let folder = deepcam(2);
    let path = folder.path().join(manifest::FILE);
    let source = Hdf5Folder::open(folder.path(), None).unwrap();
    source.write_manifest(&path).unwrap();
    let same = Hdf5Folder::open(folder.path(), Some(&layout("deepcam"))).unwrap();
    assert_eq!((same.len(), same.fields()), (2, source.fields()));
    let text = refused(folder.path(), Some(&layout("x=climate/data")));
    let want = "and \"x=climate/data\" is asked for; write it again, or leave the layout away";
    assert!(text.contains(want), "{text}");
    // The folder is not listed.
    write_map(&at(&folder, 7), 7);
    assert_eq!(Hdf5Folder::open(folder.path(), None).unwrap().len(), 2);
}

#[test]
fn more_files_of_several_samples_than_stay_open() {
    let folder = tempfile::tempdir().unwrap();
    let files = OPEN_MAX + 3;
    for number in 0..files {
        let file = File::create(folder.path().join(format!("{number}.h5"))).unwrap();
        put(
            &file,
            "x",
            &Array1::from(vec![2.0 * number as f32, 2.0 * number as f32 + 1.0]),
        );
    }
    let source = Hdf5Folder::open(folder.path(), Some(&layout("x=x[samples]"))).unwrap();
    for round in 0..2 {
        let samples: Vec<_> = (0..2 * files)
            .map(|sample| sample * 7 % (2 * files))
            .collect();
        let batch = read(&source, &samples).unwrap();
        let want = bytes(samples.iter().map(|sample| *sample as f32));
        assert!(batch.columns[0].values == want, "round {round}");
    }
    assert_eq!(source.open.lock().unwrap().len(), OPEN_MAX);
}

#[test]
fn a_sample_that_is_written_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let fields = [
        Field::new("volume", Kind::I16, &[2, 3]),
        Field::varying("rows", Kind::U8, &[2], 4),
        Field::new("label", Kind::I32, &[]),
        Field::new("target", Kind::F32, &[2]),
        Field::new("of/half", Kind::F16, &[]),
    ];
    for sample in 0..2u8 {
        let volume = [1, sample, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12].to_vec();
        let rows = vec![sample + 1; 2 * usize::from(sample)];
        let target = [0.5f32, -2.0].map(f32::to_le_bytes).concat();
        let values = [volume, rows, vec![7, 0, 0, sample], target, vec![0, 0x3C]];
        let path = folder.path().join(format!("{sample}.h5"));
        write_sample(&path, &fields, &values).unwrap();
    }
    let layout = "volume=volume,rows=rows[rows<=4],label=label,target=target,of/half=of/half";
    let source = Hdf5Folder::open(folder.path(), Some(&layout.parse().unwrap())).unwrap();
    assert_eq!(source.fields(), fields);
    let batch = crate::read_batch(&source, &[1, 0], &mut crate::Memory {}).unwrap();
    let columns: Vec<&[u8]> = batch.columns.iter().map(|is| &*is.values).collect();
    assert_eq!(columns[0][..4], [1, 1, 3, 4]);
    assert_eq!(columns[0][12..16], [1, 0, 3, 4]);
    assert_eq!(columns[1], [2, 2]);
    assert_eq!(batch.columns[1].offsets.as_deref(), Some(&[0, 1, 1][..]));
    assert_eq!(columns[2], [7, 0, 0, 1, 7, 0, 0, 0]);
    assert_eq!(columns[3][..8], [0, 0, 0, 0x3F, 0, 0, 0, 0xC0]);
    assert_eq!(columns[4], [0, 0x3C, 0, 0x3C]);
    let brain = [Field::new("brain", Kind::BF16, &[])];
    let error = write_sample(&folder.path().join("x.h5"), &brain, &[vec![0, 0]]);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("brain bf16 [] is of a kind"), "{error}");
}
