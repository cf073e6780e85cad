//! A disk that takes no more: a process that may only write small files stands for it, which needs
//! no special rights. The limit holds for a whole process, so the check runs in one of its own.

use std::collections::HashMap;
use std::process::Command;

use super::*;
use crate::snapshot::export::{ExportError, export};
use crate::store::{Store, StoreError};

const LIMITED: &str = "TRADEWIND_TEST_SMALL_FILES";

#[test]
fn a_full_disk_is_named_and_leaves_everything_as_it_was() {
    if std::env::var_os(LIMITED).is_some() {
        return files_stay_small();
    }
    let this = std::env::current_exe().unwrap();
    let name = std::thread::current().name().unwrap().to_owned();
    // 16 blocks of 512 bytes; dash and bash in POSIX mode agree on that.
    let script = "trap '' XFSZ; ulimit -f 16; exec \"$0\" --exact \"$1\" --nocapture";
    let output = Command::new("sh")
        .args(["-c", script])
        .arg(this)
        .arg(name)
        .env(LIMITED, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(said.contains("1 passed"), "{said}");
}

fn files_stay_small() {
    let world = World::new();
    let before = world.snapshot(1, 2);
    let (folder, run) = (&world.folder, &world.run);
    let names = |path: &std::path::Path| {
        let mut names = crate::disk::names(path).unwrap();
        names.sort();
        names
    };

    let mut big = world.states(2);
    big[0].values = Arc::new(vec![1.0; 100_000]);
    big[0].slots = vec![];
    let error = write::shard(folder, run, 2, ShardId(0), &big).unwrap_err();
    let text = error.to_string();
    let part = folder.snapshot(run, 2).join("shard-0000.safetensors.part");
    assert!(text.contains(part.to_str().unwrap()), "{text}");
    assert_eq!(error.kind(), std::io::ErrorKind::FileTooLarge, "{text}");
    assert!(
        names(&folder.snapshot(run, 2)).is_empty(),
        "the part is gone"
    );

    let placement = Placement::by_bytes(&world.layout, 2);
    let old: Manifest<Vec<String>> = manifest::read(folder, run, 1).unwrap();
    let mut large = world.manifest(1, old.files.clone(), &placement);
    large.data = vec!["x".repeat(100_000)];
    let error = manifest::write(folder, &large).unwrap_err().to_string();
    assert!(error.contains("manifest.json.part"), "{error}");
    assert_eq!(manifest::read::<Vec<String>>(folder, run, 1).unwrap(), old);
    assert_eq!(names(&folder.snapshot(run, 1)).len(), 3);

    // Four files that are small enough, of a model that is not.
    let tensor = TensorSpec {
        name: "large".into(),
        shape: vec![4096],
        kind: TensorKind::Parameter,
    };
    let layout = Layout::new(&[tensor], 4096).unwrap();
    let large = World {
        layout,
        ..World::new()
    };
    let placement = Placement::by_bytes(&large.layout, 4);
    let (folder_of_large, layout) = (&large.folder, &large.layout);
    let file = |block: &BlockId| {
        let mut state = large.state(*block, 1);
        state.slots.clear();
        write::shard(folder_of_large, run, 1, ShardId(block.0), &[state]).unwrap()
    };
    let files = large.all().iter().map(file).collect();
    manifest::write(folder_of_large, &large.manifest(1, files, &placement)).unwrap();
    let target = folder_of_large.root().join("model.safetensors");
    let error = export(folder_of_large, run, 1, layout, HashMap::new(), &target).unwrap_err();
    assert!(matches!(&error, ExportError::Disk(_)), "{error}");
    assert!(
        error.to_string().contains("model.safetensors.part"),
        "{error}"
    );
    assert_eq!(names(folder_of_large.root()), ["snapshots"]);

    let claimed = Store::claim(folder.root()).unwrap();
    claimed.store.write(b"{}").unwrap();
    let error = claimed.store.write(&[b'1'; 100_000]).unwrap_err();
    assert!(matches!(&error, StoreError::Disk { .. }), "{error}");
    assert!(error.to_string().contains("state-1.json"), "{error}");
    let next = Store::claim(folder.root()).unwrap();
    assert_eq!(
        next.former.map(|written| written.state).as_deref(),
        Some(&b"{}"[..])
    );

    same(&world.newest().unwrap().states, &before);
    a_torn_event_is_ended_before_the_next(folder.root());
}

fn a_torn_event_is_ended_before_the_next(folder: &std::path::Path) {
    let log = crate::events::EventLog::open(folder).unwrap();
    log.write(&"x".repeat(6000));
    log.write(&"y".repeat(6000));
    // Space again, but what was written of the second stays.
    let path = folder.join("events.jsonl");
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    assert_eq!(
        file.metadata().unwrap().len(),
        8192,
        "the second is cut off"
    );
    file.set_len(7000).unwrap();
    log.write(&"z");
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        (lines.len(), lines[1].len(), lines[2]),
        (3, 7000 - 6003, "\"z\"")
    );
}
