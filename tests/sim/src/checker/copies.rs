//! Copies have what their primary had, bit for bit (rule 4).

use tradewind_common::{ServerId, ShardId};
use tradewind_core::log::{LogEntry, Record};
use tradewind_core::shard::Shard;

use super::history::find;
use super::{Checker, Rule, Violation};

impl Checker {
    /// A copy on a server has applied a record, or had it.
    pub fn copied(
        &mut self,
        server: ServerId,
        id: ShardId,
        record: &Record,
        shard: &Shard,
    ) -> Result<(), Violation> {
        let block = match &record.entry {
            LogEntry::Probe => return Ok(()),
            LogEntry::State(state) => state.id,
            LogEntry::Update(update) => update.block,
        };
        let log = self.logs.get(&id).and_then(|logs| logs.get(&record.log));
        let Some(log) = log else {
            let text = format!(
                "server {server} follows log {}, which nobody leads",
                record.log
            );
            return Err(Violation::new(Rule::NothingLost, text));
        };
        let broken = |what: String| {
            let text = format!("the copy of block {block} on server {server} {what}");
            Err(Violation::new(Rule::NothingLost, text))
        };
        let own = shard.blocks().find(|(of, _)| *of == block);
        let Some(state) = own.and_then(|(_, own)| own.state()) else {
            return broken("has no values".into());
        };
        let history = &log.records[&block].history;
        let Some(step) = find(history, &state) else {
            return broken(format!("is as its primary never had it: {state:?}"));
        };
        if let Some(difference) = history[step].differs(&state) {
            return broken(format!("has other bits than its primary: {difference}"));
        }
        self.report.counts.compared += 1;
        Ok(())
    }
}
