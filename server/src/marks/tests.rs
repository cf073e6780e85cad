use std::cell::Cell;
use std::io::{BufRead, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::thread;

use super::file::PAGE;
use super::*;

const HOLDER: (ServerId, ShardId) = (ServerId(1), ShardId(2));

/// Where a child of these tests notes.
const CHILD: &str = "TRADEWIND_MARKS_OF_CHILD";

fn run() -> RunId {
    RunId::new("marked").unwrap()
}

fn here() -> Boot {
    Boot::parse("01234567-89ab-cdef-0123-456789abcdef").unwrap()
}

/// The machine after it was started again, or another one.
fn elsewhere() -> Boot {
    Boot::parse("fedcba98-7654-3210-fedc-ba9876543210").unwrap()
}

fn blocks(of: std::ops::Range<u32>) -> Vec<BlockId> {
    of.map(|block| BlockId(3 * block)).collect()
}

fn open(folder: &Path, of: std::ops::Range<u32>) -> Marks {
    Marks::open(folder, &run(), HOLDER, &blocks(of), here()).unwrap()
}

fn mark(lineage: u64, version: u64, samples: u64) -> Mark {
    Mark::of([lineage, version, samples])
}

fn at_most(lineage: u64, version: u64, samples: u64) -> Mark {
    Mark {
        exact: false,
        ..mark(lineage, version, samples)
    }
}

/// What all holders had, and no problem.
fn all(folder: &Path, boot: Boot) -> Vec<(u32, Mark)> {
    let (marks, problems) = read_all(folder, &run(), &[], u64::MAX, &boot).unwrap();
    assert!(problems.is_empty(), "{problems:?}");
    marks.into_iter().map(|(id, mark)| (id.0, mark)).collect()
}

fn file(folder: &Path) -> PathBuf {
    path(folder, &run(), HOLDER)
}

#[test]
fn marks_only_rise_and_are_kept_for_the_next_life() {
    let folder = tempfile::tempdir().unwrap();
    // (lineage, version, samples) as it is noted; what is there then.
    let cases = [
        ((1, 5, 50), (1, 5, 50)),
        ((1, 4, 90), (1, 5, 50)),
        ((1, 5, 60), (1, 5, 60)),
        ((1, 5, 55), (1, 5, 60)),
        ((1, 6, 70), (1, 6, 70)),
        ((3, 2, 20), (3, 2, 20)),
        ((2, 9, 99), (3, 2, 20)),
        ((3, 3, 30), (3, 3, 30)),
    ];
    for life in 0..2 {
        let mut marks = open(folder.path(), 0..4);
        for ((lineage, version, samples), (l, v, s)) in cases {
            marks.note(2, lineage, version, samples);
            let there = match life {
                0 => mark(l, v, s),
                _ => mark(3, 3, 30),
            };
            assert_eq!(marks.noted(2), there, "{lineage} {version} {samples}");
            assert_eq!(all(folder.path(), here()), [(6, there)]);
        }
        assert!(marks.told().is_empty());
    }
}

/// As a shard and the thread that raises its ceilings do, so that ThreadSanitizer sees them at it.
#[test]
fn ceilings_are_raised_while_marks_are_noted() {
    let folder = tempfile::tempdir().unwrap();
    let mut marks = open(folder.path(), 0..2);
    let reserve = marks.reserve();
    marks.note(1, 1, 1, 8);
    let noted = AtomicU64::new(1);
    thread::scope(|scope| {
        let raises = scope.spawn(|| {
            for _ in 0..50 {
                let version = noted.load(Ordering::Acquire);
                reserve.ahead().unwrap();
                assert!(reserve.0.covers(mark(1, version, 8 * version)), "{version}");
            }
        });
        for version in (2..).take_while(|_| !raises.is_finished()) {
            marks.note(1, 1, version, 8 * version);
            noted.store(version, Ordering::Release);
        }
    });
}

#[test]
fn the_highest_of_all_holders_counts() {
    let folder = tempfile::tempdir().unwrap();
    let noted = [
        // (server, shard), blocks, place, mark
        ((0, 0), 0..2, 0, (1, 9, 90)),
        ((1, 0), 0..2, 0, (2, 4, 40)),
        ((2, 0), 0..2, 0, (2, 5, 30)),
        ((2, 1), 2..4, 1, (1, 1, 10)),
    ];
    for ((server, shard), of, place, (lineage, version, samples)) in noted {
        let holder = (ServerId(server), ShardId(shard));
        let mut marks = Marks::open(folder.path(), &run(), holder, &blocks(of), here()).unwrap();
        marks.note(place, lineage, version, samples);
    }
    let highest = [(0, mark(2, 5, 30)), (9, mark(1, 1, 10))];
    assert_eq!(all(folder.path(), here()), highest);
    let (before, _) = read_all(folder.path(), &run(), &[], 2, &here()).unwrap();
    let of = [(ServerId(0), ShardId(0)), (ServerId(9), ShardId(0))];
    let (of, _) = read_of(folder.path(), &run(), &of, 2, &here());
    let of: Vec<_> = of.into_iter().map(|(id, mark)| (id.0, mark)).collect();
    assert_eq!(of, [(0, mark(1, 9, 90))]);
    let before: Vec<_> = before.into_iter().map(|(id, mark)| (id.0, mark)).collect();
    assert_eq!(before, [(0, mark(1, 9, 90)), (9, mark(1, 1, 10))]);
    assert_eq!(last_lineage(folder.path(), &run()).unwrap(), 2);
    let other = RunId::new("other").unwrap();
    assert_eq!(last_lineage(folder.path(), &other).unwrap(), 0);
    let none = read_all(folder.path(), &other, &[], u64::MAX, &here()).unwrap();
    assert_eq!(none, (BTreeMap::new(), Vec::new()));
    remove(folder.path(), &run()).unwrap();
    remove(folder.path(), &run()).unwrap();
    assert_eq!(all(folder.path(), here()), []);
}

/// Goes through lineages, each a few updates lower than the one before, and says what it has noted.
fn note_until_killed(folder: &Path) {
    let mut marks = open(folder, 0..50);
    for step in 0u64.. {
        let (lineage, version) = (1 + step / 20, 100 + step % 20);
        for index in 0..50 {
            marks.note(index, lineage, version, version * 7);
        }
        println!("noted {lineage} {version}");
    }
}

#[test]
fn a_process_that_is_killed_leaves_just_what_it_noted() {
    if let Some(folder) = std::env::var_os(CHILD) {
        return note_until_killed(Path::new(&folder));
    }
    for lines in [1, 7, 40, 333, 1234, 5000] {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture"])
            .arg("marks::tests::a_process_that_is_killed_leaves_just_what_it_noted")
            .env(CHILD, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut told = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut told = told.by_ref().map(Result::unwrap).filter_map(|line| {
            let numbers = line.split_once("noted ")?.1.to_owned();
            let (lineage, version) = numbers.split_once(' ')?;
            Some((lineage.parse::<u64>().ok()?, version.parse::<u64>().ok()?))
        });
        let mut last = told.nth(lines).expect("it notes");
        child.kill().unwrap();
        child.wait().unwrap();
        // What was on its way.
        last = told.last().unwrap_or(last);
        let order = |(lineage, version)| lineage * 20 + version;
        let marks = all(folder.path(), here());
        assert_eq!(marks.len(), 50);
        for (block, mark) in marks {
            // It was killed before it said so, perhaps between the two.
            let ahead = mark.samples - mark.version * 7;
            assert!(ahead == 0 || ahead == 7, "block {block}: {mark:?}");
            let next = order((mark.lineage, mark.version)) - order(last);
            assert!(mark.exact && next <= 1, "block {block}: {mark:?}, {last:?}");
        }
    }
}

thread_local! {
    /// Stores until this thread's process is as if killed.
    static STORES_LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Called before each store.
pub(super) fn count_store() {
    STORES_LEFT.with(|left| match left.get() {
        Some(0) => panic!("killed"),
        some => left.set(some.map(|left| left - 1)),
    });
}

/// Whether what is done with the marks came to its end with so many stores.
fn dies_after(stores: u32, act: impl FnOnce()) -> bool {
    STORES_LEFT.set(Some(stores));
    let ended = catch_unwind(AssertUnwindSafe(act));
    STORES_LEFT.set(None);
    ended.is_err()
}

#[test]
fn wherever_a_note_is_cut_off_no_claim_is_too_low() {
    // The mark that was answered, and the one that is cut off.
    let cases = [
        (mark(1, 5, 50), mark(1, 6, 60)),
        (mark(1, 6, 60), mark(2, 3, 30)),
        (mark(1, 6, 60), mark(2, 9, 90)),
    ];
    for (before, after) in cases {
        let (mut stores, mut claims) = (0, Vec::new());
        loop {
            let folder = tempfile::tempdir().unwrap();
            let mut marks = open(folder.path(), 0..3);
            // There was another change before.
            marks.note(0, 7, 8, 9);
            marks.note(1, before.lineage, before.version, before.samples);
            let note = || _ = marks.note(1, after.lineage, after.version, after.samples);
            let died = dies_after(stores, note);
            let claim = all(folder.path(), here())[1].1;
            assert!(
                claim >= before
                    && claim <= after
                    && claim.version <= before.version.max(after.version),
                "{stores}: {claim:?}"
            );
            if before.lineage < after.lineage {
                assert!(claim == before || claim == after, "{stores}: {claim:?}");
            }
            // So does the next life, however often it is killed as well.
            for stores in 0..4 {
                dies_after(stores, || _ = open(folder.path(), 0..3));
            }
            let mut next = open(folder.path(), 0..3);
            assert_eq!(next.noted(1), claim, "{stores}");
            next.note(2, 9, 1, 1);
            let last = [(0, mark(7, 8, 9)), (3, claim), (6, mark(9, 1, 1))];
            assert_eq!(all(folder.path(), here()), last, "{stores}");
            claims.push(claim);
            stores += 1;
            if !died {
                break;
            }
        }
        assert!(claims.len() > 2 && claims[0] == before && claims.ends_with(&[after]));
    }
}

#[test]
fn where_the_machine_died_the_ceiling_counts() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path());
    let mut marks = open(folder.path(), 0..2);
    assert!(!marks.note(0, 1, 0, 0), "nothing is reserved yet");
    marks.note(1, 1, 0, 0);
    marks.reserve_ahead().unwrap();
    // What is on the disk when the machine dies; it may have noted up to the ceiling.
    let synced = fs::read(&path).unwrap();
    let mut covered = 0;
    while marks.note(0, 1, covered + 1, covered + 1) {
        covered += 1;
    }
    assert_eq!(covered, AHEAD_MIN);
    fs::write(&path, &synced).unwrap();
    let ceiling = at_most(1, AHEAD_MIN, AHEAD_MIN);
    assert_eq!(
        all(folder.path(), elsewhere()),
        [(0, ceiling), (3, ceiling)]
    );

    // The same machine knows better.
    let exact = [(0, mark(1, 0, 0)), (3, mark(1, 0, 0))];
    assert_eq!(all(folder.path(), here()), exact);
}

/// Some calls of a timer, and so many updates of so many samples between them.
#[test]
fn the_ceiling_keeps_ahead_of_what_is_noted() {
    let folder = tempfile::tempdir().unwrap();
    let mut marks = open(folder.path(), 0..5);
    let reserve = marks.reserve();
    let (mut version, mut samples) = (1000, 32_000);
    for index in 0..5 {
        marks.note(index, 4, version, samples);
    }
    reserve.ahead().unwrap();
    for (second, updates) in [10, 10, 20, 30, 60, 3, 0, 40].into_iter().enumerate() {
        for _ in 0..updates {
            (version, samples) = (version + 1, samples + 32);
            for index in 0..5 {
                assert!(marks.note(index, 4, version, samples), "second {second}");
            }
        }
        reserve.ahead().unwrap();
        let died = read_all(folder.path(), &run(), &[], u64::MAX, &elsewhere())
            .unwrap()
            .0;
        for (block, claim) in died {
            let ahead = claim.version - version;
            assert!(!claim.exact && claim.lineage == 4);
            assert!(
                ahead <= AHEAD_MIN.max(AHEAD_FACTOR * 60),
                "block {block}: {ahead}"
            );
            assert!(claim.samples - samples <= 32 * AHEAD_MIN.max(AHEAD_FACTOR * 60));
        }
    }
    // A restore goes back.
    assert!(
        !marks.note(0, 5, 900, 28_800),
        "of that lineage nothing is reserved"
    );
    reserve.ahead().unwrap();
    assert!(marks.note(0, 5, 901, 28_832));
    // The rest has not come so far, and may have before anybody looks.
    let died = read_all(folder.path(), &run(), &[], u64::MAX, &elsewhere())
        .unwrap()
        .0;
    assert!(
        died.values()
            .all(|claim| claim.lineage == 5 && claim.version >= 901)
    );
}

#[test]
fn what_is_settled_is_exact_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let noted = [(0, mark(1, 7, 70)), (3, mark(1, 8, 80))];
    let mut marks = open(folder.path(), 0..2);
    marks.note(0, 1, 7, 70);
    marks.note(1, 1, 8, 80);
    marks.reserve_ahead().unwrap();
    assert!(
        all(folder.path(), elsewhere())
            .iter()
            .all(|(_, mark)| !mark.exact)
    );
    // Killed; its next life has it, and can say so to everybody.
    drop(marks);
    let marks = open(folder.path(), 0..2);
    assert_eq!(all(folder.path(), elsewhere()), noted);
    marks.reserve_ahead().unwrap();
    assert_ne!(all(folder.path(), elsewhere()), noted);
    marks.close().unwrap();
    assert_eq!(all(folder.path(), elsewhere()), noted);
}

#[test]
fn the_life_after_the_machines_death_keeps_what_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let mut marks = open(folder.path(), 0..2);
    marks.note(0, 1, 7, 70);
    marks.reserve_ahead().unwrap();
    let claims = all(folder.path(), elsewhere());
    let mut next = Marks::open(folder.path(), &run(), HOLDER, &blocks(0..2), elsewhere()).unwrap();
    assert!(next.told()[0].contains("marks-1"), "{:?}", next.told());
    assert_eq!(all(folder.path(), elsewhere()), claims);
    assert_eq!(next.noted(0), mark(0, 0, 0));
    next.note(0, 2, 3, 30);
    let highest = [(0, mark(2, 3, 30)), claims[1]];
    assert_eq!(all(folder.path(), elsewhere()), highest);
}

#[test]
fn a_file_of_other_blocks_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    for (step, of) in [0..3, 1..3, 1..4].into_iter().enumerate() {
        let mut marks = open(folder.path(), of.clone());
        assert_eq!(marks.told().len(), usize::from(step > 0));
        assert_eq!(marks.noted(0), mark(0, 0, 0));
        marks.note(0, 1, step as u64 + 1, 10);
    }
    let highest = [(0, mark(1, 1, 10)), (3, mark(1, 3, 10))];
    assert_eq!(all(folder.path(), here()), highest);
}

#[test]
fn a_damaged_file_is_named_and_kept() {
    fn spoilt(at: usize) -> impl Fn(Vec<u8>) -> Vec<u8> {
        move |mut bytes| {
            bytes[at] ^= 1;
            bytes
        }
    }
    type Spoil = Box<dyn Fn(Vec<u8>) -> Vec<u8>>;
    let cases: [(&str, Spoil); 7] = [
        ("is not a file of marks", Box::new(spoilt(3))),
        ("has format", Box::new(spoilt(8))),
        ("header is damaged", Box::new(spoilt(16))),
        ("header is damaged", Box::new(spoilt(3 * PAGE))),
        (
            "is cut off",
            Box::new(|bytes: Vec<u8>| bytes[..bytes.len() - 1].to_vec()),
        ),
        ("is not a file of marks", Box::new(|_| Vec::new())),
        (
            "reservation is damaged",
            Box::new(|bytes| spoilt(2 * PAGE)(spoilt(PAGE)(bytes))),
        ),
    ];
    for (what, spoil) in cases {
        let folder = tempfile::tempdir().unwrap();
        let path = file(folder.path());
        let mut marks = open(folder.path(), 0..3);
        marks.note(0, 1, 7, 70);
        marks.reserve_ahead().unwrap();
        drop(marks);
        let bad = spoil(fs::read(&path).unwrap());
        fs::write(&path, &bad).unwrap();
        let named = |name: &str| {
            let (marks, problems) =
                read_all(folder.path(), &run(), &[], u64::MAX, &here()).unwrap();
            assert_eq!(problems.len(), 1, "{what}: {problems:?}");
            let told = problems[0].contains(what) && problems[0].contains(name);
            assert!(told, "{what}: {problems:?}");
            marks
        };
        assert_eq!(named("shard-2.marks:"), BTreeMap::new());

        let mut marks = open(folder.path(), 0..3);
        assert!(marks.told()[0].contains(what), "{:?}", marks.told());
        marks.note(0, 1, 1, 10);
        assert_eq!(
            named("shard-2.marks-1:"),
            [(BlockId(0), mark(1, 1, 10))].into()
        );
        assert_eq!(fs::read(path.with_extension("marks-1")).unwrap(), bad);
    }
}

/// The later of the two was half-written when the machine died: the one before it holds.
#[test]
fn a_torn_reservation_leaves_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path());
    let mut marks = open(folder.path(), 0..1);
    marks.note(0, 1, 5, 50);
    marks.reserve_ahead().unwrap();
    let before = all(folder.path(), elsewhere());
    let first = fs::read(&path).unwrap();
    marks.note(0, 1, 20, 200);
    marks.reserve_ahead().unwrap();
    let mut torn = fs::read(&path).unwrap();
    // The marks themselves were not written back.
    torn[entries_at(1)..].copy_from_slice(&first[entries_at(1)..]);
    let page = (1..3).find(|page| torn[page * PAGE..][..PAGE] != first[page * PAGE..][..PAGE]);
    torn[page.unwrap() * PAGE + 40] ^= 1;
    fs::write(&path, &torn).unwrap();
    assert_eq!(all(folder.path(), elsewhere()), before);
}

#[test]
fn without_a_place_there_are_no_marks_and_an_error_says_where() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("marks"), "").unwrap();
    let opened = Marks::open(folder.path(), &run(), HOLDER, &blocks(0..1), here());
    let error = opened.unwrap_err().to_string();
    assert!(error.contains("/marks"), "{error}");
    // What cannot be read is not overwritten.
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(file(folder.path())).unwrap();
    let opened = Marks::open(folder.path(), &run(), HOLDER, &blocks(0..1), here());
    let error = opened.unwrap_err().to_string();
    assert!(error.contains("shard-2.marks"), "{error}");
    let (_, problems) = read_all(folder.path(), &run(), &[], u64::MAX, &here()).unwrap();
    assert_eq!(problems.len(), 1, "{problems:?}");
}

#[test]
fn this_machine_knows_its_boot() {
    assert_ne!(Boot::of_this_machine(), Boot::UNKNOWN);
    assert_eq!(Boot::of_this_machine(), Boot::of_this_machine());
    assert_eq!(Boot::parse("0123"), None);
    // Where it is not known, every machine is another one.
    let folder = tempfile::tempdir().unwrap();
    let opened = Marks::open(folder.path(), &run(), HOLDER, &blocks(0..1), Boot::UNKNOWN);
    let mut marks = opened.unwrap();
    marks.note(0, 1, 5, 50);
    marks.reserve_ahead().unwrap();
    assert!(!all(folder.path(), Boot::UNKNOWN)[0].1.exact);
}
