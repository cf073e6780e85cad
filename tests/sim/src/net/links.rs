//! Connections that keep their order until they break. What was under way on one that broke may still
//! arrive for a while, also when the next one is there.

use std::collections::BTreeMap;

/// A connection, or what is left of one.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    /// When the last message arrives, one way and back.
    last_us: [u64; 2],
    /// What would arrive later does not.
    until_us: Option<u64>,
    /// Nothing passes while this lasts; it goes on then.
    held_until_us: u64,
}

/// The connections, by number.
#[derive(Debug, Default)]
pub(super) struct Links {
    links: BTreeMap<u64, Link>,
    last: u64,
}

impl Links {
    pub(super) fn open(&mut self) -> u64 {
        self.last += 1;
        self.links.insert(self.last, Link::default());
        self.last
    }

    /// Whether a message that arrives now does.
    pub(super) fn delivers(&self, number: u64, now_us: u64) -> bool {
        let link = self.links.get(&number);
        link.is_some_and(|link| link.until_us.is_none_or(|until| now_us <= until))
    }

    /// Whether it has not broken.
    pub(super) fn lives(&self, number: u64) -> bool {
        let link = self.links.get(&number);
        link.is_some_and(|link| link.until_us.is_none())
    }

    /// From when on a message that is sent now passes; `None` on one that has broken.
    pub(super) fn passes_from(&self, number: u64, now_us: u64) -> Option<u64> {
        let link = self.links.get(&number)?;
        let from_us = now_us.max(link.held_until_us);
        link.until_us.is_none().then_some(from_us)
    }

    /// When a message arrives that is sent now, passes from `from_us` on and takes so long: after
    /// whatever was sent before it in its direction.
    pub(super) fn carry(
        &mut self,
        (number, back): (u64, bool),
        (now_us, from_us): (u64, u64),
        delay_us: u64,
    ) -> Option<u64> {
        let link = self.links.get_mut(&number)?;
        let last_us = &mut link.last_us[usize::from(back)];
        // What is late makes all that follow it on its connection late.
        *last_us = (from_us + delay_us).max(*last_us + 1);
        link.held_until_us = if from_us > now_us { from_us } else { 0 };
        Some(*last_us)
    }

    /// Breaks it: what would arrive later than this does not.
    pub(super) fn end(&mut self, number: u64, until_us: u64) {
        if let Some(link) = self.links.get_mut(&number) {
            let until = link.until_us.unwrap_or(u64::MAX);
            link.until_us = Some(until.min(until_us));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_keeps_its_order_each_way() {
        let mut links = Links::default();
        let one = links.open();
        let slow = links.carry((one, false), (0, 0), 500);
        let quick = links.carry((one, false), (10, 10), 5);
        let back = links.carry((one, true), (10, 10), 5);
        assert_eq!((slow, quick, back), (Some(500), Some(501), Some(15)));
    }

    #[test]
    fn what_is_under_way_on_a_broken_one_may_still_arrive() {
        let mut links = Links::default();
        let one = links.open();
        links.end(one, 50);
        links.end(one, 70);
        assert!(!links.lives(one) && links.passes_from(one, 10).is_none());
        assert!(links.delivers(one, 50) && !links.delivers(one, 51));
        let next = links.open();
        assert!(links.lives(next) && next != one);
    }
}
