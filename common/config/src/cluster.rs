//! Who takes part: section `cluster`.

use super::key::Section;
use super::section::section;

section! {
    /// Who takes part.
    Cluster {
        /// Number of parameter servers. Each holds one part of the parameters, a shard; the first one also hosts the
        /// coordinator, which knows the members of the run.
        servers: u32 = "cluster.servers", int(1, 1024), default "1";
        /// Number of ranks in each group: `[4, 4]` makes two groups of four ranks, `[8]` one group of eight.
        groups: Vec<u32> = "cluster.groups", Ints { min: 1, max: 65_536, length: None }, default "[1]";
        /// Host name or IP address that servers and ranks listen on under `tradewind run`. Under Slurm
        /// `slurm.interface` takes its place.
        host: String = "cluster.host", Text, default "\"127.0.0.1\"";
    }
}

/// The section.
pub(super) fn section() -> Section {
    Section {
        name: "cluster",
        about: "Says how many processes there are: parameter servers, and groups of ranks. A rank is one worker process, on one GPU or some CPU cores; the ranks of a group train synchronously, as in PyTorch's DDP.",
        example: r#"[cluster]
servers = 2
groups = [4, 4]    # two groups of four ranks
"#,
        keys: Cluster::KEYS.to_vec(),
    }
}
