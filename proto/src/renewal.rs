//! How a process that goes on for long keeps a certificate that is valid. When two thirds of its life have passed, the
//! process makes a new key and asks an authority for another certificate: over mutual TLS, in which the one it has is
//! its proof. It is told where by a line behind its certificates, and asks for nothing where there is none. In the same
//! way the task of a server asks for the authority's key.

use std::convert::Infallible;
use std::io;
use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::sleep;
use tokio_rustls::rustls::pki_types::UnixTime;

use crate::authorities::{RenewedAt, ask};
use crate::authority::{EARLIER_S, Key};
use crate::connector::Connector;
use crate::tls::Tls;

/// Pause after the first try that failed, and the longest one: each is twice as long as the one before.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(600);

/// Longest sleep at a time, seconds: the clock may be set meanwhile.
const SLEEP_S: u64 = 600;

/// What is asked for: a certificate of who has connected, for another key. A line of JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Renewal {
    /// [`Key::public`].
    pub public: Vec<u8>,
}

/// What is asked for: all that makes the authority, [`HandedOn`](crate::authority::HandedOn), by who has connected. A line
/// of JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Succession {
    /// To keep the key beside who is asked.
    HandOn,
}

/// Who has its certificate renewed.
#[derive(Debug)]
pub struct Renewing {
    tls: Tls,
    at: RenewedAt,
}

/// How an attempt came out, for the log and for who counts.
#[derive(Debug)]
pub enum Attempt {
    /// A new certificate is shown from now on.
    Renewed,
    /// There is none yet, and why. It is tried again.
    Failed(String),
}

impl Renewing {
    /// Of a process that shows this; `None` if nobody renews it.
    pub fn of(tls: &Tls) -> Option<Self> {
        Some(Self {
            tls: tls.clone(),
            at: RenewedAt::of(tls.renewed_at()?),
        })
    }

    /// Renews for ever, and tells of each attempt.
    pub async fn keep(self, mut tell: impl FnMut(Attempt)) -> Infallible {
        let mut pause = PAUSE_MIN;
        loop {
            // Nobody can say when it ends that cannot be read: it was read before.
            let due_s = self
                .tls
                .valid()
                .map_or(0, |valid| due_s(&valid, self.spread()));
            let left_s = due_s.saturating_sub(now_s());
            if let Ok(left_s) = u64::try_from(left_s)
                && left_s > 0
            {
                sleep(Duration::from_secs(left_s.min(SLEEP_S))).await;
                continue;
            }
            let failed = match self.ask().await {
                Ok(()) => {
                    pause = PAUSE_MIN;
                    tell(Attempt::Renewed);
                    continue;
                }
                Err(error) => error,
            };
            self.tls.count_failed_renewal();
            tell(Attempt::Failed(format!(
                "no new certificate is issued: {failed}"
            )));
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Another number for each certificate: those of a whole fleet are issued within seconds, and not renewed so.
    fn spread(&self) -> u8 {
        self.tls.last_byte()
    }

    /// Asks once, those that are there by now.
    async fn ask(&self) -> io::Result<()> {
        let key = Key::new().map_err(io::Error::other)?;
        let addresses = self.at.addresses().await?;
        let public = key.public().to_vec();
        let connector = Connector::new(Some(&self.tls));
        let asked = ask::<String>(&connector, &addresses, &Renewal { public }).await;
        match asked.map_err(io::Error::other)? {
            Ok(certificates) => {
                let taken = self.tls.replace(&key.pass(&certificates));
                taken.map_err(io::Error::other)
            }
            Err(refused) => Err(io::Error::other(refused.to_string())),
        }
    }
}

/// Whether a [pass](Key::pass) has two thirds of its life left behind, so that another one is better begun with.
pub fn is_due(pass: &str) -> bool {
    let valid = Tls::from_pem(pass).ok().and_then(|tls| tls.valid());
    valid.is_none_or(|valid| due_s(&valid, 0) <= now_s())
}

/// Whether a [pass](Key::pass) is good for nothing any more, by its times.
pub fn is_over(pass: &str) -> bool {
    let valid = Tls::from_pem(pass).ok().and_then(|tls| tls.valid());
    valid.is_none_or(|valid| valid.end <= now_s())
}

/// When a certificate is renewed that is valid at these times: after two thirds of its life, and up to a twelfth more.
fn due_s(valid: &Range<i64>, spread: u8) -> i64 {
    let issued = valid.start.saturating_add(EARLIER_S);
    let life = valid.end.saturating_sub(issued).max(0);
    issued + life / 3 * 2 + life / 12 * i64::from(spread) / 256
}

fn now_s() -> i64 {
    UnixTime::now().as_secs().cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::{Authority, LIFE_S};
    use tradewind_common::identity::Identity;

    fn valid(pass: &str) -> Range<i64> {
        Tls::from_pem(pass).unwrap().valid().unwrap()
    }

    #[test]
    fn it_is_due_after_two_thirds_of_its_life_and_not_all_at_once() {
        let authority = Authority::lasting("climate", 1200).unwrap();
        let pass = authority.pass(&Identity::Person(None)).unwrap();
        let valid = valid(&pass);
        assert_eq!(valid.end - valid.start, EARLIER_S + 1200);
        let issued = valid.end - 1200;
        assert_eq!(due_s(&valid, 0), issued + 800);
        assert_eq!(due_s(&valid, 128), issued + 850);
        assert!(due_s(&valid, 255) < issued + 900);
        assert!(!is_due(&pass));
        let hour = 3600;
        let old = authority.pass_for(&Identity::Person(None), -2 * hour..600);
        let old = old.unwrap();
        assert!(is_due(&old) && !is_over(&old));
        let over = authority.pass_for(&Identity::Person(None), -2 * hour..-1);
        assert!(is_over(&over.unwrap()));
        assert!(is_due("no pass"));
    }

    #[tokio::test]
    async fn what_fails_is_counted_and_tried_again() {
        let authority = Authority::lasting("climate", 600).unwrap();
        // Nobody listens there.
        authority.renews_at("127.0.0.1:1".into());
        let old = authority.pass_for(&Identity::Server(None), -7200..600);
        let tls = Tls::from_pem(&old.unwrap()).unwrap();
        let (told, mut attempts) = tokio::sync::mpsc::unbounded_channel();
        let keeping = tokio::spawn(Renewing::of(&tls).unwrap().keep(move |attempt| {
            let _ = told.send(attempt);
        }));
        for count in 1..=2 {
            let attempt = attempts.recv().await.unwrap();
            let Attempt::Failed(why) = attempt else {
                panic!("{attempt:?}");
            };
            assert!(why.contains("the authority at 127.0.0.1:1"), "{why}");
            assert_eq!(tls.renewals_failed(), count);
        }
        keeping.abort();
    }

    #[test]
    fn the_authority_and_its_own_process_outlive_what_they_issue() {
        let authority = Authority::new("climate").unwrap();
        let issued = valid(&authority.pass(&Identity::Server(None)).unwrap());
        assert_eq!(issued.end - issued.start, EARLIER_S + i64::from(LIFE_S));
        let own = authority.own_pass(&Identity::Server(None)).unwrap();
        // The last second of the year 9999.
        assert_eq!(valid(&own).end, 253_402_300_799);
        assert_eq!(Tls::from_pem(&own).unwrap().renewed_at(), None);
    }

    #[test]
    fn what_is_shown_is_replaced_in_all_that_show_it() {
        let (authority, other) = (
            Authority::lasting("climate", 600).unwrap(),
            Authority::new("another").unwrap(),
        );
        authority.renews_at("10.0.0.1:7".into());
        let shown = Tls::from_pem(&authority.pass(&Identity::Server(None)).unwrap()).unwrap();
        assert_eq!(shown.renewed_at(), Some("10.0.0.1:7"));
        let clone = shown.clone();
        let valid_s = -60..6000;
        let later = authority.pass_for(&Identity::Server(None), valid_s);
        shown.replace(&later.unwrap()).unwrap();
        let valid = clone.valid().unwrap();
        assert_eq!(valid.end - valid.start, 6060);
        let of_other = other.pass(&Identity::Server(None)).unwrap();
        let refused = shown.replace(&of_other).unwrap_err().to_string();
        assert!(refused.contains("of another authority"), "{refused}");
        assert_eq!(clone.valid().unwrap(), valid);
    }
}
