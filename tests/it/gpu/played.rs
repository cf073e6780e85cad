//! A test's process beside the libraries that play GPUs.

use std::ffi::CStr;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::raw::{c_char, c_int};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::OnceLock;

use libloading::os::unix::{Library, Symbol};
use tradewind_tests::cluster::{root, wait_for};

/// How many GPUs there are; also says to a process that it is the one beside them.
const COUNT: &str = "FAKE_GPUS";
/// Where libtorch is, as the worker's build has found it.
pub const LIBTORCH: Option<&str> = option_env!("LIBTORCH_FOLDER");
/// Begins a line that says what a test did not try.
const SKIPPED: &str = "skipped: ";

/// Runs `scenario` in another process of this program, in which two GPUs are played and nothing has used
/// them yet. `test` is the path of the test that calls, and does nothing else: that process runs it again.
pub fn played(test: &str, scenario: impl FnOnce(&Gpus)) {
    let all = |_: &str| true;
    apart(test, all, || scenario(&Gpus(())));
}

/// The same beside CUDA's real runtime, which finds no GPU. Every library that is loaded has all its symbols
/// bound at once.
pub fn bound_at_once(test: &str, scenario: impl FnOnce()) {
    let stand_in = |library: &str| !library.starts_with("libcudart");
    apart(test, stand_in, scenario);
}

/// The other process, beside those of the libraries that `wanted` names.
fn apart(test: &str, wanted: impl Fn(&str) -> bool, scenario: impl FnOnce()) {
    if std::env::var_os(COUNT).is_some() {
        return scenario();
    }
    let libraries = match libraries() {
        Ok(libraries) => libraries,
        Err(why) => return skip(&format!("{test}: {why}")),
    };
    let files = std::fs::read_dir(libraries)
        .unwrap()
        .map(|file| file.unwrap());
    let files = files.filter(|file| wanted(file.file_name().to_str().unwrap()));
    let preload = files.fold(String::new(), |mut all, file| {
        write!(all, "{}:", file.path().display()).unwrap();
        all
    });
    let output = tempfile::tempfile().unwrap();
    let own = std::env::current_exe().unwrap();
    let mut command = Command::new(own);
    command
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env("LD_PRELOAD", preload)
        .env("LD_BIND_NOW", "1")
        .env(COUNT, "2")
        .stdout(output.try_clone().unwrap())
        .stderr(output.try_clone().unwrap());
    let mut process = Process {
        child: command.spawn().unwrap(),
        output,
    };
    let ended = wait_for(&format!("{test} beside GPUs that are played"), || {
        process.child.try_wait().unwrap()
    });
    assert!(ended.success(), "{ended}");
    let told = process.told();
    assert!(told.contains("1 passed"), "there is no test {test}");
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

/// Ends with the test, whatever becomes of that; a test that fails shows what it printed.
struct Process {
    child: Child,
    output: File,
}

impl Process {
    fn told(&mut self) -> String {
        let mut told = String::new();
        self.output.rewind().unwrap();
        self.output.read_to_string(&mut told).unwrap();
        told
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            println!("{}", self.told());
        }
    }
}

/// The folder of the libraries, built once; or why there are none.
fn libraries() -> Result<&'static Path, String> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let torch = LIBTORCH.ok_or("the worker has told no libtorch")?;
        if !Path::new(torch).join("libtorch_cuda.so").is_file() {
            return Err(format!("the libtorch in {torch} is one without CUDA"));
        }
        // Each test's process maps them, and is slow to read them from a disk piece by piece.
        for library in ["libtorch_cpu.so", "libtorch_cuda.so"] {
            let mut library = File::open(Path::new(torch).join(library)).unwrap();
            std::io::copy(&mut library, &mut std::io::sink()).unwrap();
        }
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gpu");
        let script = root().join("tests/fake/gpu/build.sh");
        let built = Command::new(script).arg(torch).arg(&folder).output();
        let built = built.unwrap();
        let told = String::from_utf8_lossy(&built.stderr).trim().to_owned();
        match built.status.code() {
            Some(0) => Ok(folder),
            Some(77) => Err(told),
            _ => panic!("{told}"),
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
#[derive(Clone, PartialEq, Eq)]
pub struct Call {
    /// The system's number of the thread that made it.
    pub thread: i32,
    /// The current device of that thread.
    pub device: i32,
    /// Its name, or that of a kernel.
    pub function: String,
    /// The device that it is about, as its stream or event or it itself says.
    pub about: Option<usize>,
    /// The number of its stream, which is 0 for the default one of a device.
    pub stream: i32,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            thread,
            device,
            function,
            about,
            stream,
        } = self;
        write!(
            f,
            "{function} (thread {thread}, on GPU {device}, about {about:?}, stream {stream})"
        )
    }
}

/// The GPUs of this process.
#[derive(Clone, Copy)]
pub struct Gpus(());

impl Gpus {
    fn function<T>(&self, name: &str) -> Symbol<T> {
        // SAFETY: those who call name the type that tests/fake/gpu gives the function.
        let found = unsafe { Library::this().get(name.as_bytes()) };
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
            about: usize::try_from(noted.about).ok(),
            stream: noted.stream,
        };
        noted.into_iter().map(call).collect()
    }

    /// The devices that have a context, each with the call that has made it.
    pub fn contexts(&self) -> Vec<(usize, String)> {
        type Ask = unsafe extern "C" fn(c_int, *mut c_int) -> *const c_char;
        let ask = self.function::<Ask>("fake_context");
        let function = |device: usize| {
            let mut thread = 0;
            // SAFETY: its type is that, there are two devices, and the names of functions are there for good.
            let name = unsafe {
                let name = ask(device as c_int, &mut thread);
                (!name.is_null()).then(|| CStr::from_ptr(name))?
            };
            Some((device, name.to_string_lossy().into_owned()))
        };
        (0..2).filter_map(function).collect()
    }
    /// Communicators of NCCL are formed when each has been asked so often whether it is.
    pub fn nccl_forms_after(&self, polls: u32) {
        let form = self.function::<unsafe extern "C" fn(c_int)>("fake_nccl_forms_after");
        // SAFETY: its type is that.
        unsafe { form(polls as c_int) }
    }

    /// Communicators of NCCL are never formed.
    pub fn nccl_never_forms(&self) {
        // SAFETY: its type is that.
        unsafe { self.function::<unsafe extern "C" fn()>("fake_nccl_never_forms")() }
    }

    /// NCCL finds out that a peer is gone: communicators that are formed by now say so when they are asked.
    pub fn nccl_peer_dies(&self) {
        // SAFETY: its type is that.
        unsafe { self.function::<unsafe extern "C" fn()>("fake_nccl_peer_dies")() }
    }
}
