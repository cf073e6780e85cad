//! Servers follow orders: they become primaries, stay it, or are it no longer.

use std::collections::BTreeMap;

use tradewind_common::holders::Role;
use tradewind_common::{BlockId, Clock, Generation, ServerId, ShardId};
use tradewind_core::shard::Shard;
use tradewind_core::view::View;

use super::block::Record;
use super::log::Log;
use super::{Checker, Rule, Violation};
use crate::values::Life;

impl Checker {
    /// A shard on a server has been handed a view, and follows it if it was newer than the one
    /// before.
    pub fn ordered(
        &mut self,
        server: ServerId,
        id: ShardId,
        shard: &Shard,
        view: &View,
    ) -> Result<(), Violation> {
        if shard.generation() != view.generation {
            return Ok(());
        }
        for (group, (incarnation, start)) in &view.live {
            self.check_start((*group, *incarnation), *start, view.generation)?;
        }
        let Some(Role::Primary(since)) = shard.role() else {
            self.roles.remove(&(server, id));
            return Ok(());
        };
        let known = self.roles.insert((server, id), since);
        let new = known != Some(since);
        if new {
            self.lead(server, id, shard, (since, view.ready()))?;
        }
        // Orders that have been superseded before they left are never seen here.
        let ended = self.starts.iter().filter(|((group, life), (_, seen))| {
            let live = view.live.get(group);
            *seen <= view.generation && live.is_none_or(|(now, _)| now != life)
        });
        let ended: Vec<Life> = ended.map(|(life, _)| *life).collect();
        let terms = &self.terms;
        let logs = self.logs.get_mut(&id).expect("entered above");
        let log = logs.get_mut(&since).expect("entered above");
        let attaching = new && log.lineage > Generation(0);
        log.follow((view, &ended), attaching, terms)
    }

    /// The server is gone, and with it what it held; or it holds the shard no longer.
    pub fn dropped(&mut self, server: ServerId, shard: Option<ShardId>) {
        let gone = |of: &(ServerId, ShardId)| of.0 == server && shard.is_none_or(|s| s == of.1);
        self.roles.retain(|of, _| !gone(of));
    }

    /// A server becomes primary of a shard.
    fn lead(
        &mut self,
        server: ServerId,
        id: ShardId,
        shard: &Shard,
        (since, ready): (Generation, bool),
    ) -> Result<(), Violation> {
        let lineage = shard.lineage();
        if lineage > Generation(0) && self.last_lineage(id) != Some(lineage) {
            self.lacks(id, shard);
        }
        let logs = self.logs.entry(id).or_default();
        if let Some(known) = logs.get_mut(&since) {
            // The one that was cut off goes on.
            if known.server == server {
                known.begins_again();
                return Ok(());
            }
            let text = format!(
                "servers {} and {server} are both primary of shard {id} since {since}",
                known.server
            );
            return Err(Violation::new(Rule::NothingLost, text));
        }
        let parent = logs.range(..since).next_back();
        let parent = parent.filter(|(_, log)| log.lineage == lineage);
        let mut log = match parent {
            Some((of, parent)) => {
                let (log, lacks) = Log::fork(server, (*of, parent), shard, ready)?;
                self.report.counts.rolled_back += lacks;
                self.report.counts.promoted += 1;
                log
            }
            None => {
                let saved = self.restored.get(&(id, lineage));
                let empty = |id: BlockId| {
                    let (kind, length) = self.blocks[&id];
                    (id, Record::new(id, kind, length))
                };
                let records: BTreeMap<_, _> = self.placement.blocks(id).map(empty).collect();
                let mut log = Log::new(server, lineage, records);
                if lineage > Generation(0) {
                    log.records = self.restored_records(id, shard, saved)?;
                    let last = |record: &Record| record.history.len() - 1;
                    log.began = log.records.iter().map(|(id, r)| (*id, last(r))).collect();
                }
                for record in log.records.values_mut() {
                    record.known = self.starts.keys().copied().collect();
                }
                log
            }
        };
        for record in log.records.values_mut() {
            record.lineage = lineage;
        }
        log.ready = false;
        self.logs.entry(id).or_default().insert(since, log);
        Ok(())
    }

    /// Rule 2: a life has one first clock.
    fn check_start(&mut self, life: Life, start: Clock, seen: Generation) -> Result<(), Violation> {
        let (known, first) = self.starts.entry(life).or_insert((start, seen));
        *first = seen.min(*first);
        if *known == start {
            return Ok(());
        }
        let text = format!("{life:?} starts at {known} and at {start}");
        Err(Violation::new(Rule::ExactlyOnce, text))
    }
}
