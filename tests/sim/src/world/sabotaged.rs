//! Rules broken on purpose between coordinators and servers: what both say is changed on the way, or
//! what they must wait for is not waited for.

use tradewind_common::loss::Loss;
use tradewind_core::order::{Order, ShardReport};

use super::World;
use crate::scenario::Sabotage;

impl World {
    pub(super) fn breaks(&self, sabotage: Sabotage) -> bool {
        self.scenario.sabotage == Some(sabotage)
    }

    /// An order as it leaves.
    pub(super) fn twist_order(&self, order: &mut Order) {
        let to = order.server;
        match self.scenario.sabotage {
            Some(Sabotage::ForgetsCandidates) => {
                for holders in &mut order.holders {
                    let heir = holders.heir.map(|heir| heir.server);
                    holders
                        .candidates
                        .retain(|candidate| Some(candidate.server) == heir);
                }
            }
            Some(Sabotage::AnswersAsHeir) => {
                let restores: Vec<_> = order.restore.iter().map(|r| r.shard.0 as usize).collect();
                for (index, holders) in order.holders.iter_mut().enumerate() {
                    let heir = holders.heir.filter(|heir| heir.server == to);
                    if heir.is_some() && !restores.contains(&index) {
                        holders.primary = holders.heir.take();
                        holders.candidates.clear();
                    }
                }
            }
            _ => {}
        }
    }

    /// A report as it leaves.
    pub(super) fn twist_report(&self, report: &mut ShardReport) {
        match self.scenario.sabotage {
            Some(Sabotage::TellsNoLoss) => report.lost.loss = Loss::default(),
            Some(Sabotage::TellsLossTwice) => {
                report.lost.loss = report.lost.loss.plus(report.lost.loss)
            }
            Some(Sabotage::KeepsMuteCopies) => report.seen.stalled.clear(),
            _ => {}
        }
    }
}
