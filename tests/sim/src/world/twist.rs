//! Rules broken on purpose between coordinators and servers: what both say is changed on the way.

use tradewind_common::Incarnation;
use tradewind_common::loss::Loss;
use tradewind_core::order::{Order, ShardReport};
use tradewind_core::view::{OrderedView, Rights};

use crate::scenario::Sabotage;

/// Changes an order as it leaves.
pub(super) fn order(sabotage: Option<Sabotage>, order: &mut Order) {
    let to = order.server;
    match sabotage {
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
        Some(Sabotage::ForgetsDepartures) => leave_out(order, |rights| rights == Rights::Out),
        Some(Sabotage::ForgetsLives) => {
            leave_out(order, |rights| rights.incarnation() > Some(Incarnation(1)));
        }
        _ => {}
    }
}

fn leave_out(order: &mut Order, what: impl Fn(Rights) -> bool) {
    if let OrderedView::Since(change) = &mut order.view {
        change.changed.retain(|_, rights| !what(*rights));
    }
}

/// Changes a report as it leaves.
pub(super) fn report(sabotage: Option<Sabotage>, report: &mut ShardReport) {
    match sabotage {
        Some(Sabotage::TellsNoLoss) => report.lost.loss = Loss::default(),
        Some(Sabotage::TellsLossTwice) => {
            report.lost.loss = report.lost.loss.plus(report.lost.loss);
        }
        Some(Sabotage::KeepsMuteCopies) => report.seen.stalled.clear(),
        _ => {}
    }
}
