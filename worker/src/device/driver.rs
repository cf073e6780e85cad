//! What NVIDIA's driver shows. It is asked without CUDA's headers or libraries: a machine may have
//! it or not.

use std::ffi::{CStr, c_char, c_int, c_uint};

use libloading::Library;

/// The driver's library, under the name that every version of it has.
pub const DRIVER: &str = "libcuda.so.1";

/// What a node shows of GPUs, as `CUDA_VISIBLE_DEVICES` lets this process see them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// There is no driver, or it has no device.
    None {
        /// Which of them, in the system's words.
        why: String,
    },
    /// A driver that cannot tell.
    Failing {
        /// What it says.
        why: String,
    },
    /// At least one.
    Gpus {
        /// By their numbers.
        gpus: Vec<Gpu>,
        /// The newest CUDA that the driver serves: major, minor.
        cuda: (u32, u32),
    },
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Such as `NVIDIA H200`.
    pub name: String,
    /// The same for every process that sees it.
    pub uuid: [u8; 16],
}

impl Seen {
    /// All that are there.
    pub fn gpus(&self) -> &[Gpu] {
        match self {
            Self::Gpus { gpus, .. } => gpus,
            Self::None { .. } | Self::Failing { .. } => &[],
        }
    }
}

/// Asks the driver in the library of this name or path.
pub fn see(driver: &str) -> Seen {
    // SAFETY: NVIDIA's library may be initialised at any time.
    let library = match unsafe { Library::new(driver) } {
        Ok(library) => library,
        Err(error) => {
            let why = format!("no NVIDIA driver: {error}");
            return Seen::None { why };
        }
    };
    let seen = ask(&library);
    // A driver has threads; libtorch uses the same one, too.
    std::mem::forget(library);
    seen.unwrap_or_else(|refused| match refused {
        Refused::Call(_, STUB | NO_DEVICE, _) => Seen::None {
            why: refused.to_string(),
        },
        refused => Seen::Failing {
            why: refused.to_string(),
        },
    })
}

/// Lets threads sleep that wait for what a GPU does, instead of spinning a core each: a rank waits through
/// most of a step, and others may need the core. To be told before the process uses the GPU.
///
/// # Errors
/// The driver's words.
pub fn sleep_in_waits(driver: &str, number: usize) -> Result<(), String> {
    // CU_CTX_SCHED_BLOCKING_SYNC of cuda.h.
    const SLEEP: c_uint = 4;
    // SAFETY: as in `see`; the signatures are those of cuda.h since CUDA 11.
    unsafe {
        let set = || -> Result<c_int, libloading::Error> {
            let library = std::mem::ManuallyDrop::new(Library::new(driver)?);
            let get =
                library.get::<unsafe extern "C" fn(*mut c_int, c_int) -> c_int>(b"cuDeviceGet")?;
            let set = library.get::<unsafe extern "C" fn(c_int, c_uint) -> c_int>(
                b"cuDevicePrimaryCtxSetFlags_v2",
            )?;
            let mut device = 0;
            Ok(match get(&mut device, number as c_int) {
                SUCCESS => set(device, SLEEP),
                error => error,
            })
        };
        match set() {
            Ok(SUCCESS) => Ok(()),
            Ok(error) => Err(format!("error {error}")),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Results of the driver: cuda.h.
const SUCCESS: c_int = 0;
/// The library is the one to link against, not a driver.
const STUB: c_int = 34;
const NO_DEVICE: c_int = 100;

/// Bytes for a device's name; longer ones are cut by the driver.
const NAME_BYTES: usize = 256;

/// Why the driver told nothing.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("{0}: {2} (error {1})")]
    Call(&'static str, c_int, String),
    #[error("{0}")]
    Symbol(#[from] libloading::Error),
}

fn ask(library: &Library) -> Result<Seen, Refused> {
    // SAFETY: of all calls in this block the signatures are those of cuda.h, which have not changed
    // since CUDA 11.4, and every pointer is to memory of the size that the function is told.
    unsafe {
        let text = library
            .get::<unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int>(b"cuGetErrorString")?;
        let check = |what, result| {
            if result == SUCCESS {
                return Ok(());
            }
            let mut words = std::ptr::null();
            let told = text(result, &mut words) == SUCCESS && !words.is_null();
            let words = if told {
                CStr::from_ptr(words).to_string_lossy().into_owned()
            } else {
                "unknown".into()
            };
            Err(Refused::Call(what, result, words))
        };
        let init = library.get::<unsafe extern "C" fn(c_uint) -> c_int>(b"cuInit")?;
        check("cuInit", init(0))?;
        let number = |what: &'static str, name: &[u8]| {
            let get = library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(name)?;
            let mut number = 0;
            check(what, get(&mut number))?;
            Ok::<_, Refused>(number)
        };
        let version = number("cuDriverGetVersion", b"cuDriverGetVersion")?.unsigned_abs();
        let count = number("cuDeviceGetCount", b"cuDeviceGetCount")?;
        if count < 1 {
            let why = "NVIDIA's driver shows no device (is CUDA_VISIBLE_DEVICES empty?)".into();
            return Ok(Seen::None { why });
        }
        let get =
            library.get::<unsafe extern "C" fn(*mut c_int, c_int) -> c_int>(b"cuDeviceGet")?;
        let get_name = library
            .get::<unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int>(b"cuDeviceGetName")?;
        let get_uuid = library
            .get::<unsafe extern "C" fn(*mut [u8; 16], c_int) -> c_int>(b"cuDeviceGetUuid_v2")?;
        let gpu = |number| {
            let mut device = 0;
            check("cuDeviceGet", get(&mut device, number))?;
            let mut name = [0 as c_char; NAME_BYTES];
            let result = get_name(name.as_mut_ptr(), NAME_BYTES as c_int - 1, device);
            check("cuDeviceGetName", result)?;
            let mut uuid = [0; 16];
            check("cuDeviceGetUuid", get_uuid(&mut uuid, device))?;
            // The last byte has stayed zero.
            let name = CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned();
            Ok::<_, Refused>(Gpu { name, uuid })
        };
        Ok(Seen::Gpus {
            gpus: (0..count).map(gpu).collect::<Result<_, _>>()?,
            cuda: (version / 1000, version % 1000 / 10),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::double::driver;
    use super::*;

    #[test]
    fn a_driver_is_asked() {
        let folder = tempfile::tempdir().unwrap();
        let check = |count: i32, init: i32| see(&driver(folder.path(), count, init));
        let Seen::Gpus { gpus, cuda } = check(2, 0) else {
            panic!("two GPUs");
        };
        let names: Vec<_> = gpus.iter().map(|gpu| gpu.name.as_str()).collect();
        assert_eq!(names, ["Double 0", "Double 1"]);
        assert_eq!((gpus[1].uuid[0], gpus[1].uuid[15]), (1, 99));
        assert_eq!(cuda, (12, 4));

        let none = |seen, want: &str| {
            let Seen::None { why } = seen else {
                panic!("{seen:?}");
            };
            assert!(why.contains(want), "{why}");
        };
        none(check(2, NO_DEVICE), "cuInit: words of 100 (error 100)");
        none(check(2, STUB), "words of 34");
        none(check(0, 0), "no device");
        none(see("libcuda.so.none"), "libcuda.so.none: cannot open");

        let path = driver(folder.path(), 2, 0);
        sleep_in_waits(&path, 1).unwrap();
        // SAFETY: a function of the double's.
        let flags = unsafe {
            let library = Library::new(&path).unwrap();
            let of = library.get::<unsafe extern "C" fn(c_int) -> c_uint>(b"flags_of");
            let of = of.unwrap();
            [of(0), of(1)]
        };
        assert_eq!(flags, [0, 4]);
        assert_eq!(sleep_in_waits(&path, 2), Err("error 101".into()));

        let Seen::Failing { why } = check(2, 802) else {
            panic!("a driver that is not ready is no absent one");
        };
        assert_eq!(why, "cuInit: words of 802 (error 802)");
    }
}
