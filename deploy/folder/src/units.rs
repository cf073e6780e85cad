//! Amounts, for people.

/// An amount of memory, for people.
pub fn size(bytes: u64) -> String {
    let (amount, unit) = match bytes {
        0..1024 => return format!("{bytes} B"),
        1024..0x10_0000 => (bytes as f64 / 1024.0, "KiB"),
        0x10_0000..0x4000_0000 => (bytes as f64 / f64::from(1 << 20), "MiB"),
        _ => (bytes as f64 / f64::from(1 << 30), "GiB"),
    };
    format!("{amount:.1} {unit}")
}
