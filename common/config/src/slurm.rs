//! How a run becomes jobs of Slurm: section `slurm`.

use super::Values;

/// How a run becomes jobs of Slurm.
#[derive(Clone, Debug, PartialEq)]
pub struct Slurm {
    /// Options of sbatch for every component.
    pub options: Vec<String>,
    /// For that of the servers.
    pub server_options: Vec<String>,
    /// For that of each group.
    pub group_options: Vec<String>,
    /// Options of srun for every step.
    pub step_options: Vec<String>,
    /// Lines of the batch script before anything is started.
    pub setup: Vec<String>,
    /// As of sbatch's `--time`; the partition's if there is none.
    pub time_limit: Option<String>,
    /// Whether a run that has reached its time limit goes on in another job.
    pub requeue: bool,
    /// Groups in the job of the servers; the others are jobs of their own.
    pub min_groups: usize,
    /// Servers on a node.
    pub servers_per_node: u32,
    /// CPUs of a server.
    pub server_cpus: u32,
    /// Most ranks of a group on a node; `None` for all of them.
    pub ranks_per_node: Option<u32>,
    /// CPUs of a rank.
    pub rank_cpus: u32,
    /// GPUs of a rank.
    pub rank_gpus: u32,
    /// Network interface under whose address processes reach each other.
    pub interface: Option<String>,
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

/// What the configuration says of it; `wrong` hears what does not fit together.
pub(super) fn read(
    values: &Values<'_>,
    groups: usize,
    wrong: &mut dyn FnMut(&str, String),
) -> Slurm {
    for key in [
        "slurm.options",
        "slurm.server_options",
        "slurm.group_options",
        "slurm.step_options",
    ] {
        for option in values.texts(key) {
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
    }
    for key in [
        "slurm.setup",
        "slurm.options",
        "slurm.server_options",
        "slurm.group_options",
        "slurm.step_options",
    ] {
        if values.texts(key).iter().any(|line| line.contains('\n')) {
            wrong(key, "has a line break in a line".into());
        }
    }
    let time_limit = values.text("slurm.time_limit");
    let is_time = |text: &str| {
        let digits = text.split(['-', ':']).all(|part| {
            !part.is_empty() && part.len() <= 6 && part.bytes().all(|byte| byte.is_ascii_digit())
        });
        digits && text.matches('-').count() <= 1 && text.matches(':').count() <= 2
    };
    if !time_limit.is_empty() && !is_time(time_limit) {
        wrong(
            "slurm.time_limit",
            "is no time such as \"02:30:00\" or \"1-12\"".into(),
        );
    } else if let Some(limit) = seconds(time_limit) {
        let notice = (values.int("liveness.notice_ms") as u64).div_ceil(1000) + ENDING_S;
        if limit <= notice {
            wrong(
                "slurm.time_limit",
                format!(
                    "leaves no time to train: the last snapshot is begun {notice} s before (liveness.notice_ms and {ENDING_S} s)"
                ),
            );
        }
    }
    let min_groups = match values.int("slurm.min_groups") as usize {
        0 => groups,
        given => given,
    };
    if min_groups > groups {
        wrong(
            "slurm.min_groups",
            format!("is more than cluster.groups has, {groups}"),
        );
    }
    let interface = values.text("slurm.interface");
    if interface.contains(|c: char| c.is_whitespace() || c == '/') || interface.len() > 15 {
        wrong(
            "slurm.interface",
            "cannot name a network interface, such as \"hsn0\"".into(),
        );
    }
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Slurm {
        options: values.texts("slurm.options").to_vec(),
        server_options: values.texts("slurm.server_options").to_vec(),
        group_options: values.texts("slurm.group_options").to_vec(),
        step_options: values.texts("slurm.step_options").to_vec(),
        setup: values.texts("slurm.setup").to_vec(),
        time_limit: some(time_limit),
        requeue: values.flag("slurm.requeue"),
        min_groups,
        servers_per_node: values.int("slurm.servers_per_node") as u32,
        server_cpus: values.int("slurm.server_cpus") as u32,
        ranks_per_node: match values.int("slurm.ranks_per_node") {
            0 => None,
            ranks => Some(ranks as u32),
        },
        rank_cpus: values.int("slurm.rank_cpus") as u32,
        rank_gpus: values.int("slurm.rank_gpus") as u32,
        interface: some(interface),
    }
}

#[cfg(test)]
mod tests {
    use super::seconds;

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
