//! How long the legs of a group's exchange take where nothing else is under way, by the size of the group. Bytes
//! and messages are those of the layout and the placement that the run really has (`tradewind_common::cost`).

use tradewind_common::cost::{Run, Traffic};
use tradewind_common::layout::{Layout, LayoutError, TensorKind, TensorSpec};
use tradewind_common::placement::Placement;
use tradewind_core::optimizer;

use crate::plan::Plan;
use crate::time::{Nanos, nanos};

/// The legs of an exchange of a group of one size. All are of the busiest rank and of the busiest server; the
/// others work at the same time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Legs {
    /// A rank sends its slice: its link, or the core that exchanges.
    pub(crate) rank_sends: Nanos,
    /// A rank takes its slice in.
    pub(crate) rank_receives: Nanos,
    /// The group's gradient on a server's link, copies of other shards included.
    pub(crate) server_receives: Nanos,
    /// Fresh values on a server's link, what copies are sent included.
    pub(crate) server_sends: Nanos,
    /// Cores of a server, for all that the exchange makes them move.
    pub(crate) cores: Nanos,
    /// What hides nothing: messages follow each other, so the first block is there after this part of the time
    /// that all of them take.
    pub(crate) first_block: f64,
    /// The reduction of gradients in the group.
    pub(crate) reduce: Nanos,
    /// The gather of the slices.
    pub(crate) gather: Nanos,
    /// What a rank moves.
    pub(crate) rank: Traffic,
    /// What a server moves for such a group.
    pub(crate) server: Traffic,
}

/// What an update of a shard takes on the core that applies it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Applying {
    /// Of one contribution.
    pub(crate) first: Nanos,
    /// For each further one that is merged into it.
    pub(crate) further: Nanos,
}

/// The model on the servers.
pub(crate) struct Sizes {
    layout: Layout,
    placement: Placement,
    /// Servers that hold a shard.
    pub(crate) servers: u32,
    /// Bytes of the longest shard's values.
    pub(crate) shard_bytes: u64,
    /// Vectors that the optimizer keeps beside the values.
    pub(crate) slots: u64,
}

impl Sizes {
    /// # Errors
    /// The model has no layout, such as one of too many blocks.
    pub(crate) fn new(plan: &Plan) -> Result<Self, LayoutError> {
        let tensor = |name: &str, elements: u64, kind| TensorSpec {
            name: name.into(),
            shape: vec![elements],
            kind,
        };
        let mut tensors = vec![tensor(
            "parameters",
            plan.parameters(),
            TensorKind::Parameter,
        )];
        if plan.extent.buffers > 0 {
            tensors.push(tensor("buffers", plan.extent.buffers, TensorKind::Buffer));
        }
        let layout = Layout::new(&tensors, plan.config.exchange.block_bytes)?;
        let servers = plan.config.cluster.servers;
        let placement = Placement::by_bytes(&layout, servers);
        let mut bytes = vec![0; servers as usize];
        for (block, shard) in layout.blocks.iter().zip(placement.shards()) {
            bytes[shard.0 as usize] += block.bytes() as u64;
        }
        Ok(Self {
            servers: bytes.iter().filter(|bytes| **bytes > 0).count() as u32,
            shard_bytes: bytes.iter().copied().max().unwrap_or(0),
            slots: optimizer::from_spec(plan.config.optimizer.spec).slots() as u64,
            layout,
            placement,
        })
    }

    /// Blocks of the model.
    pub(crate) fn blocks(&self) -> usize {
        self.layout.blocks.len()
    }

    /// Bytes of all values.
    pub(crate) fn bytes(&self) -> u64 {
        self.layout.elements() as u64 * 4
    }

    fn run<'a>(&'a self, plan: &Plan, sizes: &'a [u32]) -> Run<'a> {
        Run {
            layout: &self.layout,
            placement: &self.placement,
            group_sizes: sizes,
            connections: plan.config.exchange.connections,
            up: plan.config.up,
            down: plan.config.down,
            copies: plan.config.faults.replication,
        }
    }

    /// The legs of groups of `size` ranks.
    pub(crate) fn legs(&self, plan: &Plan, size: u32) -> Legs {
        let sizes = [size];
        let run = self.run(plan, &sizes);
        let machine = &plan.machine;
        let (rank, server) = (run.busiest_rank(), run.busiest_server(1));
        let of = |bytes: u64, rate: f64| nanos(bytes as f64 / rate);
        let copies = f64::from(run.copies);
        // Pushed and pulled; copies are moved on.
        let moved = 8.0 * server.values as f64 * copies / (machine.server_gb_per_s * 1e9);
        let of_messages = |messages: u64| messages as f64 * machine.message_us / 1e6;
        let exchanged = 4.0 * rank.values as f64 / (machine.rank_gb_per_s * 1e9);
        let collectives = run.collectives(size);
        Legs {
            rank_sends: of(rank.sent.wire, machine.rank_link()).max(nanos(exchanged)),
            rank_receives: of(rank.received.wire, machine.rank_link()).max(nanos(exchanged)),
            server_receives: of(server.received.wire, machine.server_link()),
            server_sends: of(server.sent.wire, machine.server_link()),
            cores: nanos(moved + of_messages(server.received.messages)),
            first_block: 1.0 / server.received.messages.max(1) as f64,
            reduce: nanos(machine.collective_seconds(size, 2.0, collectives.reduce)),
            gather: nanos(machine.collective_seconds(size, 1.0, collectives.gather)),
            rank,
            server,
        }
    }

    /// What updates take.
    pub(crate) fn applying(&self, plan: &Plan) -> Applying {
        let rate = plan.machine.apply_gb_per_s * 1e9;
        let copies = f64::from(plan.config.faults.replication);
        let values = self.shard_bytes as f64 / 4.0 * copies;
        // Read and written: the values and what the optimizer keeps; read: the gradient.
        let bytes = 4.0 * (2.0 * (1.0 + self.slots as f64) + 1.0);
        Applying {
            first: nanos(values * bytes / rate),
            // The sum is read and written, the gradient read.
            further: nanos(values * 12.0 / rate),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::plan;

    #[test]
    fn bytes_are_those_of_a_real_run() {
        // 20,522 values in blocks of 8 KiB, as the runs of docs/results exchanged them: 164,176 bytes and 11
        // decisions an exchange.
        let plan = plan(&["exchange.block_bytes=8192"]).unwrap();
        let sizes = Sizes::new(&plan).unwrap();
        let legs = sizes.legs(&plan, 1);
        let exchanged = legs.rank.sent.payload + legs.rank.received.payload;
        assert_eq!((exchanged, legs.rank.sent.messages), (164_176, 11));
        assert_eq!((sizes.blocks(), sizes.bytes()), (11, 82_088));
    }

    #[test]
    fn what_is_shared_takes_less() {
        let alone = plan(&["simulate.parameters=10000000"]).unwrap();
        let shared = plan(&["simulate.parameters=10000000", "cluster.servers=4"]).unwrap();
        let legs = |plan: &Plan, size| Sizes::new(plan).unwrap().legs(plan, size);
        let part = |a: Nanos, b: Nanos| (a as f64 / b as f64 * 100.0).round() as u64;
        let (one, of_four) = (legs(&alone, 1), legs(&alone, 4));
        assert_eq!(part(of_four.rank_sends, one.rank_sends), 25);
        assert_eq!(of_four.server_receives, one.server_receives);
        let four = legs(&shared, 1);
        assert_eq!(part(four.server_receives, one.server_receives), 25);
        assert_eq!(four.rank_sends, one.rank_sends);
    }
}
