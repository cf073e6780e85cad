//! Texts in a run's folder that may be read from outside: logs of processes, and the configuration.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::Serialize;
use tradewind_common::run_files;

/// Bytes of a text that are given at once.
const PAGE_BYTES: u64 = 128 << 10;

/// Lines that a search finds: the last ones.
const FOUND_MAX: usize = 500;

/// Bytes of a line that are given.
const LINE_BYTES_MAX: usize = 4096;

/// Files that are listed.
const FILES_MAX: usize = 10_000;

/// A text that may be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct TextFile {
    pub(crate) name: String,
    pub(crate) bytes: u64,
}

/// A piece of a text, in whole lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Page {
    /// Where it begins and ends in the file, bytes.
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// Of the file.
    pub(crate) bytes: u64,
    pub(crate) lines: Vec<String>,
}

/// Lines with some words in them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Found {
    /// All there are; the last of them are given.
    pub(crate) count: u64,
    /// With their numbers, from 1.
    pub(crate) lines: Vec<(u64, String)>,
}

/// Names are those of [`list`] alone, so that nothing else of the machine can be read.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the run has no log {0:?}")]
pub(crate) struct NoSuchFile(String);

/// The configuration, then logs in the order of their names, with numbers as numbers.
pub(crate) fn list(run: &Path) -> Vec<TextFile> {
    let mut logs: Vec<TextFile> = entries(&run.join("logs")).collect();
    logs.sort_by_cached_key(|file| in_order(&file.name));
    logs.truncate(FILES_MAX);
    let config = fs::symlink_metadata(run.join(run_files::CONFIG)).ok();
    let config = config.filter(fs::Metadata::is_file).map(|is| TextFile {
        name: run_files::CONFIG.into(),
        bytes: is.len(),
    });
    config.into_iter().chain(logs).collect()
}

fn entries(logs: &Path) -> impl Iterator<Item = TextFile> {
    let entries = fs::read_dir(logs).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let is_log = name.ends_with(".log") || name.ends_with(".log.1");
        // Of a link these are its own: where it leads to is not the run's.
        let is = entry.metadata().ok()?;
        let bytes = is.len();
        (is_log && is.is_file()).then_some(TextFile { name, bytes })
    })
}

/// Parts of a name, so that 10 comes after 9.
fn in_order(name: &str) -> Vec<(String, u64)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let text = rest
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (word, more) = rest.split_at(text);
        let digits = more
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(more.len());
        let (number, more) = more.split_at(digits);
        parts.push((word.to_owned(), number.parse().unwrap_or(0)));
        rest = more;
    }
    parts
}

fn path(run: &Path, name: &str) -> Result<PathBuf, NoSuchFile> {
    let known = list(run).into_iter().any(|file| file.name == name);
    match name {
        _ if !known => Err(NoSuchFile(name.to_owned())),
        run_files::CONFIG => Ok(run.join(name)),
        _ => Ok(run.join("logs").join(name)),
    }
}

/// A page of a text: from a byte on, or the last one.
pub(crate) fn read(run: &Path, name: &str, from: Option<u64>) -> anyhow::Result<Page> {
    let mut file = File::open(path(run, name)?)?;
    let bytes = file.metadata()?.len();
    // A log that began anew is shorter than it was.
    let from = from.filter(|from| *from <= bytes);
    let (mut from, is_inside) = match from {
        Some(from) => (from, false),
        None => (bytes.saturating_sub(PAGE_BYTES), bytes > PAGE_BYTES),
    };
    file.seek(SeekFrom::Start(from))?;
    let mut read = Vec::new();
    file.take(PAGE_BYTES).read_to_end(&mut read)?;
    if is_inside {
        let first = read
            .iter()
            .position(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        read.drain(..first);
        from += first as u64;
    }
    // The last line may still be written; one without an end is given as it is.
    let whole = read
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(read.len(), |at| at + 1);
    read.truncate(whole);
    let to = from + read.len() as u64;
    let lines = read.split(|byte| *byte == b'\n');
    let mut lines: Vec<String> = lines.map(shown).collect();
    if lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    Ok(Page {
        from,
        to,
        bytes,
        lines,
    })
}

/// The lines that have `words` in them, in whatever case.
pub(crate) fn search(run: &Path, name: &str, words: &str) -> anyhow::Result<Found> {
    let mut reader = BufReader::new(File::open(path(run, name)?)?);
    let wanted = words.to_lowercase();
    let mut lines = std::collections::VecDeque::new();
    let (mut count, mut number) = (0, 0);
    let mut line = Vec::new();
    loop {
        line.clear();
        let ends = read_line(&mut reader, &mut line)?;
        if line.is_empty() && ends {
            break;
        }
        number += 1;
        let text = shown(line.strip_suffix(b"\n").unwrap_or(&line));
        if !text.to_lowercase().contains(&wanted) {
            continue;
        }
        count += 1;
        lines.push_back((number, text));
        if lines.len() > FOUND_MAX {
            lines.pop_front();
        }
    }
    Ok(Found {
        count,
        lines: lines.into(),
    })
}

/// A line, of one that is too long its beginning; whether the file ends.
fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    loop {
        let there = reader.fill_buf()?;
        if there.is_empty() {
            return Ok(true);
        }
        let end = there.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(there.len(), |at| at + 1);
        // Colours go, so there may be more of it than is shown.
        let room = (2 * LINE_BYTES_MAX).saturating_sub(line.len());
        line.extend_from_slice(&there[..taken.min(room)]);
        reader.consume(taken);
        if end.is_some() {
            return Ok(false);
        }
    }
}

/// Without colours, and not longer than a line may be.
fn shown(line: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(line).replace('\r', "");
    while let Some(begin) = text.find("\x1b[") {
        let ends = |c: char| c.is_ascii_alphabetic();
        let end = text[begin + 2..]
            .find(ends)
            .map_or(text.len(), |at| begin + 3 + at);
        text.replace_range(begin..end, "");
    }
    if text.len() > LINE_BYTES_MAX {
        text.truncate(text.floor_char_boundary(LINE_BYTES_MAX));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> tempfile::TempDir {
        let run = tempfile::tempdir().unwrap();
        fs::create_dir(run.path().join("logs")).unwrap();
        fs::write(run.path().join("config.toml"), "[run]\n").unwrap();
        fs::write(run.path().join("token"), "secret\n").unwrap();
        run
    }

    fn write(run: &tempfile::TempDir, name: &str, text: &str) {
        fs::write(run.path().join("logs").join(name), text).unwrap();
    }

    #[test]
    fn only_logs_and_the_configuration_can_be_read() {
        let run = run();
        for name in [
            "server-10.log",
            "server-9.log",
            "server-9.log.1",
            "server-9.address",
        ] {
            write(&run, name, "one\n");
        }
        std::os::unix::fs::symlink("/etc/passwd", run.path().join("logs/passwd.log")).unwrap();
        let names: Vec<String> = list(run.path()).into_iter().map(|file| file.name).collect();
        assert_eq!(
            names,
            [
                "config.toml",
                "server-9.log",
                "server-9.log.1",
                "server-10.log"
            ]
        );
        for name in [
            "token",
            "../token",
            "logs/server-9.log",
            "passwd.log",
            "/etc/passwd",
            "",
            "server-9.address",
        ] {
            let error = read(run.path(), name, None).unwrap_err();
            assert!(error.is::<NoSuchFile>(), "{name}");
            assert!(
                search(run.path(), name, "root")
                    .unwrap_err()
                    .is::<NoSuchFile>(),
                "{name}"
            );
        }
        assert_eq!(
            read(run.path(), "config.toml", None).unwrap().lines,
            ["[run]"]
        );
    }

    #[test]
    fn a_log_is_read_from_its_end_and_then_as_it_grows() {
        let run = run();
        let line = |n: u64| format!("line {n:06}\n");
        let text: String = (0..20_000).map(line).collect();
        write(&run, "a.log", &text);
        let last = read(run.path(), "a.log", None).unwrap();
        assert_eq!(last.to, last.bytes);
        assert_eq!(last.from % 12, 0, "a whole line");
        assert_eq!(last.lines.last().unwrap(), "line 019999");
        assert!(last.to - last.from <= PAGE_BYTES);
        write(&run, "a.log", &(text.clone() + "one\nhal"));
        let next = read(run.path(), "a.log", Some(last.to)).unwrap();
        assert_eq!(next.lines, ["one"]);
        // It began anew.
        write(&run, "a.log", "new\n");
        assert_eq!(
            read(run.path(), "a.log", Some(next.to)).unwrap().lines,
            ["new"]
        );
    }

    #[test]
    fn a_search_gives_the_last_lines_with_their_numbers() {
        let run = run();
        let mut text: String = (0..2 * FOUND_MAX)
            .map(|n| format!("step {n}\nother\n"))
            .collect();
        text += "\x1b[32mSTEP\x1b[0m of \u{e9}";
        text += &"x".repeat(3 * LINE_BYTES_MAX);
        write(&run, "a.log", &text);
        let found = search(run.path(), "a.log", "sTep").unwrap();
        assert_eq!(found.count, 2 * FOUND_MAX as u64 + 1);
        assert_eq!(found.lines.len(), FOUND_MAX);
        let (number, last) = found.lines.last().unwrap();
        assert_eq!(*number, 4 * FOUND_MAX as u64 + 1);
        assert!(last.starts_with("STEP of éxxx") && last.ends_with('…'));
        assert_eq!(search(run.path(), "a.log", "nothing").unwrap().count, 0);
    }
}
