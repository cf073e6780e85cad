//! What the display says: pure functions from numbers to text.

/// What a group's line shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupState {
    /// Clock of the latest exchange.
    pub clock: u64,
    /// Its loss; `None` if it was not finite.
    pub loss: Option<f64>,
    /// Applied samples per second; `None` until two records are apart in time.
    pub samples_per_second: Option<f64>,
    /// Exchanges behind the fastest group.
    pub lag: u64,
    /// Seconds that the consistency policy has held the group back so far, in all.
    pub waited_seconds: f64,
}

/// A group's line on a terminal: in columns, so that the numbers do not dance.
pub fn group_text(group: u32, state: &GroupState) -> String {
    format!(
        "group {group:<2}  clock {:>6}  loss {:>10}  {:>7} samples/s  lag {:>3}  waited {:>7}",
        state.clock,
        loss_text(state.loss),
        rate_text(state.samples_per_second),
        state.lag,
        seconds_text(state.waited_seconds),
    )
}

/// A group's line without a terminal; `part` says how far the run has come.
pub fn plain_text(group: u32, state: &GroupState, part: &str) -> String {
    format!(
        "{part}: group {group}: clock {}, loss {}, {} samples/s, lag {}, waited {}",
        state.clock,
        loss_text(state.loss),
        rate_text(state.samples_per_second),
        state.lag,
        seconds_text(state.waited_seconds),
    )
}

/// How far a run has come that ends when its samples are applied.
pub fn done_text(percent: u64, seconds_left: Option<f64>) -> String {
    format!("{percent:>3}%, {}", left_text(seconds_left))
}

/// How far a run has come that lasts so many seconds; it may take longer to end.
pub fn passed_text(passed: f64, total: f64) -> String {
    let whole = |seconds: f64| seconds_text(seconds.round());
    format!("{} of {}", whole(passed.min(total)), whole(total))
}

/// What stands behind the bar. Without a time left only what has been done is told.
pub fn bar_text(applied: u64, total: u64, seconds_left: Option<f64>) -> String {
    let percent = percent(applied, total);
    let left = seconds_left.map_or(String::new(), |s| format!(", {}", left_text(Some(s))));
    format!("{percent:>3}%  {applied} of {total} samples{left}")
}

/// Whole percents that are done; 100 only when all is.
pub fn percent(applied: u64, total: u64) -> u64 {
    match total {
        0 => 100,
        _ => (u128::from(applied) * 100 / u128::from(total)).min(100) as u64,
    }
}

fn left_text(seconds: Option<f64>) -> String {
    match seconds {
        // Rounded up, as the last second is not over yet.
        Some(s) if s.is_finite() => format!("{} left", seconds_text(s.ceil())),
        _ => "time left unknown".to_owned(),
    }
}

fn loss_text(loss: Option<f64>) -> String {
    match loss {
        None => "not finite".to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(loss) if (1e-3..1e4).contains(&loss.abs()) => {
            // Four digits that count, wherever the point is.
            let before_point = loss.abs().log10().floor() as i32 + 1;
            format!("{loss:.*}", (4 - before_point).clamp(0, 6) as usize)
        }
        Some(loss) => format!("{loss:.3e}"),
    }
}

fn rate_text(rate: Option<f64>) -> String {
    match rate {
        None => "?".to_owned(),
        Some(rate) if rate < 10.0 => format!("{rate:.1}"),
        Some(rate) if rate < 1e6 => format!("{rate:.0}"),
        Some(rate) => format!("{:.2}M", rate / 1e6),
    }
}

/// Seconds, with minutes and hours where there are any.
pub fn seconds_text(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match whole {
        0..60 if seconds.fract() == 0.0 => format!("{whole} s"),
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{}:{:02} min", whole / 60, whole % 60),
        _ => format!("{}:{:02} h", whole / 3600, whole / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_short_and_have_units() {
        let seconds = [
            (0.0, "0 s"),
            (1.25, "1.2 s"),
            (59.0, "59 s"),
            (61.4, "1:01 min"),
            (3599.7, "1:00 h"),
            (90_061.0, "25:01 h"),
        ];
        for (value, text) in seconds {
            assert_eq!(seconds_text(value), text);
        }
        let losses = [
            (None, "not finite"),
            (Some(0.0), "0"),
            (Some(0.123_456), "0.1235"),
            (Some(0.012_345_6), "0.01235"),
            (Some(12.345), "12.35"),
            (Some(-2.5), "-2.500"),
            (Some(1.5e-7), "1.500e-7"),
            (Some(1e30), "1.000e30"),
        ];
        for (value, text) in losses {
            assert_eq!(loss_text(value), text);
        }
        let bars = [
            (0, 100, None, "  0%  0 of 100 samples"),
            (999, 1_000, Some(0.2), " 99%  999 of 1000 samples, 1 s left"),
            (
                50,
                100,
                Some(f64::INFINITY),
                " 50%  50 of 100 samples, time left unknown",
            ),
            (120, 100, None, "100%  120 of 100 samples"),
            (0, 0, None, "100%  0 of 0 samples"),
        ];
        for (applied, total, left, text) in bars {
            assert_eq!(bar_text(applied, total, left), text);
        }
        let passed = [
            (0.4, 48.0, "0 s of 48 s"),
            (12.3, 48.0, "12 s of 48 s"),
            (61.0, 300.0, "1:01 min of 5:00 min"),
            (320.0, 300.0, "5:00 min of 5:00 min"),
        ];
        for (passed, total, text) in passed {
            assert_eq!(passed_text(passed, total), text);
        }
        for (rate, text) in [(None, "?"), (Some(3.25), "3.2"), (Some(345.6), "346")] {
            assert_eq!(rate_text(rate), text);
        }
    }
}
