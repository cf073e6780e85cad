//! Sizes as people write them.

/// As [`text`] prefers them.
const UNITS: [(&str, usize); 7] = [
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("B", 1),
];

/// Bytes of a size such as `100MB` (10^6), `1MiB` (2^20) or `4096`.
pub fn parse(text: &str) -> Result<usize, String> {
    let unit = UNITS.iter().find_map(|(name, bytes)| {
        let number = text.strip_suffix(name)?;
        Some((number, *bytes))
    });
    let (number, unit) = unit.unwrap_or((text, 1));
    let bytes = number.trim_end().parse::<usize>().ok();
    let bytes = bytes.and_then(|number| number.checked_mul(unit));
    bytes.ok_or_else(|| {
        format!("{text:?} is no size; give a whole number of B, KB, MB, GB, KiB, MiB or GiB")
    })
}

/// The size in the largest unit that divides it, a power of 10 where there is one.
pub fn text(bytes: usize) -> String {
    let fits = |(_, unit): &&(&str, usize)| bytes > 0 && bytes.is_multiple_of(*unit);
    let (name, unit) = UNITS.iter().find(fits).unwrap_or(&("B", 1));
    format!("{} {name}", bytes / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        let check = |given: &str, bytes, written: &str| {
            assert_eq!(parse(given), Ok(bytes), "{given}");
            assert_eq!(text(bytes), written);
        };
        check("100MB", 100_000_000, "100 MB");
        check("1MiB", 1 << 20, "1 MiB");
        check("4 KiB", 4096, "4 KiB");
        check("2GB", 2_000_000_000, "2 GB");
        check("256KB", 256_000, "256 KB");
        check("1020", 1020, "1020 B");
        check("12B", 12, "12 B");
        check("0", 0, "0 B");
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for bad in ["", "MB", "1.5MB", "-1", "1mb", "1TB", "99999999999GB"] {
            let error = parse(bad).unwrap_err();
            assert!(error.contains("is no size"), "{error}");
        }
    }
}
