//! An answer on its way in: what it says, and its values as they arrive.

use std::ops::Range;

use tradewind_common::{BlockId, Clock, Compression, Generation};
use tradewind_proto::convert::{self, Malformed};
use tradewind_proto::v1::{PullFrame, Verdict};

use crate::core::session::{Answer, Kind};

/// An answer whose values arrive.
pub(crate) struct Arriving {
    pub(crate) answer: Answer,
    into: Into,
    /// Bytes to come.
    left: usize,
}

/// What becomes of the values.
enum Into {
    /// Nobody waits for them.
    Nothing,
    /// They go to this range of the flat vector as they come.
    Values(Range<usize>),
    /// They are added to this range when all of them are here.
    Difference(Range<usize>, Compression, Vec<u8>),
}

/// What an answer without its values says. `values` tells whether they were asked for.
pub(crate) fn answer(frame: &PullFrame, values: bool) -> Answer {
    let verdict = frame.verdict();
    Answer {
        block: BlockId(frame.block),
        clock: Clock(frame.clock),
        kind: match verdict {
            Verdict::Read => Kind::Read,
            Verdict::Created => Kind::Created,
            Verdict::Applied | Verdict::Dropped | Verdict::Skipped | Verdict::Unspecified => {
                Kind::Decided
            }
        },
        next: Clock(frame.next_clock),
        version: frame.version,
        lineage: Generation(frame.lineage),
        values,
        delay: (verdict == Verdict::Applied).then_some(frame.delay),
        dropped: verdict == Verdict::Dropped,
        lag: frame.lag,
        waited_us: frame.waited_us,
        samples_applied: frame.samples_applied,
        stop: frame.stop,
    }
}

impl Arriving {
    /// An answer that nobody waits for; `bulk` bytes of values follow.
    pub(crate) fn unexpected(answer: Answer, bulk: usize) -> Self {
        Self {
            answer,
            into: Into::Nothing,
            left: bulk,
        }
    }

    /// The expected answer of `frame` for the block at `elements`; `down` is the form in which
    /// differences come. Fails if its `bulk` bytes of values cannot be what was asked for.
    pub(crate) fn expected(
        (answer, frame): (Answer, &PullFrame),
        elements: Range<usize>,
        bulk: usize,
        down: Compression,
    ) -> Result<Self, Malformed> {
        let form = if frame.difference {
            down
        } else {
            Compression::None
        };
        if answer.values && frame.dtype != i32::from(convert::dtype(form)) {
            let problem = format!("{} is not the type that was asked for", frame.dtype);
            return Err(Malformed {
                field: "dtype",
                problem,
            });
        }
        let wanted = if answer.values {
            form.encoded_max(elements.len())
        } else {
            0
        };
        if bulk != wanted {
            let problem = format!("{bulk} bytes where {wanted} were asked for");
            return Err(Malformed {
                field: "values",
                problem,
            });
        }
        let into = match (answer.values, frame.difference) {
            (false, _) => Into::Nothing,
            (true, false) => Into::Values(elements),
            (true, true) => Into::Difference(elements, form, Vec::with_capacity(bulk)),
        };
        Ok(Self {
            answer,
            into,
            left: bulk,
        })
    }

    /// Takes the next bytes in. `values` is the flat vector, empty if no values were asked for.
    pub(crate) fn take(&mut self, piece: &[u8], values: &mut [f32]) {
        match &mut self.into {
            Into::Nothing => {}
            Into::Values(elements) => {
                let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut values[elements.clone()]);
                let at = bytes.len() - self.left;
                bytes[at..at + piece.len()].copy_from_slice(piece);
            }
            Into::Difference(_, _, bytes) => bytes.extend_from_slice(piece),
        }
        self.left -= piece.len();
    }

    /// Whether all of it is here.
    pub(crate) fn is_complete(&self) -> bool {
        self.left == 0
    }

    /// The range of the flat vector that it is for, if values were asked for.
    pub(crate) fn written(&self) -> Option<&Range<usize>> {
        match &self.into {
            Into::Nothing => None,
            Into::Values(elements) | Into::Difference(elements, ..) => Some(elements),
        }
    }

    /// Has the values take effect.
    pub(crate) fn finish(&self, values: &mut [f32]) -> Result<(), Malformed> {
        let Into::Difference(elements, form, bytes) = &self.into else {
            return Ok(());
        };
        let added = form.decode_add(bytes, &mut values[elements.clone()]);
        added.map_err(|error| Malformed {
            field: "values",
            problem: error.to_string(),
        })
    }
}
