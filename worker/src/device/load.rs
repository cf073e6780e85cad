//! libtorch's CUDA half, loaded at run time and only when it is wanted, so that one program serves
//! machines with and without GPUs.

use std::path::{Path, PathBuf};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

/// The CUDA half, beside [`CPU`].
const CUDA: &str = "libtorch_cuda.so";
/// What the program is linked against.
const CPU: &str = "libtorch_cpu.so";

/// Why libtorch's CUDA half is not there.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Nobody knows where libtorch is.
    #[error("it cannot be told where libtorch is: no {CPU} in /proc/self/maps{0}")]
    NoLibtorch(String),
    /// A libtorch for the CPU.
    #[error(
        "the libtorch in {} is one without CUDA: it has no {CUDA}; build with one that has it (`make setup` fetches one), or set compute.device = \"cpu\"", .0.display()
    )]
    NoCuda(PathBuf),
    /// NVIDIA's libraries are missing, or of another version.
    #[error(
        "libtorch's CUDA half cannot be loaded: {0}; `make cuda` fetches NVIDIA's libraries, or set compute.device = \"cpu\""
    )]
    Refused(libloading::Error),
}

/// Loads it from the folder of the libtorch that this process has. It registers itself, which has
/// no effect once libtorch has been asked for CUDA: this comes before the first tensor.
pub fn load() -> Result<(), LoadError> {
    let maps = std::fs::read_to_string("/proc/self/maps")
        .map_err(|error| LoadError::NoLibtorch(format!(" ({error})")))?;
    let folder = folder_of(&maps, CPU).ok_or_else(|| LoadError::NoLibtorch(String::new()))?;
    load_from(&folder)
}

/// Loads it from a folder; its symbols are everybody's, for the libraries that come after it.
fn load_from(folder: &Path) -> Result<(), LoadError> {
    let path = folder.join(CUDA);
    if !path.is_file() {
        return Err(LoadError::NoCuda(folder.into()));
    }
    // SAFETY: initialisers of libtorch_cuda register it with libtorch, which locks what they change.
    let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_GLOBAL) };
    // What has registered itself never leaves.
    std::mem::forget(library.map_err(LoadError::Refused)?);
    Ok(())
}

/// Where a library of this name has been loaded from.
fn folder_of(maps: &str, name: &str) -> Option<PathBuf> {
    let mut paths = maps.lines().filter_map(|line| {
        let path = Path::new(&line[line.find('/')?..]);
        (path.file_name()?.to_str()? == name).then_some(path)
    });
    Some(paths.next()?.parent()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::double::library;
    use super::*;

    #[test]
    fn libtorch_is_found_where_it_was_loaded() {
        // Whatever is linked and not used may not be loaded.
        let _ = tch::Tensor::from(1f32);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let folder = folder_of(&maps, CPU).unwrap();
        assert!(folder.join("libc10.so").is_file(), "{}", folder.display());
        assert_eq!(folder_of(&maps, "libtorch_none.so"), None);
    }

    #[test]
    fn what_is_missing_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let refused = || load_from(folder.path()).unwrap_err().to_string();
        let text = refused();
        assert!(
            text.contains("without CUDA: it has no libtorch_cuda.so"),
            "{text}"
        );
        assert!(text.contains("compute.device = \"cpu\""), "{text}");

        // One that needs another library, which then goes away.
        let needed = library(folder.path(), "libcudart_double.so", "int there;", &[]);
        library(
            folder.path(),
            CUDA,
            "extern int there; int *where(void) { return &there; }",
            &["-Wl,--no-as-needed", needed.to_str().unwrap()],
        );
        std::fs::remove_file(&needed).unwrap();
        let text = refused();
        assert!(text.contains("libcudart_double.so: cannot open"), "{text}");
        assert!(text.contains("`make cuda`"), "{text}");
    }

    #[test]
    fn symbols_of_what_was_loaded_are_everybodys() {
        let folder = tempfile::tempdir().unwrap();
        library(
            folder.path(),
            CUDA,
            "int tradewind_double(void) { return 7; }",
            &[],
        );
        load_from(folder.path()).unwrap();
        // SAFETY: it is the function of the line above.
        let told = unsafe {
            let all = Library::this();
            let get = all.get::<unsafe extern "C" fn() -> i32>(b"tradewind_double");
            get.unwrap()()
        };
        assert_eq!(told, 7);
    }
}
