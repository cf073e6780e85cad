//! Damage of every kind.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::*;
use crate::snapshot::read;

/// Takes two snapshots, lets `damage` loose on the second, and expects it to be passed over with a
/// text that names the file and contains `what`.
fn passed_over(file: &str, what: &str, damage: impl FnOnce(&PathBuf)) {
    let world = World::new();
    let before = world.snapshot(1, 2);
    world.snapshot(2, 2);
    let path = world.folder.snapshot(&world.run, 2).join(file);
    damage(&path);
    let found = world.newest().unwrap();
    same(&found.states, &before);
    let [text] = &found.damaged[..] else {
        panic!("{:?}", found.damaged);
    };
    assert!(text.starts_with(path.to_str().unwrap()), "{text}");
    assert!(text.contains(what), "{text}");
    let (whole, damaged) =
        manifest::newest_whole::<Vec<String>>(&world.folder, &world.run, &mut |_, _| {}).unwrap();
    assert_eq!(whole.unwrap().number, 1);
    assert_eq!(damaged[0].path, path);
    let only = (2, true);
    let (run, layout) = (&world.run, &world.layout);
    let none = read::newest(&world.folder, run, only, &world.all(), layout, SLOTS);
    assert_eq!(none.unwrap_err().damaged.len(), 1);
}

const SHARD: &str = "shard-0001.safetensors";

#[test]
fn a_file_that_was_cut_off() {
    let length = {
        let world = World::new();
        world.snapshot(2, 2);
        fs::metadata(world.folder.snapshot(&world.run, 2).join(SHARD))
            .unwrap()
            .len()
    };
    for left in [0, 1, 7, 8, 9, 100, length / 2, length - 4, length - 1] {
        passed_over(SHARD, &format!("{left} bytes"), |path| {
            let file = fs::OpenOptions::new().write(true).open(path).unwrap();
            file.set_len(left).unwrap();
        });
    }
    passed_over(SHARD, "bytes where", |path| {
        let mut bytes = fs::read(path).unwrap();
        bytes.push(0);
        fs::write(path, bytes).unwrap();
    });
}

#[test]
fn a_bit_that_changed_anywhere() {
    let world = World::new();
    world.snapshot(1, 2);
    world.snapshot(2, 2);
    let path = world.folder.snapshot(&world.run, 2).join(SHARD);
    let sound = fs::read(&path).unwrap();
    // In place: a file that is cut to nothing and written anew goes to the disk each time.
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    for at in 0..sound.len() {
        let bit = 1 << (at % 8);
        file.write_all_at(&[sound[at] ^ bit], at as u64).unwrap();
        let found = world.newest().unwrap();
        assert_eq!(found.number, 1, "byte {at}");
        assert!(found.damaged[0].contains(SHARD), "{:?}", found.damaged);
        file.write_all_at(&sound[at..=at], at as u64).unwrap();
    }
    assert_eq!(world.newest().unwrap().number, 2);
}

#[test]
fn a_checksum_that_differs_is_said() {
    passed_over(SHARD, "checksum", |path| {
        let mut bytes = fs::read(path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(path, bytes).unwrap();
    });
}

#[test]
fn a_file_that_is_gone() {
    passed_over(SHARD, "cannot be read", |path| {
        fs::remove_file(path).unwrap()
    });
    // It does not matter to blocks of other files.
    let world = World::new();
    let states = world.snapshot(1, 2);
    fs::remove_file(world.folder.snapshot(&world.run, 1).join(SHARD)).unwrap();
    let placement = Placement::by_bytes(&world.layout, 2);
    let own: Vec<_> = placement.blocks(ShardId(0)).collect();
    let read = read::blocks(&world.folder, &world.run, 1, &own, &world.layout, SLOTS).unwrap();
    let want: Vec<_> = own.iter().map(|id| states[id.0 as usize].clone()).collect();
    same(&read, &want);
}

#[test]
fn a_file_in_the_place_of_another() {
    passed_over(SHARD, "where", |path| {
        fs::copy(path.with_file_name("shard-0000.safetensors"), path).unwrap();
    });
}

#[test]
fn a_manifest_that_was_torn_or_edited() {
    let manifest = "manifest.json";
    let cut = |left: fn(usize) -> usize| {
        move |path: &PathBuf| {
            let bytes = fs::read(path).unwrap();
            fs::write(path, &bytes[..left(bytes.len())]).unwrap();
        }
    };
    passed_over(manifest, "cut off", cut(|_| 0));
    passed_over(manifest, "cut off", cut(|_| 50));
    passed_over(manifest, "cut off", cut(|_| 90));
    passed_over(manifest, "cut off", cut(|length| length / 2));
    passed_over(manifest, "cut off", cut(|length| length - 1));
    passed_over(manifest, "checksum", |path| {
        let text = fs::read_to_string(path).unwrap();
        fs::write(path, text.replace("\"versions\": [", "\"versions\":  [")).unwrap();
    });
}

#[test]
fn a_manifest_of_something_else() {
    let edit = |from: &'static str, to: &'static str| {
        move |path: &PathBuf| {
            let bytes = fs::read(path).unwrap();
            let json = crate::disk::check_checksum(&bytes).unwrap();
            let json = std::str::from_utf8(json).unwrap();
            assert!(json.contains(from), "{json}");
            let edited = json.replacen(from, to, 1);
            fs::write(path, crate::disk::with_checksum(edited.as_bytes())).unwrap();
        }
    };
    let manifest = "manifest.json";
    passed_over(manifest, "format 9", edit("\"format\": 1", "\"format\": 9"));
    passed_over(
        manifest,
        "snapshot 7",
        edit("\"number\": 2", "\"number\": 7"),
    );
    passed_over(
        manifest,
        "run other",
        edit("\"run\": \"run-1\"", "\"run\": \"other\""),
    );
    passed_over(manifest, "not a manifest", edit("\"files\"", "\"fules\""));
    passed_over(manifest, "no file name", edit("shard-0001", "../shard"));
    passed_over(
        manifest,
        "shard 8",
        edit("\"shards\": [\n    0", "\"shards\": [\n    8"),
    );
}

/// A file that is sound by its checksum, with blocks that do not fit the run.
#[test]
fn blocks_that_do_not_fit() {
    let refused = |what: &str, change: &dyn Fn(&mut Vec<BlockState>), slots: usize| {
        let world = World::new();
        let mut states = world.states(1);
        change(&mut states);
        let (folder, run) = (&world.folder, &world.run);
        let file = write::shard(folder, run, 1, ShardId(0), &states).unwrap();
        let placement = Placement::by_bytes(&world.layout, 1);
        manifest::write(folder, &world.manifest(1, vec![file], &placement)).unwrap();
        let read = read::blocks(folder, run, 1, &world.all(), &world.layout, slots);
        let text = read.unwrap_err().to_string();
        assert!(text.contains(what), "{text}");
    };
    let pop = |states: &mut Vec<BlockState>| {
        Arc::make_mut(&mut states[0].values).pop();
        for slot in &mut states[0].slots {
            Arc::make_mut(slot).pop();
        }
    };
    refused("block 0 has", &pop, SLOTS);
    refused(
        "block 3 is missing",
        &|states| drop(states.remove(3)),
        SLOTS,
    );
    refused("has 2 optimizer slots where 1", &|_| {}, 1);
    refused(
        "has 1 optimizer slots where 2",
        &|states| drop(states[0].slots.pop()),
        SLOTS,
    );
    let world = World::new();
    world.snapshot(1, 1);
    let few = Layout::new(&[world.layout.tensors[0].spec.clone()], 40).unwrap();
    let read = read::blocks(&world.folder, &world.run, 1, &[BlockId(0)], &few, SLOTS);
    assert!(read.unwrap_err().to_string().contains("blocks, the run 1"));
}

/// Files that have the checksum of the manifest, and yet are not what this program writes.
#[test]
fn files_that_nobody_should_have_written() {
    let world = World::new();
    world.snapshot(1, 2);
    let (folder, run) = (&world.folder, &world.run);
    let sound: Manifest<Vec<String>> = manifest::read(folder, run, 1).unwrap();
    let refused = |changed: &Manifest<Vec<String>>, what: &str| {
        manifest::write(folder, changed).unwrap();
        let text = world.newest().unwrap_err().to_string();
        assert!(text.contains(what), "{text}");
    };
    let mut swapped = sound.clone();
    swapped.files.reverse();
    refused(&swapped, "its shard is 1, not 0");

    let path = folder.snapshot(run, 1).join(SHARD);
    let mut bytes = fs::read(&path).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let block = Placement::by_bytes(&world.layout, 2)
        .blocks(ShardId(1))
        .next();
    let name = format!("block.{}.values", block.unwrap());
    let at = file.tensor(&name).unwrap().data().as_ptr() as usize - bytes.as_ptr() as usize;
    bytes[at..at + 4].copy_from_slice(&f32::INFINITY.to_le_bytes());
    fs::write(&path, &bytes).unwrap();
    let mut infinite = sound;
    infinite.files[1].digest = blake3::hash(&bytes).to_hex().to_string();
    refused(&infinite, "not finite");
}

#[test]
fn values_that_are_not_finite_are_not_written() {
    let world = World::new();
    let mut states = world.states(1);
    Arc::make_mut(&mut states[2].values)[1] = f32::NAN;
    let error = write::shard(&world.folder, &world.run, 1, ShardId(0), &states).unwrap_err();
    assert_eq!(error.to_string(), "block 2 has a value that is not finite");
    assert!(world.folder.numbers(&world.run).unwrap().is_empty());
}

/// All files of a snapshot that was interrupted before its manifest change nothing.
#[test]
fn an_interrupted_snapshot_leaves_the_former_one() {
    let world = World::new();
    let before = world.snapshot(1, 2);
    let (folder, run) = (&world.folder, &world.run);
    write::shard(folder, run, 2, ShardId(0), &world.states(2)).unwrap();
    let within = folder.snapshot(run, 2);
    fs::write(within.join("shard-0001.safetensors.part"), b"half").unwrap();
    fs::write(within.join("manifest.json.part"), b"half").unwrap();
    let found = world.newest().unwrap();
    assert_eq!((found.number, found.damaged.len()), (1, 0));
    same(&found.states, &before);
    // Taken again, what was left behind is in nobody's way.
    let after = world.snapshot(2, 2);
    same(&world.newest().unwrap().states, &after);
}
