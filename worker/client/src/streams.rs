//! A rank's streams to the shards.

use std::borrow::Cow;

use tokio::runtime::Runtime;
use tradewind_common::schedule::Seen;

use crate::core::session::{Purpose, Summary};
use crate::destination::Destination;
use crate::exchange::Exchange;
use crate::exchange_error::ExchangeError;
use crate::pushed::{Contributed, Contribution};

/// What a rank exchanges on. Whoever calls waits for the end.
pub struct Streams {
    /// What they carry.
    pub exchange: Exchange,
    /// On which they run.
    pub wire: Runtime,
}

impl Streams {
    /// Reads every block of the slice into its range of `into`.
    pub fn pull(&mut self, mut into: &mut dyn Destination) -> Result<Summary, ExchangeError> {
        self.wire.block_on(self.exchange.pull(&mut into))
    }

    /// One exchange, which skips without a contribution. On return the slice's range of `into` is fresh;
    /// after an error it is neither what it was nor fresh. `seen` is the same on all ranks of the group.
    pub fn exchange(
        &mut self,
        seen: Seen,
        contribution: Option<Contribution<'_>>,
        mut into: &mut dyn Destination,
    ) -> Result<Summary, ExchangeError> {
        let Self { exchange, wire } = self;
        let run = async {
            let Some(Contribution { samples, values }) = contribution else {
                return exchange
                    .run(Purpose::Skip, seen, &|_| Cow::default(), &mut into)
                    .await;
            };
            match values {
                Contributed::Whole(source) => {
                    let purpose = Purpose::Gradient { samples };
                    exchange.run(purpose, seen, &*source, &mut into).await
                }
                Contributed::Parts(parts) => {
                    exchange.run_parts(samples, seen, &parts, &mut into).await
                }
            }
        };
        wire.block_on(run)
    }
}
