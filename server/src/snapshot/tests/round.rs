//! Writing, reading, listing, deleting.

use std::fs;

use super::*;
use crate::snapshot::read;

#[test]
fn everything_comes_back_bit_for_bit_into_any_number_of_shards() {
    for shards in [1, 2, 3, 50] {
        let world = World::new();
        let states = world.snapshot(4, shards);
        same(&world.newest().unwrap().states, &states);
        // Blocks of another placement, in any order.
        let mut some = world.all();
        some.retain(|block| block.0 % 2 == 1);
        some.reverse();
        let (folder, run, layout) = (&world.folder, &world.run, &world.layout);
        let read = read::blocks(folder, run, 4, &some, layout, SLOTS).unwrap();
        let want: Vec<_> = some
            .iter()
            .map(|id| states[id.0 as usize].clone())
            .collect();
        same(&read, &want);
    }
}

#[test]
fn a_file_says_what_it_holds() {
    let world = World::new();
    let mut states = world.states(7);
    states.reverse();
    let file = write::shard(&world.folder, &world.run, 1, ShardId(3), &states).unwrap();
    assert_eq!(file.name, "shard-0003.safetensors");
    let last = states.len() as u64 - 1;
    assert_eq!(file.versions, (7, 7 + last));
    assert_eq!(file.samples, (7 * 32, (7 + last) * 32));
    let clocks = states.iter().flat_map(|state| state.decided.values());
    let highest = clocks.map(|(_, decided)| decided.clock).max().unwrap();
    assert_eq!(file.clock_next, highest.tick());

    let path = world.folder.snapshot(&world.run, 1).join(&file.name);
    let bytes = fs::read(path).unwrap();
    assert_eq!(file.bytes, bytes.len() as u64);
    assert_eq!(file.digest, blake3::hash(&bytes).to_hex().as_str());

    let none = write::shard(&world.folder, &world.run, 1, ShardId(4), &[]).unwrap();
    assert_eq!((none.versions, none.clock_next), ((0, 0), Clock(0)));
}

/// Anybody who can read safetensors can read a shard's file.
#[test]
fn files_are_safetensors() {
    let world = World::new();
    let states = world.snapshot(1, 1);
    let path = world.folder.snapshot(&world.run, 1);
    let bytes = fs::read(path.join("shard-0000.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let vectors: usize = states.iter().map(|state| 1 + state.slots.len()).sum();
    assert_eq!(file.len(), 2 + vectors);
    let tensor = file.tensor("block.2.slot.1").unwrap();
    let values: Vec<f32> = bytemuck::pod_collect_to_vec(tensor.data());
    assert_eq!(values, *states[2].slots[1]);
    let table = file.tensor("blocks").unwrap();
    assert_eq!(table.shape(), [states.len(), 3]);
    let rows: Vec<u64> = bytemuck::pod_collect_to_vec(table.data());
    assert_eq!(
        rows[3..6],
        [1, states[1].version, states[1].samples_applied]
    );
    let table = file.tensor("decided").unwrap();
    let rows: Vec<u64> = bytemuck::pod_collect_to_vec(table.data());
    assert_eq!(rows[..6], [1, 0, 9, 101, 1, u64::MAX], "block 1, group 0");
}

#[test]
fn manifests_come_back_with_everything() {
    let world = World::new();
    world.snapshot(3, 2);
    let (folder, run) = (&world.folder, &world.run);
    let read: Manifest<Vec<String>> = manifest::read(folder, run, 3).unwrap();
    let placement = Placement::by_bytes(&world.layout, 2);
    assert_eq!(read, world.manifest(3, read.files.clone(), &placement));
    let text = fs::read_to_string(folder.manifest(run, 3)).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["content"]["run"], "run-1", "it is JSON for everybody");

    let mut told = Vec::new();
    let whole: Manifest<Vec<String>> =
        manifest::verify(folder, run, 3, &mut |done, all| told.push((done, all))).unwrap();
    assert_eq!(whole, read);
    let bytes: u64 = read.files.iter().map(|file| file.bytes).sum();
    assert_eq!(told.last(), Some(&(bytes, bytes)));
}

#[test]
fn the_newest_up_to_a_number_is_used() {
    let world = World::new();
    let snapshots: Vec<_> = (1..=3).map(|number| world.snapshot(number, 2)).collect();
    let (folder, run, layout) = (&world.folder, &world.run, &world.layout);
    let newest = |upto| read::newest(folder, run, upto, &world.all(), layout, SLOTS);
    // One that was whole and is gone is named.
    let cases = [
        ((4, false), 3, 1),
        ((3, false), 3, 0),
        ((2, false), 2, 0),
        ((1, true), 1, 0),
    ];
    for (upto, number, damaged) in cases {
        let found = newest(upto).unwrap();
        assert_eq!((found.number, found.damaged.len()), (number, damaged));
        same(&found.states, &snapshots[number as usize - 1]);
    }
    assert_eq!(newest((0, false)).unwrap_err().damaged.len(), 1);
    assert_eq!(newest((9, true)).unwrap_err().damaged.len(), 1);
}

/// Two that write one shard of one snapshot, such as a primary and the one that took its place:
/// neither overwrites the other's file.
#[test]
fn writers_of_the_same_shard_do_not_meet() {
    let world = World::new();
    let write = |seed| {
        let states = world.states(seed);
        let file = write::shard(&world.folder, &world.run, 1, ShardId(0), &states).unwrap();
        (file, states)
    };
    let mut written: Vec<_> = std::thread::scope(|threads| {
        let started: Vec<_> = (0..4)
            .map(|seed| threads.spawn(move || write(seed)))
            .collect();
        let written = started.into_iter().map(|thread| thread.join().unwrap());
        written.collect()
    });
    written.push(write(9));
    let names: std::collections::BTreeSet<_> = written.iter().map(|(f, _)| &f.name).collect();
    assert_eq!(names.len(), written.len());
    let placement = Placement::by_bytes(&world.layout, 1);
    for (file, states) in &written {
        // A later manifest replaces the former: each is whole.
        let manifest = world.manifest(1, vec![file.clone()], &placement);
        manifest::write(&world.folder, &manifest).unwrap();
        same(&world.newest().unwrap().states, states);
    }
}

#[test]
fn deleted_half_way_it_is_no_snapshot_and_can_be_deleted_again() {
    let world = World::new();
    world.snapshot(1, 2);
    world.snapshot(2, 2);
    world.snapshot(3, 2);
    let (folder, run) = (&world.folder, &world.run);
    manifest::delete(folder, run, 1).unwrap();
    assert_eq!(folder.numbers(run).unwrap(), [2, 3]);
    // As far as an interrupted one comes at least.
    fs::remove_file(folder.manifest(run, 3)).unwrap();
    assert_eq!(folder.numbers(run).unwrap(), [2, 3]);
    assert_eq!(manifest::list(folder, run).unwrap(), [2]);
    let found = world.newest().unwrap();
    assert_eq!((found.number, found.damaged.len()), (2, 0));
    manifest::delete(folder, run, 3).unwrap();
    manifest::delete(folder, run, 3).unwrap();
    assert_eq!(folder.numbers(run).unwrap(), [2]);
}

/// The order of deletion: were the manifest not first, an interruption would leave one that names
/// files that are gone.
#[test]
fn the_manifest_is_deleted_first() {
    let world = World::new();
    world.snapshot(1, 2);
    let (folder, run) = (&world.folder, &world.run);
    // The files cannot be deleted: a manifest that is a folder is refused before anything else.
    let path = folder.manifest(run, 1);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let error = manifest::delete(folder, run, 1).unwrap_err().to_string();
    assert!(error.contains("manifest.json"), "{error}");
    let left = fs::read_dir(folder.snapshot(run, 1)).unwrap().count();
    assert_eq!(
        left, 3,
        "nothing was deleted after the manifest could not be"
    );
}

#[test]
fn what_is_unfinished_is_swept_up_to_a_whole_one() {
    let world = World::new();
    let (folder, run) = (&world.folder, &world.run);
    world.snapshot(1, 1);
    write::shard(folder, run, 2, ShardId(0), &world.states(2)).unwrap();
    world.snapshot(3, 1);
    write::shard(folder, run, 4, ShardId(0), &world.states(4)).unwrap();
    manifest::sweep(folder, run, 3).unwrap();
    assert_eq!(folder.numbers(run).unwrap(), [1, 3, 4]);
}

#[test]
fn other_names_are_no_snapshots() {
    let world = World::new();
    world.snapshot(12, 1);
    let run = world.folder.run(&world.run);
    for name in ["1", "00000011.old", "+0000011", "notes", "123456789"] {
        fs::create_dir(run.join(name)).unwrap();
    }
    let numbers = world.folder.numbers(&world.run).unwrap();
    assert_eq!(numbers, [12, 123_456_789]);
    assert_eq!(manifest::list(&world.folder, &world.run).unwrap(), [12]);
    let nobody = RunId::new("nobody").unwrap();
    assert!(world.folder.numbers(&nobody).unwrap().is_empty());
}

#[test]
fn snapshots_that_a_listing_lacks_are_found_by_their_names() {
    let world = World::new();
    let (folder, run, layout) = (&world.folder, &world.run, &world.layout);
    world.snapshot(3, 2);
    crate::disk::tests::freeze(&folder.run(run));
    let fifth = world.snapshot(5, 2);
    let last = world.snapshot(9, 2);
    assert_eq!(folder.numbers(run).unwrap(), [3, 5, 9]);
    let whole = manifest::newest_whole::<Vec<String>>(folder, run, &mut |_, _| {}).unwrap();
    assert_eq!(whole.0.unwrap().number, 9);
    let newest = || read::newest(folder, run, (9, false), &world.all(), layout, SLOTS).unwrap();
    same(&newest().states, &last);
    std::fs::write(folder.manifest(run, 9), b"").unwrap();
    let found = newest();
    assert_eq!((found.number, found.damaged.len()), (5, 1));
    same(&found.states, &fifth);
    // Listed, and deleted.
    manifest::delete(folder, run, 3).unwrap();
    manifest::delete(folder, run, 9).unwrap();
    let whole = manifest::newest_whole::<Vec<String>>(folder, run, &mut |_, _| {}).unwrap();
    assert_eq!((whole.0.unwrap().number, whole.1.len()), (5, 0));
    manifest::sweep(folder, run, 5).unwrap();
}
