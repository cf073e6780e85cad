//! Which server hosts the coordinator, and who is asked when that one is gone.
//!
//! To ask too often is harmless: every coordinator has a higher incarnation than those before it,
//! and they can do nothing any more.

use std::collections::BTreeSet;

/// Pause before all are asked again when none could.
const PAUSE_MS: u64 = 500;

#[derive(Debug)]
pub(super) struct Hosting {
    /// Who hosts it, or was started to.
    at: Option<u32>,
    /// Who has been asked.
    asked: Option<u32>,
    /// Who was asked and could not.
    tried: BTreeSet<u32>,
    /// Nobody is asked before.
    not_before_ms: u64,
    /// Since when the host says that it does not host it.
    denies_since_ms: Option<u64>,
    /// What became of the last host.
    why: String,
}

impl Hosting {
    pub(super) fn at(server: u32) -> Self {
        Self {
            at: Some(server),
            asked: None,
            tried: BTreeSet::new(),
            not_before_ms: 0,
            denies_since_ms: None,
            why: String::new(),
        }
    }

    /// Who hosts it, as far as is known.
    pub(super) fn host(&self) -> Option<u32> {
        self.at
    }

    /// Whether this server hosts it, as far as is known.
    pub(super) fn is_at(&self, server: u32) -> bool {
        self.at == Some(server)
    }

    /// A server has died.
    pub(super) fn died(&mut self, server: u32, how: &str) {
        if self.at == Some(server) {
            self.lost(format!("server {server} {how}"));
        }
        if self.asked == Some(server) {
            self.asked = None;
        }
    }

    /// A server said whether it hosts the coordinator.
    pub(super) fn said(&mut self, server: u32, coordinates: bool, lease_ms: u64, now_ms: u64) {
        if self.at == Some(server) {
            if coordinates {
                self.denies_since_ms = None;
                return;
            }
            let since = *self.denies_since_ms.get_or_insert(now_ms);
            if now_ms.saturating_sub(since) >= lease_ms {
                self.lost(format!("server {server} hosts it no longer"));
            }
        } else if coordinates && self.asked.is_none() {
            // The present host denies it, or there is none: this one is later than what was known.
            if self.at.is_none() || self.denies_since_ms.is_some() {
                *self = Self::at(server);
            }
        }
    }

    /// Whom to ask to host it, of those that are up; `None` if nobody need be asked now.
    pub(super) fn ask(&mut self, up: &[(u32, u64)], now_ms: u64) -> Option<(u32, u64)> {
        if self.at.is_some() || self.asked.is_some() || now_ms < self.not_before_ms {
            return None;
        }
        let untried = |(server, _): &&(u32, u64)| !self.tried.contains(server);
        let next = up.iter().filter(untried).min().copied();
        match next {
            Some((server, _)) => self.asked = Some(server),
            None if !self.tried.is_empty() => {
                self.tried.clear();
                self.not_before_ms = now_ms + PAUSE_MS;
            }
            None => {}
        }
        next
    }

    /// Whether a server that is being started shall host it from the start: if nobody else can.
    pub(super) fn begins_at(&mut self, server: u32, alone: bool) -> bool {
        let begins = self.at.is_none() && self.asked.is_none() && alone;
        if begins {
            self.at = Some(server);
            self.tried.clear();
        }
        begins
    }

    /// The server that was asked hosts it, or could not. A sentence about it if it does.
    pub(super) fn answered(&mut self, server: u32, hosts: bool, now_ms: u64) -> Option<String> {
        if self.asked != Some(server) {
            return None;
        }
        self.asked = None;
        if !hosts {
            self.tried.insert(server);
            return None;
        }
        let why = std::mem::take(&mut self.why);
        *self = Self::at(server);
        self.not_before_ms = now_ms;
        Some(format!("server {server} hosts the coordinator now: {why}"))
    }

    pub(super) fn forgive(&mut self, gap_ms: u64) {
        self.denies_since_ms = self.denies_since_ms.map(|since| since + gap_ms);
    }

    fn lost(&mut self, why: String) {
        self.at = None;
        self.tried.clear();
        self.not_before_ms = 0;
        self.denies_since_ms = None;
        self.why = why;
    }
}
