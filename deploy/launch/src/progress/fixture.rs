//! What tests let a display write on.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

/// Collects what is written, for a pipe and for a terminal of 120 columns.
#[derive(Clone, Debug, Default)]
pub struct Paper(Arc<Mutex<String>>);

impl Paper {
    pub fn text(&self) -> String {
        self.0.lock().unwrap().clone()
    }
    fn add(&self, text: &str) -> io::Result<()> {
        self.0.lock().unwrap().push_str(text);
        Ok(())
    }
}

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.add(std::str::from_utf8(bytes).unwrap())?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl indicatif::TermLike for Paper {
    fn width(&self) -> u16 {
        120
    }
    fn move_cursor_up(&self, _: usize) -> io::Result<()> {
        Ok(())
    }
    fn move_cursor_down(&self, _: usize) -> io::Result<()> {
        Ok(())
    }
    fn move_cursor_right(&self, _: usize) -> io::Result<()> {
        Ok(())
    }
    fn move_cursor_left(&self, _: usize) -> io::Result<()> {
        Ok(())
    }
    fn write_line(&self, text: &str) -> io::Result<()> {
        self.add(text)?;
        self.add("\n")
    }
    fn write_str(&self, text: &str) -> io::Result<()> {
        self.add(text)
    }
    fn clear_line(&self) -> io::Result<()> {
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}
