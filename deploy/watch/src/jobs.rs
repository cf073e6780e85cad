//! The jobs of a run as Slurm knows them, asked seldom: its controller serves everybody, and facilities
//! bar those who ask it every second.

use std::path::Path;
use std::time::Duration;

use tradewind_launch::slurm::Queued;

/// Least time between two questions.
const ASK: Duration = Duration::from_secs(20);

/// What Slurm has told.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct JobsAnswer {
    /// Those that are not over.
    pub(crate) jobs: Vec<Queued>,
    /// Why nobody knows which these are; `None` if it is known.
    pub(crate) unknown: Option<String>,
    /// Whether the run has ever had a job.
    pub(crate) any: bool,
}

impl JobsAnswer {
    /// Whether Slurm still has something of the run, or may have.
    pub(crate) fn may_go_on(&self) -> bool {
        self.unknown.is_some() || !self.jobs.is_empty()
    }

    fn of(answer: anyhow::Result<Option<Vec<Queued>>>) -> Self {
        match answer {
            Ok(jobs) => Self {
                any: jobs.is_some(),
                jobs: jobs.unwrap_or_default(),
                unknown: None,
            },
            Err(error) => Self {
                jobs: Vec::new(),
                unknown: Some(format!("{error:#}")),
                any: true,
            },
        }
    }
}

/// Asks for a run's jobs again and again.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    asked: Option<Duration>,
    told: JobsAnswer,
}

impl Jobs {
    /// What is known of them `now`. While the run answers for itself Slurm is asked only for what waits.
    pub(crate) fn look(
        &mut self,
        run: &Path,
        now: Duration,
        away: bool,
        ask: impl FnOnce(&Path) -> anyhow::Result<Option<Vec<Queued>>>,
    ) -> &JobsAnswer {
        let waits = self.told.jobs.iter().any(|job| job.state == "PENDING");
        let wanted = match self.asked {
            None => true,
            Some(asked) => (away || waits) && now >= asked + ASK,
        };
        if wanted {
            self.asked = Some(now);
            self.told = JobsAnswer::of(ask(run));
        }
        &self.told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(state: &str) -> Queued {
        Queued {
            job: 12,
            state: state.into(),
            reason: "(Priority)".into(),
        }
    }

    /// How often Slurm is asked in two minutes of looks, one a second.
    fn asked(away: bool, mut answer: impl FnMut() -> anyhow::Result<Option<Vec<Queued>>>) -> u32 {
        let mut jobs = Jobs::default();
        let mut count = 0;
        for second in 0..120 {
            jobs.look(Path::new("r"), Duration::from_secs(second), away, |_| {
                count += 1;
                answer()
            });
        }
        count
    }

    #[test]
    fn slurm_is_asked_at_most_every_20_seconds_and_only_while_there_is_something_to_learn() {
        assert_eq!(asked(true, || Ok(Some(vec![job("PENDING")]))), 6);
        assert_eq!(asked(false, || Ok(Some(vec![job("PENDING")]))), 6);
        assert_eq!(asked(false, || Ok(Some(vec![job("RUNNING")]))), 1);
        assert_eq!(asked(true, || Ok(Some(vec![job("RUNNING")]))), 6);
        let fails = || anyhow::bail!("squeue: Socket timed out");
        assert_eq!(asked(true, fails), 6, "a controller in need is left alone");
    }

    #[test]
    fn who_cannot_ask_does_not_take_a_run_for_gone() {
        let mut jobs = Jobs::default();
        let mut look = |second, answer| {
            let now = Duration::from_secs(second);
            jobs.look(Path::new("r"), now, true, |_| answer).clone()
        };
        let told = look(0, Ok(Some(vec![job("RUNNING")])));
        assert!(told.may_go_on() && told.any);
        let told = look(20, Err(anyhow::anyhow!("squeue: Socket timed out")));
        assert_eq!(told.unknown.as_deref(), Some("squeue: Socket timed out"));
        assert!(told.may_go_on() && told.any);
        let told = look(40, Ok(Some(vec![])));
        assert!(!told.may_go_on() && told.any);
        assert!(!JobsAnswer::of(Ok(None)).any);
    }
}
