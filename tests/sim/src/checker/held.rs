//! What groups hold of one block where answers are differences. The observer adds them up as a
//! group does, from the frames that say what a group holds and the answers that it is given, and
//! never asks a server what it believes a group to hold.

use std::collections::BTreeMap;

use tradewind_common::{Clock, Compression, Generation};
use tradewind_core::ReplyTo;
use tradewind_core::askers::{Fresh, Wants};
use tradewind_core::shard::{Action, Answer, Push, Reply};

use super::block::TOLERANCE;
use crate::values::Life;

/// A frame: its stream, its clock, and whether it is a contribution.
type Frame = (ReplyTo, Clock, bool);

/// Whose values: a life, after the answer of a version of a lineage, by the primary since then.
type State = (Life, Generation, u64, Generation);

/// What groups hold of one block.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// What each frame said that its sender holds.
    asked: BTreeMap<Frame, Option<u64>>,
    /// A life's values after an answer of a version, whichever of several it was.
    states: BTreeMap<State, Vec<f32>>,
    differences: u64,
}

impl Held {
    pub(super) fn pushed(&mut self, to: ReplyTo, push: &Push) {
        let Wants::Difference { holds } = push.wants else {
            return;
        };
        let contributes = matches!(push.action, Action::Contribute(_));
        self.asked.insert((to, push.clock, contributes), holds);
    }

    /// An answer of a block whose values are `exact` leaves for a life. Fails with what is wrong.
    pub(super) fn answered(
        &mut self,
        (to, life, since): (ReplyTo, Life, Generation),
        reply: &Reply,
        (down, exact): (Compression, &[f64]),
    ) -> Result<(), String> {
        let contributes = matches!(reply.answer, Answer::Decided(..));
        let holds = self.asked.get(&(to, reply.clock, contributes)).copied();
        let key = (life, reply.lineage, reply.version, since);
        let known = self.states.get(&key);
        let state = match &reply.fresh {
            Fresh::Nothing => return Err("no values".into()),
            Fresh::Values(values) => {
                // What was answered before was checked when it was.
                if known.is_none() {
                    near(values, exact, &vec![0.0; exact.len()])?;
                }
                values.to_vec()
            }
            Fresh::Difference(form, encoded) => {
                self.differences += 1;
                let base = holds
                    .flatten()
                    .and_then(|version| self.states.get(&(life, reply.lineage, version, since)));
                let Some(base) = base.filter(|_| *form == down) else {
                    return Err(format!(
                        "a difference in {form} to what it holds, {holds:?}"
                    ));
                };
                let mut state = base.clone();
                let added = form.decode_add(encoded, &mut state);
                added.map_err(|error| error.to_string())?;
                near(&state, exact, &left_out(down, base, exact))?;
                state
            }
        };
        match known {
            Some(known) if *known != state => Err(format!(
                "two states of version {}: {known:?} and {state:?}",
                reply.version
            )),
            Some(_) => Ok(()),
            None => {
                self.states.insert(key, state);
                Ok(())
            }
        }
    }

    /// A life has taken an answer in. Whether it has what the answers of a primary come to.
    pub(super) fn has(&self, life: Life, version: (Generation, u64), values: &[f32]) -> bool {
        let from = (life, version.0, version.1, Generation(0));
        let to = (life, version.0, version.1, Generation(u64::MAX));
        let mut states = self.states.range(from..=to);
        states.any(|(_, state)| state == values)
    }

    pub(super) fn differences(&self) -> u64 {
        self.differences
    }
}

fn near(state: &[f32], exact: &[f64], allowed: &[f64]) -> Result<(), String> {
    let off = |(x, y): (&f32, &f64)| (f64::from(*x) - y).abs();
    let mut all = state.iter().zip(exact).zip(allowed);
    // What nobody but the primary can know is no number, and off by none.
    let far = |(pair, allowed): ((&f32, &f64), &f64)| off(pair) >= allowed + TOLERANCE;
    let good = state.len() == exact.len() && !all.any(far);
    if good {
        Ok(())
    } else {
        Err(format!(
            "the group comes to {state:?}, not within {allowed:?} of {exact:?}"
        ))
    }
}

/// What a form may leave out of each value on the way from `base` to `exact`.
fn left_out(down: Compression, base: &[f32], exact: &[f64]) -> Vec<f64> {
    let steps = base.iter().zip(exact);
    let mut steps: Vec<f64> = steps.map(|(x, y)| (f64::from(*x) - y).abs()).collect();
    let count = steps.len();
    steps.sort_by(|a, b| b.total_cmp(a));
    let most = match down {
        Compression::None => 0.0,
        Compression::Bf16 => steps[0] / 256.0,
        // Blocks are shorter than a piece.
        Compression::Int8 => steps[0] / 254.0,
        Compression::TopK { fraction } => {
            let sent = (fraction * count as f64).ceil() as usize;
            steps.get(sent).copied().unwrap_or(0.0)
        }
    };
    vec![most; count]
}
