//! Numbers as people read them, on the terminal.

use indicatif::DecimalBytes;

/// What is not known.
pub(crate) const DASH: &str = "-";

/// With four digits that count.
pub(crate) fn number(x: f64) -> String {
    let size = x.abs();
    match size {
        _ if !x.is_finite() => DASH.into(),
        0.0 => "0".into(),
        s if !(1e-4..1e15).contains(&s) => format!("{x:.2e}"),
        s => {
            let digits = (3 - s.log10().floor() as i32).max(0) as usize;
            format!("{x:.digits$}")
        }
    }
}

/// With three, of something by the second.
pub(crate) fn rate(x: f64) -> String {
    let digits = (2 - x.abs().max(1e-3).log10().floor() as i32).clamp(0, 3) as usize;
    format!("{x:.digits$}")
}

/// A part of a whole.
pub(crate) fn percent(part: f64) -> String {
    format!("{:.0} %", 100.0 * part)
}

/// An amount of memory, or of what travels.
pub(crate) fn bytes(count: u64) -> String {
    DecimalBytes(count).to_string()
}

/// A moment of a run, as a clock has it: `1:02:03`.
pub(crate) fn moment(seconds: f64) -> String {
    let sign = if seconds < 0.0 { "-" } else { "" };
    let all = seconds.abs().round() as u64;
    let (hours, minutes, seconds) = (all / 3600, all / 60 % 60, all % 60);
    match hours {
        0 => format!("{sign}{minutes}:{seconds:02}"),
        _ => format!("{sign}{hours}:{minutes:02}:{seconds:02}"),
    }
}

/// What is known of something, or a dash.
pub(crate) fn or_dash<T>(of: Option<T>, told: impl FnOnce(T) -> String) -> String {
    of.map_or_else(|| DASH.into(), told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_count() {
        let check = |x: f64, want: &str| assert_eq!(number(x), want);
        check(0.0, "0");
        check(0.123_456, "0.1235");
        check(-12.345_6, "-12.35");
        check(123_456.0, "123456");
        check(1.5e-7, "1.50e-7");
        check(f64::NAN, "-");
        assert_eq!((rate(381.4), rate(1.234)), ("381".into(), "1.23".into()));
        let moments = [moment(-2.0), moment(62.4), moment(3723.0)];
        assert_eq!(moments, ["-0:02", "1:02", "1:02:03"]);
    }
}
