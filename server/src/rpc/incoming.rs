//! One frame on its way in: its head, and its values as they arrive.

use tradewind_common::compress::DecodeError;
use tradewind_common::schedule::Seen;
use tradewind_common::{BlockId, Clock, Compression, Generation, GroupId, Incarnation};
use tradewind_proto::convert;
use tradewind_proto::v1::{DType, PushFrame, push_frame};

use crate::telemetry;
use tradewind_core::askers::Wants;
use tradewind_core::block::Gradient;
use tradewind_core::refusal::Refusal;
use tradewind_core::shard::{Action, Push};

/// A frame whose values arrive.
pub struct Incoming {
    head: PushFrame,
    values: Values,
    bulk: usize,
    left: usize,
    /// Number of values of its block.
    length: usize,
}

/// Values as far as they are here.
enum Values {
    /// Converted as they come; the beginning of one that a piece has cut is kept.
    Plain(Vec<f32>, Vec<u8>),
    /// To be decoded when all of it is here.
    Encoded(Compression, Vec<u8>),
    /// In a form that this run does not exchange, which is passed over.
    Unknown(i32),
    /// For a block that there is not, passed over as well.
    Nowhere,
}

impl Incoming {
    /// The frame of `head`, for a block of `length` values, whose gradients come as they are or as
    /// `form` says; `bulk` bytes follow. Refused before any of them is kept where they are more than
    /// the block takes.
    pub fn new(
        head: PushFrame,
        bulk: usize,
        (length, form): (usize, Compression),
    ) -> Result<Self, Refusal> {
        let (given, form) = match &head.action {
            Some(push_frame::Action::Gradient(gradient)) => (gradient.dtype, form),
            Some(push_frame::Action::Create(create)) => (create.dtype, Compression::None),
            Some(push_frame::Action::Skip(_) | push_frame::Action::Pull(_)) | None => {
                (DType::DtypeF32.into(), Compression::None)
            }
        };
        let block = BlockId(head.block);
        // A claim alone sets no memory aside.
        let values = if length == 0 {
            Values::Nowhere
        } else if given == i32::from(DType::DtypeF32) {
            let most = Compression::None.encoded_max(length);
            if bulk > most {
                return Err(too_long(block, bulk, length));
            }
            Values::Plain(Vec::with_capacity(bulk / 4), Vec::new())
        } else if given == i32::from(convert::dtype(form)) {
            let most = form.encoded_max(length);
            if bulk > most {
                return Err(Refusal::WrongBytes {
                    block,
                    values: length,
                    expected: most,
                    given: bulk,
                });
            }
            Values::Encoded(form, Vec::with_capacity(bulk))
        } else {
            Values::Unknown(given)
        };
        Ok(Self {
            head,
            values,
            bulk,
            left: bulk,
            length,
        })
    }

    /// Takes the next bytes of its values in.
    pub fn take(&mut self, piece: &[u8]) {
        self.left -= piece.len();
        match &mut self.values {
            Values::Plain(values, cut) => convert::append_bulk(piece, values, cut),
            Values::Encoded(_, bytes) => bytes.extend_from_slice(piece),
            Values::Unknown(_) | Values::Nowhere => {}
        }
    }

    /// Whether all of it is here.
    pub fn is_complete(&self) -> bool {
        self.left == 0
    }

    /// Bytes of its values.
    pub fn bulk(&self) -> usize {
        self.bulk
    }

    /// The block that it is about.
    pub fn block(&self) -> BlockId {
        BlockId(self.head.block)
    }

    /// What the frame asks of the shard.
    pub fn finish(self) -> Result<Push, Refusal> {
        let Self { head, values, .. } = self;
        let action = head
            .action
            .ok_or_else(|| malformed("action", "is missing".into()))?;
        let clocked = matches!(
            action,
            push_frame::Action::Gradient(_) | push_frame::Action::Skip(_)
        );
        if !clocked && head.clock != 0 {
            let problem = "is not 0, as for pulls and creations".into();
            return Err(malformed("clock", problem));
        }
        let values = || {
            telemetry::pushed(self.bulk);
            values.decode(BlockId(head.block), self.bulk, self.length)
        };
        let action = match action {
            push_frame::Action::Gradient(gradient) => Action::Contribute(Some(Gradient {
                values: values()?,
                samples: gradient.samples,
                pulled_version: gradient.pulled_version,
                lineage: Generation(gradient.lineage),
                seen: Seen {
                    samples: gradient.samples_seen,
                    updates: gradient.updates_seen,
                },
                norms: gradient.norms.into_iter().map(Into::into).collect(),
            })),
            push_frame::Action::Skip(_) => Action::Contribute(None),
            push_frame::Action::Pull(_) => Action::Pull,
            push_frame::Action::Create(_) => Action::Create(values()?),
        };
        let wants = if head.without_values {
            Wants::Nothing
        } else {
            Wants::Difference { holds: head.holds }
        };
        Ok(Push {
            group: GroupId(head.group),
            incarnation: Incarnation(head.incarnation),
            clock: Clock(head.clock),
            block: BlockId(head.block),
            wants,
            action,
        })
    }
}

fn malformed(field: &'static str, problem: String) -> Refusal {
    Refusal::Malformed { field, problem }
}

fn no_floats(bytes: usize) -> Refusal {
    malformed(
        "values",
        format!("{bytes} bytes are no whole number of f32"),
    )
}

/// More f32 than a block has.
fn too_long(block: BlockId, bytes: usize, expected: usize) -> Refusal {
    match bytes.is_multiple_of(4) {
        true => Refusal::WrongLength {
            block,
            expected,
            given: bytes / 4,
        },
        false => no_floats(bytes),
    }
}

/// Why an encoding is refused: as the same fault in f32 is, where f32 can have it.
fn refuse(block: BlockId, error: DecodeError) -> Refusal {
    match error {
        DecodeError::Length {
            bytes,
            values,
            wanted,
        } => Refusal::WrongBytes {
            block,
            values,
            expected: wanted,
            given: bytes,
        },
        DecodeError::Value { position } => Refusal::NotFinite {
            block,
            index: position,
            value: "not finite".into(),
        },
        other => malformed("values", other.to_string()),
    }
}

impl Values {
    /// The values, of which the block has `length`.
    fn decode(self, block: BlockId, bulk: usize, length: usize) -> Result<Vec<f32>, Refusal> {
        match self {
            Self::Plain(values, cut) if cut.is_empty() => Ok(values),
            Self::Plain(..) => Err(no_floats(bulk)),
            // The shard knows no such block, and says so.
            Self::Nowhere => Ok(Vec::new()),
            Self::Encoded(form, bytes) => {
                let mut values = vec![0.0; length];
                let decoded = form.decode(&bytes, &mut values);
                decoded.map_err(|error| refuse(block, error))?;
                Ok(values)
            }
            Self::Unknown(dtype) => Err(malformed(
                "dtype",
                format!("{dtype} is not a type in which this run exchanges such values"),
            )),
        }
    }
}
