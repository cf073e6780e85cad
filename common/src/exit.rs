//! With what status processes of Tradewind end: each number once. Whoever ends a process takes it from
//! here, and so does whoever reads how one ended; docs/run-folder.md has the table.

use std::process::ExitCode;

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident => $number:literal, $who:literal, $meaning:literal;)*) => {
        /// How a process ended.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Exit {
            $($(#[$doc])* $name,)*
        }

        impl Exit {
            /// All of them, by their numbers.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// What the process returns.
            pub const fn number(self) -> u8 {
                match self {
                    $(Self::$name => $number,)*
                }
            }

            /// Whose process ends so.
            pub const fn who(self) -> &'static str {
                match self {
                    $(Self::$name => $who,)*
                }
            }

            /// What it says, for people.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => $meaning,)*
                }
            }
        }
    };
}

statuses! {
    /// What was asked for is done.
    Done => 0, "all", "done: of a run and of its workers, the budget is applied";
    /// It failed, and may not the next time.
    Failed => 1, "all", "failed: another try may fare better, as after an error of a disk or of a device";
    /// What was given is wrong.
    BadInput => 2, "`tradewind`", "the arguments, the configuration, or a file, folder or device that they name cannot be used; nothing was begun";
    /// A rank was stuck in an incarnation of its group that is over.
    Fenced => 3, "worker", "stuck for longer than a lease in an incarnation of its group that is over";
    /// Another process would fail as well.
    GivenUp => 4, "worker", "given up: the configuration or the data would fail every other process, too";
    /// The rank's group has left the run, or the server was shut out.
    Left => 5, "worker, server", "its group has left the run, as it was asked to, or the server was [shut out](security.md#shut-somebody-out); the run goes on";
    /// Training has diverged.
    Diverged => 6, "worker", "training has diverged, and would in another process, too";
    /// The run has stopped at a loss.
    Lost => 7, "worker, `tradewind run`", "the run has stopped because updates that were acknowledged are lost and `faults.on_loss` says stop; its folder is left as it is, and `--resume` is consent to the loss";
    /// The run has its samples, though not all that was acknowledged.
    DoneWithLosses => 8, "`tradewind run`", "the budget is applied, but updates that were acknowledged were lost on the way";
    /// A task of the process has ended that must not.
    TaskEnded => 9, "all", "a task of the process has ended that must not; the log says which";
    /// As shells have it for Ctrl-C.
    Interrupted => 130, "`tradewind`", "interrupted by Ctrl-C, by SIGTERM, or by the end of its job";
    /// As shells have it for SIGTERM.
    Terminated => 143, "worker", "asked to end while nothing was under way";
}

impl Exit {
    /// The one of this number; `None` of a number that no process of Tradewind returns by itself.
    pub fn of(status: i32) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|exit| i32::from(exit.number()) == status)
    }

    /// Whether another process in the place of a worker that ended so would end the same way.
    pub const fn lasts(self) -> bool {
        matches!(self, Self::GivenUp | Self::Diverged | Self::Lost)
    }

    /// All of them as a table in Markdown.
    pub fn markdown() -> String {
        let mut table = String::from("| status | of | meaning |\n|---|---|---|\n");
        for exit in Self::ALL {
            let (number, who, meaning) = (exit.number(), exit.who(), exit.meaning());
            table += &format!("| {number} | {who} | {meaning} |\n");
        }
        table
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_means_one_thing() {
        for exit in Exit::ALL {
            assert_eq!(Exit::of(i32::from(exit.number())), Some(*exit));
        }
        assert!(Exit::ALL.is_sorted_by_key(|exit| exit.number()));
        assert_eq!(Exit::of(77), None);
        assert_eq!(Exit::of(-1), None);
        // 256 more would be the same to a shell, and is no status of a process.
        assert_eq!(Exit::of(256), None);
    }
}
