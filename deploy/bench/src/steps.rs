//! Steps at overlap 1, as a worker makes them, with a sleep for the computation.

use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use tradewind_client::background::Background;
use tradewind_client::core::session::Purpose;
use tradewind_client::streams::Streams;
use tradewind_common::Layout;
use tradewind_common::schedule::Seen;

use super::orders::Work;

/// A rank that steps with its exchanges behind it.
pub struct Steps {
    background: Background,
    computation: Duration,
    under_way: bool,
    /// Empty while an exchange has them.
    gradient: Vec<f32>,
    values: Vec<f32>,
    seen: Seen,
}

impl Steps {
    /// The streams have pulled `values`.
    pub fn new(
        Streams { exchange, wire }: Streams,
        layout: Arc<Layout>,
        (gradient, values): (Vec<f32>, Vec<f32>),
        computation: Duration,
    ) -> Self {
        Self {
            background: Background::new(exchange, layout, wire),
            computation,
            under_way: false,
            gradient,
            values,
            seen: Seen::default(),
        }
    }

    /// Computes, waits for the exchange of the step before, starts its own. Returns the group's
    /// clock.
    pub fn step(&mut self, work: Work) -> anyhow::Result<u64> {
        if work != Work::Exchange {
            bail!("steps exchange; they neither push nor pull alone");
        }
        std::thread::sleep(self.computation);
        if std::mem::replace(&mut self.under_way, true) {
            let ended = self.background.wait()?;
            (self.gradient, self.values) = (ended.gradient, ended.values);
            self.seen = ended.summary.seen();
        }
        let vectors = [&mut self.gradient, &mut self.values].map(std::mem::take);
        let [gradient, values] = vectors;
        let purpose = Purpose::Gradient { samples: 1 };
        self.background.start(purpose, self.seen, gradient, values);
        Ok(self.background.clock().0)
    }
}
