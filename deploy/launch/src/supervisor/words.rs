//! What goes into the supervisor, and what comes out.

use tradewind_common::exit::Exit;
use tradewind_folder::member::Member;

/// What the supervisor goes by. It differs with what can be known of the processes: `tradewind run` sees
/// all of a run, a task of Slurm the process that it has started.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// What counts as progress of a process.
    pub progress: Progress,
    /// How it is noticed that a process hangs; `None` where that is left to others.
    pub silence: Option<Silence>,
    /// Whether the supervisor finds another host for the coordinator. Servers that stand in for each
    /// other find one by themselves.
    pub finds_host: bool,
    /// Whether a server that has ended in order has done its part: somebody else has told it to.
    pub servers_finish: bool,
}

/// What counts as progress of a process: deaths before it are forgotten.
#[derive(Clone, Copy, Debug)]
pub enum Progress {
    /// A clock that its group has finished with it; a server has had part in it once it has listened
    /// for so many milliseconds.
    Clocks {
        /// `liveness.lease_ms`.
        lease_ms: u64,
    },
    /// That it has run for longer than so many milliseconds.
    Uptime {
        /// Of one process.
        ms: u64,
    },
}

/// When a process counts as hung, milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Silence {
    /// `liveness.lease_ms`.
    pub lease_ms: u64,
    /// Pause between an answer to a ping and the next ping.
    pub ping_ms: u64,
    /// How long a rank may be out of its group before it counts as hung: a retry and a lease.
    pub away_ms: u64,
    /// How long a server may take until it listens.
    pub listen_ms: u64,
}

impl Silence {
    /// A server that has been silent for longer may have been asleep.
    pub(super) fn doze_ms(&self) -> u64 {
        self.ping_ms + self.lease_ms / 3
    }
}

/// How a process ended.
#[derive(Clone, Debug)]
pub struct Death {
    /// What it returned; `None` if a signal ended it.
    pub status: Option<i32>,
    /// Such as `was killed by signal 9`.
    pub how: String,
}

/// What shall be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start a process, as this life of the member; then `handle_started` or `handle_not_started`.
    Start {
        member: Member,
        life: u64,
        /// The server hosts the coordinator from the start.
        coordinate: bool,
    },
    /// End a process without asking it.
    Kill { member: Member },
    /// Ask a process to end.
    Terminate { member: Member },
    /// Ask this server to host the coordinator; then `handle_hosted`.
    Host { server: u32, life: u64 },
    /// Write down what happened.
    Tell(Notice),
    /// The run cannot go on; nothing is done after it.
    GiveUp {
        member: Member,
        why: String,
        /// What whoever started the process ends with: if another process would end as this one has,
        /// the same.
        exit: Exit,
    },
}

/// Something that happened, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// A word for programs.
    pub kind: &'static str,
    /// A sentence for people.
    pub text: String,
    /// Whom it is about, and which life of it.
    pub member: Member,
    pub life: u64,
    /// Worth a line while the run goes on.
    pub show: bool,
}
