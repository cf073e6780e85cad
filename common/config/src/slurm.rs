//! How a run becomes jobs of Slurm: section `slurm`.

use super::Values;
use super::key::Section;
use super::section::section;

section! {
    /// How a run becomes jobs of Slurm.
    Slurm {
        /// Long options of `sbatch` for all components, such as `"--account=m1234"`. Refused here and in
        /// `slurm.server_options`, `slurm.group_options` and `slurm.step_options`, because they follow from other keys or
        /// hold the job together: `--job-name`, `--output`, `--error`, `--open-mode`, `--time`, `--signal`, `--requeue`,
        /// `--no-requeue`, `--no-kill`, `--nodes`, `--ntasks`, `--ntasks-per-node`, `--cpus-per-task`, `--gpus-per-task`,
        /// `--array`, `--het-group`, `--kill-on-bad-exit`, `--wait`, `--parsable`.
        options: Vec<String> = "slurm.options", TextsOrNone, default "[]";
        /// Long options of `sbatch` for the component of the servers only, such as `"--constraint=cpu"`.
        server_options: Vec<String> = "slurm.server_options", TextsOrNone, default "[]";
        /// Long options of `sbatch` for the component of each group only, such as `"--constraint=gpu"`.
        group_options: Vec<String> = "slurm.group_options", TextsOrNone, default "[]";
        /// Long options of `srun` for every step of the job, such as `"--cpu-bind=cores"`.
        step_options: Vec<String> = "slurm.step_options", TextsOrNone, default "[]";
        /// Lines of the batch script that run before anything is started, such as `"module load cudatoolkit"` or `"export
        /// NCCL_SOCKET_IFNAME=hsn"`.
        setup: Vec<String> = "slurm.setup", TextsOrNone, default "[]";
        /// Time limit of the job in the form that `sbatch --time` takes, such as `"02:30:00"`. If empty, Slurm takes the
        /// partition's `DefaultTime`, or its `MaxTime` if it has none. At least 110 s more than `liveness.notice_ms`: Slurm may
        /// tell of the limit a minute early.
        time_limit: Option<String> = "slurm.time_limit", Text, default "\"\"";
        /// `true`: shortly before the time limit the run takes a last snapshot, its job goes back into the queue, and
        /// training goes on from the snapshot when the job starts again. `false`: the job ends after the snapshot.
        requeue: bool = "slurm.requeue", Bool, default "true";
        /// 0: all groups are in one job with the servers, which waits until there are nodes for all of them. N above 0: the
        /// first N groups are in the job of the servers; each of the others is a job of its own, and joins the run when
        /// that starts.
        min_groups: Option<u32> = "slurm.min_groups", int(0, 65_536), default "0";
        /// Number of servers on a node. A node that is lost takes all of its servers along; the copies of a shard go to
        /// different nodes where there are several.
        servers_per_node: u32 = "slurm.servers_per_node", int(1, 1024), default "1";
        /// Number of CPUs for each server.
        server_cpus: u32 = "slurm.server_cpus", int(1, 4096), default "4";
        /// Largest number of ranks of one group on a node. 0: no limit, all ranks of a group are on one node, which Slurm
        /// refuses if they do not fit.
        ranks_per_node: Option<u32> = "slurm.ranks_per_node", int(0, 65_536), default "0";
        /// Number of CPUs for each rank (`--cpus-per-task`). libtorch computes with as many threads. Where nodes have
        /// hyper-threading, most sites count hardware threads here.
        rank_cpus: u32 = "slurm.rank_cpus", int(1, 4096), default "1";
        /// Number of GPUs for each rank (`--gpus-per-task`): 1 for `compute.device = "cuda"`, 0 for ranks that compute on
        /// CPUs.
        rank_gpus: u32 = "slurm.rank_gpus", int(0, 64), default "0";
        /// Name of the network interface, such as `"hsn0"`, under whose address processes reach each other: for gRPC, for
        /// Gloo and for the rendezvous of a group. If empty, the address of the node's name is taken. NCCL goes by
        /// `NCCL_SOCKET_IFNAME`, see `slurm.setup`.
        interface: Option<String> = "slurm.interface", Text, default "\"\"";
    }
}

/// The section.
pub(super) fn section() -> Section {
    Section {
        name: "slurm",
        about: "Says how `tradewind slurm submit` makes jobs of a run: the servers are one component of a heterogeneous job, each group is another ([Slurm](slurm.md)). `tradewind run` does not use this section.",
        example: r#"[slurm]
options = ["--account=m1234"]
server_options = ["--constraint=cpu"]
group_options = ["--constraint=gpu"]
time_limit = "02:30:00"
rank_cpus = 32
rank_gpus = 1
"#,
        keys: Slurm::KEYS.to_vec(),
    }
}

/// What Tradewind says to sbatch and srun itself; what else it takes to say is passed through.
pub(crate) const OWN: [&str; 19] = [
    "--job-name",
    "--output",
    "--error",
    "--open-mode",
    "--time",
    "--signal",
    "--requeue",
    "--no-requeue",
    "--no-kill",
    "--nodes",
    "--ntasks",
    "--ntasks-per-node",
    "--cpus-per-task",
    "--gpus-per-task",
    "--array",
    "--het-group",
    "--kill-on-bad-exit",
    "--wait",
    "--parsable",
];

/// How long processes have to end once they are told to, seconds: Slurm's own `KillWait` is 30.
pub const ENDING_S: u64 = 30;

/// By how much Slurm may tell of the time limit earlier than it is asked to, seconds (sbatch's manual page, `--signal`).
const EARLY_S: u64 = 60;

/// How long a job takes to begin, seconds: what Slurm tells before that would end the batch script, and nobody would
/// put the job back into the queue.
const BEGINNING_S: u64 = 20;

/// A time limit as Slurm reads it, in seconds; `None` for 0, which is no limit, and for what is no time.
fn seconds(limit: &str) -> Option<u64> {
    let (days, rest) = match limit.split_once('-') {
        Some((days, rest)) => (days.parse().ok()?, rest),
        None => (0, limit),
    };
    let parts = rest.split(':').map(str::parse);
    let parts = parts.collect::<Result<Vec<u64>, _>>().ok()?;
    let time = match (limit.contains('-'), parts.as_slice()) {
        (true, [h]) => h * 3600,
        (true, [h, m]) => h * 3600 + m * 60,
        (false, [m]) => m * 60,
        (false, [m, s]) => m * 60 + s,
        (_, [h, m, s]) => h * 3600 + m * 60 + s,
        _ => return None,
    };
    Some(days * 86_400 + time).filter(|time: &u64| *time > 0)
}

impl Slurm {
    /// What the configuration says of it; `wrong` hears what does not fit together.
    pub(super) fn read(
        values: &Values<'_>,
        groups: usize,
        wrong: &mut dyn FnMut(&str, String),
    ) -> Self {
        let slurm = Self::of(values);
        let options = [
            ("slurm.options", &slurm.options),
            ("slurm.server_options", &slurm.server_options),
            ("slurm.group_options", &slurm.group_options),
            ("slurm.step_options", &slurm.step_options),
        ];
        for (key, option) in options
            .iter()
            .flat_map(|(key, list)| list.iter().map(move |option| (*key, option)))
        {
            let name = option.split(['=', ' ']).next().unwrap_or_default();
            if !name.starts_with("--") || name.len() < 3 {
                wrong(
                    key,
                    format!("has {option:?}, which is no long option such as \"--qos=debug\""),
                );
            } else if OWN.contains(&name) {
                wrong(key, format!("has {name}, which follows from other keys"));
            }
        }
        for (key, lines) in [("slurm.setup", &slurm.setup)].iter().chain(&options) {
            if lines.iter().any(|line| line.contains('\n')) {
                wrong(key, "has a line break in a line".into());
            }
        }
        if let Some(limit) = &slurm.time_limit {
            let notice = (values.int("liveness.notice_ms") as u64).div_ceil(1000) + ENDING_S;
            if !is_time(limit) {
                wrong(
                    "slurm.time_limit",
                    "is no time such as \"02:30:00\" or \"1-12\"".into(),
                );
            } else if seconds(limit).is_some_and(|limit| limit < notice + EARLY_S + BEGINNING_S) {
                let least = notice + EARLY_S + BEGINNING_S;
                wrong(
                    "slurm.time_limit",
                    format!(
                        "leaves no time to train: the last snapshot is begun {notice} s before (liveness.notice_ms and {ENDING_S} s), \
                         and Slurm may tell of the limit another {EARLY_S} s earlier; at least {}:{:02} min are needed",
                        least / 60,
                        least % 60
                    ),
                );
            }
        }
        if slurm.groups_together(groups) > groups {
            wrong(
                "slurm.min_groups",
                format!("is more than cluster.groups has, {groups}"),
            );
        }
        let interface = slurm.interface.as_deref().unwrap_or_default();
        if interface.contains(|c: char| c.is_whitespace() || c == '/') || interface.len() > 15 {
            wrong(
                "slurm.interface",
                "cannot name a network interface, such as \"hsn0\"".into(),
            );
        }
        slurm
    }

    /// How many of so many groups are in the job of the servers; the others are jobs of their own.
    pub(super) fn groups_together(&self, groups: usize) -> usize {
        self.min_groups.map_or(groups, |least| least as usize)
    }
}

/// Whether Slurm can read it as a time limit.
fn is_time(text: &str) -> bool {
    let digits = text.split(['-', ':']).all(|part| {
        !part.is_empty() && part.len() <= 6 && part.bytes().all(|byte| byte.is_ascii_digit())
    });
    digits && text.matches('-').count() <= 1 && text.matches(':').count() <= 2
}

#[cfg(test)]
mod tests {
    use super::{OWN, Slurm, seconds};

    /// The comment of the key says which options are refused.
    #[test]
    fn refused_options_are_told() {
        for option in OWN {
            let told = format!("`{option}`");
            assert!(Slurm::KEYS[0].meaning.contains(&told), "{option}");
        }
    }

    /// As sbatch's manual page has them, under `--time`.
    #[test]
    fn time_limits_are_read_as_slurm_reads_them() {
        let want = [
            ("90", Some(5_400)),
            ("90:30", Some(5_430)),
            ("1:02:03", Some(3_723)),
            ("1-12", Some(129_600)),
            ("1-12:30", Some(131_400)),
            ("1-00:00:01", Some(86_401)),
            ("0", None),
            ("", None),
            ("1-2:3:4:5", None),
        ];
        for (limit, time) in want {
            assert_eq!(seconds(limit), time, "{limit}");
        }
    }
}
