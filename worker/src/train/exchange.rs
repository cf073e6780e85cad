//! The exchange of a step: after it, during its backward, or with overlap behind the next one.

use tradewind_client::core::session::{Purpose, Summary};
use tradewind_client::ranges::{Range, open, within};
use tradewind_client::stopwatch::Stopwatch;
use tradewind_common::schedule::Seen;

use super::{TrainError, Worker};
use crate::exchanges::{Ended, Exchanges, Step, over_ranks};
use crate::group::Group;
use crate::member::Member;
use crate::telemetry::wall;

impl Worker<'_> {
    /// The exchange of this step. With overlap it is only started, once that of the step before,
    /// if there was one, has ended; unless that one's answers said stop.
    pub(super) fn exchange(
        &mut self,
        mut step: Step,
        seen: Seen,
    ) -> Result<Option<Ended>, TrainError> {
        let Self {
            member,
            exchanges,
            group,
            host,
            buffers,
            pulse,
            ..
        } = self;
        let Member {
            flat,
            layout,
            leaving,
            ..
        } = &mut **member;
        // What one rank was asked, all of them do.
        let over_ranks = |group: &dyn Group, own: Summary| {
            let leave = leaving.is_asked() || pulse.leave();
            over_ranks(group, Summary { leave, ..own })
        };
        let skipped = step.purpose == Purpose::Skip;
        match exchanges {
            Exchanges::Between(between) => {
                let mut watch = Stopwatch::start();
                let pushed = (!skipped).then(|| host.pushed(&**group, layout, buffers));
                let run = || between.run(&step, seen, pushed, flat);
                let own = within(Range::Exchange(step.clock), run)?;
                let took = watch.lap();
                let _open = open(Range::Reduce);
                between.load(flat)?;
                group.gather(flat)?;
                let summary = over_ranks(&**group, own)?;
                step.reduce += watch.lap();
                Ok(Some(Ended {
                    step,
                    summary,
                    took,
                    exposed: took,
                    wall: wall(),
                }))
            }
            Exchanges::During(during) => {
                let finite = step.buckets_skipped == 0;
                let finish = || during.finish(finite.then_some(&*buffers));
                let exchanged = within(Range::Wait, finish)?;
                let mut watch = Stopwatch::start();
                let _open = open(Range::Reduce);
                during.load(flat)?;
                group.gather(flat)?;
                let summary = over_ranks(&**group, exchanged.summary)?;
                step.reduce += watch.lap();
                Ok(Some(Ended {
                    step,
                    summary,
                    took: exchanged.took,
                    exposed: exchanged.exposed,
                    wall: wall(),
                }))
            }
            Exchanges::Behind(behind) => {
                let mut ended = within(Range::Wait, || behind.wait())?;
                let _open = open(Range::Reduce);
                let watch = Stopwatch::start();
                let mut seen = seen;
                if let Some(Ended { summary, .. }) = &mut ended {
                    *summary = over_ranks(&**group, *summary)?;
                    if summary.stop || summary.leave {
                        return Ok(ended);
                    }
                    seen = summary.seen();
                    step.clock = behind.go_on_at(summary.next);
                }
                behind.load(flat)?;
                let pushed = (!skipped).then(|| host.pushed(&**group, layout, buffers));
                behind.start(step, seen, pushed);
                group.gather(flat)?;
                // What came with something that is not finite goes nowhere.
                if !skipped {
                    buffers.go_on_with_own()?;
                }
                behind.add_reduce(watch.elapsed());
                Ok(ended)
            }
        }
    }
}
