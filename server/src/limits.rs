//! Limits on what a server does for others, and refusals of callers who do not belong to it: each has a name, and
//! is told.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Mutex;

use serde::Serialize;
use tradewind_common::ServerId;
use tradewind_proto::refusal::Reason;
use tradewind_proto::renewal::Attempt;

use crate::clock::{Origin, wall};
use crate::events::{EventLog, EventWriter};
use crate::telemetry;

/// How long nothing more is told of a limit that is reached over and over, milliseconds: an event is a line of a
/// file, and whoever can reach a limit a thousand times a second must not fill the disk. The metric counts all.
const QUIET_MS: u64 = 60_000;

macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident => $word:literal, $text:literal;)*) => {
        /// A limit that can be reached.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Limit {
            $($(#[$doc])* $name,)*
        }

        impl Limit {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The word for programs: label of the metric, field of the event.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$name => $word,)*
                }
            }

            /// What has been done, for people.
            fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

limits! {
    /// A connection has shown no valid token for too long.
    Unshown => "unshown", "a connection that had shown no valid token for too long was closed";
    /// Too many connections have shown no valid token yet.
    Strangers => "strangers", "too many connections had shown no valid token; the oldest of them was closed";
    /// Too many connections from one address.
    Address => "address", "a connection was refused: its address has too many";
    /// Too many connections in all.
    Connections => "connections", "there were too many connections; one that had shown no valid token was closed, or a new one refused";
    /// The process, or the system, has no descriptors left.
    Descriptors => "descriptors", "there was no file descriptor for another connection (see ulimit -n)";
    /// Records that are arriving take all the room there is for them.
    ArrivingBytes => "arriving_bytes", "records that are arriving took all the room there is; one was refused, and comes again";
    /// Nothing more of a record has come for too long.
    Stalled => "stalled", "nothing more of a record came; its stream was ended";
}

/// Whoever ends a handshake has no call that could be refused with a reason.
const NO_TLS: &str = "no-tls";

/// The kind of the event.
const NOT_RENEWED: &str = "certificate_not_renewed";

/// Tells when limits are reached and callers refused: every time in the metric, and in the fleet's events and the log
/// when it is the first time for a while.
#[derive(Debug)]
pub struct Notices {
    /// None, of an authority that is in a launcher.
    server: Option<ServerId>,
    origin: Origin,
    events: Option<EventWriter>,
    /// By word: as many as there are limits and reasons.
    told: Mutex<BTreeMap<&'static str, Told>>,
}

/// What was told of one of them.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// When last.
    at_ms: Option<u64>,
    /// How often it was reached since.
    since: u64,
}

impl Told {
    /// Notes that it is reached now; how often it was since this was told last, if it is to be told again.
    fn reached(&mut self, now_ms: u64) -> Option<u64> {
        self.since = self.since.saturating_add(1);
        let quiet = |at: u64| now_ms.saturating_sub(at) < QUIET_MS;
        if self.at_ms.is_some_and(quiet) {
            return None;
        }
        self.at_ms = Some(now_ms);
        Some(std::mem::take(&mut self.since))
    }
}

/// A line of events.jsonl.
#[derive(Serialize)]
struct Line {
    /// Seconds since 1970.
    wall: f64,
    kind: &'static str,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<&'static str>,
    /// Why callers were refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// How often since the last line about it.
    times: u64,
}

impl Notices {
    /// Of a server, which has no events where it has no folder.
    pub(crate) fn new(server: ServerId, origin: Origin, events: Option<EventWriter>) -> Self {
        Self::of(Some(server), origin, events)
    }

    fn of(server: Option<ServerId>, origin: Origin, events: Option<EventWriter>) -> Self {
        Self {
            server,
            origin,
            events,
            told: Mutex::default(),
        }
    }

    /// Of the authority of certificates, in the events of this folder: that of the launcher, or under Slurm of the task of
    /// a server.
    ///
    /// # Errors
    /// There can be no thread that writes them.
    pub fn of_authority(folder: &Path, server: Option<ServerId>) -> io::Result<Self> {
        let events = EventWriter::start(EventLog::within(folder))?;
        Ok(Self::of(server, Origin::start(), Some(events)))
    }

    /// A limit is reached.
    pub fn reached(&self, limit: Limit) {
        telemetry::limit_reached(limit.word());
        if let Some(times) = self.times(limit.word()) {
            tracing::warn!(limit = limit.word(), times, "{}", limit.text());
            self.tell("limit_reached", limit.text(), times, |line| {
                line.limit = Some(limit.word());
            });
        }
    }

    /// A caller was refused who does not belong here.
    pub fn refused(&self, reason: Reason, text: &str) {
        self.refused_as(reason.word(), text);
    }

    /// A handshake has come to nothing.
    pub(crate) fn no_tls(&self) {
        let text = "a connection was closed whose peer speaks no TLS, or does not believe this server's certificate";
        self.refused_as(NO_TLS, text);
    }

    fn refused_as(&self, reason: &'static str, text: &str) {
        telemetry::caller_refused(reason);
        if let Some(times) = self.times(reason) {
            tracing::warn!(reason, times, "a caller was refused: {text}");
            let text = format!("a caller was refused: {text}");
            self.tell("caller_refused", &text, times, |line| {
                line.reason = Some(reason)
            });
        }
    }

    /// How an attempt to have this process's certificate renewed came out.
    pub fn renewal(&self, attempt: Attempt) {
        match attempt {
            Attempt::Renewed => tracing::info!("the certificate was renewed"),
            Attempt::Failed(why) => self.not_renewed(&why),
        }
    }

    /// Certificates are to be renewed, and are not yet.
    pub fn not_renewed(&self, why: &str) {
        telemetry::not_renewed();
        if let Some(times) = self.times(NOT_RENEWED) {
            tracing::warn!(times, "{why}; it is tried again");
            self.tell(NOT_RENEWED, why, times, |_| ());
        }
    }

    /// How often a limit was reached, in the time in which it is told once.
    #[cfg(test)]
    pub(crate) fn times_reached(&self, limit: Limit) -> u64 {
        let told = self.told.lock().unwrap_or_else(|e| e.into_inner());
        told.get(limit.word())
            .map_or(0, |told| u64::from(told.at_ms.is_some()) + told.since)
    }

    /// How often it has happened since it was told last, if it is to be told now.
    fn times(&self, word: &'static str) -> Option<u64> {
        let mut told = self.told.lock().unwrap_or_else(|e| e.into_inner());
        told.entry(word).or_default().reached(self.origin.now_ms())
    }

    fn tell(&self, kind: &'static str, text: &str, times: u64, more: impl FnOnce(&mut Line)) {
        let Some(events) = &self.events else { return };
        let who = self.server.map_or_else(
            || "the authority of certificates".into(),
            |server| format!("server {server}"),
        );
        let mut line = Line {
            wall: wall(),
            kind,
            text: format!("{who}: {text}"),
            server: self.server.map(|server| server.0),
            limit: None,
            reason: None,
            times,
        };
        more(&mut line);
        events.write(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_reached_over_and_over_is_told_once_a_minute_with_how_often() {
        let mut told = Told::default();
        assert_eq!(told.reached(5), Some(1));
        for now_ms in 6..106 {
            assert_eq!(told.reached(now_ms), None);
        }
        assert_eq!(told.reached(QUIET_MS + 4), None);
        assert_eq!(told.reached(QUIET_MS + 5), Some(102));
        assert_eq!(told.reached(QUIET_MS + 6), None);
    }

    #[test]
    fn each_has_a_word_of_its_own() {
        let words: std::collections::BTreeSet<_> = Limit::ALL.iter().map(|l| l.word()).collect();
        assert_eq!(words.len(), Limit::ALL.len());
    }

    #[test]
    fn what_is_reached_is_in_the_events() {
        let folder = tempfile::tempdir().unwrap();
        let log = crate::events::EventLog::within(folder.path());
        let events = EventWriter::start(log).unwrap();
        let notices = Notices::new(ServerId(3), Origin::start(), Some(events));
        notices.reached(Limit::Address);
        notices.reached(Limit::Address);
        notices.reached(Limit::Unshown);
        drop(notices);
        let text = std::fs::read_to_string(folder.path().join("events.jsonl")).unwrap();
        let lines: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let told: Vec<_> = lines
            .iter()
            .map(|line| (line["kind"].as_str(), line["limit"].as_str()))
            .collect();
        let line = |limit| (Some("limit_reached"), Some(limit));
        assert_eq!(told, [line("address"), line("unshown")]);
        assert_eq!(lines[0]["server"], 3);
    }
}
