//! The steps of the job. The batch script has started them and has become the lead, so they are its
//! children: it hears of their end from the kernel.

use std::path::Path;

use anyhow::bail;
use rustix::process::{Pid, WaitOptions, waitpid};

use super::super::job::{Component, What};

/// The sruns of the components.
#[derive(Debug)]
pub(super) struct Steps(Vec<Step>);

#[derive(Debug)]
struct Step {
    what: What,
    pid: Pid,
    over: bool,
}

/// The end of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StepEnd {
    pub(super) what: What,
    /// Such as `ended with exit code 1`; `None` if all of its tasks have done their part.
    pub(super) failure: Option<String>,
}

impl Steps {
    /// Of these children, in the order of the components.
    pub(super) fn new(pids: &[i32], components: &[Component]) -> anyhow::Result<Self> {
        if pids.len() != components.len() {
            bail!(
                "{} steps are given for {} components; the batch script starts one for each",
                pids.len(),
                components.len()
            );
        }
        let step = |(pid, component): (&i32, &Component)| match Pid::from_raw(*pid) {
            Some(pid) if pid.as_raw_nonzero().get() > 0 => Ok(Step {
                what: component.what,
                pid,
                over: false,
            }),
            _ => bail!("{pid} is no process"),
        };
        let steps = pids.iter().zip(components).map(step);
        Ok(Self(steps.collect::<anyhow::Result<_>>()?))
    }

    /// Those that have ended since the last call.
    pub(super) fn fresh(&mut self) -> anyhow::Result<Vec<StepEnd>> {
        let mut ended = Vec::new();
        for step in self.0.iter_mut().filter(|step| !step.over) {
            let Some((_, status)) = waitpid(Some(step.pid), WaitOptions::NOHANG)? else {
                continue;
            };
            step.over = true;
            let failure = match (status.exit_status(), status.terminating_signal()) {
                (Some(0), _) => None,
                (Some(code), _) => Some(format!("ended with exit code {code}")),
                (None, Some(signal)) => Some(format!("was killed by signal {signal}")),
                (None, None) => Some(format!("ended: {status:?}")),
            };
            let what = step.what;
            ended.push(StepEnd { what, failure });
        }
        Ok(ended)
    }

    /// Whether the servers were in this job, and are no more.
    pub(super) fn servers_are_over(&self) -> bool {
        let mut servers = self.0.iter().filter(|step| step.what == What::Servers);
        servers.any(|step| step.over)
    }

    /// Whether all groups of this job are over.
    pub(super) fn groups_are_over(&self) -> bool {
        let mut groups = self.0.iter().filter(|step| step.what != What::Servers);
        groups.all(|step| step.over)
    }
}

impl StepEnd {
    /// For the people who read the job's log, which has what the tasks said last.
    pub(super) fn text(&self, log: &Path) -> Option<String> {
        let failure = self.failure.as_ref()?;
        let what = match self.what {
            What::Servers => "the step of the servers".to_owned(),
            What::Group(number) => format!("the step of group {number}"),
        };
        Some(format!("{what} {failure}; {} says why", log.display()))
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    fn component(what: What) -> Component {
        Component {
            what,
            tasks: 1,
            tasks_per_node: 1,
            cpus: 1,
            gpus: 0,
            options: Vec::new(),
        }
    }

    fn child(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).spawn().unwrap()
    }

    #[test]
    fn the_end_of_a_step_is_told_once_and_how_it_came() {
        let components = [What::Servers, What::Group(0), What::Group(1)].map(component);
        let children = [child("sleep 60"), child("exit 3"), child("kill -9 $$")];
        let pids = children.each_ref().map(|child| child.id() as i32);
        let mut steps = Steps::new(&pids, &components).unwrap();
        let mut ended = Vec::new();
        while !steps.groups_are_over() {
            assert!(!steps.servers_are_over());
            ended.extend(steps.fresh().unwrap());
            std::thread::yield_now();
        }
        ended.sort_by_key(|end| format!("{:?}", end.what));
        let log = Path::new("logs/slurm-7.log");
        let texts: Vec<_> = ended.iter().filter_map(|end| end.text(log)).collect();
        let want = [
            "the step of group 0 ended with exit code 3; logs/slurm-7.log says why",
            "the step of group 1 was killed by signal 9; logs/slurm-7.log says why",
        ];
        assert_eq!(texts, want);
        assert_eq!(steps.fresh().unwrap(), []);
        rustix::process::kill_process(steps.0[0].pid, rustix::process::Signal::TERM).unwrap();
        while !steps.servers_are_over() {
            steps.fresh().unwrap();
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_script_that_names_other_steps_is_refused() {
        let components = [component(What::Servers)];
        let error = |pids: &[i32]| Steps::new(pids, &components).unwrap_err().to_string();
        assert!(error(&[]).contains("0 steps are given for 1 components"));
        assert!(error(&[0]).contains("0 is no process"));
    }
}
