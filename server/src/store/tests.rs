//! One coordinator acts, whatever the order in which several write, claim, list and read.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;

use tempfile::TempDir;

use super::*;

type Interference = (Step, Box<dyn FnOnce()>);

thread_local! {
    static NEXT: RefCell<Option<Interference>> = const { RefCell::new(None) };
}

/// Does what was arranged for this step, once.
pub(super) fn interfere(step: Step) {
    let taken = NEXT.with_borrow_mut(|next| next.take_if(|(at, _)| *at == step));
    if let Some((_, act)) = taken {
        act();
    }
}

fn arrange(step: Step, act: impl FnOnce() + 'static) {
    NEXT.set(Some((step, Box::new(act))));
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn claim(folder: &TempDir) -> Claimed {
    Store::claim(folder.path()).unwrap()
}

/// The state that was taken over.
fn former(claimed: &Claimed) -> Option<&[u8]> {
    claimed.former.as_ref().map(|written| &written.state[..])
}

fn names(folder: &TempDir) -> BTreeSet<String> {
    let within = folder.path().join("coordinator");
    disk::names(&within).unwrap().into_iter().collect()
}

#[track_caller]
fn deposed(result: Result<(), StoreError>, want: u64) {
    match result {
        Err(StoreError::Deposed { by }) => assert_eq!(by, Incarnation(want)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_state_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder();
    let claimed = claim(&folder);
    claimed.store.write(b"\"one\"").unwrap();
    let mode = |name: &str| {
        let metadata = fs::metadata(folder.path().join(name)).unwrap();
        metadata.permissions().mode() & 0o777
    };
    assert_eq!(mode("coordinator"), 0o700);
    for name in ["state-1.json", "journal-1-1.json"] {
        assert_eq!(mode(&format!("coordinator/{name}")), 0o600, "{name}");
    }
}

#[test]
fn the_state_passes_from_one_to_the_next() {
    let folder = folder();
    let first = claim(&folder);
    assert_eq!((first.incarnation, former(&first)), (Incarnation(1), None));
    first.store.write(b"\"one\"").unwrap();
    first.store.write(b"\"two\"").unwrap();
    let second = claim(&folder);
    assert_eq!(second.incarnation, Incarnation(2));
    assert_eq!(former(&second), Some(&b"\"two\""[..]));
    // One that never wrote anything leaves the state of the one before.
    let third = claim(&folder);
    assert_eq!(third.incarnation, Incarnation(3));
    assert_eq!(third.former, second.former);
    let path = folder.path().join("coordinator/state-1.json");
    let json: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    assert_eq!(json["content"]["state"], "two", "it is JSON for everybody");
}

#[test]
fn a_later_claim_deposes() {
    let folder = folder();
    let old = claim(&folder);
    old.store.write(b"1").unwrap();
    old.store.check().unwrap();
    let new = claim(&folder);
    deposed(old.store.check(), 2);
    // It could not know before it wrote. What it wrote is never acted upon, nor read.
    deposed(old.store.write(b"2"), 2);
    deposed(old.store.write(b"3"), 2);
    assert_eq!(former(&new), Some(&b"1"[..]));
    new.store.write(b"4").unwrap();
    deposed(old.store.publish_address("old:1"), 2);
    assert_eq!(former(&claim(&folder)), Some(&b"4"[..]));
}

#[test]
fn a_former_one_that_writes_after_a_claim_does_not_act() {
    let folder = folder();
    let old = claim(&folder).store;
    old.write(b"1").unwrap();
    arrange(Step::Claimed, move || deposed(old.write(b"2"), 2));
    // It was not acted upon, so either state will do.
    let former = claim(&folder).former.unwrap().state;
    assert!([&b"1"[..], b"2"].contains(&&former[..]));
}

#[test]
fn a_claim_before_the_claims_are_listed_is_seen() {
    let folder = std::rc::Rc::new(folder());
    let old = claim(&folder).store;
    let shared = folder.clone();
    arrange(Step::Written, move || drop(claim(&shared)));
    deposed(old.write(b"1"), 2);
}

#[test]
fn a_number_that_is_taken_meanwhile_is_not_taken_twice() {
    let folder = std::rc::Rc::new(folder());
    let shared = folder.clone();
    arrange(Step::Numbered, move || {
        assert_eq!(claim(&shared).incarnation, Incarnation(1));
    });
    assert_eq!(claim(&folder).incarnation, Incarnation(2));
}

/// Such a one finds no state, for those below its number are deleted; that is no fresh fleet.
#[test]
fn a_claimer_that_is_overtaken_is_deposed_at_once() {
    let folder = std::rc::Rc::new(folder());
    claim(&folder).store.write(b"1").unwrap();
    let shared = folder.clone();
    arrange(Step::Claimed, move || {
        for state in [b"3", b"4"] {
            claim(&shared).store.write(state).unwrap();
        }
    });
    deposed(Store::claim(folder.path()).map(drop), 4);
    assert!(!names(&folder).contains("state-1.json"));
}

#[test]
fn claimers_at_once_get_different_numbers() {
    let folder = folder();
    let claim = || match Store::claim(folder.path()) {
        Ok(claimed) => Some(claimed),
        Err(StoreError::Deposed { .. }) => None,
        Err(error) => panic!("{error}"),
    };
    let claimed: Vec<Claimed> = std::thread::scope(|threads| {
        let started: Vec<_> = (0..8).map(|_| threads.spawn(claim)).collect();
        let claimed = started
            .into_iter()
            .filter_map(|thread| thread.join().unwrap());
        claimed.collect()
    });
    let claims: BTreeSet<_> = (1..=8).map(|number| format!("claim-{number}")).collect();
    assert_eq!(names(&folder), claims);
    let numbers: BTreeSet<_> = claimed.iter().map(|one| one.incarnation).collect();
    assert_eq!(numbers.len(), claimed.len());
    assert_eq!(numbers.last(), Some(&Incarnation(8)));
    for one in &claimed {
        match one.incarnation {
            Incarnation(8) => one.store.write(b"0").unwrap(),
            _ => deposed(one.store.write(b"0"), 8),
        }
    }
}

/// The whole point: what a coordinator was allowed to act upon, the next one has read. Each counts
/// on from what it finds and acts, on memory that all share, only after it could write.
#[test]
fn nothing_acted_upon_is_lost_however_they_meet() {
    let folder = folder();
    let acted = Mutex::new(0u64);
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                for _ in 0..15 {
                    let acted_before = *acted.lock().unwrap();
                    let (store, former) = match Store::claim(folder.path()) {
                        Ok(claimed) => (claimed.store, claimed.former),
                        Err(StoreError::Deposed { .. }) => continue,
                        Err(error) => panic!("{error}"),
                    };
                    let last = former.map(|written| {
                        let last = written.changes.last().unwrap_or(&written.state).clone();
                        String::from_utf8(last).unwrap()
                    });
                    let mut count: u64 = last.map_or(0, |last| last.parse().unwrap());
                    assert!(count >= acted_before, "{count} < {acted_before}: forgotten");
                    for _ in 0..10 {
                        count += 1;
                        let state = count.to_string();
                        let written = match store.takes_changes() && !count.is_multiple_of(4) {
                            true => store.append(state.as_bytes()),
                            false => store.write(state.as_bytes()),
                        };
                        match written {
                            Ok(()) => {
                                let mut acted = acted.lock().unwrap();
                                *acted = count.max(*acted);
                            }
                            Err(StoreError::Deposed { .. }) => break,
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            });
        }
    });
    assert!(*acted.lock().unwrap() > 0);
}

#[test]
fn a_damaged_state_is_named_and_nothing_older_is_taken() {
    let folder = folder();
    let path = folder.path().join("coordinator/state-2.json");
    claim(&folder).store.write(b"{\"older\":1}").unwrap();
    let running = claim(&folder);
    running.store.write(b"{\"newer\":2}").unwrap();
    let sound = fs::read(&path).unwrap();
    let refused = |bytes: &[u8]| {
        // In place: a file that is cut to nothing and written anew goes to the disk each time.
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file.set_len(bytes.len() as u64).unwrap();
        let error = Store::claim(folder.path()).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("state-2.json"), "{text}");
        assert!(text.contains("--resume"), "the way out: {text}");
    };
    for left in 0..sound.len() {
        refused(&sound[..left]);
    }
    for at in 0..sound.len() {
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << (at % 8);
        refused(&bytes);
    }
    assert!(
        !names(&folder).contains("claim-3"),
        "one that cannot start deposes nobody"
    );
    running.store.write(b"{\"newer\":3}").unwrap();
    assert_eq!(former(&claim(&folder)), Some(&b"{\"newer\":3}"[..]));
}

#[test]
fn what_has_changed_is_behind_the_state() {
    let folder = folder();
    let first = claim(&folder).store;
    assert!(!first.takes_changes(), "there is no state");
    first.write(b"{\"a\":1}").unwrap();
    for change in [b"{\"b\":2}", b"{\"c\":3}"] {
        assert!(first.takes_changes());
        first.append(change).unwrap();
    }
    let written = claim(&folder).former.unwrap();
    assert_eq!(written.state, b"{\"a\":1}");
    assert_eq!(written.changes, [b"{\"b\":2}", b"{\"c\":3}"]);
    deposed(first.append(b"{\"d\":4}"), 2);
    // What it wrote was never acted upon.
    assert_eq!(claim(&folder).former.unwrap().changes.len(), 3);

    let last = claim(&folder).store;
    last.write(b"{\"a\":2}").unwrap();
    let long = format!("\"{}\"", "x".repeat(JOURNAL_BYTES_MIN as usize));
    last.append(long.as_bytes()).unwrap();
    assert!(
        !last.takes_changes(),
        "the state had better be written again"
    );
    last.write(b"{\"a\":3}").unwrap();
    let journals = |names: BTreeSet<String>| -> Vec<String> {
        let journal = |name: &String| name.starts_with("journal");
        names.into_iter().filter(journal).collect()
    };
    let kept = journals(names(&folder));
    assert_eq!(kept, ["journal-1-1.json", "journal-4-2.json"]);
    let written = claim(&folder).former.unwrap();
    assert_eq!(
        (&written.state[..], written.changes.len()),
        (&b"{\"a\":3}"[..], 0)
    );
}

#[test]
fn a_former_one_that_says_what_has_changed_after_a_claim_does_not_act() {
    let folder = folder();
    let old = claim(&folder).store;
    old.write(b"1").unwrap();
    arrange(Step::Claimed, move || deposed(old.append(b"2"), 2));
    assert!(claim(&folder).former.unwrap().changes.len() <= 1);
    let folder = std::rc::Rc::new(self::folder());
    let old = claim(&folder).store;
    old.write(b"1").unwrap();
    let shared = folder.clone();
    arrange(Step::Written, move || drop(claim(&shared)));
    deposed(old.append(b"2"), 2);
}

#[test]
fn a_journal_that_is_damaged_or_missing_is_named() {
    let folder = folder();
    let store = claim(&folder).store;
    store.write(b"1").unwrap();
    store.append(b"2").unwrap();
    store.append(b"3").unwrap();
    let path = folder.path().join("coordinator/journal-1-1.json");
    let sound = fs::read(&path).unwrap();
    let refused = |wanted: &str| {
        let error = Store::claim(folder.path()).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        let text = error.to_string();
        for wanted in [wanted, "journal-1-1.json", "--resume"] {
            assert!(text.contains(wanted), "{text}");
        }
    };
    let mut damaged = sound.clone();
    damaged[90] ^= 1;
    fs::write(&path, damaged).unwrap();
    refused("of change 1 in it");
    fs::remove_file(&path).unwrap();
    refused("it is missing");
    fs::write(&path, &sound[..sound.len() - 1]).unwrap();
    assert_eq!(claim(&folder).former.unwrap().changes, [b"2"]);
}

#[test]
fn a_state_of_before_there_were_journals_is_read() {
    let folder = folder();
    let within = folder.path().join("coordinator");
    disk::create_folders(&within).unwrap();
    fs::write(within.join("claim-1"), b"").unwrap();
    let state = disk::with_checksum(b"{\"servers\":{}}");
    fs::write(within.join("state-1.json"), state).unwrap();
    assert_eq!(former(&claim(&folder)), Some(&b"{\"servers\":{}}"[..]));
}

#[test]
fn the_state_before_is_kept_and_older_ones_go() {
    let folder = folder();
    for number in 1..=4u64 {
        claim(&folder)
            .store
            .write(number.to_string().as_bytes())
            .unwrap();
    }
    let left = folder.path().join("coordinator/state-4.json.part");
    fs::write(&left, b"half").unwrap();
    claim(&folder).store.write(b"5").unwrap();
    let states = |names: BTreeSet<String>| -> Vec<String> {
        names
            .into_iter()
            .filter(|name| name.starts_with("state"))
            .collect()
    };
    let kept = ["state-4.json", "state-4.json.part", "state-5.json"];
    assert_eq!(states(names(&folder)), kept);
    claim(&folder).store.write(b"6").unwrap();
    assert_eq!(states(names(&folder)), ["state-5.json", "state-6.json"]);
    // Numbers go on when somebody has tidied the claims away.
    for name in names(&folder)
        .iter()
        .filter(|name| name.starts_with("claim"))
    {
        fs::remove_file(folder.path().join("coordinator").join(name)).unwrap();
    }
    assert_eq!(claim(&folder).incarnation, Incarnation(7));
}

#[test]
fn the_address_is_the_latest_coordinators() {
    let folder = folder();
    let read = || read_address(folder.path()).unwrap();
    assert_eq!(read(), None);
    let first = claim(&folder);
    first.store.publish_address("a:1").unwrap();
    first.store.publish_address("b:2").unwrap();
    let address = |incarnation, address: &str| Address {
        incarnation: Incarnation(incarnation),
        address: address.into(),
    };
    assert_eq!(read(), Some(address(1, "b:2")));
    let second = claim(&folder);
    deposed(first.store.publish_address("a:1"), 2);
    second.store.publish_address("c:3").unwrap();
    assert_eq!(read(), Some(address(2, "c:3")));
    // Even if the claim were not seen.
    fs::remove_file(folder.path().join("coordinator/claim-2")).unwrap();
    deposed(first.store.publish_address("a:1"), 2);
    assert_eq!(read(), Some(address(2, "c:3")));

    let path = folder.path().join("coordinator/address.json");
    fs::write(&path, "{\"incarn").unwrap();
    let error = read_address(folder.path()).unwrap_err().to_string();
    assert!(error.contains("address.json"), "{error}");
    second.store.publish_address("c:3").unwrap();
    assert_eq!(read(), Some(address(2, "c:3")));
}

#[test]
fn who_is_stuck_with_the_address_stops_nobody_for_good() {
    let folder = folder();
    let one = claim(&folder);
    let path = folder.path().join("coordinator/address.lock");
    let lock = fs::File::create(path).unwrap();
    lock.lock().unwrap();
    let error = one.store.publish_address("a:1").unwrap_err();
    assert!(matches!(error, StoreError::Disk { .. }), "{error}");
    drop(lock);
    one.store.publish_address("a:1").unwrap();
}

/// As on NFS, whose clients keep listings for a while: new files are not in them, and deleted ones are.
#[test]
fn where_listings_lag_behind_names_count() {
    let folder = folder();
    let first = claim(&folder);
    first.store.write(b"1").unwrap();
    disk::tests::freeze(&folder.path().join("coordinator"));
    let mut before = first.store;
    for number in 2..=5u64 {
        let next = claim(&folder);
        assert_eq!(next.incarnation, Incarnation(number));
        let state = (number - 1).to_string();
        assert_eq!(former(&next), Some(state.as_bytes()));
        deposed(before.check(), number);
        deposed(before.write(b"0"), number);
        next.store.write(number.to_string().as_bytes()).unwrap();
        // Which is listed all the same.
        let _ = fs::remove_file(folder.path().join("coordinator/state-1.json"));
        before = next.store;
    }
    assert_eq!(Store::look(folder.path()).unwrap().unwrap().state, b"5");
}

/// On a disk that fails, what could not be written cannot be deleted either.
#[test]
fn what_failed_writes_leave_is_in_nobodys_way() {
    let folder = folder();
    let store = claim(&folder).store;
    let within = folder.path().join("coordinator");
    for name in ["state-1.json", "address.json"] {
        fs::write(within.join(format!("{name}.part")), b"half").unwrap();
        for number in 1..1000 {
            fs::write(within.join(format!("{name}.part-{number}")), b"half").unwrap();
        }
    }
    store.write(b"1").unwrap();
    store.publish_address("a:1").unwrap();
}
