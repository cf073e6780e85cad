//! The machine that a run would run on, and what fails there: sections of a plan.

use tradewind_common::choice::{Field, Kind, Settings};
use tradewind_common::settings;
use tradewind_common::straggler::Dials;

use crate::time::{Nanos, nanos};

settings! {
    /// What is simulated of the run, where that is said more shortly than in a run's own keys.
    Extent {
        /// Parameters of the model.
        parameters: u64 = Field {
            key: "simulate.parameters",
            kind: Kind::Count { min: 0, max: 1_000_000_000_000 },
            default: "0",
            meaning: "Number of f32 parameters of the model. 0 takes `model.parameters`.",
        },
        /// Values that no optimizer moves.
        buffers: u64 = Field {
            key: "simulate.buffers",
            kind: Kind::Count { min: 0, max: 1_000_000_000_000 },
            default: "0",
            meaning: "Number of f32 values of buffers, such as BatchNorm's statistics.",
        },
        /// Groups, in the place of a list of them.
        groups: u64 = Field {
            key: "simulate.groups",
            kind: Kind::Count { min: 0, max: 65_536 },
            default: "0",
            meaning: "Number of groups, in the place of `cluster.groups`. 0 takes `cluster.groups`.",
        },
        /// Ranks of all groups together.
        ranks: u64 = Field {
            key: "simulate.ranks",
            kind: Kind::Count { min: 0, max: 100_000_000 },
            default: "0",
            meaning: "Number of ranks of all groups together, which are cut into `simulate.groups` groups of equal size to within one rank. 0 is one rank a group.",
        },
        /// Samples of a group's step.
        group_batch: f64 = Field {
            key: "simulate.group_batch",
            kind: Kind::Number { min: 0.0, max: 1e9 },
            default: "0.0",
            meaning: "Number of samples of a group's step, however many ranks share them, in the place of `train.batch`. 0 takes `train.batch`, which is of a rank.",
        },
        /// Ends after so many exchanges of each group on average.
        clocks: u64 = Field {
            key: "simulate.clocks",
            kind: Kind::Count { min: 0, max: 1_000_000_000 },
            default: "0",
            meaning: "Number of exchanges of each group, on average, after which the simulation ends. 0 ends it when `train.samples` are applied.",
        },
        /// Whether the picture shows how many times as fast as the first point.
        speedup: bool = Field {
            key: "simulate.speedup",
            kind: Kind::Flag,
            default: "false",
            meaning: "Whether the picture of a sweep shows samples a second as multiples of those of its first point.",
        },
    }
}

settings! {
    /// Nodes, links and servers, as a plan says.
    Machine {
        /// Ranks that share a link.
        ranks_per_node: u32 = Field {
            key: "machine.ranks_per_node",
            kind: Kind::Count { min: 1, max: 1024 },
            default: "1",
            meaning: "Number of ranks on a node. They share its link, and fail together.",
        },
        /// Fixed part of a step, seconds.
        step_seconds: f64 = Field {
            key: "machine.step_seconds",
            kind: Kind::Number { min: 0.0, max: 1e6 },
            default: "0.0",
            meaning: "Seconds that a rank computes in a step, whatever its batch. `pace.step_seconds` of the run is the least that a step takes, times what `stragglers` says.",
        },
        /// Part of a step for each sample, seconds.
        sample_seconds: f64 = Field {
            key: "machine.sample_seconds",
            kind: Kind::Number { min: 0.0, max: 1e6 },
            default: "0.0",
            meaning: "Seconds that a rank computes for each sample of its batch, in addition to `machine.step_seconds`.",
        },
        /// What each step takes besides, seconds.
        overhead_seconds: f64 = Field {
            key: "machine.overhead_seconds",
            kind: Kind::Number { min: 0.0, max: 1e3 },
            default: "0.0",
            meaning: "Seconds that each step takes besides, such as reading data that nothing hides, or waking up after a pace.",
        },
        /// σ of the logarithm of a step's time.
        jitter: f64 = Field {
            key: "machine.jitter",
            kind: Kind::Number { min: 0.0, max: 3.0 },
            default: "0.0",
            meaning: "Standard deviation of the logarithm of the time that a rank computes in a step.",
        },
        /// Part of the steps of a rank that pause.
        pause_rate: f64 = Field {
            key: "machine.pause_rate",
            kind: Kind::Number { min: 0.0, max: 1.0 },
            default: "0.0",
            meaning: "Fraction of the steps of a rank that take `machine.pause_factor` times as long.",
        },
        /// How many times as long.
        pause_factor: f64 = Field {
            key: "machine.pause_factor",
            kind: Kind::Number { min: 1.0, max: 1e6 },
            default: "10.0",
            meaning: "Factor by which a step with a pause takes longer.",
        },
        /// Part of the nodes that are slow for good.
        slow_part: f64 = Field {
            key: "machine.slow_part",
            kind: Kind::Number { min: 0.0, max: 1.0 },
            default: "0.0",
            meaning: "Fraction of the nodes that are slow for good. Which groups have one is drawn.",
        },
        /// How many times as long they take.
        slow_factor: f64 = Field {
            key: "machine.slow_factor",
            kind: Kind::Number { min: 1.0, max: 1e3 },
            default: "1.5",
            meaning: "Factor by which slow nodes take longer for each step.",
        },
        /// Of a node's link, each way, 10^9 bits a second.
        link_gbit: f64 = Field {
            key: "machine.link_gbit",
            kind: Kind::Number { min: 1e-6, max: 1e6 },
            default: "200.0",
            meaning: "Rate of a node's link, each way, in 10^9 bits a second.",
        },
        /// Of a server's link.
        server_link_gbit: f64 = Field {
            key: "machine.server_link_gbit",
            kind: Kind::Number { min: 0.0, max: 1e6 },
            default: "0.0",
            meaning: "Rate of a server's link, each way, in 10^9 bits a second. 0 is that of a node.",
        },
        /// One way, microseconds.
        latency_us: f64 = Field {
            key: "machine.latency_us",
            kind: Kind::Number { min: 0.0, max: 1e9 },
            default: "30.0",
            meaning: "Microseconds from one end of the network to the other, programs at both ends included.",
        },
        /// What the exchanging core of a rank moves, 10^9 bytes a second.
        rank_gb_per_s: f64 = Field {
            key: "machine.rank_gb_per_s",
            kind: Kind::Number { min: 1e-6, max: 1e6 },
            default: "4.0",
            meaning: "What the core of a rank that exchanges moves, in 10^9 bytes of f32 a second, both directions counted: 1 over `cpu_seconds_per_gb_by.client` of `tradewind bench exchange --json`.",
        },
        /// What all cores of a server move, 10^9 bytes a second.
        server_gb_per_s: f64 = Field {
            key: "machine.server_gb_per_s",
            kind: Kind::Number { min: 1e-6, max: 1e6 },
            default: "32.0",
            meaning: "What all cores of a server move, likewise: their number over `cpu_seconds_per_gb_by.server`.",
        },
        /// Of a server's cores for each message, microseconds.
        message_us: f64 = Field {
            key: "machine.message_us",
            kind: Kind::Number { min: 0.0, max: 1e9 },
            default: "0.0",
            meaning: "Microseconds that the cores of a server spend on each message of a block, besides moving its bytes.",
        },
        /// What the core moves that applies updates, 10^9 bytes a second.
        apply_gb_per_s: f64 = Field {
            key: "machine.apply_gb_per_s",
            kind: Kind::Number { min: 1e-6, max: 1e6 },
            default: "20.0",
            meaning: "What the core of a server that applies updates reads and writes, in 10^9 bytes a second: `gb_per_s` of `tradewind bench apply --json`.",
        },
        /// A hop of a collective, microseconds.
        collective_latency_us: f64 = Field {
            key: "machine.collective_latency_us",
            kind: Kind::Number { min: 0.0, max: 1e9 },
            default: "20.0",
            meaning: "Microseconds of a hop of a collective. An all-reduce over N ranks takes 2·log2(N) hops, a gather log2(N).",
        },
        /// Whether hops are along a ring.
        collective_ring: bool = Field {
            key: "machine.collective_ring",
            kind: Kind::Flag,
            default: "false",
            meaning: "Whether collectives go around a ring: an all-reduce takes 2·(N − 1) hops, a gather N − 1. So do Gloo's.",
        },
        /// Of a ring, 10^9 bits a second.
        collective_gbit: f64 = Field {
            key: "machine.collective_gbit",
            kind: Kind::Number { min: 0.0, max: 1e6 },
            default: "0.0",
            meaning: "Rate at which a ring of ranks passes values on, in 10^9 bits a second. 0 is that of a node's link: ranks of a node hand on inside it, and one of them sends on.",
        },
        /// Part of a step behind which a reduction hides.
        reduce_hidden: f64 = Field {
            key: "machine.reduce_hidden",
            kind: Kind::Number { min: 0.0, max: 1.0 },
            default: "0.0",
            meaning: "Fraction of a step's computation behind which the reduction of gradients hides: backward's part, where gradients are reduced while it goes on.",
        },
    }
}

settings! {
    /// What fails, how often, and how long it takes to go on.
    Failures {
        /// Mean time between failures of a node, years.
        node_years: f64 = Field {
            key: "failures.node_years",
            kind: Kind::Number { min: 0.0, max: 1e6 },
            default: "0.0",
            meaning: "Mean time between failures of a node, in years. 0 is never.",
        },
        /// The same of a server.
        server_years: f64 = Field {
            key: "failures.server_years",
            kind: Kind::Number { min: 0.0, max: 1e6 },
            default: "0.0",
            meaning: "Mean time between failures of a server, in years. 0 is never.",
        },
        /// Until a failure is noticed, seconds.
        detect_seconds: f64 = Field {
            key: "failures.detect_seconds",
            kind: Kind::Number { min: 0.0, max: 1e6 },
            default: "8.0",
            meaning: "Seconds until a failure is noticed: the lease (`liveness.lease_ms`) where a node falls silent, nothing where its connections break.",
        },
        /// From then until the group steps again, seconds.
        recover_seconds: f64 = Field {
            key: "failures.recover_seconds",
            kind: Kind::Number { min: 0.0, max: 1e7 },
            default: "60.0",
            meaning: "Seconds from then until the group steps again, on another node.",
        },
        /// From then until another server answers, seconds.
        failover_seconds: f64 = Field {
            key: "failures.failover_seconds",
            kind: Kind::Number { min: 0.0, max: 1e7 },
            default: "5.0",
            meaning: "Seconds from the notice of a server's failure until its shard answers again.",
        },
        /// Whether a failure of a node ends all groups.
        restart: bool = Field {
            key: "failures.restart",
            kind: Kind::Flag,
            default: "false",
            meaning: "Whether each failure of a node ends the whole job, which goes on from its last snapshot after `failures.recover_seconds`: how training is run without Tradewind.",
        },
        /// Between two snapshots, seconds.
        snapshot_every_seconds: f64 = Field {
            key: "failures.snapshot_every_seconds",
            kind: Kind::Number { min: 0.0, max: 1e9 },
            default: "0.0",
            meaning: "Seconds between two snapshots. 0 takes none.",
        },
        /// What a snapshot holds everybody up, seconds.
        snapshot_seconds: f64 = Field {
            key: "failures.snapshot_seconds",
            kind: Kind::Number { min: 0.0, max: 1e6 },
            default: "0.0",
            meaning: "Seconds for which a snapshot holds everybody up. Those of servers hold up nobody.",
        },
    }
}

/// The keys of a plan that a run's file does not have, in Markdown.
pub(crate) fn markdown() -> String {
    let sections = [
        ("simulate", Extent::FIELDS),
        ("machine", Machine::FIELDS),
        ("failures", Failures::FIELDS),
    ];
    let mut text = String::new();
    for (name, fields) in sections {
        text +=
            &format!("### `[{name}]`\n\n| key | takes | default | meaning |\n|---|---|---|---|\n");
        for (_, field) in fields {
            let Field {
                key,
                kind,
                default,
                meaning,
            } = field;
            text += &format!("| `{key}` | {kind} | `{default}` | {meaning} |\n");
        }
        text += "\n";
    }
    text.trim_end().to_owned() + "\n"
}

impl Machine {
    /// Time of a step's computation without jitter, of a batch of so many samples.
    pub(crate) fn computes(&self, batch: f64) -> f64 {
        self.step_seconds + self.sample_seconds * batch
    }

    /// What makes its ranks slow now and then.
    pub(crate) fn dials(&self) -> Dials {
        Dials {
            jitter: self.jitter,
            pause_rate: self.pause_rate,
            pause_factor: self.pause_factor,
            ..Dials::default()
        }
    }

    /// Bytes a second of a rank's part of its node's link.
    pub(crate) fn rank_link(&self) -> f64 {
        self.link_gbit * 1e9 / 8.0 / f64::from(self.ranks_per_node)
    }

    /// Bytes a second of a server's link.
    pub(crate) fn server_link(&self) -> f64 {
        match self.server_link_gbit {
            0.0 => self.link_gbit * 1e9 / 8.0,
            gbit => gbit * 1e9 / 8.0,
        }
    }

    /// Bytes a second that a ring of ranks passes on.
    fn collective(&self) -> f64 {
        match self.collective_gbit {
            0.0 => self.link_gbit * 1e9 / 8.0,
            gbit => gbit * 1e9 / 8.0,
        }
    }

    pub(crate) fn latency(&self) -> Nanos {
        nanos(self.latency_us / 1e6)
    }

    /// How long a collective takes over `size` ranks that passes through the tree, or the ring, `ways` times while each rank
    /// sends `bytes`: α + β·bytes (Thakur, Rabenseifner and Gropp 2005, "Optimization of Collective
    /// Communication Operations in MPICH", section 3).
    pub(crate) fn collective_seconds(&self, size: u32, ways: f64, bytes: u64) -> f64 {
        if size <= 1 {
            return 0.0;
        }
        let hops = match self.collective_ring {
            true => f64::from(size - 1),
            false => f64::from(size).log2().ceil(),
        };
        ways * hops * self.collective_latency_us / 1e6 + bytes as f64 / self.collective()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collective_is_hops_and_bytes() {
        let machine = Machine {
            collective_latency_us: 10.0,
            link_gbit: 8.0,
            ranks_per_node: 2,
            ..Machine::of_given(|_, _| None).unwrap()
        };
        assert_eq!(machine.collective_seconds(1, 2.0, 1_000_000), 0.0);
        let seconds = machine.collective_seconds(9, 2.0, 1_000_000);
        assert!((seconds - (8.0 * 10e-6 + 1e-3)).abs() < 1e-12, "{seconds}");
        let ring = Machine {
            collective_ring: true,
            ..machine
        };
        let seconds = ring.collective_seconds(9, 2.0, 1_000_000);
        assert!((seconds - (16.0 * 10e-6 + 1e-3)).abs() < 1e-12, "{seconds}");
        assert_eq!(machine.computes(4.0), 0.0);
        assert_eq!(machine.server_link(), 1e9);
    }
}
