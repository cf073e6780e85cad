//! A primary's ways to its copies.

use std::collections::BTreeMap;

use tradewind_common::{Generation, Incarnation, ServerId};

use super::event::Life;

/// A primary's way to a copy.
#[derive(Clone, Copy, Debug)]
struct Way {
    since: Generation,
    incarnation: Incarnation,
    /// Of the connection; `None` before one was opened.
    number: Option<u64>,
    linked: bool,
}

/// A primary's ways, by the server that they lead to.
#[derive(Debug, Default)]
pub(super) struct Ways {
    ways: BTreeMap<ServerId, Way>,
}

/// What has become of ways.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    /// Connections that are not needed any more.
    pub(super) gone: Vec<u64>,
    /// Servers to which a connection has to be opened.
    pub(super) new: Vec<ServerId>,
}

/// Copies that a primary shall have: since when each is one, and which life of its server.
pub(super) type Wanted = BTreeMap<ServerId, (Generation, Incarnation)>;

impl Ways {
    /// There are ways to these copies, and no others.
    pub(super) fn follow(&mut self, wanted: &Wanted) -> Changed {
        let stays =
            |to: &ServerId, way: &Way| wanted.get(to) == Some(&(way.since, way.incarnation));
        let gone = self.ways.extract_if(.., |to, way| !stays(to, way));
        let gone = gone.filter_map(|(_, way)| way.number).collect();
        let mut new = Vec::new();
        for (to, (since, incarnation)) in wanted {
            self.ways.entry(*to).or_insert_with(|| {
                new.push(*to);
                Way {
                    since: *since,
                    incarnation: *incarnation,
                    number: None,
                    linked: false,
                }
            });
        }
        Changed { gone, new }
    }

    /// A connection has been opened for a way that had none.
    pub(super) fn opened(&mut self, to: ServerId, number: u64) {
        if let Some(way) = self.ways.get_mut(&to) {
            way.number = Some(number);
        }
    }

    /// The connection of a way is tried: whether it is there, which it is if nothing is `cut` and the
    /// copy's process is `up`; `None` if it is of no way any more.
    pub(super) fn link(
        &mut self,
        to: ServerId,
        number: u64,
        up: Option<Incarnation>,
        cut: bool,
    ) -> Option<bool> {
        let way = self.ways.get_mut(&to)?;
        if way.number != Some(number) {
            return None;
        }
        way.linked |= !cut && up == Some(way.incarnation);
        Some(!cut && up == Some(way.incarnation))
    }

    /// The connection of a way broke, and another one is to be tried; whether it was of any.
    pub(super) fn unlink(&mut self, to: ServerId, number: u64, fresh: u64) -> bool {
        let way = self.ways.get_mut(&to);
        let Some(way) = way.filter(|way| way.number == Some(number)) else {
            return false;
        };
        (way.number, way.linked) = (Some(fresh), false);
        true
    }

    /// The connection to a copy that is there, and which process it leads to.
    pub(super) fn linked(&self, to: ServerId) -> Option<(u64, Life)> {
        let way = self.ways.get(&to).filter(|way| way.linked)?;
        let incarnation = way.incarnation;
        let life = Life {
            server: to,
            incarnation,
        };
        Some((way.number?, life))
    }

    /// The connection to a process, whether it is there or only tried.
    pub(super) fn to(&self, life: Life) -> Option<u64> {
        let way = self.ways.get(&life.server)?;
        way.number.filter(|_| way.incarnation == life.incarnation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_of_one_process_of_a_copy() {
        let copy = |incarnation| (Generation(3), Incarnation(incarnation));
        let mut ways = Ways::default();
        let first = Wanted::from([(ServerId(1), copy(1)), (ServerId(2), copy(1))]);
        let changed = ways.follow(&first);
        assert_eq!(changed.new, [ServerId(1), ServerId(2)]);
        ways.opened(ServerId(1), 7);
        ways.opened(ServerId(2), 8);
        assert_eq!(
            ways.link(ServerId(1), 7, Some(Incarnation(1)), true),
            Some(false)
        );
        assert_eq!(
            ways.link(ServerId(1), 7, Some(Incarnation(1)), false),
            Some(true)
        );
        assert_eq!(ways.linked(ServerId(1)).map(|(number, _)| number), Some(7));
        assert!(ways.linked(ServerId(2)).is_none());
        let later = Wanted::from([(ServerId(1), copy(2))]);
        let changed = ways.follow(&later);
        assert_eq!((changed.gone, changed.new), (vec![7, 8], vec![ServerId(1)]));
        assert_eq!(ways.link(ServerId(1), 7, Some(Incarnation(1)), false), None);
    }
}
