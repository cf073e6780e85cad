//! The form in which gradients leave: as they are, or compressed with error feedback.

use std::collections::BTreeMap;

use bytes::Bytes;
use tradewind_common::compress::Feedback;
use tradewind_common::layout::Block;
use tradewind_common::{BlockId, Compression, TensorKind};

use crate::parts::Values;

/// Encodes the gradients of one rank.
#[derive(Debug)]
pub(crate) struct Sender {
    form: Compression,
    feedback: Feedback,
    /// What is encoded of the exchange under way. The residuals take it for delivered, so a block
    /// that has to be sent again is sent again as it was.
    encoded: BTreeMap<BlockId, Bytes>,
}

impl Default for Sender {
    fn default() -> Self {
        Self::new(Compression::None, 0)
    }
}

impl Sender {
    /// A sender of a flat vector of so many values.
    pub(crate) fn new(form: Compression, elements: usize) -> Self {
        Self {
            form,
            feedback: Feedback::new(elements),
            encoded: BTreeMap::new(),
        }
    }

    /// The form and the bytes of a block's gradient.
    pub(crate) fn gradient(&mut self, block: &Block, values: Values<'_>) -> (Compression, Bytes) {
        let values = match values {
            Values::F32(values) => values,
            // Whoever encoded it keeps what it left out.
            Values::Bf16(encoded) => {
                let bytes = bytemuck::cast_slice(&encoded);
                return (Compression::Bf16, Bytes::copy_from_slice(bytes));
            }
        };
        if !self.form.lossy() || block.kind == TensorKind::Buffer {
            return (Compression::None, plain(&values));
        }
        let (form, feedback) = (self.form, &mut self.feedback);
        let encode = || {
            let mut out = Vec::with_capacity(form.encoded_max(values.len()));
            let residual = feedback.block(block.elements.clone());
            form.encode(&values, Some(residual), &mut out);
            Bytes::from(out)
        };
        let encoded = self.encoded.entry(block.id).or_insert_with(encode);
        (form, encoded.clone())
    }

    /// The exchange has ended: all of it is decided.
    pub(crate) fn finish(&mut self) {
        self.encoded.clear();
    }
}

/// Values as they are. They are copied just before they are sent, so that the copy is sent from the
/// cache.
pub(crate) fn plain(values: &[f32]) -> Bytes {
    Bytes::copy_from_slice(bytemuck::cast_slice(values))
}
