//! Readers that are processes: what they read, and what happens when they die.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use hdf5_metno::File;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tradewind_data::{
    Batch, DataError, Hdf5Folder, Layout, Memory, Processes, Source, open, read_batch,
};

const READER: &str = env!("CARGO_BIN_EXE_tradewind-reader");

/// Which process tells its readers and dies.
const DYING: &str = "TRADEWIND_TEST_DYING";

/// One test at a time: they count the readers of this process, and a reader that is started while another test
/// writes a file inherits the library's lock on it.
static ALONE: Mutex<()> = Mutex::new(());

fn layout() -> Layout {
    "x=x,rows=rows[rows<=3],label=label:u8<5".parse().unwrap()
}

/// Files with one sample each; the label of sample 7 is out of range.
fn folder(samples: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for sample in 0..samples {
        let file = File::create(folder.path().join(format!("{sample}.h5"))).unwrap();
        let x = ndarray::Array2::from_shape_fn((4, 5), |(y, x)| (sample * 20 + y * 5 + x) as f32);
        let rows = ndarray::Array2::from_elem((sample % 4, 2), sample as i16);
        let label = ndarray::arr0(if sample == 7 { 5 } else { sample as i64 % 5 });
        file.new_dataset_builder()
            .with_data(&x)
            .create("x")
            .unwrap();
        file.new_dataset_builder()
            .with_data(&rows)
            .create("rows")
            .unwrap();
        file.new_dataset_builder()
            .with_data(&label)
            .create("label")
            .unwrap();
    }
    folder
}

fn direct(folder: &Path) -> Box<dyn Source> {
    Box::new(Hdf5Folder::open(folder, Some(&layout())).unwrap())
}

fn start(program: &Path, folder: &Path, readers: usize) -> Result<Processes, DataError> {
    let source = direct(folder);
    Processes::start_program(
        program.into(),
        source,
        folder,
        Some(&layout()),
        readers,
        None,
    )
}

fn read(source: &dyn Source, samples: &[usize]) -> Result<Batch<Vec<u8>>, DataError> {
    read_batch(source, samples, &mut Memory {})
}

fn assert_same(left: &Batch<Vec<u8>>, right: &Batch<Vec<u8>>) {
    for (left, right) in left.columns.iter().zip(&right.columns) {
        assert_eq!(
            (&left.values, &left.offsets),
            (&right.values, &right.offsets)
        );
    }
}

/// The processes whose parent is this one.
fn children() -> Vec<Pid> {
    let mut children = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap() {
        let path = entry.unwrap().path();
        let stat = std::fs::read_to_string(path.join("stat")).unwrap_or_default();
        // Behind the name, which may have blanks: state, parent.
        let parent = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.split(' ').nth(1));
        if parent == Some(&std::process::id().to_string()) {
            let number: i32 = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
            children.extend(Pid::from_raw(number));
        }
    }
    children
}

/// A program that says this at the beginning, then does that.
fn script(folder: &Path, first: &[u8], then: &str) -> PathBuf {
    let octal: String = first.iter().map(|byte| format!("\\{byte:03o}")).collect();
    let path = folder.join("reader.sh");
    std::fs::write(&path, format!("#!/bin/sh\nprintf '{octal}' >&0\n{then}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn with_length(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_le_bytes(), text.as_bytes()].concat()
}

/// What a reader says that has opened the samples.
fn opened(folder: &Path) -> Vec<u8> {
    let source = direct(folder);
    let fields = serde_json::to_string(source.fields()).unwrap();
    with_length(&format!(
        "{{\"Ok\":{{\"fields\":{fields},\"samples\":{}}}}}",
        source.len()
    ))
}

#[test]
fn samples_are_those_of_the_source_in_one_process() {
    let _alone = ALONE.lock().unwrap_or_else(|held| held.into_inner());
    let folder = folder(30);
    let (direct, processes) = (
        direct(folder.path()),
        open(folder.path(), Some(&layout()), 2, None).unwrap(),
    );
    assert_eq!(children().len(), 2);
    assert_eq!((processes.len(), processes.fields()), (30, direct.fields()));
    assert_eq!(processes.name(29), direct.name(29));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (direct, processes) = (&*direct, &*processes);
            scope.spawn(move || {
                for round in 0..20 {
                    let samples = [(thread * 3 + round) % 7, 8 + (thread + round) % 22, 29];
                    let (left, right) = (read(direct, &samples), read(processes, &samples));
                    assert_same(&left.unwrap(), &right.unwrap());
                }
            });
        }
    });
    drop(processes);
    assert!(children().is_empty());
}

#[test]
fn errors_are_those_of_the_source() {
    let _alone = ALONE.lock().unwrap_or_else(|held| held.into_inner());
    let folder = folder(9);
    let (direct, processes) = (
        direct(folder.path()),
        start(READER.as_ref(), folder.path(), 1).unwrap(),
    );
    std::fs::write(folder.path().join("2.h5"), "").unwrap();
    std::fs::remove_file(folder.path().join("3.h5")).unwrap();
    for sample in [7, 2, 3, 7] {
        let (left, right) = (read(&*direct, &[sample]), read(&processes, &[sample]));
        assert_eq!(right.unwrap_err(), left.unwrap_err());
    }
    // More than a reader has places for, and an error behind others.
    let many: Vec<usize> = (0..1500).map(|number| [8, 0, 5][number % 3]).collect();
    assert_same(
        &read(&*direct, &many).unwrap(),
        &read(&processes, &many).unwrap(),
    );
    let (left, right) = (
        read(&*direct, &[8, 0, 7, 2]),
        read(&processes, &[8, 0, 7, 2]),
    );
    assert_eq!(right.unwrap_err(), left.unwrap_err());
}

#[test]
fn a_reader_that_dies_is_started_again() {
    let _alone = ALONE.lock().unwrap_or_else(|held| held.into_inner());
    let folder = folder(6);
    let processes = start(READER.as_ref(), folder.path(), 1).unwrap();
    for _ in 0..3 {
        let [reader] = children()[..] else {
            panic!("{:?}", children())
        };
        for samples in [&[5][..], &[5, 0, 3, 3]] {
            let readers = children();
            kill_process(readers[0], Signal::KILL).unwrap();
            assert_same(
                &read(&processes, samples).unwrap(),
                &read(&*direct(folder.path()), samples).unwrap(),
            );
            assert_ne!(children(), readers);
        }
        assert_ne!(children(), [reader]);
    }
}

#[test]
fn a_sample_that_ends_its_readers_is_an_error() {
    let _alone = ALONE.lock().unwrap_or_else(|held| held.into_inner());
    let folder = folder(3);
    let others = tempfile::tempdir().unwrap();
    let check = |then: &str, want: &str| {
        let program = script(others.path(), &opened(folder.path()), then);
        let processes = start(&program, folder.path(), 1).unwrap();
        for sample in [1, 2] {
            let error = read(&processes, &[sample]).unwrap_err().to_string();
            let path = folder.path().join(format!("{sample}.h5"));
            let want = format!(
                "sample {sample}, {}: its reader {want}, 2 times",
                path.display()
            );
            assert_eq!(error, want);
        }
    };
    let asked = "head -c 12 <&0 >/dev/null";
    check(&format!("{asked}; exit 7"), "ended with status 7");
    check(&format!("{asked}; kill -9 $$"), "was killed by signal 9");
    check(
        &format!(
            "{asked}; printf '\\001\\0\\0\\0\\005{}' >&0; sleep 60",
            "\\0".repeat(3 * 8 - 1 + 4)
        ),
        "was ended: it gave 5 bytes of x f32 [4, 5]",
    );
    check(
        &format!("{asked}; printf '\\0\\0\\0\\0\\377\\377\\377\\377' >&0; sleep 60",),
        "was ended: its answer has no sense",
    );
}

#[test]
fn readers_that_cannot_begin() {
    let _alone = ALONE.lock().unwrap_or_else(|held| held.into_inner());
    let folder = folder(3);
    let others = tempfile::tempdir().unwrap();
    let refused = |program: &Path| match start(program, folder.path(), 2) {
        Ok(_) => panic!("{} was started", program.display()),
        Err(error) => error.to_string(),
    };
    let missing = refused(&others.path().join("none"));
    assert!(missing.contains("none: No such file"), "{missing}");
    let check = |first: &[u8], then: &str, want: &str| {
        let text = refused(&script(others.path(), first, then));
        assert!(
            text.contains("reader.sh: ") && text.contains(want),
            "{text}"
        );
    };
    check(
        b"",
        "exit 3",
        "it ended with status 3 before it opened the samples",
    );
    check(&with_length("hello"), "", "it is of another version");
    check(
        &with_length("{\"Ok\":{\"fields\":[],\"samples\":3}}"),
        "",
        "a reader finds 3 samples, or other fields",
    );
    // What a reader cannot open is told as it is.
    let layout = layout();
    let elsewhere = others.path().join("gone");
    let started = Processes::start_program(
        READER.into(),
        direct(folder.path()),
        &elsewhere,
        Some(&layout),
        1,
        None,
    );
    let Err(error) = started else {
        panic!("it was started")
    };
    assert_eq!(
        error,
        DataError::File {
            path: elsewhere,
            reason: "No such file or directory (os error 2)".into()
        }
    );
}

#[test]
fn the_program_says_what_it_is_for() {
    let _alone = ALONE.lock().unwrap_or_else(|held| held.into_inner());
    for arguments in [&[][..], &["/tmp"]] {
        let mut command = Command::new(READER);
        let output = command
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && text.contains("is started by whoever reads samples"),
            "{text}"
        );
    }
}

#[test]
fn readers_end_with_their_parent() {
    if let Some(folder) = std::env::var_os(DYING) {
        let _processes = start(READER.as_ref(), folder.as_ref(), 2).unwrap();
        let readers: Vec<_> = children()
            .into_iter()
            .map(|pid| pid.as_raw_nonzero().to_string())
            .collect();
        std::fs::write(Path::new(&folder).join("readers.txt"), readers.join(" ")).unwrap();
        kill_process(rustix::process::getpid(), Signal::KILL).unwrap();
    }
    let _alone = ALONE.lock().unwrap_or_else(|held| held.into_inner());
    let folder = folder(2);
    let mut dying = Command::new(std::env::current_exe().unwrap());
    dying
        .args(["--exact", "readers_end_with_their_parent"])
        .env(DYING, folder.path());
    let ended = dying.stdout(Stdio::null()).status().unwrap();
    assert!(!ended.success());
    let text = std::fs::read_to_string(folder.path().join("readers.txt")).unwrap();
    let readers = text
        .split(' ')
        .map(|number| Pid::from_raw(number.parse().unwrap()).unwrap());
    let readers: Vec<_> = readers.collect();
    assert_eq!(readers.len(), 2);
    let alive = |reader: &Pid| {
        // One that nobody waits for is there in name only.
        let path = format!("/proc/{}/stat", reader.as_raw_nonzero());
        let stat = std::fs::read_to_string(path).unwrap_or_default();
        test_kill_process(*reader).is_ok() && !stat.contains(") Z ")
    };
    while readers.iter().any(alive) {
        std::thread::sleep(Duration::from_millis(5));
    }
}
