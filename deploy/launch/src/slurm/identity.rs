//! Which task of which job a process is: what Slurm says in its environment.

use anyhow::{Context, bail};

use super::start::Start;

/// A task of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TaskIdentity {
    pub(super) job: u32,
    /// How often the job was started before.
    pub(super) restarts: u32,
    /// Number of the task in its step, from 0: one step is one component.
    pub(super) task: u32,
    /// Its number on its node.
    pub(super) local: u32,
    /// Tasks of the step.
    pub(super) tasks: u32,
    /// Name of the node.
    pub(super) node: String,
    /// CPUs that the task was granted.
    pub(super) cpus: u32,
}

impl TaskIdentity {
    /// From the variables of an environment.
    pub(super) fn of(variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<Self> {
        let text = |name: &str| {
            variable(name).with_context(|| {
                format!("{name} is not set: this is started by srun, from the script of `tradewind slurm render`")
            })
        };
        let number = |name: &str| -> anyhow::Result<u32> {
            let text = text(name)?;
            text.parse()
                .with_context(|| format!("{name} is {text:?}, no number"))
        };
        let identity = Self {
            job: number("SLURM_JOB_ID")?,
            restarts: match variable("SLURM_RESTART_COUNT") {
                Some(_) => number("SLURM_RESTART_COUNT")?,
                None => 0,
            },
            task: number("SLURM_PROCID")?,
            local: number("SLURM_LOCALID")?,
            tasks: number("SLURM_STEP_NUM_TASKS").or_else(|_| number("SLURM_NTASKS"))?,
            node: text("SLURMD_NODENAME")?,
            cpus: match variable("SLURM_CPUS_PER_TASK") {
                Some(_) => number("SLURM_CPUS_PER_TASK")?,
                None => 1,
            },
        };
        if identity.task >= identity.tasks {
            bail!(
                "SLURM_PROCID is {}, but the step has {} tasks; start each component with an srun of its own",
                identity.task,
                identity.tasks
            );
        }
        Ok(identity)
    }

    /// Of this process.
    pub(super) fn here() -> anyhow::Result<Self> {
        Self::of(|name| std::env::var(name).ok())
    }

    /// The start of the job that it is of.
    pub(super) fn start(&self) -> Start {
        Start {
            job: self.job,
            restarts: self.restarts,
        }
    }
}

/// The start of the job that this process leads; it is no task of a step.
pub(super) fn job_start() -> anyhow::Result<Start> {
    let number = |name: &str| -> anyhow::Result<Option<u32>> {
        let text = std::env::var(name).ok();
        let number = text.map(|text| text.parse()).transpose();
        number.with_context(|| format!("{name} is no number"))
    };
    let job = number("SLURM_JOB_ID")?;
    let job = job.context("SLURM_JOB_ID is not set: this is what a batch script becomes")?;
    let restarts = number("SLURM_RESTART_COUNT")?.unwrap_or(0);
    Ok(Start { job, restarts })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(set: &[(&str, &str)]) -> anyhow::Result<TaskIdentity> {
        let base = [
            ("SLURM_JOB_ID", "12"),
            ("SLURM_PROCID", "3"),
            ("SLURM_LOCALID", "1"),
            ("SLURM_STEP_NUM_TASKS", "4"),
            ("SLURMD_NODENAME", "n5"),
        ];
        TaskIdentity::of(|name| {
            let found = set.iter().chain(&base).find(|(known, _)| *known == name);
            found
                .map(|(_, value)| (*value).to_owned())
                .filter(|v| !v.is_empty())
        })
    }

    #[test]
    fn a_task_knows_its_place() {
        let own = identity(&[("SLURM_CPUS_PER_TASK", "8"), ("SLURM_RESTART_COUNT", "2")]).unwrap();
        let want = TaskIdentity {
            job: 12,
            restarts: 2,
            task: 3,
            local: 1,
            tasks: 4,
            node: "n5".into(),
            cpus: 8,
        };
        assert_eq!(own, want);
        assert_eq!(identity(&[]).unwrap().restarts, 0, "the first start");
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let check = |set: &[(&str, &str)], want: &str| {
            let error = format!("{:#}", identity(set).unwrap_err());
            assert!(error.contains(want), "{error}");
        };
        check(
            &[("SLURM_PROCID", "")],
            "SLURM_PROCID is not set: this is started by srun",
        );
        check(
            &[("SLURM_LOCALID", "x")],
            "SLURM_LOCALID is \"x\", no number",
        );
        check(
            &[("SLURM_PROCID", "4")],
            "start each component with an srun of its own",
        );
    }
}
