//! The orders of a server's process: one at a time, and none of a coordinator that another has followed.

use std::collections::VecDeque;

use tradewind_core::order::Order;

/// What a process does next.
pub(super) enum Next {
    /// It reads what the first of its orders needs.
    Read,
    /// It obeys this one.
    Obey(Box<Order>),
}

/// Orders that have come.
#[derive(Debug, Default)]
pub(super) struct Orders {
    /// The highest incarnation of a coordinator that was obeyed.
    obeyed: u64,
    waiting: VecDeque<Box<Order>>,
    /// The first of them needs something that is being read.
    reading: bool,
}

impl Orders {
    /// The highest incarnation of a coordinator that was obeyed.
    pub(super) fn obeyed(&self) -> u64 {
        self.obeyed
    }

    /// An order of this coordinator comes; `false` if another has followed that one.
    pub(super) fn push(&mut self, coordinator: u64, order: Box<Order>) -> bool {
        if coordinator < self.obeyed {
            return false;
        }
        self.obeyed = coordinator;
        self.waiting.push_back(order);
        true
    }

    /// What is to be done next, if anything is.
    pub(super) fn next(&mut self, must_read: impl Fn(&Order) -> bool) -> Option<Next> {
        let first = self.waiting.front().filter(|_| !self.reading)?;
        if must_read(first) {
            self.reading = true;
            return Some(Next::Read);
        }
        self.waiting.pop_front().map(Next::Obey)
    }

    /// What the first order needed has been read.
    pub(super) fn read(&mut self) -> Box<Order> {
        self.reading = false;
        self.waiting.pop_front().expect("it was being obeyed")
    }
}
