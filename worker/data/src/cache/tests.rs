use std::process::Command;
use std::sync::atomic::AtomicUsize;

use super::*;

const LIMITED: &str = "TRADEWIND_TEST_SMALL_FILES";

/// A folder with files of these lengths, `0` and so on, and one for the cache.
fn files(lengths: &[usize]) -> (tempfile::TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    let write = |(number, length): (usize, &usize)| {
        let path = folder.path().join(number.to_string());
        std::fs::write(&path, content(number, *length)).unwrap();
        path
    };
    let paths = lengths.iter().enumerate().map(write).collect();
    (folder, paths)
}

fn content(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + number) as u8).collect()
}

/// A budget for so many files of one length.
fn room(files: u64, length: u64) -> u64 {
    BLOCK + files * cost(length)
}

fn cache_in(folder: &tempfile::TempDir, bytes: u64) -> Cache {
    Cache::open(&folder.path().join("cache"), bytes)
}

fn names(cache: &Cache, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(cache.folder()).into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|other| other == ending))
        .collect()
}

fn taken(cache: &Cache) -> u64 {
    let entries = std::fs::read_dir(cache.folder()).unwrap();
    entries
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum()
}

/// So that the times of use of two copies differ.
fn later() {
    std::thread::sleep(Duration::from_millis(12));
}

#[test]
fn a_file_is_copied_once_and_a_changed_one_again() {
    let (folder, paths) = files(&[3_000_000, 0]);
    let cache = cache_in(&folder, 1 << 30);
    for (number, (path, length)) in paths.iter().zip([3_000_000, 0]).enumerate() {
        for _ in 0..3 {
            let held = cache.file(path).unwrap();
            assert!(held.is_copy() && held.path().starts_with(cache.folder()));
            assert_eq!(std::fs::read(held.path()).unwrap(), content(number, length));
        }
    }
    let counts = cache.counts();
    assert_eq!((counts.files_copied, counts.bytes_copied), (2, 3_000_000));
    assert_eq!((counts.hits, counts.at_origin, counts.damaged), (4, 0, 0));
    assert!(counts.copying_seconds > 0.0);
    // Another process does not copy it again, and neither does one that comes by a link.
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&paths[0], &link).unwrap();
    let other = cache_in(&folder, 1 << 30);
    other.file(&link).unwrap();
    assert_eq!((other.counts().files_copied, other.counts().hits), (0, 1));
    later();
    std::fs::write(&paths[0], content(9, 3_000_000)).unwrap();
    // Who has read it before goes on with what it was.
    let held = cache.file(&paths[0]).unwrap();
    assert_eq!(std::fs::read(held.path()).unwrap(), content(0, 3_000_000));
    let other = cache_in(&folder, 1 << 30);
    let held = other.file(&paths[0]).unwrap();
    assert_eq!(std::fs::read(held.path()).unwrap(), content(9, 3_000_000));
    assert_eq!(other.counts().files_copied, 1);
    assert!(names(&cache, "part").is_empty());
}

#[test]
fn what_was_not_used_for_longest_goes_first_and_what_is_in_use_stays() {
    let (folder, paths) = files(&[10_000; 5]);
    let budget = room(3, 10_000);
    let cache = cache_in(&folder, budget);
    let is_there = |number: usize| {
        let known = cache.known(&paths[number]).unwrap();
        cache.at(&known, "copy").exists()
    };
    for number in [0, 1, 2, 0] {
        cache.file(&paths[number]).unwrap();
        later();
        assert!(taken(&cache) <= budget);
    }
    let first = cache.file(&paths[1]).unwrap();
    later();
    // Some more than is needed is made free: 2 goes, and 0.
    drop(cache.file(&paths[3]).unwrap());
    assert!(!is_there(2) && is_there(1) && is_there(3));
    later();
    let (third, zeroth) = (
        cache.file(&paths[3]).unwrap(),
        cache.file(&paths[0]).unwrap(),
    );
    assert!([&first, &third, &zeroth].iter().all(|held| held.is_copy()));
    assert_eq!(cache.counts().at_origin, 0);
    for _ in 0..2 {
        let held = cache.file(&paths[4]).unwrap();
        assert!(!held.is_copy());
        assert_eq!(std::fs::read(held.path()).unwrap(), content(4, 10_000));
    }
    assert!(is_there(0) && is_there(1) && is_there(3));
    assert_eq!(cache.counts().at_origin, 2);
    let told = cache.told();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains("/4 is read where it is")
            && told[0].contains("the copies in it are in use; give the cache more"),
        "{told:?}"
    );
    drop(zeroth);
    assert!(cache.file(&paths[4]).unwrap().is_copy());
    assert!(taken(&cache) <= budget && names(&cache, "part").is_empty());
}

#[test]
fn damaged_copies_are_made_anew_by_who_has_not_made_them() {
    let (folder, paths) = files(&[50_000]);
    let check = |damage: &dyn Fn(&Path, &Path)| {
        let cache = cache_in(&folder, 1 << 30);
        cache.file(&paths[0]).unwrap();
        let known = cache.known(&paths[0]).unwrap();
        damage(&cache.at(&known, "copy"), &cache.at(&known, "sum"));
        let other = cache_in(&folder, 1 << 30);
        let held = other.file(&paths[0]).unwrap();
        assert_eq!(std::fs::read(held.path()).unwrap(), content(0, 50_000));
        let counts = other.counts();
        assert_eq!(
            (counts.damaged, counts.files_copied, counts.hits),
            (1, 1, 0)
        );
        assert_eq!(cache.file(&paths[0]).unwrap().path(), held.path());
    };
    check(&|copy, _| {
        let file = File::options().write(true).open(copy).unwrap();
        file.write_all_at(b"x", 40_000).unwrap();
    });
    check(&|copy, _| {
        File::options()
            .write(true)
            .open(copy)
            .unwrap()
            .set_len(7)
            .unwrap()
    });
    check(&|_, sum| std::fs::remove_file(sum).unwrap());
    check(&|_, sum| std::fs::write(sum, "{").unwrap());
}

#[test]
fn what_cannot_be_copied_is_read_where_it_is_and_told_once() {
    let (folder, paths) = files(&[50_000, 60_000]);
    let check = |cache: &Cache, want: &str| {
        for (number, length) in [50_000, 60_000].into_iter().enumerate() {
            let held = cache.file(&paths[number]).unwrap();
            assert!(!held.is_copy() && held.path() == paths[number]);
            assert_eq!(std::fs::read(held.path()).unwrap(), content(number, length));
        }
        let told = cache.told();
        assert!(told.len() == 1 && told[0].contains(want), "{told:?}");
        assert!(
            told[0].contains(&cache.folder().display().to_string()),
            "{told:?}"
        );
        assert_eq!(
            (cache.counts().at_origin, cache.counts().files_copied),
            (2, 0)
        );
    };
    check(
        &cache_in(&folder, 50_000),
        "it has 50000 bytes, and the cache may take 50000; give the cache more",
    );
    check(
        &Cache::open(&paths[0].join("cache"), 1 << 30),
        "Not a directory (os error 20); the folder must be one that can be written",
    );
    check(
        &Cache::open(Path::new("/proc/tradewind"), 1 << 30),
        "the folder must be one that can be written",
    );
    let missing = cache_in(&folder, 1 << 30).file(&folder.path().join("none"));
    let error = missing.unwrap_err().to_string();
    assert!(error.contains("none: No such file"), "{error}");
}

/// One that is larger than a file system in memory has room.
#[test]
fn a_full_disk_is_found_before_anything_is_copied() {
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
        eprintln!("there is no /dev/shm to fill");
        return;
    };
    let (folder, paths) = files(&[10]);
    let disk = rustix::fs::statvfs(memory.path()).unwrap();
    let (all, large) = (disk.f_blocks * disk.f_frsize, folder.path().join("large"));
    File::create(&large)
        .unwrap()
        .set_len(all + (1 << 20))
        .unwrap();
    let cache = Cache::open(memory.path(), u64::MAX / 2);
    let mut copied = 0;
    let going = &mut |bytes| {
        copied += bytes;
        true
    };
    assert!(!cache.file_unless(&large, going).unwrap().unwrap().is_copy());
    assert_eq!((copied, cache.counts().at_origin), (0, 1));
    let told = cache.told();
    assert!(
        told[0].contains("the disk is full (No space left on device (os error 28)); lower"),
        "{told:?}"
    );
    assert!(names(&cache, "part").is_empty() && names(&cache, "copy").is_empty());
    // What was taken for it is given back.
    assert!(cache.account().unwrap().bytes < 1 << 20);
    assert!(cache.file(&paths[0]).unwrap().is_copy());
}

/// A process that may only write small files stands for a disk that fails while it is written.
#[test]
fn a_disk_that_takes_no_more() {
    if std::env::var_os(LIMITED).is_none() {
        let this = std::env::current_exe().unwrap();
        let name = std::thread::current().name().unwrap().to_owned();
        let script = "trap '' XFSZ; ulimit -f 16; exec \"$0\" --exact \"$1\" --nocapture";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(this).arg(name);
        let output = command.env(LIMITED, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.contains("1 passed"),
            "{output:?}"
        );
        return;
    }
    let (folder, paths) = files(&[8000]);
    let large = folder.path().join("large");
    // Written in pieces, so that only the copy is too long.
    std::os::unix::fs::symlink(std::env::current_exe().unwrap(), &large).unwrap();
    let cache = cache_in(&folder, 1 << 40);
    assert!(!cache.file(&large).unwrap().is_copy());
    assert!(
        cache.told()[0].contains("File too large"),
        "{:?}",
        cache.told()
    );
    assert!(names(&cache, "part").is_empty());
    assert!(cache.file(&paths[0]).unwrap().is_copy());
    assert!(cache.account().unwrap().bytes < 1 << 20);
}

#[test]
fn a_file_that_changes_while_it_is_copied_is_an_error() {
    type Change = fn(&Path);
    let changes: [Change; 3] = [
        |path| {
            File::options()
                .append(true)
                .open(path)
                .unwrap()
                .write_all(b"more")
                .unwrap()
        },
        |path| {
            File::options()
                .write(true)
                .open(path)
                .unwrap()
                .set_len(9)
                .unwrap()
        },
        |path| {
            let file = File::options().write(true).open(path).unwrap();
            later();
            file.write_all_at(b"x", 0).unwrap();
        },
    ];
    for change in changes {
        let (folder, paths) = files(&[3 * CHUNK]);
        let cache = cache_in(&folder, 1 << 30);
        let mut calls = 0;
        let read = cache.file_unless(&paths[0], &mut |bytes| {
            calls += usize::from(bytes > 0);
            if calls == 1 && bytes > 0 {
                change(&paths[0]);
            }
            true
        });
        let error = read.unwrap_err().to_string();
        assert!(
            error.contains("/0: it was written since it was read first; let nobody"),
            "{error}"
        );
        assert!(names(&cache, "part").is_empty() && names(&cache, "copy").is_empty());
        // Before it is copied: it is not what it was.
        let error = cache.file(&paths[0]).unwrap_err().to_string();
        assert!(
            error.contains("it was written since it was read first"),
            "{error}"
        );
    }
}

#[test]
fn what_a_killed_process_has_left_is_removed() {
    let (folder, paths) = files(&[10_000; 4]);
    let budget = room(3, 10_000);
    let cache = cache_in(&folder, budget);
    std::fs::create_dir_all(cache.folder()).unwrap();
    let leave = |number: usize| {
        let part = cache.at(&cache.known(&paths[number]).unwrap(), "part");
        std::fs::write(&part, vec![1; 10_000]).unwrap();
        let mut account = cache.account().unwrap();
        let bytes = match account.bytes {
            u64::MAX => BLOCK,
            bytes => bytes,
        };
        account.set(bytes + cost(10_000)).unwrap();
    };
    // One part is of a file that is asked for, the other ones are in the way.
    [0, 1, 2].into_iter().for_each(leave);
    let held = cache.file(&paths[0]).unwrap();
    assert!(held.is_copy());
    assert_eq!(std::fs::read(held.path()).unwrap(), content(0, 10_000));
    let other = cache.file(&paths[3]).unwrap();
    assert!(other.is_copy());
    assert!(names(&cache, "part").is_empty() && taken(&cache) <= budget);
    // A sum that was written before the end.
    let stray = cache.folder().join("stray.sum");
    std::fs::write(&stray, "{}").unwrap();
    drop((held, other));
    for path in &paths {
        cache.file(path).unwrap();
    }
    assert!(!stray.exists());
}

#[test]
fn an_interrupted_copy_leaves_nothing_and_takes_nothing() {
    let (folder, paths) = files(&[3 * CHUNK]);
    let cache = cache_in(&folder, 1 << 30);
    for last in 0..3 {
        let mut told = 0;
        let going = &mut |_| {
            told += 1;
            told <= last
        };
        assert!(cache.file_unless(&paths[0], going).unwrap().is_none());
        assert!(names(&cache, "part").is_empty() && names(&cache, "sum").is_empty());
        assert!(cache.counts() == CacheCounts::default());
    }
    cache.file(&paths[0]).unwrap();
    assert!(cache.account().unwrap().bytes <= room(1, 3 << 20) + BLOCK);
}

#[test]
fn threads_that_want_one_file_copy_it_once() {
    let (folder, paths) = files(&[6 << 20]);
    let caches: Vec<_> = (0..4).map(|_| cache_in(&folder, 1 << 30)).collect();
    let right = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for cache in &caches {
            scope.spawn(|| {
                // It is held to the end: who waits must not wait for that.
                let held = cache.file(&paths[0]).unwrap();
                let is_right = std::fs::read(held.path()).unwrap() == content(0, 6 << 20);
                right.fetch_add(usize::from(is_right), Ordering::SeqCst);
                while right.load(Ordering::SeqCst) < 4 {
                    std::thread::yield_now();
                }
            });
        }
    });
    let copied: u64 = caches.iter().map(|cache| cache.counts().files_copied).sum();
    let hits: u64 = caches.iter().map(|cache| cache.counts().hits).sum();
    assert_eq!((copied, hits), (1, 3));
}

/// While a copy is being made: another process that wants it waits, and one that needs room leaves it alone. Both
/// would end the first one's copy, or have it publish what is torn, if its part were not locked.
#[test]
fn nobody_touches_a_copy_that_is_being_made() {
    let length = 3 * CHUNK;
    let (folder, paths) = files(&[length, length]);
    let budget = room(1, length as u64) + BLOCK;
    let cache = cache_in(&folder, budget);
    let (same, other) = (cache_in(&folder, budget), cache_in(&folder, budget));
    let mut met = false;
    let mut while_copying = |bytes: u64| {
        if bytes > 0 && !met {
            met = true;
            let (mut looks, mut copied) = (0, 0);
            let waited = same.file_unless(&paths[0], &mut |bytes| {
                copied += bytes;
                looks += 1;
                looks <= 3
            });
            assert!(waited.unwrap().is_none());
            assert_eq!(copied, 0, "two processes fill one part");
            let elsewhere = other.file(&paths[1]).unwrap();
            assert!(!elsewhere.is_copy(), "there is no room for another copy");
            assert_eq!(names(&cache, "part").len(), 1);
        }
        true
    };
    let held = cache.file_unless(&paths[0], &mut while_copying);
    let held = held.unwrap().unwrap();
    assert!(met && held.is_copy(), "{:?}", cache.told());
    assert!(std::fs::read(held.path()).unwrap() == content(0, length));
    assert!(same.file(&paths[0]).unwrap().is_copy());
    let counts = |cache: &Cache| (cache.counts().files_copied, cache.counts().hits);
    assert_eq!((counts(&cache), counts(&same)), ((1, 0), (0, 1)));
}
