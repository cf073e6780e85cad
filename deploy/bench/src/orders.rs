//! The lines between `bench exchange` and its clients: orders go in, JSON comes out.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use tradewind_client::stopwatch::Stopwatch;

use tradewind_process::log::say;

/// What a client shall repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Push gradients and take the fresh values.
    Exchange,
    /// Push gradients; no values come back.
    Push,
    /// Only read.
    Pull,
    /// Exchange, and wait until another coordinator than before has answered a beat.
    Return,
}

/// A line to a client, such as `go exchange 0.5`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Order {
    pub work: Work,
    /// Begin again until so much time has passed, at least once.
    pub seconds: f64,
}

/// A client's first line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// Servers of its fleet.
    pub servers: usize,
    /// Bytes that it moves in each direction when it works once.
    pub bytes: usize,
}

/// A client's answer to an order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// From the order to the end of the last repetition.
    pub elapsed: f64,
    /// Of each repetition; of each rank, where several work at once.
    pub seconds: Vec<f64>,
    /// Where ranks have found another coordinator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beats: Option<Beats>,
}

/// Beats of ranks that have found another coordinator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beats {
    /// From the order to its first answer, of each rank.
    pub seconds: Vec<f64>,
    /// The longest time from one answer to the next, of any rank so far.
    pub silent_seconds: f64,
    /// How often all of them have tried to connect meanwhile.
    pub connects: u64,
}

/// What an order has come to.
#[derive(Clone, Debug, PartialEq)]
pub struct Worked {
    pub seconds: Vec<f64>,
    pub beats: Option<Beats>,
}

impl From<Vec<f64>> for Worked {
    fn from(seconds: Vec<f64>) -> Self {
        let beats = None;
        Self { seconds, beats }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let work = match self.work {
            Work::Exchange => "exchange",
            Work::Push => "push",
            Work::Pull => "pull",
            Work::Return => "return",
        };
        write!(f, "go {work} {}", self.seconds)
    }
}

impl FromStr for Order {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> anyhow::Result<Self> {
        let mut words = line.split_whitespace();
        let (Some("go"), Some(work), Some(seconds), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            bail!("{line:?} is no order; give `go exchange SECONDS`, or push, pull or return");
        };
        let work = match work {
            "exchange" => Work::Exchange,
            "push" => Work::Push,
            "pull" => Work::Pull,
            "return" => Work::Return,
            other => bail!("{other:?} cannot be ordered; give exchange, push, pull or return"),
        };
        let seconds = seconds
            .parse()
            .with_context(|| format!("{seconds:?} is no number of seconds"))?;
        Ok(Self { work, seconds })
    }
}

/// Tells that the client is ready and obeys its orders until its input ends.
pub fn obey(ready: &Ready, mut work: impl FnMut(Work) -> anyhow::Result<()>) -> anyhow::Result<()> {
    answer(ready, |order| {
        let whole = Stopwatch::start();
        let mut lap = whole;
        let mut seconds = Vec::new();
        while seconds.is_empty() || whole.elapsed().as_secs_f64() < order.seconds {
            work(order.work)?;
            seconds.push(lap.lap().as_secs_f64());
        }
        Ok(seconds.into())
    })
}

/// The same, where the work of an order is another: it says which times are told.
pub fn answer(
    ready: &Ready,
    mut work: impl FnMut(Order) -> anyhow::Result<Worked>,
) -> anyhow::Result<()> {
    say(serde_json::to_string(ready)?);
    for line in std::io::stdin().lines() {
        let order: Order = line?.parse()?;
        let whole = Stopwatch::start();
        let Worked { seconds, beats } = work(order)?;
        let elapsed = whole.elapsed().as_secs_f64();
        say(serde_json::to_string(&Done {
            elapsed,
            seconds,
            beats,
        })?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_read_back() {
        for (work, seconds) in [
            (Work::Exchange, 0.5),
            (Work::Push, 2.0),
            (Work::Pull, 0.0),
            (Work::Return, 0.0),
        ] {
            let order = Order { work, seconds };
            assert_eq!(order.to_string().parse::<Order>().unwrap(), order);
        }
        for bad in [
            "",
            "go",
            "go exchange",
            "go exchange x",
            "go on 1",
            "go pull 1 2",
        ] {
            assert!(bad.parse::<Order>().is_err(), "{bad:?}");
        }
    }
}
