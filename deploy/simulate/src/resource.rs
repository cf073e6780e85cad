//! Something that serves one after the other: a link's direction, the cores of a server.

use crate::time::Nanos;

/// Serves in the order of requests, and counts how busy it was.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resource {
    /// Serves nobody else before.
    free: Nanos,
    busy: Nanos,
    /// The longest that somebody waited.
    waited_max: Nanos,
    /// When somebody first waited longer than `patience`.
    saturated: Option<Nanos>,
    patience: Nanos,
}

impl Resource {
    /// A wait longer than `patience` is told as saturation.
    pub(crate) fn new(patience: Nanos) -> Self {
        Self {
            patience,
            ..Self::default()
        }
    }

    /// Serves a request that comes at `at` for so long. Answers when that begins and ends.
    pub(crate) fn serve(&mut self, at: Nanos, service: Nanos) -> (Nanos, Nanos) {
        let begins = self.free.max(at);
        let waited = begins - at;
        self.waited_max = self.waited_max.max(waited);
        if waited > self.patience && self.saturated.is_none() {
            self.saturated = Some(at);
        }
        self.busy += service;
        self.free = begins + service;
        (begins, self.free)
    }

    /// Serves nobody before this time.
    pub(crate) fn stand_still(&mut self, until: Nanos) {
        self.free = self.free.max(until);
    }

    pub(crate) fn busy(&self) -> Nanos {
        self.busy
    }

    pub(crate) fn waited_max(&self) -> Nanos {
        self.waited_max
    }

    pub(crate) fn saturated(&self) -> Option<Nanos> {
        self.saturated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serves_one_after_the_other() {
        let mut link = Resource::new(5);
        assert_eq!(link.serve(10, 4), (10, 14));
        assert_eq!(link.serve(11, 4), (14, 18));
        assert_eq!(link.saturated(), None, "nobody waited for more than 5");
        assert_eq!(link.serve(12, 4), (18, 22));
        assert_eq!((link.saturated(), link.waited_max()), (Some(12), 6));
        link.stand_still(100);
        assert_eq!(link.serve(50, 1), (100, 101));
        assert_eq!(link.busy(), 13);
    }
}
