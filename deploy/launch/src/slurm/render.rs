//! The batch script of a job: what a person would write, with what Tradewind does in it explained.

use std::fmt::Write;
use std::path::Path;

use tradewind_config::{Config, SLURM_ENDING_S as ENDING_S};

use super::batch_secrets::Step;
use super::job::{Component, What};

/// Options of srun for every step: the end of a task is not that of the others, and which GPU a rank
/// takes is its own choice of those that it sees.
pub(super) const STEP: &str = "--kill-on-bad-exit=0 --wait=0 --gpu-bind=none";

/// A job that is to be written down.
#[derive(Clone, Copy, Debug)]
pub(super) struct Script<'a> {
    pub(super) config: &'a Config,
    /// At least one; the first is the servers', if the job has them.
    pub(super) components: &'a [Component],
    pub(super) purpose: Purpose,
    /// The run's folder, absolute.
    pub(super) folder: &'a Path,
    /// `tradewind` itself, absolute.
    pub(super) program: &'a Path,
}

/// What a job is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A run: it has its own servers, unless they are a fleet's, whose job is to start first.
    Run { after: Option<u32> },
    /// Servers of many runs.
    Fleet,
    /// More groups of a run; they start after this job.
    Groups { beside: Option<u32> },
}

impl Script<'_> {
    /// The script.
    pub(super) fn text(&self) -> String {
        let mut text = String::from("#!/bin/bash\n");
        self.head(&mut text);
        self.directives(&mut text);
        self.steps(&mut text);
        text
    }

    fn leads(&self) -> bool {
        matches!(self.purpose, Purpose::Run { .. })
    }

    fn has_servers(&self) -> bool {
        self.components[0].what == What::Servers
    }

    fn head(&self, text: &mut String) {
        let name = &self.config.name;
        let about = match (self.purpose, self.has_servers()) {
            (Purpose::Run { .. }, true) => {
                format!("# Run {name}: its servers and the groups that start with them.")
            }
            (Purpose::Run { .. }, false) => {
                format!("# Run {name}: its groups; a fleet has the servers.")
            }
            (Purpose::Fleet, _) => "# Servers of many runs.".to_owned(),
            (Purpose::Groups { .. }, _) => {
                format!("# More groups for run {name}; they leave when this job ends.")
            }
        };
        let _ = writeln!(text, "{about} Written by `tradewind slurm render`.");
    }

    fn directives(&self, text: &mut String) {
        let slurm = &self.config.slurm;
        let mut say = |line: &str| {
            let _ = writeln!(text, "{line}");
        };
        for (number, component) in self.components.iter().enumerate() {
            if number == 0 {
                say("");
            } else {
                say("#SBATCH hetjob");
            }
            say(&format!("# Component {number}: {}.", about(component)));
            if number == 0 {
                say(&format!("#SBATCH --job-name={}", self.config.name));
                let log = self.folder.join("logs/slurm-%j.log");
                say(&format!("#SBATCH --output={}", log.display()));
                say("#SBATCH --open-mode=append");
                say(&self.signal());
                let alone = matches!(self.purpose, Purpose::Groups { .. });
                say(match slurm.requeue && !alone {
                    true => "#SBATCH --requeue",
                    false => "#SBATCH --no-requeue",
                });
                if let Purpose::Groups { beside: Some(job) } | Purpose::Run { after: Some(job) } =
                    self.purpose
                {
                    say(&format!("#SBATCH --dependency=after:{job}"));
                }
            }
            say(
                "#SBATCH --no-kill              # a node that is lost takes along only what was on it, where others are left",
            );
            if let Some(time) = &slurm.time_limit {
                say(&format!("#SBATCH --time={time}"));
            }
            say(&format!("#SBATCH {}", shape(component).join(" ")));
            for option in &component.options {
                say(&format!("#SBATCH {option}"));
            }
        }
    }

    /// Before the time limit: the lead has time for a last snapshot, groups alone have time to leave.
    fn signal(&self) -> String {
        let notice_s = self.config.liveness.notice_ms.div_ceil(1000);
        match self.leads() {
            true => format!("#SBATCH --signal=B:USR1@{}", notice_s + ENDING_S),
            false => format!("#SBATCH --signal=TERM@{ENDING_S}"),
        }
    }

    fn steps(&self, text: &mut String) {
        let mut say = |line: &str| {
            let _ = writeln!(text, "{line}");
        };
        let slurm = &self.config.slurm;
        say("");
        // Scripts of modules read variables that are not set.
        slurm.setup.iter().for_each(|line| say(line));
        say("set -u");
        say(&format!("tradewind={}", quoted(self.program)));
        say(&format!("run={}", quoted(self.folder)));
        say("");
        say("# Each task has a secret of its own, by which a certificate is issued to it, once.");
        let steps = self.components.iter().map(|component| {
            let Component { what, tasks, .. } = *component;
            Step { what, tasks }.to_string()
        });
        let steps: Vec<String> = steps.collect();
        say(&format!(
            "\"$tradewind\" slurm secrets \"$run\" {} || exit",
            steps.join(" ")
        ));
        if !self.leads() {
            // The lead does it where there is one.
            say("trap '\"$tradewind\" slurm secrets \"$run\" --over' EXIT");
        }
        say("");
        say(
            "# A step for each component, so that the end of one is not the end of another. Each task starts its",
        );
        say("# process again where it dies, in the same step, with the same CPUs and GPUs.");
        let mut step = format!("step=(srun {STEP} --no-kill");
        for option in &slurm.step_options {
            step += &format!(" {}", word(option));
        }
        say(&(step + ")"));
        if self.leads() {
            say("steps=()");
        }
        for (number, component) in self.components.iter().enumerate() {
            let het = match self.components.len() {
                1 => String::new(),
                _ => format!(" --het-group={number}"),
            };
            let who = match component.what {
                What::Servers => "servers".to_owned(),
                What::Group(group) => format!("group {group}"),
            };
            say(&format!(
                "\"${{step[@]}}\"{het} {} \\\n    \"$tradewind\" slurm task \"$run\" {who} &",
                shape(component).join(" ")
            ));
            if self.leads() {
                say("steps+=($!)");
            }
        }
        say("");
        if self.leads() {
            say(
                "# Sees the run to its end. Before the time limit it takes a last snapshot and ends or requeues the job.",
            );
            say("exec \"$tradewind\" slurm lead \"$run\" \"${steps[@]}\"");
        } else {
            say("wait");
        }
    }
}

fn about(component: &Component) -> String {
    let tasks = component.tasks;
    let many = |what: &str| match tasks {
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    };
    match component.what {
        What::Servers => many("server"),
        What::Group(group) => format!("group {group}, {}", many("rank")),
    }
}

/// What sbatch and srun are told alike: srun does not inherit all of it.
pub(super) fn shape(component: &Component) -> Vec<String> {
    let Component {
        tasks,
        tasks_per_node,
        cpus,
        gpus,
        ..
    } = component;
    let mut shape = vec![
        format!("--nodes={}", component.nodes()),
        format!("--ntasks={tasks}"),
        format!("--ntasks-per-node={tasks_per_node}"),
        format!("--cpus-per-task={cpus}"),
    ];
    if *gpus > 0 {
        shape.push(format!("--gpus-per-task={gpus}"));
    }
    shape
}

fn quoted(path: &Path) -> String {
    word(&path.display().to_string())
}

/// As one word of the shell.
fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+%@".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests;
