//! What a process has used, as the kernel counts it.

use anyhow::Context;
use tradewind_process::usage::Status;

/// Processor time of all threads of a process so far, user and system, seconds; the kernel tells
/// it in steps of 10 ms.
pub fn cpu_seconds(pid: u32) -> anyhow::Result<f64> {
    let path = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let ticks = cpu_ticks(&text).with_context(|| format!("{path} has no processor time"))?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// The most memory that a process has held at once, bytes.
pub fn peak_rss_bytes(pid: u32) -> anyhow::Result<u64> {
    let peak = Status::of(pid).and_then(|status| status.resident_peak_bytes());
    peak.with_context(|| format!("/proc/{pid}/status does not tell the most memory that it had"))
}

fn cpu_ticks(stat: &str) -> Option<u64> {
    // The name is in parentheses and may contain any character; utime and stime are fields 14
    // and 15, the state after the name is field 3.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_whatever_the_name() {
        let stat = "17 (a ) b) S 1 17 17 0 -1 4194304 100 0 0 0 250 31 0 0 20 0 3 0 99 1 2";
        assert_eq!(cpu_ticks(stat), Some(281));
        assert_eq!(cpu_ticks("17 (x) S 1"), None);
    }

    #[test]
    fn the_own_process_has_used_something() {
        let pid = std::process::id();
        assert!(peak_rss_bytes(pid).unwrap() > 0);
        assert!(cpu_seconds(pid).unwrap() >= 0.0);
    }
}
