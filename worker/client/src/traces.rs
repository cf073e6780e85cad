//! What the rank of this process tells of its steps, where traces are asked for. Without them a range costs a load and
//! a branch more.

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::Duration;

use tradewind_common::{Clock, GroupId, Rank};
use tradewind_traces::{BadCollector, Span, Tracer, Who};

use crate::coordinator::RankId;
use crate::rank_settings::RankSettings;
use crate::stopwatch::wall;

static TRACES: OnceLock<RankTraces> = OnceLock::new();

thread_local! {
    /// The step that is taken on this thread.
    static STEP: Cell<Option<Clock>> = const { Cell::new(None) };
}

struct RankTraces {
    tracer: Tracer,
    run: String,
    group: GroupId,
    rank: Rank,
}

/// From now on the rank of this process, which is the only one, tells a collector of its steps, if there is one.
///
/// # Errors
/// The address is none.
pub fn start(settings: &RankSettings, collector: Option<&str>) -> Result<(), BadCollector> {
    let Some(collector) = collector else {
        return Ok(());
    };
    let RankId { run, group, rank } = &settings.id;
    let process = format!("group {group} rank {rank}");
    let secret = settings.reach.credentials.token().secret();
    let tracer = Tracer::start(collector, process, secret, &settings.runtime)?;
    TRACES.get_or_init(|| RankTraces {
        tracer,
        run: run.to_string(),
        group: *group,
        rank: *rank,
    });
    Ok(())
}

/// Waits until what was told has been sent, or is lost; a second or two at most.
pub fn flush() {
    if let Some(traces) = TRACES.get() {
        traces.tracer.flush();
        let lost = tradewind_traces::lost();
        if lost > 0 {
            tracing::warn!(lost, "parts of steps are missing in the traces");
        }
    }
}

/// A step, or a part of it, that has begun.
#[derive(Debug)]
pub(crate) struct Began {
    part: Option<&'static str>,
    clock: Clock,
    begun_ns: u64,
}

/// A step begins on this thread.
pub(crate) fn step(clock: Clock) -> Option<Began> {
    TRACES.get()?;
    STEP.set(Some(clock));
    Some(Began::now(None, clock))
}

/// A part begins: of the step with this clock, or of the one that is taken on this thread.
pub(crate) fn part(name: &'static str, clock: Option<Clock>) -> Option<Began> {
    TRACES.get()?;
    let clock = clock.or_else(|| STEP.get())?;
    Some(Began::now(Some(name), clock))
}

/// A step ends now that has taken so long, where it was not known that it began.
pub fn step_was(clock: Clock, took: Duration) {
    if TRACES.get().is_some() {
        let mut began = Began::now(None, clock);
        began.begun_ns = began.begun_ns.saturating_sub(took.as_nanos() as u64);
        began.end();
    }
}

impl Began {
    fn now(part: Option<&'static str>, clock: Clock) -> Self {
        Self {
            part,
            clock,
            begun_ns: now_ns(),
        }
    }

    /// It ends, on the thread where it has begun.
    pub(crate) fn end(&self) {
        let Some(traces) = TRACES.get() else {
            return;
        };
        let RankTraces {
            tracer,
            run,
            group,
            rank: Rank(rank),
        } = traces;
        let span = |who| Span {
            group: *group,
            clock: self.clock,
            who,
            begun_ns: self.begun_ns,
            ended_ns: now_ns(),
            counts: Vec::new(),
        };
        match self.part {
            Some(part) => tracer.tell(run, span(Who::Part(*rank, part))),
            None => {
                STEP.set(None);
                tracer.tell(run, span(Who::Rank(*rank)));
                // One of them tells of the step as a whole.
                if *rank == 0 {
                    tracer.tell(run, span(Who::Group));
                }
            }
        }
    }
}

fn now_ns() -> u64 {
    (wall() * 1e9) as u64
}
