//! Disks that fail as a test tells them, one for each server process, while it runs: `fake/disk.c`
//! says how.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::root;

/// The disks of a fleet's servers, and what the servers log.
#[derive(Debug)]
pub struct Disks(TempDir);

impl Disks {
    /// They are well.
    ///
    /// # Panics
    /// If what makes them fail cannot be compiled.
    pub fn new() -> Self {
        let disks = Self(tempfile::tempdir().expect("a folder"));
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-o"]).arg(disks.library());
        let source = root().join("tests/fake/disk.c");
        let compiled = cc.arg(source).arg("-ldl").status();
        assert!(compiled.expect("a C compiler").success());
        disks
    }

    /// Puts a server's program on its disk.
    pub(super) fn under(&self, server: u32, command: &mut Command) {
        command.env("LD_PRELOAD", self.library());
        command.env("TRADEWIND_DISK", self.rules(server));
        command.stderr(self.open_log(server));
    }

    /// A server's disk fails by these rules from now on, and by no others; by none, it is well.
    ///
    /// # Panics
    /// If they cannot be written.
    pub fn set(&self, server: u32, rules: &[&str]) {
        let path = self.rules(server);
        let part = path.with_extension("part");
        fs::write(&part, rules.join("\n")).expect("the rules");
        fs::rename(&part, &path).expect("the rules");
    }

    /// For a rule: lists a folder as it is now, wherever it is said.
    ///
    /// # Panics
    /// If it cannot be listed.
    pub fn as_now(&self, folder: &Path) -> String {
        let name = folder.file_name().expect("a name");
        let names = self.0.path().join("names").join(name);
        for entry in fs::read_dir(folder).expect("a folder") {
            let name = names.join(entry.expect("an entry").file_name());
            fs::create_dir_all(name).expect("a folder");
        }
        format!("lag list {} from={}", folder.display(), names.display())
    }

    /// What a server has logged in all its lives.
    ///
    /// # Panics
    /// If it cannot be read.
    pub fn log(&self, server: u32) -> String {
        let bytes = fs::read(self.log_path(server)).expect("a log");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Where a server says where it listens.
    pub(super) fn address(&self, server: u32) -> PathBuf {
        self.0.path().join(format!("server-{server}.address"))
    }

    fn library(&self) -> PathBuf {
        self.0.path().join("disk.so")
    }

    fn rules(&self, server: u32) -> PathBuf {
        self.0.path().join(format!("server-{server}.rules"))
    }

    fn log_path(&self, server: u32) -> PathBuf {
        self.0.path().join(format!("server-{server}.log"))
    }

    fn open_log(&self, server: u32) -> File {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_path(server));
        log.expect("a log")
    }
}

impl Default for Disks {
    fn default() -> Self {
        Self::new()
    }
}
