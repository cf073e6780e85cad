//! Processor time, memory and threads, as Linux tells them under `/proc`. What cannot be read is `None`: the process is gone, or the
//! kernel tells it otherwise.

use std::fs;

/// Bytes that programs may still have without others being moved to disk (`MemAvailable`).
pub fn available_bytes() -> Option<u64> {
    bytes(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable")
}

/// Processor time of all threads of a process so far, user and system, seconds; the kernel tells it in steps of 10 ms.
pub fn cpu_seconds(pid: u32) -> Option<f64> {
    let ticks = cpu_ticks(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
    Some(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

fn cpu_ticks(stat: &str) -> Option<u64> {
    // The name is in parentheses and may contain any character; utime and stime are fields 14
    // and 15, the state after the name is field 3.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

/// What a process has, at one moment.
#[derive(Clone, Debug)]
pub struct Status(String);

impl Status {
    /// Of a process by its number.
    pub fn of(pid: u32) -> Option<Self> {
        fs::read_to_string(format!("/proc/{pid}/status"))
            .ok()
            .map(Self)
    }

    /// Memory that is its own or shared, and in main memory, in bytes.
    pub fn resident_bytes(&self) -> Option<u64> {
        bytes(&self.0, "VmRSS")
    }

    /// The most that this has been, in bytes.
    pub fn resident_peak_bytes(&self) -> Option<u64> {
        bytes(&self.0, "VmHWM")
    }

    /// That part of it which is of no file, in bytes: what another process of the kind would need again.
    pub fn anonymous_bytes(&self) -> Option<u64> {
        bytes(&self.0, "RssAnon")
    }

    /// Its threads.
    pub fn threads(&self) -> Option<u64> {
        line(&self.0, "Threads")?.parse().ok()
    }
}

/// A line `name: 12 kB` in bytes; the kernel's kB are of 1,024.
fn bytes(text: &str, name: &str) -> Option<u64> {
    let kilobytes = line(text, name)?.strip_suffix("kB")?.trim_end();
    kilobytes.parse::<u64>().ok()?.checked_mul(1024)
}

/// What stands behind a name.
fn line<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let mut named = lines.filter(|(own, _)| *own == name);
    named.next().map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_by_their_whole_name() {
        let text =
            "Name:\tVmHWM: 7 kB\nVmPeak:\t 9 kB\nVmHWM:\t    1234 kB\nThreads:\t3\nHuge: 4\n";
        assert_eq!(bytes(text, "VmHWM"), Some(1234 * 1024));
        assert_eq!(bytes(text, "Vm"), None);
        assert_eq!(bytes(text, "Huge"), None, "it has no unit");
        assert_eq!(Status(text.into()).threads(), Some(3));
    }

    #[test]
    fn processor_time_is_found_whatever_the_name() {
        let stat = "17 (a ) b) S 1 17 17 0 -1 4194304 100 0 0 0 250 31 0 0 20 0 3 0 99 1 2";
        assert_eq!(cpu_ticks(stat), Some(281));
        assert_eq!(cpu_ticks("17 (x) S 1"), None);
    }

    #[test]
    fn this_process_is_told() {
        assert!(cpu_seconds(std::process::id()).unwrap() >= 0.0);
        let status = Status::of(std::process::id()).unwrap();
        let (now, peak) = (status.resident_bytes(), status.resident_peak_bytes());
        assert!(now.unwrap() > 0 && peak >= now, "{now:?}, at most {peak:?}");
        assert!(status.anonymous_bytes().unwrap() > 0);
        assert!(available_bytes().unwrap() > 0);
        assert!(Status::of(u32::MAX).is_none());
    }
}
