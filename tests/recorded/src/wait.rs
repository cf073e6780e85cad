//! Waiting for what other processes do.

use std::time::Duration;

/// Pause between two looks at something that is waited for.
const LOOK: Duration = Duration::from_millis(50);

/// Looks before a wait is given up: two minutes on an idle machine, for a slow and noisy one.
const LOOKS_MAX: u32 = 2400;

/// Waits until `look` finds something.
///
/// # Panics
/// After two minutes, naming what was waited for.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..LOOKS_MAX {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(LOOK);
    }
    panic!("waited in vain for {what}");
}

/// As [`wait_for`], on a runtime.
///
/// # Panics
/// After two minutes, naming what was waited for.
pub(crate) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..LOOKS_MAX {
        if let Some(found) = look().await {
            return found;
        }
        tokio::time::sleep(LOOK).await;
    }
    panic!("waited in vain for {what}");
}
