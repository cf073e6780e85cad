//! What settings have to do with each other: which exclude which, and which need another, all of it in one
//! table. Everything is asked of what settings can do, and nothing of their names.

use crate::choice::{Choices, Settings, Unfit, all_in_range, fit};
use crate::compress::Compression;
use crate::consistency::ConsistencySpec;
use crate::optimizer::OptimizerSpec;
use crate::policy::{MergeSpec, Policies};

/// What was chosen in a run.
#[derive(Clone, Copy, Debug)]
pub struct Chosen<'a> {
    /// When a gradient is applied.
    pub consistency: ConsistencySpec,
    /// How many groups there are.
    pub groups: usize,
    /// How many sets the training data are cut into.
    pub sets: u32,
    /// What else there is between a gradient's arrival and its application.
    pub policies: &'a Policies,
    /// How an update is applied.
    pub optimizer: OptimizerSpec,
    /// How gradients travel.
    pub up: Compression,
    /// How fresh parameters travel.
    pub down: Compression,
    /// What only ranks know of; `None` where servers ask.
    pub ranks: Option<OfRanks>,
}

/// What was chosen for the ranks of a run, of which servers know nothing.
#[derive(Clone, Copy, Debug)]
pub struct OfRanks {
    /// The exchange of a step runs behind the computation of the next.
    pub overlap: bool,
    /// A bucket leaves as soon as it is reduced.
    pub per_bucket: bool,
    /// A rank has the mean of its own part of a gradient only.
    pub scatters: bool,
    /// A step takes a least time.
    pub paced: bool,
    /// The loss is scaled, and a step whose gradients overflow is skipped as a whole.
    pub scales_loss: bool,
    /// Groups take steps of their own between two exchanges.
    pub local: bool,
    /// Groups push the values that their steps led to.
    pub pushes_values: bool,
    /// Slower groups take fewer steps.
    pub fitted: bool,
    /// The servers' optimizer is given a weight decay.
    pub decays: bool,
    /// Gradients that are too long are shortened.
    pub clips: bool,
}

/// A line of the table of what excludes what: a key, if it is so, and another, if that is there.
struct Exclusion {
    key: &'static str,
    excludes: bool,
    other: String,
    is_there: bool,
    why: &'static str,
}

impl Chosen<'_> {
    /// What is out of its range, excluded, or lacks what it needs: all of it.
    pub fn problems(&self) -> Vec<Unfit> {
        let excluded = self.exclusions().into_iter();
        let excluded = excluded.filter(|row| row.excludes && row.is_there);
        let excluded = excluded.map(
            |Exclusion {
                 key, other, why, ..
             }| Unfit {
                key,
                problem: format!("excludes {other}: {why}"),
            },
        );
        let mut problems = self.out_of_range();
        problems.extend(excluded);
        problems.extend(self.needs().into_iter().filter_map(Result::err));
        problems
    }

    fn out_of_range(&self) -> Vec<Unfit> {
        let policies = self.policies;
        let waits = self.consistency.waits_for_all();
        let few = policies.backup_groups == 0 || (policies.backup_groups as usize) < self.groups;
        let mut checks = vec![
            self.consistency.in_range(),
            policies.staleness.in_range(),
            policies.momentum.in_range(),
            self.up.check(),
            self.down.check(),
            fit(
                few || !waits,
                "train.backup_groups",
                "is not less than the number of cluster.groups",
            ),
        ];
        if let Some(merge) = policies.merge.filter(|_| !waits) {
            checks.push(all_in_range(MergeSpec::FIELDS, &merge.settings()));
            checks.push(fit(
                merge.min_groups as usize <= self.groups,
                "merge.min_groups",
                "is not from 1 to the number of cluster.groups",
            ));
            checks.push(fit(
                merge.min_groups <= 1 || merge.wait_ms_max > 0,
                "merge.wait_ms_max",
                "is not above 0 beside merge.min_groups above 1: nobody would be waited for",
            ));
        }
        let mut problems: Vec<Unfit> = checks.into_iter().filter_map(Result::err).collect();
        // Both directions have the same keys.
        problems.dedup();
        problems
    }

    /// What settings need of others.
    fn needs(&self) -> Vec<Result<(), Unfit>> {
        let optimizer = self.optimizer.capabilities();
        let momentum = self.policies.momentum.capabilities();
        let mut needs = vec![fit(
            optimizer.momentum().is_some() || !momentum.acts(),
            "momentum.policy",
            "needs optimizer.momentum above 0, of an optimizer that has it, without optimizer.nesterov",
        )];
        if let Some(ranks) = self.ranks {
            needs.push(fit(
                ranks.pushes_values || !optimizer.takes_values(),
                "optimizer.name",
                "needs local.algorithm = \"easgd\", whose groups push values",
            ));
            needs.push(fit(
                optimizer.takes_values() || !ranks.pushes_values,
                "local.algorithm",
                "needs optimizer.name = \"elastic\": groups push values, not gradients",
            ));
        }
        needs
    }

    fn exclusions(&self) -> Vec<Exclusion> {
        let mut table = self.of_everybody();
        table.extend(self.ranks.iter().flat_map(|ranks| self.of_ranks(ranks)));
        table
    }

    fn of_everybody(&self) -> Vec<Exclusion> {
        let policies = self.policies;
        let optimizer = self.optimizer.capabilities();
        let staleness = policies.staleness.capabilities();
        let momentum = policies.momentum.capabilities();
        let waits = self.consistency.waits_for_all();
        let this_consistency = named("train.consistency", &self.consistency);
        let this_optimizer = named("optimizer.name", &self.optimizer);
        let this_staleness = named("staleness.policy", &policies.staleness);
        let this_momentum = named("momentum.policy", &policies.momentum);
        let merge = match policies.merge {
            Some(merge) if merge.min_groups > 1 => "merge.min_groups",
            Some(_) | None => "merge.grace_ms_max",
        };
        vec![
            // What is pushed are values, not gradients.
            Exclusion {
                key: "optimizer.name",
                excludes: optimizer.takes_values(),
                // Under a bound one contribution may let others in, whose updates its answer shows.
                other: "train.consistency other than \"async\"".into(),
                is_there: self.consistency.lets_others_in(),
                why: "a group moves as far as it has moved the centre, which it knows only of an update of its own",
            },
            Exclusion {
                key: "optimizer.name",
                excludes: optimizer.takes_values(),
                other: merge.into(),
                is_there: policies.merge.is_some(),
                why: "a group moves as far as it has moved the centre, which it knows only of an update of its own",
            },
            Exclusion {
                key: "optimizer.name",
                excludes: optimizer.takes_values(),
                other: this_staleness.clone(),
                is_there: staleness.acts(),
                why: "what is pushed are values, which a delay does not make wrong",
            },
            Exclusion {
                key: "optimizer.name",
                excludes: optimizer.takes_values(),
                other: "exchange.up".into(),
                is_there: self.up.lossy(),
                why: "values travel, not differences whose rounding could be made up for",
            },
            Exclusion {
                key: "optimizer.name",
                excludes: optimizer.takes_values(),
                other: "exchange.down".into(),
                is_there: self.down.lossy(),
                why: "values travel, not differences whose rounding could be made up for",
            },
            // What arrives are a few elements, each with what was left out of it before: neither its
            // length nor its square is that of a gradient.
            Exclusion {
                key: "exchange.up",
                excludes: self.up.sparse(),
                other: this_optimizer.clone(),
                is_there: optimizer.layerwise(),
                why: "with \"topk\" what arrives has another length than the gradient, whose norms travel with it",
            },
            Exclusion {
                key: "exchange.up",
                excludes: self.up.sparse(),
                other: this_staleness.clone(),
                is_there: staleness.compensates(),
                why: "with \"topk\" an element that arrives is the sum of many gradients, whose square says nothing",
            },
            Exclusion {
                key: "exchange.up",
                excludes: self.up.sparse(),
                other: this_momentum.clone(),
                is_there: momentum.measures(),
                why: "with \"topk\" most elements that it measures arrive as 0",
            },
            Exclusion {
                key: "loader.sets",
                excludes: self.sets > 1,
                other: this_consistency.clone(),
                is_there: waits,
                why: "the samples of a step follow from its number and the rank, whichever set they are in",
            },
            Exclusion {
                key: "train.backup_groups",
                excludes: policies.backup_groups > 0,
                other: "train.consistency".into(),
                is_there: !waits,
                why: "only under `sync` a group is waited for at every clock",
            },
            Exclusion {
                key: merge,
                excludes: policies.merge.is_some(),
                other: this_consistency.clone(),
                is_there: waits,
                why: "everybody is waited for at every clock",
            },
            Exclusion {
                key: "staleness.policy",
                excludes: staleness.acts(),
                other: this_consistency.clone(),
                is_there: waits,
                why: "no group computes on older values than another",
            },
            Exclusion {
                key: "staleness.policy",
                excludes: staleness.compensates(),
                other: "exchange.down".into(),
                is_there: self.down.lossy(),
                why: "a group then has other values than the block had, and nobody keeps them for the term",
            },
            Exclusion {
                key: "staleness.policy",
                excludes: staleness.compensates(),
                other: this_optimizer.clone(),
                is_there: optimizer.layerwise(),
                why: "norms travel with the gradient as it was computed, before the term is added",
            },
            Exclusion {
                key: "momentum.policy",
                excludes: momentum.acts(),
                other: this_consistency.clone(),
                is_there: waits,
                why: "there is no asynchrony to make up for",
            },
            Exclusion {
                key: "momentum.policy",
                excludes: momentum.measures(),
                other: this_optimizer.clone(),
                is_there: optimizer.layerwise(),
                why: "it measures steps that are a rate times a gradient, and those of a tensor are scaled by its norms",
            },
            Exclusion {
                key: "momentum.policy",
                excludes: momentum.measures(),
                other: this_staleness.clone(),
                is_there: staleness.reweights(),
                why: "it measures steps that are a rate times a gradient, and those are shorter by their delay",
            },
            Exclusion {
                key: "momentum.policy",
                excludes: momentum.measures(),
                other: "exchange.down".into(),
                is_there: self.down.lossy(),
                why: "a group then has other values than the block had, and nobody keeps them to measure with",
            },
        ]
    }

    fn of_ranks(&self, ranks: &OfRanks) -> Vec<Exclusion> {
        let optimizer = self.optimizer.capabilities();
        let staleness = self.policies.staleness.capabilities();
        let this_optimizer = named("optimizer.name", &self.optimizer);
        vec![
            Exclusion {
                key: "exchange.per_bucket",
                excludes: ranks.per_bucket,
                other: "train.overlap = 1".into(),
                is_there: ranks.overlap,
                why: "the exchange of the step before is still under way during backward, and only one may be",
            },
            Exclusion {
                key: "exchange.per_bucket",
                excludes: ranks.per_bucket,
                other: "pace.step_seconds".into(),
                is_there: ranks.paced,
                why: "buckets leave during backward, before the pace has made the computation longer",
            },
            Exclusion {
                key: "exchange.per_bucket",
                excludes: ranks.per_bucket,
                other: this_optimizer.clone(),
                is_there: optimizer.layerwise(),
                why: "it needs norms of whole tensors before anything leaves",
            },
            Exclusion {
                key: "exchange.reduce",
                excludes: ranks.scatters,
                other: "exchange.per_bucket".into(),
                is_there: ranks.per_bucket,
                why: "whether a bucket is finite is seen by all ranks in the mean of all of it",
            },
            Exclusion {
                key: "exchange.reduce",
                excludes: ranks.scatters,
                other: "local.algorithm".into(),
                is_there: ranks.local,
                why: "the steps between exchanges need the mean of all of a gradient",
            },
            Exclusion {
                key: "exchange.reduce",
                excludes: ranks.scatters,
                other: this_optimizer.clone(),
                is_there: optimizer.layerwise(),
                why: "it needs norms of whole tensors, of which a rank has a part",
            },
            Exclusion {
                key: "compute.precision",
                excludes: ranks.scales_loss,
                other: "exchange.per_bucket".into(),
                is_there: ranks.per_bucket,
                why: "a step whose scaled gradients overflow is skipped as a whole, and its first buckets would have left",
            },
            Exclusion {
                key: "local.algorithm",
                excludes: ranks.local,
                other: "train.overlap = 1".into(),
                is_there: ranks.overlap,
                why: "what is pushed is there only when the last of the steps is done, and the next begins from the answer",
            },
            Exclusion {
                key: "local.algorithm",
                excludes: ranks.local,
                other: "exchange.per_bucket".into(),
                is_there: ranks.per_bucket,
                why: "backward has no bucket of what is pushed",
            },
            Exclusion {
                key: "local.algorithm",
                excludes: ranks.local,
                other: named("staleness.policy", &self.policies.staleness),
                is_there: staleness.compensates(),
                why: "what is pushed is no gradient, whose square would say how the loss bends",
            },
            Exclusion {
                key: "local.algorithm",
                excludes: ranks.local,
                other: this_optimizer,
                is_there: optimizer.layerwise(),
                why: "what is pushed is no gradient, whose length would say something",
            },
            Exclusion {
                key: "optimizer.weight_decay",
                excludes: ranks.decays,
                other: "local.algorithm".into(),
                is_there: ranks.local,
                why: "the steps between exchanges have local.weight_decay",
            },
            Exclusion {
                key: "optimizer.clip_norm",
                excludes: ranks.clips,
                other: "exchange.per_bucket".into(),
                is_there: ranks.per_bucket,
                why: "how long all of a gradient is, is known when its first buckets have left",
            },
            Exclusion {
                key: "optimizer.clip_norm",
                excludes: ranks.clips,
                other: "local.algorithm".into(),
                is_there: ranks.local,
                why: "what is pushed is no gradient, whose length would say something",
            },
            Exclusion {
                key: "local.fitted",
                excludes: ranks.local && ranks.fitted,
                other: named("train.consistency", &self.consistency),
                is_there: self.consistency.waits_for_all(),
                why: "the data of a clock follow from its number, which needs as many steps of all",
            },
        ]
    }
}

/// A key with what it chooses.
fn named<C: Choices>(key: &str, chosen: &C) -> String {
    format!("{key} = {:?}", chosen.definition().name)
}
