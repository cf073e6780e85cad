//! The NCCL half of the bridge: a shared library of its own, loaded by those who have a GPU.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::OnceLock;

use super::{C10dError, c_char, c_int, check, ffi};

/// Names the library, instead of the folders beside the program.
pub const VARIABLE: &str = tradewind_common::environment::NCCL;
const FILE: &str = "libtradewind_nccl.so";

/// Why there is no NCCL half.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NcclError {
    /// No such file where it is looked for.
    #[error(
        "a group on GPUs needs {FILE}, which is not in {}; build it with `make nccl`, or set {VARIABLE} to it",
        folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    Missing {
        /// The folders that were searched.
        folders: Vec<PathBuf>,
    },
    /// `TRADEWIND_NCCL` names what is not there.
    #[error("{VARIABLE} is {}, which is no file; unset it, or set it to {FILE}, which `make nccl` builds", file.display())]
    Named {
        /// The file.
        file: PathBuf,
    },
    /// It is there and cannot be used.
    #[error("{} cannot be loaded: {why}; it is loaded after libtorch_cuda, of the libtorch that `make nccl` built it for", file.display())]
    Refused {
        /// The file.
        file: PathBuf,
        /// What the linker or c10d said.
        why: String,
    },
}

/// The NCCL half, loaded for good.
#[derive(Clone, Copy, Debug)]
pub struct Nccl {
    raw: NonNull<ffi::Half>,
}

// SAFETY: a table of functions that is never changed and never freed.
unsafe impl Send for Nccl {}
// SAFETY: as above.
unsafe impl Sync for Nccl {}

impl Nccl {
    /// Loads it at the first call: the file that `TRADEWIND_NCCL` names, or the first that is in
    /// the folder of the program, in `../nccl` or in `../../nccl` beside that. libtorch_cuda has
    /// been loaded before.
    pub fn load() -> Result<Self, NcclError> {
        static LOADED: OnceLock<Result<Nccl, NcclError>> = OnceLock::new();
        let named = std::env::var_os(VARIABLE).map(PathBuf::from);
        let program = std::env::current_exe().unwrap_or_default();
        let load = || Self::open(&find(named, program.parent())?);
        LOADED.get_or_init(load).clone()
    }

    fn open(file: &Path) -> Result<Self, NcclError> {
        let refused = |why: String| NcclError::Refused {
            file: file.into(),
            why,
        };
        let path = CString::new(file.as_os_str().as_bytes());
        let path = path.map_err(|error| refused(error.to_string()))?;
        let mut out = std::ptr::null();
        // SAFETY: the path and the out-pointer outlive the call; the library is our own.
        let opened = unsafe { ffi::tradewind_half_open(path.as_ptr(), &mut out) };
        check("loading", opened).map_err(|error| refused(error.to_string()))?;
        let raw = NonNull::new(out.cast_mut()).expect("made when there is no message");
        Ok(Self { raw })
    }

    pub(super) fn raw(&self) -> *const ffi::Half {
        self.raw.as_ptr()
    }

    /// The NCCL that libtorch has loaded: major, minor, patch.
    pub fn version(&self) -> (u32, u32, u32) {
        // SAFETY: `raw` is live for good.
        let version = unsafe { ffi::tradewind_half_version(self.raw()) } as u32;
        (version / 10_000, version / 100 % 100, version % 100)
    }

    /// The PCI address of a GPU, which is what NCCL tells those of one host apart by.
    pub fn address(&self, device: usize) -> Result<String, C10dError> {
        let mut text: [c_char; 64] = [0; 64];
        let length = text.len() as c_int;
        // SAFETY: `raw` is live for good; as many bytes are told as there are.
        check("asking for a GPU's address", unsafe {
            ffi::tradewind_half_address(self.raw(), device as c_int, text.as_mut_ptr(), length)
        })?;
        // SAFETY: CUDA ends it with a zero, and the last byte is one in any case.
        let text = unsafe { CStr::from_ptr(text.as_ptr()) };
        Ok(text.to_string_lossy().into_owned())
    }
}

/// The file to load, for a program in a folder.
fn find(named: Option<PathBuf>, program: Option<&Path>) -> Result<PathBuf, NcclError> {
    if let Some(file) = named {
        return if file.is_file() {
            Ok(file)
        } else {
            Err(NcclError::Named { file })
        };
    }
    let program = program.unwrap_or(Path::new("."));
    let folders = ["", "../nccl", "../../nccl"].map(|folder| program.join(folder));
    let file = folders.iter().map(|folder| folder.join(FILE));
    let found = file.clone().find(|file| file.is_file());
    found.ok_or(NcclError::Missing {
        folders: folders.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_looked_for_beside_the_program_and_where_make_puts_it() {
        let root = tempfile::tempdir().unwrap();
        let program = root.path().join("target/debug/deps");
        for folder in ["target/debug/deps", "target/nccl"] {
            std::fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let missing = find(None, Some(&program)).unwrap_err().to_string();
        assert!(missing.contains("make nccl"), "{missing}");
        assert!(
            missing.contains("target/debug/deps/../../nccl"),
            "{missing}"
        );

        let made = root.path().join("target/nccl").join(FILE);
        std::fs::write(&made, "").unwrap();
        let found = find(None, Some(&program)).unwrap();
        assert_eq!(found.canonicalize().unwrap(), made.canonicalize().unwrap());

        let own = program.join(FILE);
        std::fs::write(&own, "").unwrap();
        assert_eq!(find(None, Some(&program)).unwrap(), own);
        assert_eq!(find(Some(made.clone()), Some(&program)).unwrap(), made);
        let named = find(Some("/nowhere".into()), Some(&program)).unwrap_err();
        assert!(
            named.to_string().contains("TRADEWIND_NCCL is /nowhere"),
            "{named}"
        );
    }

    #[test]
    fn what_cannot_be_loaded_is_named_with_the_reason() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "no library").unwrap();
        let error = Nccl::open(file.path()).unwrap_err().to_string();
        assert!(
            error.contains(&file.path().display().to_string()),
            "{error}"
        );
        assert!(error.contains("make nccl"), "{error}");
    }
}
