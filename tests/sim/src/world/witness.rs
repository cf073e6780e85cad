//! Who really has what: the processes that live are looked into, and a snapshot may be restored only
//! where none of them has everything that was answered, or it has been silent for too long (rule 4);
//! what was lost has to be told (rule 11).
//!
//! What a coordinator decides is judged when it does, and told to whoever acts on it. That it does not
//! count upon a process any more excuses the process only where that was no mistake: a copy, where its
//! primary has followed an order without it, was heard when the copy was already missed, so that it is
//! not the coordinator that is cut off, or has itself said that the copy confirms nothing; a primary, where another process has really refused it.

use std::collections::{BTreeMap, BTreeSet};

use tradewind_common::holders::Holders;
use tradewind_common::loss::Loss;
use tradewind_common::{Generation, ServerId, ShardId};
use tradewind_core::coordinator::Coordinator;
use tradewind_core::run::Phase;
use tradewind_core::view::View;

use super::disk::Disk;
use super::event::Life;
use super::servers::Servers;
use super::setup::Setup;
use crate::checker::{Checker, Missing, Rule, Violation};
use crate::scenario::LEASE_MS;

/// How much earlier than its patience is over a coordinator may find that it is, milliseconds.
const EARLY_MS: u64 = 25;

/// What the world knows of those who may be needed.
#[derive(Debug, Default)]
pub(super) struct Witness {
    /// When a coordinator was told something by each process, last; and that its bond had broken.
    heard_us: BTreeMap<Life, u64>,
    lost_us: BTreeMap<Life, u64>,
    /// When each generation was made.
    made_us: BTreeMap<Generation, u64>,
    /// What there was of membership in each generation that a coordinator has told anybody of.
    views: BTreeMap<Generation, View>,
    /// Heirs that refuse whoever was primary before, by since when they are to be primary.
    fenced: BTreeSet<(ShardId, Generation)>,
    /// When no coordinator listened: from when to when.
    deaf: Vec<(u64, u64)>,
    ended_us: u64,
    /// What each coordinator's run was like when it was last looked at.
    seen: BTreeMap<u64, Vec<Holders>>,
    /// Heirs that coordinators chose, and who had everything then and was not silent for long: if the
    /// heir restores a snapshot, that is one too many.
    begun: BTreeMap<(ShardId, Generation, u64), Option<String>>,
    /// Processes that a coordinator has counted upon: from then on they are needed for what they have,
    /// until their primary goes on without them, or another process has taken over from them.
    needed: BTreeSet<(ShardId, Life)>,
    /// Why the run should have gone on, when a coordinator first decided that it is over.
    over: Option<Option<String>>,
    /// Loss that was told before the run was resumed.
    told_before: Loss,
    /// Copies of which their primary has said that they confirm nothing, by since when they are copies.
    stalled: BTreeSet<(ShardId, ServerId, Generation)>,
    /// How often a process that has everything was found not to be needed.
    kept_in_vain: u64,
}

/// What is looked into.
pub(super) struct Facts<'a> {
    pub(super) now_us: u64,
    pub(super) setup: &'a Setup,
    pub(super) servers: &'a Servers,
    pub(super) disk: &'a Disk,
    pub(super) checker: &'a Checker,
}

impl Witness {
    /// A coordinator is told something by a process.
    pub(super) fn hears(&mut self, life: Life, now_us: u64) {
        self.heard_us.insert(life, now_us);
    }

    /// A coordinator is told that a process has followed a generation: it was there when that had been made.
    pub(super) fn hears_of(&mut self, life: Life, generation: Generation) {
        let made_us = self.made_us.get(&generation).copied();
        let heard_us = self.heard_us.entry(life).or_default();
        *heard_us = (*heard_us).max(made_us.unwrap_or(0));
    }

    /// A coordinator is told that a process is not to be reached.
    pub(super) fn loses(&mut self, life: Life, now_us: u64) {
        self.lost_us.insert(life, now_us);
    }

    /// A coordinator was held up: what was silent meanwhile need not have been.
    pub(super) fn was_deaf(&mut self, since_us: u64, now_us: u64) {
        self.deaf.push((since_us, now_us));
    }

    /// A coordinator has ended.
    pub(super) fn goes_deaf(&mut self, now_us: u64) {
        self.ended_us = now_us;
    }

    /// A coordinator begins.
    pub(super) fn listens(&mut self, now_us: u64) {
        self.was_deaf(self.ended_us, now_us);
    }

    /// For how long a process has been silent to who listened.
    fn silent_us(&self, life: Life, now_us: u64) -> u64 {
        let heard_us = self.heard_us.get(&life).copied().unwrap_or(0);
        let mut deaf_us = 0;
        let mut from_us = heard_us;
        for (since_us, until_us) in &self.deaf {
            let since_us = (*since_us).max(from_us);
            deaf_us += until_us.saturating_sub(since_us);
            from_us = from_us.max(*until_us);
        }
        now_us - heard_us - deaf_us
    }

    /// A primary says which of its copies confirm nothing.
    pub(super) fn stalls(&mut self, id: ShardId, copies: &[(ServerId, Generation)]) {
        let copies = copies.iter().map(|(server, since)| (id, *server, *since));
        self.stalled.extend(copies);
    }

    /// A server's process has ended.
    pub(super) fn ended(&mut self, life: Life) {
        self.needed.retain(|(_, of)| *of != life);
    }

    /// The run is resumed from a snapshot that says so much to be lost.
    pub(super) fn resumes(&mut self, told: Loss) {
        self.told_before = told;
        // Generations after the snapshot may come again.
        self.views.clear();
    }

    /// An order of this view leaves, whatever it says of it.
    pub(super) fn orders(&mut self, view: View) -> Result<(), Violation> {
        let known = self.views.entry(view.generation);
        let known = known.or_insert_with(|| view.clone());
        if *known == view {
            return Ok(());
        }
        let text = format!("of one generation there are two views: {known:?} and {view:?}");
        Err(Violation::new(Rule::ExactlyOnce, text))
    }

    /// Whoever has followed an order knows what it would if it had been told all, however little it was told.
    pub(super) fn check_view(&self, whose: &str, view: &View) -> Result<(), Violation> {
        let ordered = &self.views[&view.generation];
        // In generation 0 nobody is there yet, and nothing is followed.
        if ordered == view || view.generation == Generation(0) {
            return Ok(());
        }
        let text = format!("{whose} follows {view:?}, but ordered was {ordered:?}");
        Err(Violation::new(Rule::ExactlyOnce, text))
    }

    /// How often a process that has everything was found not to be needed.
    pub(super) fn kept_in_vain(&self) -> u64 {
        self.kept_in_vain
    }

    /// Looks at what the last coordinator has made of its run. One that another has followed can do no
    /// harm: nobody hears of what it decides.
    pub(super) fn look_at(&mut self, n: u64, core: &Coordinator, facts: &Facts<'_>) {
        let Ok(run) = core.run(&facts.setup.common.run) else {
            return;
        };
        if matches!(run.phase(), Phase::Stopped(_) | Phase::Failed(_)) {
            if self.over.is_none() {
                self.over = Some(self.must_go_on(facts));
            }
            return;
        }
        let made_us = self.made_us.entry(run.generation());
        made_us.or_insert(facts.now_us);
        let known = self.seen.get(&n);
        if known.is_some_and(|known| known.iter().eq(run.holders())) {
            return;
        }
        let holders: Vec<_> = run.holders().cloned().collect();
        let fleet = core.fleet();
        let lives = facts.servers.ids().into_iter().filter_map(|server| {
            let incarnation = fleet.incarnation(server)?;
            let life = Life {
                server,
                incarnation,
            };
            Some((server, life))
        });
        let lives: BTreeMap<ServerId, Life> = lives.collect();
        let previous = self.seen.insert(n, holders.clone());
        for (index, now) in holders.iter().enumerate() {
            let id = ShardId(index as u32);
            for server in counted(now) {
                if let Some(life) = lives.get(&server) {
                    self.needed.insert((id, *life));
                }
            }
            let Some(before) = previous.as_ref().and_then(|before| before.get(index)) else {
                continue;
            };
            self.excuse(id, (before, now), &lives, facts);
            // Whether it is to restore the shard stands in its order.
            if let Some(heir) = now.heir.filter(|_| now.heir != before.heir) {
                let kept = self.kept(id, facts);
                self.begun.insert((id, heir.since, n), kept);
            }
        }
    }

    /// Whoever need not have everything any more because of what a coordinator has decided.
    fn excuse(
        &mut self,
        id: ShardId,
        (before, now): (&Holders, &Holders),
        lives: &BTreeMap<ServerId, Life>,
        facts: &Facts<'_>,
    ) {
        // It may have been missed since: then its full copies stand beside it as candidates.
        let kept = |server| now.candidates.iter().any(|c| c.server == server);
        let stays = before
            .primary
            .filter(|primary| now.primary == Some(*primary) || kept(primary.server));
        let primary = stays.and_then(|primary| lives.get(&primary.server));
        if let Some(primary) = primary {
            let heard_us = self.heard_us.get(primary).copied();
            // One that was removed and is to be filled anew counts no more than one that is gone.
            let there: Vec<ServerId> = counted(now).collect();
            let copies = before.copies.iter();
            for copy in copies.filter(|copy| !there.contains(&copy.server)) {
                let stalled = self.stalled.contains(&(id, copy.server, copy.since));
                let Some(life) = lives.get(&copy.server) else {
                    continue;
                };
                if stalled || heard_us >= Some(self.missed_us(*life)) {
                    self.needed.remove(&(id, *life));
                }
            }
        }
        let new = now.primary.filter(|_| now.primary != before.primary);
        if let Some(new) = new.filter(|new| self.fenced.contains(&(id, new.since))) {
            let keepers = facts.servers.keepers(id, facts.checker);
            self.goes_on(id, new.server, now, keepers);
        }
    }

    /// Since when a process is missed, or will be.
    fn missed_us(&self, life: Life) -> u64 {
        let heard_us = self.heard_us.get(&life).copied().unwrap_or(0);
        let silent_us = heard_us + LEASE_MS * 1_000;
        let lost_us = self.lost_us.get(&life).copied();
        let lost_us = lost_us.filter(|lost_us| *lost_us >= heard_us);
        lost_us.map_or(silent_us, |lost_us| lost_us.min(silent_us))
    }

    /// Who has everything that was answered of a shard, and is not silent for too long, and is
    /// needed.
    fn kept(&mut self, id: ShardId, facts: &Facts<'_>) -> Option<String> {
        if !facts.checker.answered_any(id) {
            return None;
        }
        let patience_us = (facts.setup.scenario.patience_ms - EARLY_MS) * 1000;
        for life in facts.servers.keepers(id, facts.checker) {
            let silent_us = self.silent_us(life, facts.now_us);
            if silent_us >= patience_us {
                continue;
            }
            if !self.needed.contains(&(id, life)) {
                self.kept_in_vain += 1;
                continue;
            }
            let text = format!(
                "server {} in its life {} has everything that was answered of it, and was last heard \
                 {silent_us} µs before",
                life.server, life.incarnation
            );
            return Some(text);
        }
        None
    }

    /// A server that has obeyed this coordinator at most restores a shard in a lineage, from a snapshot.
    pub(super) fn check_restore(
        &self,
        (id, lineage): (ShardId, Generation),
        obeyed: u64,
        snapshot: u64,
    ) -> Result<(), Violation> {
        let all = self.begun.iter();
        let mut of =
            all.filter(|((of, began, n), _)| (*of, *began) == (id, lineage) && *n <= obeyed);
        if let Some((_, Some(kept))) = of.next_back() {
            let text = format!("shard {id} is restored from snapshot {snapshot}, though {kept}");
            return Err(Violation::new(Rule::NothingLost, text));
        }
        Ok(())
    }

    /// A server goes on as primary of a shard: of those who have everything, whoever is no full copy
    /// then need not keep it.
    pub(super) fn goes_on(
        &mut self,
        id: ShardId,
        primary: ServerId,
        holders: &Holders,
        keepers: Vec<Life>,
    ) {
        let needed: Vec<ServerId> = counted(holders).chain([primary]).collect();
        let keepers = keepers.into_iter();
        // Whom it counts upon stood in what its coordinator decided, which may be more by now.
        for life in keepers.filter(|life| !needed.contains(&life.server)) {
            self.needed.remove(&(id, life));
        }
    }

    /// A server refuses whoever was primary before it.
    pub(super) fn fences(&mut self, id: ShardId, since: Generation) {
        self.fenced.insert((id, since));
    }

    /// Whether a process is the last one that has everything that was answered of a shard, and is
    /// needed for it.
    pub(super) fn is_last(
        &self,
        life: Life,
        id: ShardId,
        servers: &Servers,
        checker: &Checker,
    ) -> bool {
        // A copy may have been removed, in writing, before its primary heard of that and fell.
        let needed = self.needed.contains(&(id, life)) && !servers.is_copy(life, id);
        needed && checker.answered_any(id) && servers.keepers(id, checker) == [life]
    }

    /// Why a run that is over should have gone on; `None` if it could not.
    pub(super) fn was_needless(&mut self, facts: &Facts<'_>) -> Option<String> {
        match self.over.clone() {
            Some(decided) => decided,
            None => self.must_go_on(facts),
        }
    }

    /// Why a run may not end now; `None` if it may.
    fn must_go_on(&mut self, facts: &Facts<'_>) -> Option<String> {
        if !facts.disk.any_whole() {
            return None;
        }
        let mut lost = 0;
        for id in (0..facts.servers.count()).map(ShardId) {
            let checker = facts.checker;
            let answered = checker.last_primary(id).is_some() && checker.answered_any(id);
            lost += u32::from(answered && self.kept(id, facts).is_none());
        }
        match facts.setup.scenario.stops_on_loss {
            false => Some("the run allows losses, and there is a snapshot".into()),
            true if lost > 0 => None,
            true => Some("every shard has a process that has everything".into()),
        }
    }

    /// Compares what was lost with what is told of it, if anybody tells anything.
    pub(super) fn check_told(&self, told: Option<Loss>, missing: Missing) -> Result<(), Violation> {
        let before = self.told_before;
        let updates = missing.least + before.updates..=missing.most + before.updates;
        let samples = missing.samples_least..=missing.samples_most + before.samples;
        // Where nobody tells anything, nothing more is told than before.
        let told = told.unwrap_or(before);
        if updates.contains(&told.updates) && samples.contains(&told.samples) {
            return Ok(());
        }
        let text = format!("{told:?} is told to be lost, where it was {updates:?} and {samples:?}");
        Err(Violation::new(Rule::LossesTold, text))
    }
}

/// A process that was the last one has followed an order: whether it still has everything.
pub(super) fn check_last(
    life: Life,
    (id, holders): (ShardId, &Holders),
    servers: &Servers,
    checker: &Checker,
) -> Result<(), Violation> {
    let begun = checker.last_lineage(id);
    if Some(holders.lineage) > begun || servers.keepers(id, checker).contains(&life) {
        return Ok(());
    }
    let text = format!(
        "server {} was the last that had everything that was answered of shard {id}, and was told \
         to forget it: {holders:?}",
        life.server
    );
    Err(Violation::new(Rule::NothingLost, text))
}

/// The servers of a shard that a coordinator counts upon.
fn counted(holders: &Holders) -> impl Iterator<Item = ServerId> + '_ {
    let primary = holders.primary.iter().map(|primary| primary.server);
    let full = holders.copies.iter().filter(|copy| copy.full);
    let candidates = holders.candidates.iter().map(|candidate| candidate.server);
    primary
        .chain(full.map(|copy| copy.server))
        .chain(candidates)
}

#[cfg(test)]
mod tests {
    use tradewind_common::Incarnation;

    use super::*;

    #[test]
    fn what_nobody_could_hear_is_no_silence() {
        let life = Life {
            server: ServerId(0),
            incarnation: Incarnation(1),
        };
        let mut witness = Witness::default();
        witness.hears(life, 100);
        witness.goes_deaf(150);
        witness.listens(250);
        witness.was_deaf(200, 300);
        assert_eq!(witness.silent_us(life, 400), 150);
    }

    #[test]
    fn a_loss_has_to_be_told_on_top_of_what_was_told_before() {
        let loss = |updates| Loss {
            updates,
            samples: 0,
        };
        let mut witness = Witness::default();
        witness.resumes(loss(2));
        let missing = Missing::default();
        assert!(witness.check_told(None, missing).is_ok());
        assert!(witness.check_told(Some(loss(2)), missing).is_ok());
        assert!(witness.check_told(Some(loss(3)), missing).is_err());
    }
}
