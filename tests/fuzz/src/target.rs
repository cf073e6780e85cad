//! A target of fuzzing as a test: what it replays, what it draws, and what it keeps of an input that fails.

use std::cell::Cell;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, thread};

use bolero::{BorrowedInput, ByteSliceGenerator, DefaultEngine, TestTarget, produce};

use crate::{Changed, memory};

/// Seconds of drawing inputs, and how many are drawn at most. Without both nothing is drawn: what is replayed is the
/// same each time.
const SECONDS: &str = "TRADEWIND_FUZZ_SECONDS";
const COUNT: &str = "TRADEWIND_FUZZ_COUNT";

/// The file to which each target adds a line: its name, inputs that were replayed, inputs that were drawn, and `ok` or
/// `FAILED`.
const TOLD: &str = "TRADEWIND_FUZZ_TOLD";

/// Turns in which each example is replayed.
const TURNS: u64 = 8;

/// Most memory for one input, bytes, where a target sets no other limit. Inputs are a few kB.
const BYTES_MAX: usize = 64 << 20;

/// By which inputs are drawn.
pub type Engine = TestTarget<ByteSliceGenerator, DefaultEngine, BorrowedInput>;

/// What a target chooses besides the bytes: a number of which it takes one choice after the other.
#[derive(Clone, Copy, Debug)]
pub struct Turn(u64);

impl Turn {
    /// A choice out of so many.
    pub fn below(&mut self, end: u64) -> u64 {
        let chosen = self.0 % end;
        self.0 /= end;
        chosen
    }

    /// Whether it is so.
    pub fn flip(&mut self) -> bool {
        self.below(2) == 1
    }

    /// What is left.
    pub fn rest(self) -> u64 {
        self.0
    }
}

/// This test as a target, with these examples.
#[macro_export]
macro_rules! target {
    ($examples:expr) => {{
        fn here() {}
        $crate::Target::new(
            std::any::type_name_of_val(&here),
            (env!("CARGO_MANIFEST_DIR"), env!("CARGO_TARGET_TMPDIR")),
            bolero::check!(),
            $crate::changed($examples),
        )
    }};
}

/// What is fuzzed by one test.
pub struct Target {
    /// The test's module and name.
    name: String,
    /// The input that is being tried, in the form of the corpus. Should the process end it is still there.
    trying: PathBuf,
    corpus: PathBuf,
    engine: Engine,
    inputs: Changed,
    bytes_max: usize,
}

impl Target {
    /// See [`target!`](crate::target).
    pub fn new(
        within: &str,
        (package, scratch): (&str, &str),
        engine: Engine,
        inputs: Changed,
    ) -> Self {
        let mut path: Vec<&str> = within.split("::").skip(1).collect();
        path.pop();
        let folder: PathBuf = path.iter().collect();
        Self {
            name: path.join("::"),
            trying: Path::new(scratch).join("fuzz").join(&folder).join("trying"),
            corpus: Path::new(package).join("corpus").join(&folder),
            engine,
            inputs,
            bytes_max: BYTES_MAX,
        }
    }

    /// The same where right inputs may take as much memory as this.
    #[must_use]
    pub fn within(self, bytes_max: usize) -> Self {
        Self { bytes_max, ..self }
    }

    /// Gives all inputs to `check`, which panics where one has done harm.
    pub fn each(self, check: impl Fn(&[u8], Turn)) {
        let corpus = files(&self.corpus);
        let tried = Tried::new(self.name, self.trying);
        let one = |turn: u64, bytes: &[u8]| {
            let trying = tried.begin(turn, bytes);
            let most = memory::most(|| check(bytes, Turn(turn)));
            assert!(
                most <= self.bytes_max,
                "{most} bytes of memory for an input"
            );
            trying.end();
        };
        for example in self.inputs.examples() {
            for turn in 0..TURNS {
                one(turn, example);
                tried.replayed.set(tried.replayed.get() + 1);
            }
        }
        for path in corpus {
            let (turn, bytes) = from_corpus(&path);
            one(turn, &bytes);
            tried.replayed.set(tried.replayed.get() + 1);
        }
        let (seconds, count) = (number(SECONDS), number(COUNT));
        let mut engine = self.engine;
        engine = match (seconds, count) {
            (None, None) => return,
            (Some(seconds), _) => engine.with_test_time(Duration::from_secs(seconds)),
            (None, Some(_)) => engine,
        };
        if let Some(count) = count {
            engine = engine.with_iterations(usize::try_from(count).expect("a number of inputs"));
        }
        let drawn = AssertUnwindSafe((one, &tried));
        engine
            .with_generator((produce::<u64>(), self.inputs))
            .for_each(move |(turn, bytes)| {
                let (one, tried) = &*drawn;
                one(*turn, bytes);
                tried.drawn.set(tried.drawn.get() + 1);
            });
    }
}

/// Inputs that were found before, by name.
fn files(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = files.map(|file| file.expect("a name").path()).collect();
    paths.sort();
    paths
}

/// An input of the corpus: the turn as 8 bytes, the lowest first, and the bytes.
fn from_corpus(path: &Path) -> (u64, Vec<u8>) {
    let file = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let Some((turn, bytes)) = file.split_first_chunk() else {
        panic!("{} is shorter than a turn", path.display());
    };
    (u64::from_le_bytes(*turn), bytes.to_vec())
}

fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable} is no number")),
    )
}

/// What a target has tried.
struct Tried {
    name: String,
    path: PathBuf,
    file: File,
    replayed: Cell<u64>,
    drawn: Cell<u64>,
    /// Length of the shortest input that failed.
    found: Cell<Option<usize>>,
}

impl Tried {
    fn new(name: String, path: PathBuf) -> Self {
        let folder = path.parent().expect("a file is in a folder");
        fs::create_dir_all(folder).expect("a folder");
        let file = File::create(&path).expect("a file");
        Self {
            name,
            path,
            file,
            replayed: Cell::new(0),
            drawn: Cell::new(0),
            found: Cell::new(None),
        }
    }

    fn begin(&self, turn: u64, bytes: &[u8]) -> Trying<'_> {
        let input = [&turn.to_le_bytes()[..], bytes].concat();
        let written = self.file.write_all_at(&input, 0);
        let cut = written.and_then(|()| self.file.set_len(input.len() as u64));
        cut.expect("it is written");
        Trying(self, Some(input))
    }
}

impl Drop for Tried {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        let Ok(told) = env::var(TOLD) else { return };
        let end = if thread::panicking() { "FAILED" } else { "ok" };
        let line = format!(
            "{} {} {} {end}\n",
            self.name,
            self.replayed.get(),
            self.drawn.get()
        );
        let file = OpenOptions::new().append(true).create(true).open(told);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        if let Err(error) = written {
            eprintln!("{TOLD}: {error}");
        }
    }
}

/// An input that is being tried. Of those that fail the shortest is kept: the engine looks for a shorter one.
struct Trying<'a>(&'a Tried, Option<Vec<u8>>);

impl Trying<'_> {
    /// It did no harm.
    fn end(mut self) {
        self.1 = None;
    }
}

impl Drop for Trying<'_> {
    fn drop(&mut self) {
        let (tried, Some(input)) = (self.0, self.1.take()) else {
            return;
        };
        if tried.found.get().is_some_and(|least| least <= input.len()) {
            return;
        }
        tried.found.set(Some(input.len()));
        let path = tried.path.with_file_name("found");
        match fs::write(&path, input) {
            Ok(()) => eprintln!("the input is in {}", path.display()),
            Err(error) => eprintln!("the input cannot be kept in {}: {error}", path.display()),
        }
    }
}
