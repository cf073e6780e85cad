//! Processes that a run has left behind.

use std::fs;
use std::path::Path;

use tradewind_launch::Roster;

/// Programs of a run.
const PROGRAMS: [&str; 2] = ["tradewind-server", "tradewind-worker"];

/// Those that are still there: by the numbers that they had, and by the folder in their arguments.
pub(super) fn processes(roster: &Roster, folder: &Path) -> Vec<String> {
    let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    let folder = folder.display().to_string();
    let known = roster.pids();
    let mut left = Vec::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    for pid in pids {
        let Ok(line) = fs::read_to_string(format!("/proc/{pid}/cmdline")) else {
            continue;
        };
        let mut words = line.split('\0');
        let program = words.next().unwrap_or_default();
        let ours = PROGRAMS.iter().any(|name| program.ends_with(name));
        if ours && words.any(|word| word.contains(&folder)) {
            let who = known
                .get(&pid)
                .map_or("a process".into(), ToString::to_string);
            left.push(format!("{who} is still there: process {pid}"));
        }
    }
    left.sort();
    left
}
