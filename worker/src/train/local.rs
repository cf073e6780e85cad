//! The steps of a group between two exchanges.

use tch::Tensor;
use tradewind_client::core::session::Purpose;
use tradewind_client::ranges::{Range, within};
use tradewind_client::stopwatch::Stopwatch;
use tradewind_common::schedule::Seen;

use super::{TrainError, Worker};
use crate::exchanges::Step;
use crate::host::{Checked, HostError};

impl Worker<'_> {
    /// As many as are due, with what they came to in the place of a gradient. A step without a finite
    /// gradient is left out by all ranks; without any that has one the exchange is skipped.
    pub(super) fn local_steps(&mut self, seen: Seen) -> Result<Step, TrainError> {
        let steps = self.local.as_ref().expect(LOCAL);
        let steps = steps.steps(&*self.group, &self.pulse)?;
        let mut all: Option<Step> = None;
        for nth in 0..steps {
            self.buffers.keep()?;
            let step = self.step(nth, seen)?;
            let mut watch = Stopwatch::start();
            if step.purpose == Purpose::Skip {
                // What its forward has made of them would stay for all steps to come.
                self.buffers.put_back()?;
            } else {
                let done = all.as_ref().map_or(0, Step::samples_pushed);
                let seen = Seen {
                    samples: seen.samples + done,
                    ..seen
                };
                self.local().step(seen, step.samples)?;
            }
            if nth > 0 {
                self.feed.done();
            }
            let mut all_so_far = all.map_or(step, |all| all.and(step));
            all_so_far.compute += watch.lap();
            all = Some(all_so_far);
        }
        let mut watch = Stopwatch::start();
        let mut step = all.expect("at least one step");
        let took = (step.compute + step.reduce).as_secs_f64();
        if took > 0.0 {
            self.pulse.set_speed(f64::from(steps) / took);
        }
        within(Range::Reduce, || self.agree_to_push(&mut step))?;
        step.reduce += watch.lap();
        Ok(step)
    }

    /// What is known of the step once it is computed. Between exchanges buffers are left alone.
    pub(super) fn computed(&mut self, loss: &Tensor) -> Result<Checked, HostError> {
        if self.local.is_none() {
            self.buffers.take(&*self.group)?;
        }
        self.host.check(loss, &*self.group)
    }

    /// Ranks agree that what their steps came to is finite, before the first block leaves (rule 7).
    fn agree_to_push(&mut self, step: &mut Step) -> Result<(), TrainError> {
        let Self {
            local,
            host,
            group,
            buffers,
            ..
        } = self;
        let local = local.as_mut().expect(LOCAL);
        local.push(&**group)?;
        host.begin(1.0, None)?;
        host.leave(&**group)?;
        buffers.take(&**group)?;
        let no_loss = Tensor::from(0f32).to_device(group.device());
        let Checked { bad, .. } = host.check(&no_loss, &**group)?;
        let mut not_finite = [f64::from(u8::from(bad > 0 || !buffers.finite()))];
        group.all_reduce_sum(&mut not_finite)?;
        if not_finite[0] > 0.0 {
            let clock = step.clock;
            tracing::warn!(%clock, "steps came to values that are not finite: the group skips");
            local.give_up()?;
            step.purpose = Purpose::Skip;
            step.buckets_skipped = self.member.layout.buckets.len();
        }
        Ok(())
    }

    fn local(&mut self) -> &mut crate::local::Local {
        self.local.as_mut().expect(LOCAL)
    }
}

const LOCAL: &str = "only with local steps";
