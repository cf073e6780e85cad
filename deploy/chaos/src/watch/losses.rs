//! What restored shards lack of what was acknowledged, and what was told of it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tradewind_common::loss::Loss;
use tradewind_proto::v1::ShardStatusReply;

use super::clocks::Clocks;

/// A line of `events.jsonl`, as far as it is about who holds what.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct HolderEvent {
    pub wall: f64,
    pub kind: String,
    pub run: Option<String>,
    pub server: Option<u32>,
    pub shard: Option<u32>,
    /// Of `updates_lost`: the lineage that begins with the loss, updates summed over blocks, and the
    /// most samples of any block.
    pub lineage: Option<u64>,
    pub lost_updates: u64,
    pub lost_samples: u64,
}

/// A shard that was restored from a snapshot.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Restored {
    pub shard: u32,
    pub lineage: u64,
    /// When the coordinator was first heard to say so, seconds since the Unix epoch.
    pub wall: f64,
    /// Lost at least, by what was seen: by versions of blocks, summed, and by clocks of groups.
    pub updates_at_least: u64,
    pub samples_at_least: u64,
    /// By group, the first and the last of its finished clocks that are gone.
    pub clocks: BTreeMap<u32, (u64, u64)>,
    /// As it was told.
    pub told_updates: u64,
    pub told_samples: u64,
    /// Until when the previous lineage was surely there.
    #[serde(skip)]
    former_until: f64,
    /// The sum of versions that all holders of the previous lineage had confirmed.
    #[serde(skip)]
    confirmed: u64,
    /// What the first answer from the new lineage had: the sum of versions, and each group's clock.
    #[serde(skip)]
    first: Option<(u64, BTreeMap<u32, u64>)>,
}

/// All that were restored, in the order of time.
#[derive(Debug, Default)]
pub(super) struct Losses {
    restored: Vec<Restored>,
    /// As told, by shard and lineage.
    told: BTreeMap<(u32, u64), Loss>,
    /// The most that the coordinator has said of the whole run.
    total: Loss,
}

impl Losses {
    pub(super) fn restored(&mut self, shard: u32, lineage: u64, wall: f64, former_until: f64) {
        self.restored.push(Restored {
            shard,
            lineage,
            wall,
            former_until,
            ..Restored::default()
        });
    }

    /// The previous lineage of the shard that was restored last had so much.
    pub(super) fn confirmed(&mut self, confirmed: u64) {
        if let Some(last) = self.restored.last_mut() {
            last.confirmed = confirmed;
        }
    }

    /// A primary answers; the first time after its shard was restored counts.
    pub(super) fn handle_primary(&mut self, shard: u32, reply: &ShardStatusReply) {
        let of = |one: &&mut Restored| one.shard == shard && one.lineage == reply.lineage;
        if let Some(one) = self.restored.iter_mut().rev().find(of)
            && one.first.is_none()
        {
            let decided = reply.decided.iter().map(|d| (d.group, d.clock));
            one.first = Some((reply.version_sum, decided.collect()));
        }
    }

    pub(super) fn handle_told(&mut self, told: &HolderEvent) {
        if let (Some(shard), Some(lineage)) = (told.shard, told.lineage) {
            let lost = Loss {
                updates: told.lost_updates,
                samples: told.lost_samples,
            };
            let sum = self.told.entry((shard, lineage)).or_default();
            *sum = sum.plus(lost);
        }
    }

    /// What the coordinator says of all losses so far; what is wrong with that.
    pub(super) fn handle_total(&mut self, lost: Loss) -> Option<String> {
        let before = self.total;
        let less = lost.updates < before.updates || lost.samples < before.samples;
        self.total = Loss {
            updates: before.updates.max(lost.updates),
            samples: before.samples.max(lost.samples),
        };
        less.then(|| format!("the coordinator told of {before} lost before, and now of {lost}"))
    }

    /// Everything is over: what was lost, as far as it can be known from outside, and where less was
    /// told.
    pub(super) fn finish(&mut self, clocks: &Clocks) -> Vec<String> {
        let mut wrong = Vec::new();
        // What an earlier restore has lost is not lost again.
        let mut gone: BTreeMap<u32, BTreeSet<(u32, u64)>> = BTreeMap::new();
        for one in &mut self.restored {
            let told = self.told.get(&(one.shard, one.lineage));
            let told = told.copied().unwrap_or_default();
            (one.told_updates, one.told_samples) = (told.updates, told.samples);
            let Some((sum, first)) = &one.first else {
                continue;
            };
            let gone = gone.entry(one.shard).or_default();
            one.updates_at_least = one.confirmed.saturating_sub(*sum);
            for group in clocks.groups() {
                let kept = first.get(&group).copied();
                let lost = clocks.between(group, kept, one.former_until);
                let lost: Vec<_> = lost.filter(|(c, _)| !gone.contains(&(group, *c))).collect();
                let (Some((from, _)), Some((to, _))) = (lost.first(), lost.last()) else {
                    continue;
                };
                one.clocks.insert(group, (*from, *to));
                // Each is missing in one block at least, all of a group in the same one.
                let updates = lost.iter().filter(|(_, samples)| *samples > 0).count() as u64;
                let samples = lost.iter().map(|(_, samples)| samples).sum();
                one.updates_at_least = one.updates_at_least.max(updates);
                one.samples_at_least = one.samples_at_least.max(samples);
                gone.extend(lost.iter().map(|(clock, _)| (group, *clock)));
            }
            let too_few = one.told_updates < one.updates_at_least;
            if too_few || one.told_samples < one.samples_at_least {
                wrong.push(one.too_little());
            }
        }
        let least: u64 = self.restored.iter().map(|one| one.updates_at_least).sum();
        if self.total.updates < least {
            let total = self.total;
            wrong.push(format!(
                "{least} updates at least were lost in all, and the coordinator told of {total}"
            ));
        }
        wrong
    }

    pub(super) fn all(&self) -> &[Restored] {
        &self.restored
    }
}

impl Restored {
    fn too_little(&self) -> String {
        let Self {
            shard,
            lineage,
            updates_at_least,
            samples_at_least,
            told_updates,
            told_samples,
            ..
        } = self;
        let gone = self.clocks.iter().map(|(group, (from, to))| {
            format!("; of group {group} finished clocks from {from} to {to} are gone")
        });
        format!(
            "shard {shard} began lineage {lineage} without {updates_at_least} updates and {samples_at_least} samples at least, and {told_updates} and {told_samples} were told{}",
            gone.collect::<String>()
        )
    }
}
