//! Leases: permission that expires unless it is renewed by heartbeats.

/// One lease; the default has run out. Times are milliseconds of the caller's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    until_ms: u64,
    length_ms: u64,
}

impl Lease {
    /// A lease of `length_ms` from `now_ms`.
    pub fn grant(now_ms: u64, length_ms: u64) -> Self {
        Self {
            until_ms: now_ms.saturating_add(length_ms),
            length_ms,
        }
    }

    /// Starts it anew from `now_ms`. A renewal that arrives late or out of order never shortens it.
    pub fn renew(&mut self, now_ms: u64) {
        self.until_ms = self.until_ms.max(now_ms.saturating_add(self.length_ms));
    }

    /// Lengthens it by a time in which its keeper could hear no renewal.
    pub fn forgive(&mut self, gap_ms: u64) {
        self.until_ms = self.until_ms.saturating_add(gap_ms);
    }

    /// Whether it has run out.
    pub fn expired(&self, now_ms: u64) -> bool {
        now_ms >= self.until_ms
    }

    /// When it runs out.
    pub fn until_ms(&self) -> u64 {
        self.until_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_holds_until_its_end_and_renewals_never_shorten_it() {
        let mut lease = Lease::grant(100, 50);
        assert!(!lease.expired(149));
        assert!(lease.expired(150));
        lease.renew(120);
        lease.renew(90);
        assert!(!lease.expired(169));
        assert!(lease.expired(170));
        lease.forgive(5);
        assert!(!lease.expired(174));
        assert!(lease.expired(175));
    }
}
