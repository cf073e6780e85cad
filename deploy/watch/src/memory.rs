//! The memory of a run's processes on this machine.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use tradewind_launch::ProcessRow;

/// Bytes of main memory that a server of the fleet in `folder` has (its resident set); `None` if it is not
/// there, is on another machine, or its number is another process's by now.
pub(crate) fn resident_bytes(row: &ProcessRow, folder: &Path) -> Option<u64> {
    of(Path::new("/proc"), row, folder)
}

fn of(proc: &Path, row: &ProcessRow, folder: &Path) -> Option<u64> {
    let process = proc.join(row.pid.to_string());
    let command = std::fs::read(process.join("cmdline")).ok()?;
    let words: Vec<&[u8]> = command.split(|byte| *byte == 0).collect();
    let has = |name: &str, value: &[u8]| {
        let mut pairs = words.windows(2);
        pairs.any(|pair| pair[0] == name.as_bytes() && pair[1] == value)
    };
    let is_it = words[0].ends_with(b"tradewind-server")
        && has("--server", row.index.to_string().as_bytes())
        && has("--folder", folder.as_os_str().as_bytes());
    if row.role != "server" || !is_it {
        return None;
    }
    let pages = std::fs::read_to_string(process.join("statm")).ok()?;
    let resident: u64 = pages.split(' ').nth(1)?.parse().ok()?;
    resident.checked_mul(rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_anothers_says_nothing() {
        let proc = tempfile::tempdir().unwrap();
        let write = |command: &str| {
            let process = proc.path().join("77");
            std::fs::create_dir_all(&process).unwrap();
            std::fs::write(process.join("cmdline"), command.replace(' ', "\0")).unwrap();
            std::fs::write(process.join("statm"), "9000 1000 300 1 0 200 0\n").unwrap();
        };
        let row = |pid, index| ProcessRow {
            role: "server".into(),
            index,
            group: None,
            group_rank: None,
            pid,
            address: "127.0.0.1:4000".into(),
            life: 1,
        };
        let check = |pid, index, want: Option<u64>| {
            let want = want.map(|pages| pages * rustix::param::page_size() as u64);
            assert_eq!(
                of(proc.path(), &row(pid, index), Path::new("/runs/r")),
                want
            );
        };
        check(77, 1, None);
        write("/opt/tradewind-server --server 1 --listen 127.0.0.1:0 --folder /runs/r");
        check(77, 1, Some(1000));
        check(77, 0, None);
        check(78, 1, None);
        write("/opt/tradewind-server --server 1 --folder /runs/other");
        check(77, 1, None);
        write("/usr/bin/vim --server 1 --folder /runs/r");
        check(77, 1, None);
    }
}
