use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::*;
use crate::Form;

/// In Python's place: what it writes tells seed, kind and simulation. `then` stands behind each request.
fn interpreter(folder: &Path, version: &str, then: &str) -> PathBuf {
    let path = folder.join("python");
    let text = format!(
        r#"#!/bin/sh
test "$1 $2" = "-I -c" || exit 3
case $3 in *pythia8mc*) ;; *) exit 4 ;; esac
if test "$4" = versions; then echo "Pythia {version}"; exit; fi
while read -r kind unit events; do
  for event in $(seq "$events"); do
    yes "$4 $kind $unit $event." | head -c {RECORD_BYTES}
  done
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
        samples: 140,
        seed: 5,
        form,
        threads: 2,
        python: Some(python),
    }
}

fn made(order: &Order<'_>) -> Result<Made, DataError> {
    make(order, &mut |_, _| {})
}

#[test]
fn samples_are_what_the_script_makes() {
    let root = tempfile::tempdir().unwrap();
    let python = interpreter(root.path(), "1.0", "");
    for (form, name) in [(Form::Packed, "packed"), (Form::Hdf5, "hdf5")] {
        let folder = root.path().join(name);
        let order = order(&folder, &python, form);
        assert_eq!(made(&order).unwrap().samples, 140);
        for (split, first, kinds) in [
            ("train", 0, &[Event::Signal, Event::Background][..]),
            ("validation", 2, &[Event::Signal, Event::Background]),
            (
                "held_out",
                4,
                &[Event::Signal, Event::Background, Event::Background],
            ),
        ] {
            let source = tradewind_data::open(&folder.join(split), None, 1, None).unwrap();
            assert_eq!(source.fields(), fields(), "{split} {name}");
            let of = |unit: usize| EVENTS * unit..EVENTS * (unit + 1);
            for (unit, event) in kinds.iter().enumerate() {
                let samples: Vec<usize> = of(unit).collect();
                let batch = read_batch(&*source, &samples, &mut Memory::default()).unwrap();
                let labels = &*batch.column("label").unwrap().values;
                assert_eq!(labels, [*event as u8; EVENTS], "{split} {unit} {name}");
                let jets = &*batch.column("jets").unwrap().values;
                let data = &*batch.column("data").unwrap().values;
                let mut numbers = Vec::new();
                for at in 0..EVENTS {
                    let record = [
                        &jets[JETS_BYTES * at..][..JETS_BYTES],
                        &data[at * data.len() / EVENTS..][..data.len() / EVENTS],
                    ]
                    .concat();
                    let text = String::from_utf8(record).unwrap();
                    let line = text.lines().next().unwrap().to_owned();
                    let begin = format!("5 {} {} ", event.name(), first + unit);
                    assert!(line.starts_with(&begin), "{line:?}, not {begin:?}");
                    assert!(text.lines().rev().skip(1).all(|other| other == line));
                    numbers.push(line);
                }
                numbers.sort_unstable();
                numbers.dedup();
                assert_eq!(numbers.len(), EVENTS, "each event is there once");
            }
        }
        let card = fs::read_to_string(folder.join("CARD.md")).unwrap();
        for part in [
            "| `held_out` | 20 | 40 |",
            "This folder is a small one",
            "Pythia 1.0",
        ] {
            assert!(card.contains(part), "{card}");
        }
    }
}

#[test]
fn failures_name_the_way_out() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("hep");
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
    check(
        &missing,
        &["nowhere", "make data-hep", "pythia8mc==8.317.2"],
    );

    let without = root.path().join("without");
    let text = "#!/bin/sh\necho \"ModuleNotFoundError: No module named 'pythia8mc'\" >&2; exit 1\n";
    fs::write(&without, text).unwrap();
    fs::set_permissions(&without, fs::Permissions::from_mode(0o755)).unwrap();
    check(
        &told(&without),
        &[
            "No module named 'pythia8mc'",
            "exit status: 1",
            "make data-hep",
        ],
    );
    assert!(!folder.exists(), "nothing was begun");

    // The first file of the training samples is whole, and the third simulation is not there.
    let dies = interpreter(
        root.path(),
        "1.0",
        "test $unit -lt 2 || { printf half; echo 'beam lost' >&2; exit 7; }",
    );
    check(
        &told(&dies),
        &["exit status: 7", "0 of 20 records", "beam lost", "goes on"],
    );

    let other = interpreter(root.path(), "2.0", "");
    check(
        &told(&other),
        &["begun with Pythia 1.0", "there is Pythia 2.0"],
    );
    let same = interpreter(root.path(), "1.0", "");
    let again = made(&order(&folder, &same, Form::Packed)).unwrap();
    assert_eq!((again.samples, again.found), (140, 40));

    let few = Order {
        samples: 100,
        ..order(&folder, &same, Form::Packed)
    };
    check(
        &made(&few).unwrap_err().to_string(),
        &["100 samples are too few", "ask for 121 or more"],
    );
}

#[test]
fn splits_have_both_kinds() {
    let counts = |samples| {
        let plan = Plan::of(samples).unwrap();
        [Split::Train, Split::Validation, Split::HeldOut]
            .map(|split| [Event::Signal, Event::Background].map(|event| plan.count(split, event)))
    };
    let default = [[8000, 8000], [1000, 1000], [2000, 10_000]];
    assert_eq!(counts(RECIPE.samples), default);
    assert_eq!(counts(600), [[160, 160], [20, 20], [40, 200]]);
    for samples in 121..2000 {
        let counts = counts(samples);
        let all: usize = counts.iter().flatten().sum();
        assert_eq!(all, samples.div_ceil(EVENTS) * EVENTS, "{samples}");
        assert!(
            counts.iter().flatten().all(|n| *n > 0),
            "{samples}: {counts:?}"
        );
    }
}
