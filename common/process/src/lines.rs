//! Lines into a stream that may fail. A line that cannot be written is lost and counted; the first
//! that can be written again is preceded by a word about that.

use std::io::{self, ErrorKind, Write};
use std::time::Duration;

/// Pause before a stream that takes nothing at the moment is tried again.
const PAUSE: Duration = Duration::from_millis(10);

/// What is known of a stream.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// Lines that were lost since the last that was written.
    lost: u64,
    /// Why the last of them was.
    why: String,
    /// The stream ends within a line.
    torn: bool,
}

impl Lines {
    pub(crate) const fn new() -> Self {
        Self {
            lost: 0,
            why: String::new(),
            torn: false,
        }
    }

    /// Counts lines that were lost elsewhere.
    pub(crate) fn lose(&mut self, lines: u64, why: &str) {
        if lines > 0 {
            self.lost += lines;
            why.clone_into(&mut self.why);
        }
    }

    /// Writes one line, or part of one, whole, and what is to be said before it; whether it could be.
    pub(crate) fn write(&mut self, out: &mut impl Write, line: &[u8]) -> bool {
        let note = (self.lost > 0).then(|| self.note());
        let written = match note {
            None => Ok(()),
            Some(note) => self.put(out, note.as_bytes()).inspect(|()| self.lost = 0),
        };
        let written = written.and_then(|()| self.put(out, line));
        if let Err(error) = &written {
            self.lose(1, &error.to_string());
        }
        written.is_ok()
    }

    fn note(&self) -> String {
        let (lines, why) = (self.lost, &self.why);
        format!("missing here, because they could not be written: {lines} lines ({why})\n")
    }

    fn put(&mut self, out: &mut impl Write, line: &[u8]) -> io::Result<()> {
        let whole = match self.torn {
            true => [b"\n", line].concat(),
            false => line.to_vec(),
        };
        let mut rest = &whole[..];
        while !rest.is_empty() {
            match out.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    rest = &rest[written..];
                    self.torn = !rest.is_empty();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Somebody has set it so; it is shared with other processes.
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(PAUSE),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with room for so many bytes.
    struct Disk {
        room: usize,
        held: Vec<u8>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let taken = bytes.len().min(self.room);
            if taken == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            self.room -= taken;
            self.held.extend(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_is_lost_is_told_once_there_is_room_again() {
        let mut disk = Disk {
            room: 9,
            held: Vec::new(),
        };
        let mut lines = Lines::new();
        let mut write = |disk: &mut Disk, line: &str| lines.write(disk, line.as_bytes());
        assert!(write(&mut disk, "one\n"));
        assert!(!write(&mut disk, "two is torn\n"));
        assert!(!write(&mut disk, "three\n"));
        // Not even the word about it fits.
        disk.room = 3;
        assert!(!write(&mut disk, "four\n"));
        disk.room = usize::MAX;
        assert!(write(&mut disk, "five\n"));
        assert!(write(&mut disk, "six\n"));
        let why = io::Error::from(ErrorKind::StorageFull);
        let note =
            |n| format!("missing here, because they could not be written: {n} lines ({why})\n");
        let text = String::from_utf8(disk.held).unwrap();
        let (torn, whole) = (&note(2)[..2], note(3));
        assert_eq!(text, format!("one\ntwo i\n{torn}\n{whole}five\nsix\n"));
    }
}
