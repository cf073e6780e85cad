//! The files of a run's folder by which its processes tell each other something: each name once.
//! docs/run-folder.md says what is in them.

/// The run's configuration, resolved: the launcher writes it, every rank reads it.
pub const CONFIG: &str = "config.toml";

/// The secret of the run's processes, for those who come later.
pub const TOKEN: &str = "token";

/// Under TLS, what a person shows: a private key with its certificates.
pub const PERSON: &str = "person.pem";

/// Under TLS, the folder of what people besides the owner show, whom `cluster.people` names.
pub const PEOPLE: &str = "people";

/// What the person of this name shows.
pub fn person(name: &str) -> String {
    format!("{PEOPLE}/{name}.pem")
}

/// The folder of the coordinator's state.
pub const COORDINATOR: &str = "coordinator";

/// In [`COORDINATOR`]: where the coordinator is. Who hosts it writes it; servers and ranks read it.
pub const ADDRESS: &str = "address.json";

/// [`ADDRESS`], from the run's folder on.
pub const COORDINATOR_ADDRESS: &str = "coordinator/address.json";

/// A line for each exchange; the first rank of a group writes them.
pub const METRICS: &str = "metrics.jsonl";

/// A line for each thing that happened; coordinator and launcher write them.
pub const EVENTS: &str = "events.jsonl";

/// Who runs, on a machine of its own; the launcher writes it.
pub const PROCESSES: &str = "processes.json";

/// How the run has ended; the launcher writes it last.
pub const SUMMARY: &str = "summary.json";

/// What the evaluation has found; `tradewind-worker evaluate` writes it.
pub const EVALUATION: &str = "evaluation.json";

/// What `tradewind-worker check` has said; the launcher reads in it what ranks compute on.
pub const CHECK_LOG: &str = "logs/check.log";

/// What `tradewind-worker evaluate` has said.
pub const EVALUATE_LOG: &str = "logs/evaluate.log";

/// What a rank has said of an evaluation that a whole group does.
pub fn evaluate_log(rank: u32) -> String {
    match rank {
        0 => EVALUATE_LOG.to_owned(),
        rank => format!("logs/evaluate-rank-{rank}.log"),
    }
}

/// An empty file, there while the model of this group is sharded over its ranks: its first rank makes it, and the
/// launcher then has the group evaluate.
pub fn island(group: u32) -> String {
    format!("islands/group-{group}")
}

/// Where a server listens: it writes the file once it does, and whoever has started it waits for that.
pub fn server_address(server: u32) -> String {
    format!("logs/server-{server}.address")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_in_the_folder_of_the_coordinator() {
        assert_eq!(COORDINATOR_ADDRESS, format!("{COORDINATOR}/{ADDRESS}"));
    }
}
