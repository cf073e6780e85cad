//! Runs as jobs of Slurm. Slurm starts, watches and ends them; what is here writes
//! scripts, says who is who inside of a job, and shows jobs beside the runs that they belong to.

mod address;
mod asked;
mod attach;
mod authority;
mod batch_secrets;
mod cancel;
mod client;
mod enrol;
pub mod enrolment;
mod fleet;
mod gave_up;
mod handing_in;
mod identity;
mod job;
mod jobs;
mod lead;
pub mod printed;
mod queue;
mod render;
mod run_watch;
mod standing;
mod start;
mod submit;
mod task;
mod task_secrets;

pub use asked::check;
pub use attach::{Attach, Detach, attach, detach};
pub use batch_secrets::{Arguments as Secrets, run as secrets};
pub use cancel::{Cancel, cancel};
pub use lead::{Arguments as Lead, run as lead};
pub use queue::{Queued, is_handed_in, queued};
pub use standing::{Status, abandoned, status};
pub use submit::{Render, Serve, Submit, render, serve, submit};
pub use task::{Arguments as Task, run as task};

/// Whether a run has jobs that are not over.
pub fn has_jobs(run: &std::path::Path) -> anyhow::Result<bool> {
    standing::unfinished(run).map(|job| job.is_some())
}
