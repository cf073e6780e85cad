use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::*;

/// Maps of a simulation here.
const FEW: usize = 8;

/// In Python's place: the first map of a simulation begins with its day, the last one with its own number, and masks are
/// full of the simulation's number. `then` stands behind each request.
fn interpreter(folder: &Path, version: &str, then: &str) -> PathBuf {
    let path = folder.join("python");
    let text = format!(
        r#"#!/bin/sh
test "$1 $2" = "-I -c" || exit 3
case $3 in *jcm*) ;; *) exit 4 ;; esac
if test "$4" = versions; then echo "jcm {version}"; exit; fi
while read -r what unit maps day; do
  if test "$what" = maps; then
    made=$maps
    printf '%04d' "$day"
    head -c $(((maps - 1) * {IMAGE_BYTES} - 4)) /dev/zero
    printf '%04d' "$maps"
    head -c $(({IMAGE_BYTES} - 4)) /dev/zero
  else
    test "$what" = masks || exit 5
    head -c $((made * {MASK_BYTES})) /dev/zero | tr '\0' "\\00$((unit % 3))"
  fi
  {then}
done
"#
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn order<'a>(folder: &'a Path, python: &'a Path, form: Form) -> Order<'a> {
    Order {
        folder,
        samples: 3 * FEW,
        seed: 5,
        form,
        threads: 2,
        python: Some(python),
    }
}

fn made(order: &Order<'_>) -> Result<Made, DataError> {
    make_of(FEW, order, &mut |_, _| {})
}

#[test]
fn samples_are_what_the_script_makes() {
    let root = tempfile::tempdir().unwrap();
    let python = interpreter(root.path(), "1.0", "");
    for (form, name) in [(Form::Packed, "packed"), (Form::Hdf5, "hdf5")] {
        let folder = root.path().join(name);
        let order = order(&folder, &python, form);
        let mut told = Vec::new();
        let made = make_of(FEW, &order, &mut |done, all| told.push((done, all))).unwrap();
        assert_eq!(made.samples, 3 * FEW);
        assert!(told.contains(&(7, 3 * FEW)), "maps are told one by one");
        assert_eq!(told.last(), Some(&(3 * FEW, 3 * FEW)));
        for (unit, split) in ["train", "validation", "held_out"].into_iter().enumerate() {
            let source = tradewind_data::open(&folder.join(split), None, 1, None).unwrap();
            assert_eq!(source.fields(), fields(form), "{split} {name}");
            assert_eq!(source.len(), FEW, "{split} {name}");
            let samples = [0, FEW - 1];
            let batch = read_batch(&*source, &samples, &mut Memory::default()).unwrap();
            let mask = &*batch.column("mask").unwrap().values;
            assert_eq!(mask, [unit as u8; 2 * MASK_BYTES], "{split} {name}");
            let images = batch
                .column("image")
                .unwrap()
                .values
                .chunks_exact(IMAGE_BYTES);
            let begins: Vec<&[u8]> = images.map(|image| &image[..4]).collect();
            assert_eq!(begins, [b"0000", b"0008"], "{split} {name}");
        }
        let card = fs::read_to_string(folder.join("CARD.md")).unwrap();
        for part in [
            "jcm 1.0",
            "This folder is a small one",
            "| 7 | PSL |",
            "A grid of 3.75 degrees has none",
        ] {
            assert!(card.contains(part), "{card}");
        }
    }
}

#[test]
fn failures_name_the_way_out() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("climate");
    let told = |python: &Path| {
        let order = order(&folder, python, Form::Packed);
        made(&order).unwrap_err().to_string()
    };
    let check = |told: &str, parts: &[&str]| {
        for part in parts {
            assert!(told.contains(part), "{part:?} is not in {told:?}");
        }
    };
    let missing = told(&root.path().join("nowhere"));
    check(&missing, &["nowhere", "make data-climate", "jcm==3.0.0"]);
    assert!(!folder.exists(), "nothing was begun");

    // The training samples are whole, and the second simulation ends before its masks.
    let dies = interpreter(
        root.path(),
        "1.0",
        "test $unit -lt 1 || { echo 'not finite' >&2; exit 7; }",
    );
    check(
        &told(&dies),
        &[
            "exit status: 7",
            "0 of 8 records",
            "masks",
            "not finite",
            "goes on",
        ],
    );

    let other = interpreter(root.path(), "2.0", "");
    check(&told(&other), &["begun with jcm 1.0", "there is jcm 2.0"]);
    let same = interpreter(root.path(), "1.0", "");
    let again = made(&order(&folder, &same, Form::Packed)).unwrap();
    assert_eq!((again.samples, again.found), (3 * FEW, FEW));

    let few = Order {
        samples: 16,
        ..order(&folder, &same, Form::Packed)
    };
    check(
        &made(&few).unwrap_err().to_string(),
        &["16 samples are too few", "ask for 17 or more"],
    );
}

#[test]
fn splits_begin_evenly_over_the_year() {
    let plan = Plan::of(RECIPE.samples, MAPS).unwrap();
    let of = |split| {
        let units = (0..plan.units()).filter(move |unit| plan.split(*unit) == split);
        units.map(|unit| plan.day(unit)).collect::<Vec<_>>()
    };
    assert_eq!(of(Split::Train), [0, 91, 182, 273]);
    assert_eq!(of(Split::Validation), [0, 182]);
    assert_eq!(of(Split::HeldOut), [0, 182]);
    for samples in 2 * FEW + 1..20 * FEW {
        let plan = Plan::of(samples, FEW).unwrap();
        assert_eq!(plan.units(), samples.div_ceil(FEW), "{samples}");
        assert!(plan.train >= plan.other, "{samples}: {plan:?}");
    }
    assert_eq!(Plan::of(2 * FEW, FEW), None);
}

#[test]
fn channels_are_last_in_the_public_layout() {
    let value = |at: usize| (at as f32).to_le_bytes();
    let image: Vec<u8> = (0..CHANNELS.len() * CELLS).flat_map(value).collect();
    let turned = channels_last(&image);
    assert_eq!(turned.len(), image.len());
    for (cell, channel) in [(0, 0), (0, 15), (1, 0), (CELLS - 1, 7)] {
        let at = 4 * (cell * CHANNELS.len() + channel);
        assert_eq!(turned[at..at + 4], value(channel * CELLS + cell));
    }
}
