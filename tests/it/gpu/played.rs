//! A test's process beside the libraries that play GPUs.

use std::ffi::CStr;
use std::fmt::Write as _;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::raw::{c_char, c_int};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::OnceLock;

use libloading::os::unix::{Library, Symbol};
use tradewind_tests::cluster::{root, wait_for};

/// How many GPUs there are; also says to a process that it is the one beside them.
const COUNT: &str = "FAKE_GPUS";
/// Begins a line that says what a test did not try.
const SKIPPED: &str = "skipped: ";

/// Runs `scenario` in another process of this program, in which two GPUs are played and nothing has used
/// them yet. `test` is the path of the test that calls, and does nothing else: that process runs it again.
pub fn played(test: &str, scenario: impl FnOnce(&Gpus)) {
    if std::env::var_os(COUNT).is_some() {
        return scenario(&Gpus::of_this_process());
    }
    let libraries = match libraries() {
        Ok(libraries) => libraries,
        Err(why) => return skip(&format!("{test}: {why}")),
    };
    let files = std::fs::read_dir(libraries).unwrap();
    let preload = files.fold(String::new(), |mut all, file| {
        write!(all, "{}:", file.unwrap().path().display()).unwrap();
        all
    });
    let mut output = tempfile::tempfile().unwrap();
    let own = std::env::current_exe().unwrap();
    let mut command = Command::new(own);
    command
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env("LD_PRELOAD", preload)
        .env(COUNT, "2")
        .stdout(output.try_clone().unwrap())
        .stderr(output.try_clone().unwrap());
    let mut child = Killed(command.spawn().unwrap());
    let ended = wait_for(&format!("{test} beside GPUs that are played"), || {
        child.0.try_wait().unwrap()
    });
    let mut told = String::new();
    output.rewind().unwrap();
    output.read_to_string(&mut told).unwrap();
    assert!(ended.success(), "{ended}\n{told}");
    assert!(told.contains("1 passed"), "there is no test {test}\n{told}");
    for line in told.lines() {
        if let Some(what) = line.strip_prefix(SKIPPED) {
            skip(what);
        }
    }
}

/// Says that something was not tried, where it is read also of a test that passes.
pub fn skip(what: &str) {
    // On a line of its own, past the name of the test.
    let line = format!("\n{SKIPPED}{what}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// Ends with the test, whatever becomes of that.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The folder of the libraries, built once; or why there are none.
fn libraries() -> Result<&'static Path, String> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let torch = option_env!("LIBTORCH_FOLDER").ok_or("the worker has told no libtorch")?;
        if !Path::new(torch).join("libtorch_cuda.so").is_file() {
            return Err(format!("the libtorch in {torch} is one without CUDA"));
        }
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gpu");
        // Another process may use those that it has built.
        let folder = folder.join(std::process::id().to_string());
        let script = root().join("tests/fake/gpu/build.sh");
        let built = Command::new(script).arg(torch).arg(&folder).output();
        let built = built.unwrap();
        let told = String::from_utf8_lossy(&built.stderr).into_owned();
        if built.status.success() {
            Ok(folder)
        } else {
            Err(told)
        }
    });
    built.as_deref().map_err(Clone::clone)
}

/// A call that was noted: `struct fake_call` of tests/fake/gpu/gpu.h.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Noted {
    thread: c_int,
    device: c_int,
    function: *const c_char,
    about: c_int,
    stream: c_int,
    event: c_int,
    times: c_int,
}

/// A call of CUDA's or NCCL's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The system's number of the thread that made it.
    pub thread: i32,
    /// The current device of that thread.
    pub device: i32,
    /// Its name, or that of a kernel.
    pub function: String,
    /// The device that it is about, as its stream or event or it itself says.
    pub about: Option<i32>,
}

/// The GPUs of this process.
pub struct Gpus(Library);

impl Gpus {
    fn of_this_process() -> Self {
        Self(Library::this())
    }

    fn function<T>(&self, name: &str) -> Symbol<T> {
        // SAFETY: those who call name the type that tests/fake/gpu gives the function.
        let found = unsafe { self.0.get(name.as_bytes()) };
        found.unwrap_or_else(|error| panic!("{error}"))
    }

    /// What was called since the process began, or since it was last forgotten. A call that a thread repeats
    /// is there once.
    pub fn calls(&self) -> Vec<Call> {
        let ask = self.function::<unsafe extern "C" fn(*mut Noted, usize) -> usize>("fake_calls");
        // SAFETY: as many are told as there is room for, which is none at first.
        let count = unsafe { ask(std::ptr::null_mut(), 0) };
        let mut noted = Vec::with_capacity(count);
        // SAFETY: so many there are at least, and are written.
        unsafe {
            ask(noted.as_mut_ptr(), count);
            noted.set_len(count);
        }
        let call = |noted: Noted| Call {
            thread: noted.thread,
            device: noted.device,
            // SAFETY: the names of functions and kernels are there for good.
            function: unsafe { CStr::from_ptr(noted.function) }
                .to_string_lossy()
                .into_owned(),
            about: (noted.about >= 0).then_some(noted.about),
        };
        noted.into_iter().map(call).collect()
    }

    /// The devices that have a context.
    pub fn contexts(&self) -> Vec<usize> {
        let thread = self.function::<unsafe extern "C" fn(c_int) -> c_int>("fake_context");
        // SAFETY: its type is that, and there are two devices.
        (0..2)
            .filter(|device| unsafe { thread(*device as c_int) } != 0)
            .collect()
    }
}
