//! The libtorch that `tradewind-worker` loads, and whether it comes with what a GPU needs.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::loader::{Needed, absent, found, needs};
use super::system::System;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Libtorch {
    /// The worker's program; `null` if there is none beside this one.
    pub(super) worker: Option<PathBuf>,
    /// Where its `libtorch_cpu.so` really lies; `null` if the loader does not find it.
    pub(super) folder: Option<PathBuf>,
    pub(super) version: Option<String>,
    /// The CUDA it was built for: major, minor; `null` if for none, or if it does not say.
    pub(super) cuda: Option<(u32, u32)>,
    /// `libtorch_cuda.so` lies beside it.
    pub(super) has_cuda_half: bool,
    /// What `libtorch_cuda.so` needs and the loader does not find.
    pub(super) absent: Vec<String>,
    /// What `libtorch_cuda.so` needs.
    #[serde(skip)]
    pub(super) needed: Vec<Needed>,
}

impl Libtorch {
    pub(super) fn look(system: &System) -> Self {
        let worker = system.programs.join("tradewind-worker");
        if !worker.is_file() {
            return Self::default();
        }
        let needed = needs(system, &worker).unwrap_or_default();
        let own = Self {
            worker: Some(worker),
            ..Self::default()
        };
        let Some(library) = found(&needed, "libtorch_cpu.so") else {
            return own;
        };
        let real = fs::canonicalize(library).unwrap_or(library.to_owned());
        let folder = real.parent().unwrap_or(Path::new("/")).to_owned();
        let half = folder.join("libtorch_cuda.so");
        let has_cuda_half = half.is_file();
        let needed = match has_cuda_half {
            true => needs(system, &half).unwrap_or_default(),
            false => Vec::new(),
        };
        let (version, cuda) = version(&folder);
        Self {
            version,
            cuda,
            has_cuda_half,
            absent: absent(&needed),
            needed,
            folder: Some(folder),
            ..own
        }
    }
}

/// Of a wheel (`version.py`) or of the archive for C++ (`build-version`).
fn version(folder: &Path) -> (Option<String>, Option<(u32, u32)>) {
    let above = folder.parent().unwrap_or(folder);
    if let Ok(text) = fs::read_to_string(above.join("version.py")) {
        let value = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            let value = line.split_once('=')?.1.trim().trim_matches('\'');
            Some(value.to_owned()).filter(|value| value != "None")
        };
        let cuda = value("cuda").and_then(|cuda| two(&cuda));
        return (value("__version__"), cuda);
    }
    let text = fs::read_to_string(above.join("build-version")).ok();
    let text = text.map(|text| text.trim().to_owned());
    let cuda = text.as_deref().and_then(|text| text.split_once("+cu"));
    // cu130 is CUDA 13.0, cu128 is 12.8.
    let cuda = cuda.and_then(|(_, digits)| two(&format!("{}.{}", digits.get(..2)?, &digits[2..])));
    (text, cuda)
}

fn two(version: &str) -> Option<(u32, u32)> {
    let (major, minor) = version.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_told_by_a_file_beside_the_libraries() {
        let check = |file: Option<(&str, &str)>, want: (Option<&str>, Option<(u32, u32)>)| {
            let folder = tempfile::tempdir().unwrap();
            if let Some((name, text)) = file {
                fs::write(folder.path().join(name), text).unwrap();
            }
            let (version, cuda) = version(&folder.path().join("lib"));
            assert_eq!((version.as_deref(), cuda), want, "{file:?}");
        };
        let wheel = "from typing import Optional\n__version__ = '2.11.0+cu130'\ncuda: Optional[str] = '13.0'\n";
        check(
            Some(("version.py", wheel)),
            (Some("2.11.0+cu130"), Some((13, 0))),
        );
        let cpu = "__version__ = '2.11.0+cpu'\ncuda: Optional[str] = None\n";
        check(Some(("version.py", cpu)), (Some("2.11.0+cpu"), None));
        check(
            Some(("build-version", "2.11.0+cu128\n")),
            (Some("2.11.0+cu128"), Some((12, 8))),
        );
        check(Some(("build-version", "2.11.0")), (Some("2.11.0"), None));
        check(None, (None, None));
    }
}
