//! One frame on its way in: its head, and its values as they arrive.

use tradewind_common::{BlockId, Clock, GroupId, Incarnation};
use tradewind_proto::convert::Malformed;
use tradewind_proto::v1::{DType, PushFrame, push_frame};

use crate::core::askers::Wants;
use crate::core::block::Gradient;
use crate::core::shard::{Action, Push};
use crate::telemetry;

/// A frame whose values arrive.
pub struct Incoming {
    head: PushFrame,
    values: Vec<f32>,
    /// The beginning of a value that a piece has cut.
    cut: Vec<u8>,
    bulk: usize,
    left: usize,
}

impl Incoming {
    /// The frame of `head`, for a block of `length` values; `bulk` bytes follow.
    pub fn new(head: PushFrame, bulk: usize, length: usize) -> Self {
        Self {
            head,
            // A claim alone sets no memory aside.
            values: Vec::with_capacity(length.min(bulk / 4)),
            cut: Vec::new(),
            bulk,
            left: bulk,
        }
    }

    /// Takes the next bytes of its values in.
    pub fn take(&mut self, mut piece: &[u8]) {
        self.left -= piece.len();
        if !self.cut.is_empty() {
            let missing = piece.len().min(4 - self.cut.len());
            self.cut.extend_from_slice(&piece[..missing]);
            piece = &piece[missing..];
            let Ok(whole) = <[u8; 4]>::try_from(&self.cut[..]) else {
                return;
            };
            self.values.push(f32::from_le_bytes(whole));
            self.cut.clear();
        }
        let (whole, cut) = piece.as_chunks::<4>();
        self.values
            .extend(whole.iter().map(|bytes| f32::from_le_bytes(*bytes)));
        self.cut.extend_from_slice(cut);
    }

    /// Whether all of it is here.
    pub fn is_complete(&self) -> bool {
        self.left == 0
    }

    /// What the frame asks of the shard.
    pub fn finish(self) -> Result<Push, Malformed> {
        let malformed = |field, problem: String| Malformed { field, problem };
        let Self { head, values, .. } = self;
        let missing = || malformed("action", "is missing".into());
        let action = head.action.ok_or_else(missing)?;
        let clocked = matches!(
            action,
            push_frame::Action::Gradient(_) | push_frame::Action::Skip(_)
        );
        if !clocked && head.clock != 0 {
            let problem = "is not 0, as for pulls and creations".into();
            return Err(malformed("clock", problem));
        }
        let values = |dtype: i32| {
            telemetry::pushed(self.bulk);
            if dtype != i32::from(DType::DtypeF32) {
                let problem = format!("{dtype} is not a type that this run exchanges (f32)");
                return Err(malformed("dtype", problem));
            }
            if !self.cut.is_empty() {
                let problem = format!("{} bytes are no whole number of f32", self.bulk);
                return Err(malformed("values", problem));
            }
            Ok(values)
        };
        let action = match action {
            push_frame::Action::Gradient(gradient) => Action::Contribute(Some(Gradient {
                values: values(gradient.dtype)?,
                samples: gradient.samples,
                pulled_version: gradient.pulled_version,
                samples_seen: gradient.samples_seen,
            })),
            push_frame::Action::Skip(_) => Action::Contribute(None),
            push_frame::Action::Pull(_) => Action::Pull,
            push_frame::Action::Create(create) => Action::Create(values(create.dtype)?),
        };
        Ok(Push {
            group: GroupId(head.group),
            incarnation: Incarnation(head.incarnation),
            clock: Clock(head.clock),
            block: BlockId(head.block),
            wants: if head.without_values {
                Wants::Nothing
            } else {
                Wants::Values
            },
            action,
        })
    }
}
