//! Ranges of a step that a profiler shows: NVTX, which Nsight Systems reads. Traces are made of the same
//! ([`traces`]).
//!
//! ```text
//! step 12     data │ forward │ backward │ reduce │ exchange 12 │ reduce
//!
//! with an exchange on a thread of its own:
//! step 12     data │ forward │ backward │ reduce │ wait │ reduce
//!             exchange 11                              │ exchange 12
//! ```
//!
//! NVTX loads a tool if there is one (`NVTX_INJECTION64_PATH` names it; `nsys` sets it) when the
//! first range opens. Without a tool a range costs its name, a few tens of nanoseconds; with
//! `TRADEWIND_NVTX=0` it costs a load and a branch, and no tool is looked for.

use std::fmt::{Display, Formatter, Result};
use std::marker::PhantomData;
use std::sync::LazyLock;

use tradewind_common::{Clock, environment};

use crate::traces::{self, Began};

/// The variable that turns ranges off, with the value `0`.
pub const SWITCH: &str = environment::NVTX;

static ON: LazyLock<bool> =
    LazyLock::new(|| std::env::var_os(SWITCH).is_none_or(|value| value != "0"));

/// A part of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// All of it, under the clock of its exchange.
    Step(Clock),
    /// Until the batch is there.
    Data,
    /// From the batch to the loss.
    Forward,
    /// From the loss to the gradients, reductions included.
    Backward,
    /// Agreement, and what the group's ranks gather.
    Reduce,
    /// Push and pull of the step of this clock, on whichever thread it runs.
    Exchange(Clock),
    /// Until an exchange on a thread of its own has ended.
    Wait,
}

impl Range {
    /// As traces have it.
    fn begin(self) -> Option<Began> {
        match self {
            Self::Step(clock) => traces::step(clock),
            Self::Data => traces::part("data", None),
            Self::Forward => traces::part("forward", None),
            Self::Backward => traces::part("backward", None),
            Self::Reduce => traces::part("reduce", None),
            Self::Exchange(clock) => traces::part("exchange", Some(clock)),
            Self::Wait => traces::part("wait", None),
        }
    }
}

impl Display for Range {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Step(clock) => write!(f, "step {clock}"),
            Self::Data => f.write_str("data"),
            Self::Forward => f.write_str("forward"),
            Self::Backward => f.write_str("backward"),
            Self::Reduce => f.write_str("reduce"),
            Self::Exchange(clock) => write!(f, "exchange {clock}"),
            Self::Wait => f.write_str("wait"),
        }
    }
}

/// A range that ends when this is dropped, on the thread where it has begun.
#[must_use = "the range ends when this is dropped"]
#[derive(Debug)]
pub struct Open {
    shown: bool,
    began: Option<Began>,
    /// NVTX keeps a stack for each thread.
    here: PhantomData<*const ()>,
}

/// Begins a range on this thread, inside those that are open there.
pub fn open(range: Range) -> Open {
    let shown = *ON;
    if shown {
        nvtx::range_push!("{range}");
    }
    Open {
        shown,
        began: range.begin(),
        here: PhantomData,
    }
}

/// A range around `work`.
pub fn within<T>(range: Range, work: impl FnOnce() -> T) -> T {
    let _open = open(range);
    work()
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(began) = &self.began {
            began.end();
        }
        if self.shown {
            nvtx::range_pop!();
        }
    }
}
