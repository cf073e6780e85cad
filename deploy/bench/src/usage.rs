//! What a process has used, as the kernel counts it.

use anyhow::Context;
use tradewind_process::usage::{self, Status};

/// Processor time of all threads of a process so far, user and system, seconds; the kernel tells
/// it in steps of 10 ms.
pub fn cpu_seconds(pid: u32) -> anyhow::Result<f64> {
    usage::cpu_seconds(pid)
        .with_context(|| format!("/proc/{pid}/stat does not tell its processor time"))
}

/// The most memory that a process has held at once, bytes.
pub fn peak_rss_bytes(pid: u32) -> anyhow::Result<u64> {
    let peak = Status::of(pid).and_then(|status| status.resident_peak_bytes());
    peak.with_context(|| format!("/proc/{pid}/status does not tell the most memory that it had"))
}

/// Memory of a process that is of no file, bytes.
pub fn anonymous_bytes(pid: u32) -> anyhow::Result<u64> {
    let bytes = Status::of(pid).and_then(|status| status.anonymous_bytes());
    bytes.with_context(|| format!("/proc/{pid}/status does not tell its memory"))
}

/// Files and connections that a process has open.
pub fn descriptors(pid: u32) -> anyhow::Result<u64> {
    let path = format!("/proc/{pid}/fd");
    let open = std::fs::read_dir(&path).with_context(|| format!("cannot read {path}"))?;
    Ok(open.count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_process_has_used_something() {
        let pid = std::process::id();
        assert!(peak_rss_bytes(pid).unwrap() > 0);
        assert!(cpu_seconds(pid).unwrap() >= 0.0);
        assert!(anonymous_bytes(pid).unwrap() > 0);
        let before = descriptors(pid).unwrap();
        let files = [(); 100].map(|()| std::fs::File::open("/dev/null").unwrap());
        // Other tests open and close some meanwhile.
        assert!(descriptors(pid).unwrap() >= before + 50);
        drop(files);
    }
}
