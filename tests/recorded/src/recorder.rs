//! What was asked and answered, as it happens.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tradewind_history::{Action, Answer, History, Life, Operation, Verdict, Version};
use tradewind_proto::v1::{self, PullFrame};

/// Writes down operations and lives by one clock.
pub(super) struct Recorder {
    started: Instant,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    operations: Vec<Operation>,
    lives: Vec<Life>,
}

/// An operation that was written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number(usize);

impl Recorder {
    #[expect(clippy::disallowed_methods, reason = "the clock of what is recorded")]
    pub(super) fn start() -> Self {
        Self {
            started: Instant::now(),
            kept: Mutex::default(),
        }
    }

    /// Microseconds since it began.
    pub(super) fn now_us(&self) -> u64 {
        self.started.elapsed().as_micros() as u64
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something is about to be sent: the operation without number, start and answer.
    pub(super) fn sent(&self, operation: Operation) -> Number {
        let mut kept = self.kept();
        let at = kept.operations.len();
        kept.operations.push(Operation {
            number: at as u64 + 1,
            start_us: self.now_us(),
            ..operation
        });
        Number(at)
    }

    /// It was answered.
    ///
    /// # Panics
    /// If the answer is none that it can have.
    pub(super) fn answered(&self, Number(at): Number, frame: &PullFrame) {
        let end_us = self.now_us();
        let mut kept = self.kept();
        kept.operations[at].answer = Some(Answer {
            end_us,
            verdict: match frame.verdict() {
                v1::Verdict::Applied => Verdict::Applied,
                v1::Verdict::Dropped => Verdict::Dropped,
                v1::Verdict::Skipped => Verdict::Skipped,
                v1::Verdict::Read => Verdict::Read,
                other => panic!("{other:?} is no answer to {:?}", kept.operations[at]),
            },
            repeated: frame.repeated_verdict,
            of: version(frame),
            delay: frame.delay,
            samples: frame.samples_applied,
            digest: hexadecimal(&frame.values),
            counts: Some(counts(&frame.values)),
        });
    }

    /// A life of a group may push.
    pub(super) fn lives(&self, group: u32, incarnation: u64, start_clock: u64) {
        let from_us = self.now_us();
        self.kept().lives.push(Life {
            group,
            incarnation,
            start_clock,
            from_us,
            to_us: Some(from_us),
        });
    }

    /// It was live at least until then: a heartbeat that was sent then was answered.
    pub(super) fn lived(&self, group: u32, incarnation: u64, to_us: u64) {
        let mut kept = self.kept();
        let mut lives = kept.lives.iter_mut();
        let life = lives.find(|life| (life.group, life.incarnation) == (group, incarnation));
        if let Some(life) = life {
            life.to_us = life.to_us.max(Some(to_us));
        }
    }

    /// Adds all of it to a history.
    pub(super) fn fill(&self, history: &mut History) {
        let kept = self.kept();
        history.operations.extend(kept.operations.iter().cloned());
        history.lives.extend(kept.lives.iter().cloned());
    }
}

pub(super) fn version(frame: &PullFrame) -> Version {
    Version {
        lineage: frame.lineage,
        version: frame.version,
    }
}

/// An operation as [`Recorder::sent`] takes it.
pub(super) fn operation(
    (group, incarnation, clock): (u32, u64, u64),
    block: u32,
    action: Action,
) -> Operation {
    Operation {
        number: 0,
        start_us: 0,
        group,
        incarnation,
        clock,
        block,
        action,
        computed_on: None,
        answer: None,
    }
}

fn counts(values: &[u8]) -> Vec<f64> {
    let value = |four: &[u8]| f32::from_le_bytes(four.try_into().expect("four bytes"));
    // 0 has a sign.
    let count = |four: &[u8]| 0.0 - f64::from(value(four));
    values.chunks(4).map(count).collect()
}

/// The bytes are few: they are their own digest.
fn hexadecimal(values: &[u8]) -> String {
    values.iter().map(|byte| format!("{byte:02x}")).collect()
}
