//! Tasks that the process cannot do without. One that panics ends it, with a word: what it has left
//! half-done is then nobody's, and whoever started the process starts it again. One that must not end
//! at all says so by its type, [`Infallible`](std::convert::Infallible).

use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Context;
use std::thread::{Builder, JoinHandle};

use tokio::runtime::Handle;
use tokio::task_local;

use crate::now::now;
use crate::{TASK_ENDED, exit, sink};

task_local! {
    /// What the task at hand is called.
    static NAME: Arc<str>;
}

/// A task that is supervised. Dropping it leaves the task alone.
pub type Supervised<T = ()> = tokio::task::JoinHandle<T>;

/// Starts a task; a panic in it ends the process. Call it within a runtime.
pub fn supervise<T: Send + 'static>(
    name: impl Into<String>,
    task: impl Future<Output = T> + Send + 'static,
) -> Supervised<T> {
    tokio::spawn(watched(name.into(), task))
}

/// The same work, for a task that is started elsewhere.
pub fn watched<T>(name: String, task: impl Future<Output = T>) -> impl Future<Output = T> {
    let caught = async {
        let mut task = pin!(task);
        let poll = |context: &mut Context<'_>| {
            let poll = catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(context)));
            poll.unwrap_or_else(|_| lost(&NAME.get()))
        };
        poll_fn(poll).await
    };
    NAME.scope(name.into(), caught)
}

/// Starts work that blocks; a panic in it ends the process. Call it within a runtime.
pub fn supervise_blocking<T: Send + 'static>(
    name: impl Into<String>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Supervised<T> {
    let name: Arc<str> = name.into().into();
    Handle::current().spawn_blocking(move || NAME.sync_scope(name.clone(), || caught(&name, work)))
}

/// Starts a thread; a panic in it ends the process.
pub fn supervise_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let told = name.to_owned();
    let thread = Builder::new().name(name.to_owned());
    thread.spawn(move || caught(&told, work))
}

fn caught<T>(name: &str, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| lost(name))
}

/// What the task at hand is called, if it is one of these.
pub(crate) fn name() -> Option<Arc<str>> {
    NAME.try_with(Arc::clone).ok()
}

/// Ends the process for the end of a task.
pub(crate) fn lost(name: &str) -> ! {
    let text = format!("{name} must not end; the process ends with status {TASK_ENDED}");
    sink::put(format!("{} ERROR {text}\n", now()).as_bytes());
    exit(TASK_ENDED)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Output, Stdio};
    use std::time::Duration;

    use super::*;
    use crate::{log, run};

    /// Plays a process: one of the tests that are ignored, as a program of its own.
    fn played(test: &str, errors: Stdio) -> Output {
        let own = std::env::current_exe().unwrap();
        let name = format!("task::tests::{test}");
        let mut command = Command::new(own);
        command.args(["--exact", &name, "--ignored", "--nocapture"]);
        command.stderr(errors).output().unwrap()
    }

    /// A program whose `main` goes on for ever once `begin` has been called.
    fn program(begin: fn() -> Supervised) {
        run(|| {
            log::start(|_| ());
            let mut runtime = tokio::runtime::Builder::new_multi_thread();
            let runtime = runtime.enable_time().worker_threads(2).build().unwrap();
            runtime.block_on(async {
                let begun = begin();
                tokio::time::sleep(Duration::from_millis(50)).await;
                drop(begun);
                std::future::pending().await
            })
        });
    }

    #[test]
    #[ignore = "plays a process"]
    fn plays_a_task() {
        program(|| {
            supervise("bond 7", async {
                tokio::task::yield_now().await;
                panic!("on purpose, {}", 1 + 1)
            })
        });
    }

    #[test]
    #[ignore = "plays a process"]
    fn plays_work_that_blocks() {
        program(|| supervise_blocking("snapshot 7", || panic!("on purpose, {}", 1 + 1)));
    }

    #[test]
    #[ignore = "plays a process"]
    fn plays_a_thread() {
        program(|| {
            let work = || panic!("on purpose, {}", 1 + 1);
            let thread = supervise_thread::<()>("thread 7", work).unwrap();
            tokio::spawn(async { drop(thread) })
        });
    }

    #[test]
    #[ignore = "plays a process"]
    fn plays_main() {
        run(|| panic!("on purpose, {}", 1 + 1));
    }

    #[test]
    #[ignore = "plays a process"]
    fn plays_one_that_may_end() {
        program(|| {
            tokio::spawn(async {
                supervise("one that returns", async {}).await.unwrap();
                let connection = tokio::spawn(async { panic!("of a connection") });
                assert!(connection.await.is_err());
                exit(42)
            })
        });
    }

    #[test]
    fn a_panic_ends_the_process_with_a_word() {
        for (test, who) in [
            ("plays_a_task", "bond 7"),
            ("plays_work_that_blocks", "snapshot 7"),
            ("plays_a_thread", "thread 7"),
            ("plays_main", "the main thread"),
        ] {
            let ended = played(test, Stdio::piped());
            let errors = String::from_utf8(ended.stderr).unwrap();
            assert_eq!(ended.status.code(), Some(TASK_ENDED), "{test}: {errors}");
            let told = ["task.rs:", "on purpose, 2", "must not end", who];
            told.iter()
                .for_each(|told| assert!(errors.contains(told), "{errors}"));
        }
    }

    /// Standard error that fails is the case in which nobody would hear of it.
    #[test]
    fn a_panic_ends_the_process_wherever_its_log_goes() {
        let (closed, pipe) = std::io::pipe().unwrap();
        drop(closed);
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        for errors in [Stdio::from(pipe), Stdio::from(full.unwrap())] {
            let ended = played("plays_a_task", errors);
            assert_eq!(ended.status.code(), Some(TASK_ENDED));
        }
    }

    #[test]
    fn tasks_that_may_end_end_nothing_else() {
        let ended = played("plays_one_that_may_end", Stdio::piped());
        let errors = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(42), "{errors}");
        assert!(errors.contains("of a connection"), "{errors}");
        assert!(!errors.contains("must not end"), "{errors}");
    }
}
