//! Steps of the script's own optimizer between exchanges: `local.algorithm`.

use std::ops::Range;

use tradewind_client::alike::Misused;
use tradewind_client::local::{self, Kept, agreed_steps};
use tradewind_client::step::Step;
use tradewind_client::stopwatch::Stopwatch;
use tradewind_common::{Layout, TensorKind};
use tradewind_config::{Config, Local};

use super::{Entered, Outcome, Said, Stage, Trainer, unready};

/// The steps since the last exchange.
pub(super) struct LocalSteps {
    config: Local,
    /// Of the servers' updates.
    rate: f64,
    kept: Kept,
    /// How many there are to be.
    count: u32,
    /// Those that were taken, as one.
    taken: Option<Step>,
}

impl LocalSteps {
    /// The group has just pulled `values`, of which this rank has `parts`; `None` where every step is exchanged.
    pub(super) fn new(
        config: &Config,
        layout: &Layout,
        parts: &[Range<usize>],
        values: &[f32],
    ) -> Option<Self> {
        let local = config.local.clone()?;
        let end = layout.of_kind(TensorKind::Parameter).end;
        let parameters = parts.iter().map(|part| part.start..part.end.min(end));
        let parameters = parameters.filter(|part| !part.is_empty()).collect();
        let buffers = layout.of_kind(TensorKind::Buffer);
        let elastic = local.algorithm.pushes_values();
        Some(Self {
            rate: config.optimizer.schedule.learning_rate,
            kept: Kept::new(elastic, parameters, buffers, values),
            config: local,
            count: 0,
            taken: None,
        })
    }

    /// Steps since the last exchange.
    pub(super) fn taken(&self) -> u32 {
        self.taken.map_or(0, |step| step.local_steps)
    }
}

/// What the script does with a step.
#[derive(Clone, Copy, Debug)]
pub struct InnerStep {
    /// Nothing: somebody's gradient was not finite.
    pub skipped: bool,
    /// After it there is an exchange.
    pub exchange: bool,
}

impl Trainer {
    /// Agrees with the group about the gradient in its memory, before the script's optimizer uses it.
    pub fn inner_step(&mut self, said: Said) -> anyhow::Result<Result<InnerStep, Misused>> {
        self.count_steps()?;
        let step = match self.agree(said)? {
            Ok(step) => step,
            Err(misused) => return Ok(Err(misused)),
        };
        let (local, entered) = self.local()?;
        // They are in the group's values from here on.
        (0..said.batches).for_each(|_| entered.feed.done());
        let taken = match local.taken.take() {
            Some(before) => before.and(step),
            None => step,
        };
        local.taken = Some(taken);
        Ok(Ok(InnerStep {
            skipped: step.is_skipped(),
            exchange: taken.local_steps >= local.count,
        }))
    }

    /// Before the first step after an exchange the ranks agree how many there will be.
    fn count_steps(&mut self) -> anyhow::Result<()> {
        let (local, entered) = self.local()?;
        if local.taken.is_some() {
            return Ok(());
        }
        local.count = match local.config.fitted {
            true => {
                let heartbeat = entered.membership.heartbeat();
                let (own, fastest) = (heartbeat.speed(), heartbeat.fastest());
                agreed_steps(local.config.fitted_steps(own, fastest), &*entered.group)?
            }
            false => local.config.steps,
        };
        Ok(())
    }

    /// Exchanges what the steps came to, with the buffers that lie beside the gradient.
    pub fn exchange_steps(&mut self) -> anyhow::Result<Outcome> {
        // SAFETY: the script waits for this call.
        let (values, gradient) = unsafe { (self.values.values_mut(), self.gradient.values_mut()) };
        let (Some(local), Stage::Entered(entered)) = (&mut self.local, &self.stage) else {
            return Err(unready("exchange"));
        };
        let Some(mut steps) = local.taken.take() else {
            return Err(unready("exchange without a step"));
        };
        local::tell_speed(&steps, entered.membership.heartbeat());
        let watch = Stopwatch::start();
        let finite = local.kept.push(values, gradient);
        let finite = local::agree_to_push(&mut steps, finite, 1, &*entered.group)?;
        if !finite {
            local.kept.give_up();
        }
        steps.reduce += watch.elapsed();
        let outcome = self.exchange(steps, 0)?;
        // SAFETY: as above.
        let values = unsafe { self.values.values_mut() };
        if let Some(local) = &mut self.local {
            local.kept.pulled(values, local.rate, !steps.is_skipped());
        }
        Ok(Outcome {
            lost: !finite,
            ..outcome
        })
    }

    fn local(&mut self) -> anyhow::Result<(&mut LocalSteps, &mut Entered)> {
        match (&mut self.local, &mut self.stage) {
            (Some(local), Stage::Entered(entered)) => Ok((local, entered)),
            _ => Err(unready("take a local step")),
        }
    }
}
