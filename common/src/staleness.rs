//! Rule 1: a block applies a group's clock-c gradient only while c − m ≤ s.

use crate::clock::Clock;

/// How far the fastest live group's clock may lead the slowest live group's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StalenessBound {
    /// At most `s` exchanges: stale synchronous parallel (Ho et al. 2013, "More Effective
    /// Distributed ML via a Stale Synchronous Parallel Parameter Server", section 2).
    Finite(u64),
    /// No bound: `async`.
    Unbounded,
}

/// What a block does with a gradient of some clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admit {
    /// Apply it.
    Now,
    /// Hold it until the slowest live group has reached this clock.
    WaitFor(Clock),
}

impl StalenessBound {
    /// Whether a gradient of `clock` may be applied while the slowest live group is at `min`.
    /// The sender's own clock is among those that `min` was taken over, so `min <= clock`.
    pub fn admit(self, clock: Clock, min: Clock) -> Admit {
        match self {
            Self::Finite(s) if clock.0.saturating_sub(min.0) > s => {
                Admit::WaitFor(Clock(clock.0 - s))
            }
            Self::Finite(_) | Self::Unbounded => Admit::Now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Admit::*;

    #[test]
    fn admit() {
        let check = |s, clock, min, want| {
            assert_eq!(
                StalenessBound::Finite(s).admit(Clock(clock), Clock(min)),
                want,
                "s={s} c={clock} m={min}"
            );
        };
        check(0, 0, 0, Now);
        check(0, 1, 0, WaitFor(Clock(1)));
        check(3, 3, 0, Now);
        check(3, 4, 0, WaitFor(Clock(1)));
        check(3, 4, 1, Now);
        check(3, 0, 5, Now);
        assert_eq!(
            StalenessBound::Unbounded.admit(Clock(u64::MAX), Clock(0)),
            Now
        );
    }
}
