//! What the system's loader finds for a program or a library, without running it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::system::System;

/// A library that something needs, and where the loader finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Needed {
    pub(super) name: String,
    pub(super) at: Option<PathBuf>,
}

/// All that a program or a library needs, directly or not, as `ldd` tells; `None` if it cannot.
/// Relative to the loader's own rules, so `LD_LIBRARY_PATH` of the system's environment counts.
pub(super) fn needs(system: &System, file: &Path) -> Option<Vec<Needed>> {
    let mut ldd = Command::new("ldd");
    match system.variable("LD_LIBRARY_PATH") {
        Some(path) => ldd.env("LD_LIBRARY_PATH", path),
        None => ldd.env_remove("LD_LIBRARY_PATH"),
    };
    let told = ldd.arg(file).stdin(Stdio::null()).output().ok()?;
    let told = told.status.success().then_some(told.stdout)?;
    Some(parse(&String::from_utf8_lossy(&told)))
}

fn parse(told: &str) -> Vec<Needed> {
    let needed = |line: &str| {
        let (name, at) = line.trim().split_once(" => ")?;
        let at = at.rsplit_once(" (").map(|(path, _)| PathBuf::from(path));
        Some(Needed {
            name: name.to_owned(),
            at,
        })
    };
    told.lines().filter_map(needed).collect()
}

/// Where the loader finds a library of this name among what was needed.
pub(super) fn found<'a>(needed: &'a [Needed], name: &str) -> Option<&'a Path> {
    let library = needed.iter().find(|library| library.name == name)?;
    library.at.as_deref()
}

/// Names of what is not found.
pub(super) fn absent(needed: &[Needed]) -> Vec<String> {
    let absent = needed.iter().filter(|library| library.at.is_none());
    absent.map(|library| library.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ldd_tells_is_understood() {
        let told = "\tlinux-vdso.so.1 (0x00007f70e2e82000)\n\
                    \tlibnccl.so.2 => /opt/a b/lib/libnccl.so.2 (0x00007f7095200000)\n\
                    \tlibcublas.so.13 => not found\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f70e2e84000)\n";
        let needed = parse(told);
        assert_eq!(
            found(&needed, "libnccl.so.2"),
            Some(Path::new("/opt/a b/lib/libnccl.so.2"))
        );
        assert_eq!(found(&needed, "libcublas.so.13"), None);
        assert_eq!(absent(&needed), ["libcublas.so.13"]);
        assert_eq!(needed.len(), 2);
    }
}
