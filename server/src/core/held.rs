//! What each group holds of a block, where answers are compressed: an answer is then the difference
//! to it, and what its rounding left out is in the next difference (Tang et al. 2019,
//! "DoubleSqueeze", algorithm 1, the server's side; the error is carried by what is held here).

use std::collections::BTreeMap;
use std::sync::Arc;

use tradewind_common::finite::all_finite;
use tradewind_common::{Compression, GroupId};

use super::askers::Fresh;

/// Values as a group has them after an answer.
#[derive(Debug)]
struct Held {
    /// Version of the answer.
    version: u64,
    values: Vec<f32>,
}

/// What the groups hold of one block: a copy of its values for each of them.
#[derive(Debug, Default)]
pub struct Holdings(BTreeMap<GroupId, Held>);

impl Holdings {
    /// Forgets all groups but these.
    pub fn retain(&mut self, stays: impl Fn(&GroupId) -> bool) {
        self.0.retain(|group, _| stays(group));
    }

    /// The answer that brings `group`, which says that it holds the answer of version `holds`, to
    /// `values`. They are sent whole to a group that holds nothing or another answer than the last
    /// one, which may have been lost, and where a difference would not be finite.
    pub fn answer(
        &mut self,
        (group, holds): (GroupId, Option<u64>),
        (version, values): (u64, &Arc<Vec<f32>>),
        compression: Compression,
    ) -> Fresh {
        let known = self.0.get_mut(&group);
        // A version names one answer only: where nothing has changed, no difference is made.
        let known = known.filter(|held| Some(held.version) == holds && held.version < version);
        if let Some(held) = known
            && let Some(encoded) = held.approach(values, compression)
        {
            held.version = version;
            return Fresh::Difference(compression, encoded);
        }
        let held = Held {
            version,
            values: values.to_vec(),
        };
        self.0.insert(group, held);
        Fresh::Values(values.clone())
    }
}

impl Held {
    fn approach(&mut self, values: &[f32], compression: Compression) -> Option<Vec<u8>> {
        let difference = values.iter().zip(&self.values).map(|(x, held)| x - held);
        let difference: Vec<f32> = difference.collect();
        if !all_finite(&difference) {
            return None;
        }
        let mut encoded = Vec::with_capacity(compression.encoded_max(values.len()));
        compression.encode(&difference, None, &mut encoded);
        // As the group does, bit for bit.
        let added = compression.decode_add(&encoded, &mut self.values);
        added.is_ok().then_some(encoded)
    }
}
