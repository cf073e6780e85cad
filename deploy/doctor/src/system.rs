//! Where the doctor looks.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// A node, or a folder that looks like one.
#[derive(Clone, Debug)]
pub(super) struct System {
    /// Stands for `/` where files of the system are read.
    pub(super) root: PathBuf,
    pub(super) environment: BTreeMap<String, String>,
    /// Folder of the project's programs.
    pub(super) programs: PathBuf,
    /// NVML: a path, or a name that the system's loader finds.
    pub(super) nvml: OsString,
}

/// Folders that the system's loader searches besides `LD_LIBRARY_PATH`, below the root.
const LIBRARY_FOLDERS: [&str; 6] = [
    "usr/local/lib",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "opt/amazon/ofi-nccl/lib",
];

impl System {
    /// This node, this process's environment.
    pub(super) fn this() -> Self {
        let own = std::env::current_exe().and_then(fs::canonicalize);
        let variables = std::env::vars_os()
            .map(|(k, v)| (k.to_string_lossy().into(), v.to_string_lossy().into()));
        Self {
            root: "/".into(),
            environment: variables.collect(),
            programs: own.map_or(".".into(), |own| own.parent().unwrap_or(&own).into()),
            // The name without a number belongs to CUDA's toolkit, which compute nodes lack.
            nvml: "libnvidia-ml.so.1".into(),
        }
    }

    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.environment.get(name).map(String::as_str)
    }

    pub(super) fn exists(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// A file's text without blanks at its ends; `None` if it cannot be read.
    pub(super) fn read(&self, path: &str) -> Option<String> {
        let text = fs::read_to_string(self.root.join(path)).ok()?;
        Some(text.trim().to_owned())
    }

    /// Names in a folder, in order; none if it cannot be read.
    pub(super) fn list(&self, path: &str) -> Vec<String> {
        names(&self.root.join(path))
    }

    /// Folders in which a library is found by its name, in the loader's order.
    pub(super) fn library_folders(&self) -> Vec<PathBuf> {
        let given = self.variable("LD_LIBRARY_PATH").unwrap_or_default();
        let given = given.split(':').filter(|folder| !folder.is_empty());
        let usual = LIBRARY_FOLDERS.iter().map(|folder| self.root.join(folder));
        given.map(PathBuf::from).chain(usual).collect()
    }
}

/// Names in a folder, in order; none if it cannot be read.
pub(super) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into())
        .collect();
    names.sort_unstable();
    names
}
