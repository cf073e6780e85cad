//! Writing samples while processes are started: in a program of its own, because they inherit what other tests lock.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tradewind_data::hdf5::{Hdf5Folder, write_sample};
use tradewind_data::{Field, Kind};

/// A process that is started while a file is written inherits its descriptor, and with it any lock, for its life.
#[test]
fn a_sample_is_read_although_processes_were_started_while_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let fields = [Field::new("x", Kind::F32, &[1])];
    let layout = "x=x".parse().unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut others = Vec::new();
            while !over.load(Ordering::Relaxed) {
                if others.len() < 100 {
                    others.push(Command::new("sleep").arg("10").spawn().unwrap());
                }
            }
            for mut other in others {
                other.kill().unwrap();
                other.wait().unwrap();
            }
        });
        let _over = SetWhenDropped(&over);
        for sample in 0..200 {
            let path = folder.path().join(format!("{sample}.h5"));
            write_sample(&path, &fields, &[vec![0; 4]]).unwrap();
            Hdf5Folder::open(&path, Some(&layout)).unwrap();
        }
    });
}

/// Also where a test fails.
struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
