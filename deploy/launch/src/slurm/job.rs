//! What is asked of Slurm: the components of a job, each nodes of one kind and the tasks on them.

use tradewind_config::{Config, Slurm};

use tradewind_folder::found::FoundRun;

/// Nodes of one kind, and what runs on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Component {
    pub(super) what: What,
    pub(super) tasks: u32,
    pub(super) tasks_per_node: u32,
    /// Of a task.
    pub(super) cpus: u32,
    /// Of a task.
    pub(super) gpus: u32,
    /// Of sbatch, passed through.
    pub(super) options: Vec<String>,
}

/// Whose tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Servers,
    /// The ranks of this group.
    Group(u32),
}

impl Component {
    pub(super) fn nodes(&self) -> u32 {
        self.tasks.div_ceil(self.tasks_per_node)
    }
}

/// The job of a run: its servers, and the groups that start with them.
pub(super) fn of_run(config: &Config) -> Vec<Component> {
    let mut components = vec![servers(config)];
    components.extend(of_groups(config));
    components
}

/// The job that leads a run: on a fleet it has groups alone.
pub(super) fn of_lead(place: &FoundRun) -> Vec<Component> {
    match place.is_on_fleet() {
        true => of_groups(&place.config),
        false => of_run(&place.config),
    }
}

/// The groups that start together.
pub(super) fn of_groups(config: &Config) -> Vec<Component> {
    let together = config.cluster.groups.iter().zip(0..);
    let together = together.take(config.groups_together());
    let together = together.map(|(size, number)| group(&config.slurm, number, *size));
    together.collect()
}

/// The servers of a configuration.
pub(super) fn servers(config: &Config) -> Component {
    let slurm = &config.slurm;
    Component {
        what: What::Servers,
        tasks: config.cluster.servers,
        tasks_per_node: slurm.servers_per_node.min(config.cluster.servers),
        cpus: slurm.server_cpus,
        gpus: 0,
        options: [&slurm.options[..], &slurm.server_options].concat(),
    }
}

/// A group of so many ranks.
pub(super) fn group(slurm: &Slurm, number: u32, size: u32) -> Component {
    Component {
        what: What::Group(number),
        tasks: size,
        tasks_per_node: slurm.ranks_per_node.unwrap_or(size).min(size),
        cpus: slurm.rank_cpus,
        gpus: slurm.rank_gpus,
        options: [&slurm.options[..], &slurm.group_options].concat(),
    }
}
