//! Secrets that tasks of jobs enrol with: `slurm/enrolment/JOB-RESTARTS/TASK`, one for each task, new ones for each
//! start of a job. A secret is good for one key, the first that is shown with it, which is written down beside it before
//! the certificate leaves: so it is worth nothing to whoever reads it later, an answer that was lost can be asked for
//! again, and a task goes on with its key when the authority is another one.
//!
//! The key is the target of a symbolic link, `TASK.key`: of several authorities that are shown one secret at a time, on
//! whatever nodes, one creates it, and nobody ever sees a part of it.

use std::fmt;
use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use tradewind_common::identity::Identity;
use tradewind_folder::member::Member;
use tradewind_process::whole;
use tradewind_proto::auth::is_same;
use tradewind_proto::refusal::Reason;
use tradewind_server::clock::wall;

use super::start::Start;
use crate::secrets::secret;

/// In the folder of a run or a fleet, where TLS is spoken.
const FOLDER: &str = "slurm/enrolment";

/// For how long a secret can be used for the first time, seconds: a task waits for the first server for ten
/// minutes, and clocks of nodes may be an hour apart.
const FIRST_USE_S: f64 = 7200.0;

/// A task of one start of a job, which has a secret of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskName {
    /// The job's number.
    pub job: u32,
    /// How often the job was started before.
    pub restarts: u32,
    /// Which of its tasks.
    pub task: Tasked,
}

/// What a task is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tasked {
    /// A server, by its number.
    Server(u32),
    /// A rank of a group.
    Rank {
        /// Its group.
        group: u32,
        /// Its number in the group.
        rank: u32,
    },
    /// A rank of the evaluation at the end, on the nodes of a group.
    Evaluation {
        /// That group.
        group: u32,
        /// Its number in the evaluation.
        rank: u32,
    },
}

impl From<Member> for Tasked {
    fn from(member: Member) -> Self {
        match member {
            Member::Server(server) => Self::Server(server),
            Member::Rank { group, rank } => Self::Rank { group, rank },
        }
    }
}

impl TaskName {
    pub(super) fn new(start: Start, task: impl Into<Tasked>) -> Self {
        let Start { job, restarts } = start;
        let task = task.into();
        Self {
            job,
            restarts,
            task,
        }
    }

    fn path(self, of: &Path) -> PathBuf {
        let file = match self.task {
            Tasked::Server(server) => format!("server-{server}"),
            Tasked::Rank { group, rank } => format!("group-{group}-rank-{rank}"),
            Tasked::Evaluation { group, rank } => format!("evaluation-{group}-rank-{rank}"),
        };
        of_start(of, self.job, self.restarts).join(file)
    }
}

impl fmt::Display for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.task {
            Tasked::Server(server) => write!(f, "server {server}")?,
            Tasked::Rank { group, rank } => write!(f, "rank {rank} of group {group}")?,
            Tasked::Evaluation { group, rank } => {
                write!(
                    f,
                    "rank {rank} of the evaluation on the nodes of group {group}"
                )?;
            }
        }
        let Self { job, restarts, .. } = self;
        write!(f, " in start {restarts} of job {job}")
    }
}

/// A secret, as it is written down.
#[derive(Debug, Serialize, Deserialize)]
struct Written {
    /// Whom it certifies: [`Identity::uri`].
    identity: String,
    secret: String,
    /// When it was made, seconds since the Unix epoch.
    made: f64,
}

/// Whether certificates are issued in the folder of this run or fleet.
///
/// # Errors
/// That cannot be told: nobody takes that for a run in clear.
pub(super) fn are_wanted(folder: &Path) -> anyhow::Result<bool> {
    let all = folder.join(FOLDER);
    match fs::metadata(&all) {
        Ok(found) if found.is_dir() => Ok(true),
        Ok(_) => bail!(
            "{} is no folder: an earlier version of Tradewind submitted this job; submit it again",
            all.display()
        ),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot look at {}", all.display())),
    }
}

/// Makes tasks of later jobs have secrets, or none.
pub(super) fn prepare(folder: &Path, tls: bool) -> anyhow::Result<()> {
    let all = folder.join(FOLDER);
    // Groups in jobs of their own, and runs on a fleet, may outlive the job of the servers, with their secrets.
    if tls && all.is_dir() {
        return Ok(());
    }
    let removed = match all.is_dir() {
        true => fs::remove_dir_all(&all),
        // Earlier versions had one secret for all.
        false => fs::remove_file(&all),
    };
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", all.display()))
        }
        _ if tls => make_secret_folder(&all),
        _ => Ok(()),
    }
}

/// Makes a new secret for a task of this start, which certifies this identity, where certificates are issued.
pub(super) fn make(folder: &Path, task: TaskName, identity: &Identity) -> anyhow::Result<()> {
    if !are_wanted(folder)? {
        return Ok(());
    }
    make_secret_folder(&of_start(folder, task.job, task.restarts))?;
    let written = Written {
        identity: identity.uri(),
        secret: secret()?,
        made: wall(),
    };
    let path = task.path(folder);
    // A secret of that name may have been used, where numbers of jobs begin anew.
    let link = UsedFor::link(&path);
    match fs::remove_file(&link) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot remove {}", link.display()));
        }
        _ => {}
    }
    Ok(written.write(&path)?)
}

/// Makes the secrets void that earlier starts of a job have left.
pub(super) fn forget_before(folder: &Path, start: Start) -> anyhow::Result<()> {
    (0..start.restarts).try_for_each(|restarts| forget(folder, Start { restarts, ..start }))
}

/// Makes the secrets of a start void, whether they were used or not.
pub(super) fn forget(folder: &Path, start: Start) -> anyhow::Result<()> {
    let own = of_start(folder, start.job, start.restarts);
    let void = own.with_extension("void");
    // Void at once, also where an authority that is left writes there meanwhile: then it cannot be removed as it is.
    remove(&void);
    match fs::rename(&own, &void) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot make {} void", own.display()));
        }
        _ => remove(&void),
    }
    Ok(())
}

/// Removes secrets that are good for nothing any more: no start of a job fails of it.
fn remove(void: &Path) {
    if let Err(error) = fs::remove_dir_all(void)
        && error.kind() != ErrorKind::NotFound
    {
        tradewind_process::complain!("cannot remove {}: {error}", void.display());
    }
}

/// The secret of a task, which it shows; or that there is none, for people.
///
/// # Errors
/// It cannot be read.
pub(super) fn of_task(folder: &Path, task: TaskName) -> anyhow::Result<Result<String, String>> {
    let path = task.path(folder);
    let missing = || {
        format!(
            "{task} has no secret to have a certificate issued for: there is no {}, which the batch script makes \
             by `tradewind slurm secrets`",
            path.display()
        )
    };
    let written = Written::read(&path)?;
    Ok(written.map(|written| written.secret).ok_or_else(missing))
}

/// Why a secret is no good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoGood {
    /// The word for programs.
    pub reason: Reason,
    /// For people.
    pub text: String,
}

/// The secrets of a run or a fleet, as its authority goes by them.
#[derive(Debug)]
pub struct TaskSecrets {
    folder: PathBuf,
}

impl TaskSecrets {
    /// Those in this folder of a run or a fleet.
    pub fn of(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
        }
    }

    /// Uses a task's secret for a key: whatever `issue` makes for whom the secret certifies, once it is written down
    /// that the secret is good for this key alone.
    ///
    /// # Errors
    /// The files cannot be read or written, or `issue` fails: then nothing has been used.
    pub(super) fn use_for<T>(
        &self,
        task: TaskName,
        shown: &str,
        key: &[u8],
        issue: impl FnOnce(&Identity) -> anyhow::Result<T>,
    ) -> anyhow::Result<Result<T, NoGood>> {
        let path = task.path(&self.folder);
        let known = Written::read(&path)?;
        let known = known.filter(|known| is_same(known.secret.as_bytes(), shown.as_bytes()));
        let no_good = |reason, text| Ok(Err(NoGood { reason, text }));
        let Some(known) = known else {
            let text = format!("the secret that was shown is not that of {task}");
            return no_good(Reason::UnknownSecret, text);
        };
        let used_for_another = || {
            let text = format!(
                "the secret of {task} has been used already, for another key: it is not known to that task alone"
            );
            no_good(Reason::UsedSecret, text)
        };
        let shown = UsedFor::key(key);
        let used = UsedFor::read(&path)?;
        match &used {
            Some(used) if *used != shown => return used_for_another(),
            None if wall() - known.made > FIRST_USE_S => {
                let text = format!(
                    "the secret of {task} is older than {} hours, and was never used",
                    FIRST_USE_S / 3600.0
                );
                return no_good(Reason::ExpiredSecret, text);
            }
            Some(_) | None => {}
        }
        let identity = Identity::of_uri(&known.identity);
        let identity = identity.with_context(|| format!("{} names nobody", path.display()))?;
        let issued = issue(&identity)?;
        if used.is_none() && !shown.claim(&path)? {
            return used_for_another();
        }
        Ok(Ok(issued))
    }
}

/// The public key that a secret was used for, in digits.
#[derive(Debug, PartialEq, Eq)]
struct UsedFor(PathBuf);

impl UsedFor {
    fn key(key: &[u8]) -> Self {
        let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        Self(format!("key-{digits}").into())
    }

    /// Beside the file of its secret.
    fn link(of: &Path) -> PathBuf {
        of.with_extension("key")
    }

    /// `None` if that secret was not used.
    fn read(of: &Path) -> anyhow::Result<Option<Self>> {
        let link = Self::link(of);
        match fs::read_link(&link) {
            Ok(used) => Ok(Some(Self(used))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", link.display())),
        }
    }

    /// Uses the secret for this key, unless it was used for another one; whether it is good for this one then.
    fn claim(&self, of: &Path) -> anyhow::Result<bool> {
        let link = Self::link(of);
        match symlink(&self.0, &link) {
            Ok(()) => Ok(true),
            // Over a network it may be one's own, whose making was answered too late.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                Ok(Self::read(of)?.as_ref() == Some(self))
            }
            Err(error) => Err(error).with_context(|| format!("cannot make {}", link.display())),
        }
    }
}

impl Written {
    /// `None` if there is none.
    fn read(path: &Path) -> anyhow::Result<Option<Self>> {
        let cannot = || format!("cannot read {}", path.display());
        match fs::read_to_string(path) {
            Ok(text) => serde_json::from_str(&text).with_context(cannot).map(Some),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(cannot),
        }
    }

    fn write(&self, path: &Path) -> std::io::Result<()> {
        let text = serde_json::to_string(self)?;
        // Not synced: thousands of tasks enrol at once. After a power cut a file may be empty, which is no secret, or
        // the key beside it may be gone: who can read it then may use it, within the two hours.
        whole::write_secret(path, text)
    }
}

fn of_start(folder: &Path, job: u32, restarts: u32) -> PathBuf {
    folder.join(FOLDER).join(format!("{job}-{restarts}"))
}

fn make_secret_folder(path: &Path) -> anyhow::Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.with_context(|| format!("cannot make {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANK: Tasked = Tasked::Rank { group: 1, rank: 3 };

    fn task(job: u32, restarts: u32) -> TaskName {
        TaskName::new(Start { job, restarts }, RANK)
    }

    fn rank() -> Identity {
        Identity::of_uri("tradewind:rank/climate/1").unwrap()
    }

    /// A folder in which the first start of job 7 has a secret for a rank.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path(), true).unwrap();
        make(folder.path(), task(7, 0), &rank()).unwrap();
        folder
    }

    /// Whom a secret certifies, or the word for why it is no good.
    fn used(folder: &Path, task: TaskName, shown: &str, key: &str) -> Result<String, &'static str> {
        let secrets = TaskSecrets::of(folder);
        let used = secrets.use_for(task, shown, key.as_bytes(), |identity| Ok(identity.uri()));
        used.unwrap().map_err(|no_good| no_good.reason.word())
    }

    #[test]
    fn a_secret_certifies_one_key_of_whom_it_was_made_for() {
        let folder = folder();
        let folder = folder.path();
        let secret = of_task(folder, task(7, 0)).unwrap().unwrap();
        let own = Ok(rank().uri());
        assert_eq!(used(folder, task(7, 0), &secret, "own"), own);
        assert_eq!(
            used(folder, task(7, 0), &secret, "own"),
            own,
            "the answer was lost"
        );
        for stolen in ["stolen", "", "ow", "owns"] {
            let refused = used(folder, task(7, 0), &secret, stolen);
            assert_eq!(refused, Err("used-secret"), "{stolen}");
        }
        assert_eq!(used(folder, task(7, 0), &secret, "own"), own);
    }

    #[test]
    fn a_new_secret_of_the_same_name_was_not_used() {
        let folder = folder();
        let folder = folder.path();
        let of_now = || of_task(folder, task(7, 0)).unwrap().unwrap();
        let own = Ok(rank().uri());
        assert_eq!(used(folder, task(7, 0), &of_now(), "of then"), own);
        make(folder, task(7, 0), &rank()).unwrap();
        assert_eq!(used(folder, task(7, 0), &of_now(), "of now"), own);
        let refused = used(folder, task(7, 0), &of_now(), "of then");
        assert_eq!(refused, Err("used-secret"));
    }

    #[test]
    fn of_authorities_that_are_shown_one_secret_at_a_time_one_certifies_a_key() {
        let folder = folder();
        let folder = folder.path();
        let wait = std::sync::Barrier::new(2);
        for restarts in 1..100 {
            let task = task(7, restarts);
            make(folder, task, &rank()).unwrap();
            let secret = of_task(folder, task).unwrap().unwrap();
            let authority = |key: &'static str| {
                let (secret, wait) = (&secret, &wait);
                move || {
                    let secrets = TaskSecrets::of(folder);
                    // Both have found it unused.
                    let issue = |identity: &Identity| {
                        wait.wait();
                        Ok(identity.uri())
                    };
                    let used = secrets.use_for(task, secret, key.as_bytes(), issue);
                    used.unwrap().map_err(|no_good| no_good.reason.word())
                }
            };
            let keys = ["own", "stolen"];
            let got = std::thread::scope(|scope| {
                let asked = keys.map(|key| scope.spawn(authority(key)));
                asked.map(|asked| asked.join().unwrap())
            });
            let won = got.iter().position(Result::is_ok).expect("one of them");
            assert_eq!(got[1 - won], Err("used-secret"), "{got:?}");
            // And it is the one that is written down.
            assert_eq!(used(folder, task, &secret, keys[won]), Ok(rank().uri()));
            let refused = used(folder, task, &secret, keys[1 - won]);
            assert_eq!(refused, Err("used-secret"));
        }
    }

    #[test]
    fn nothing_is_used_by_what_is_refused() {
        let folder = folder();
        let folder = folder.path();
        let secret = of_task(folder, task(7, 0)).unwrap().unwrap();
        for shown in ["", &secret[1..], &format!("{secret}0")] {
            let refused = used(folder, task(7, 0), shown, "guessed");
            assert_eq!(refused, Err("unknown-secret"), "{shown}");
        }
        let server = TaskName {
            task: Tasked::Server(1),
            ..task(7, 0)
        };
        for other in [task(7, 1), task(8, 0), server] {
            let refused = used(folder, other, &secret, "other");
            assert_eq!(refused, Err("unknown-secret"), "{other}");
        }
        let failed = TaskSecrets::of(folder).use_for::<()>(task(7, 0), &secret, b"bad", |_| {
            bail!("no certificate of such a key")
        });
        assert!(failed.is_err());
        let own = used(folder, task(7, 0), &secret, "own");
        assert_eq!(own, Ok(rank().uri()));
    }

    #[test]
    fn a_task_that_slurm_starts_again_has_a_new_secret_and_the_one_before_is_void() {
        let folder = folder();
        let folder = folder.path();
        let before = of_task(folder, task(7, 0)).unwrap().unwrap();
        make(folder, task(8, 0), &rank()).unwrap();
        forget_before(
            folder,
            Start {
                job: 7,
                restarts: 1,
            },
        )
        .unwrap();
        make(folder, task(7, 1), &rank()).unwrap();
        let again = of_task(folder, task(7, 1)).unwrap().unwrap();
        assert_ne!(again, before);
        for at in [task(7, 0), task(7, 1)] {
            assert_eq!(used(folder, at, &before, "stolen"), Err("unknown-secret"));
        }
        assert_eq!(used(folder, task(7, 1), &again, "own"), Ok(rank().uri()));
        // Those of another job are not touched.
        let other = of_task(folder, task(8, 0)).unwrap().unwrap();
        assert_eq!(used(folder, task(8, 0), &other, "other"), Ok(rank().uri()));
        forget(
            folder,
            Start {
                job: 8,
                restarts: 0,
            },
        )
        .unwrap();
        assert_eq!(
            used(folder, task(8, 0), &other, "other"),
            Err("unknown-secret"),
            "its run is over"
        );
    }

    #[test]
    fn what_is_left_of_void_secrets_stops_no_start() {
        let folder = folder();
        let folder = folder.path();
        let start = Start {
            job: 7,
            restarts: 0,
        };
        let own = of_start(folder, 7, 0);
        let void = own.with_extension("void");
        // What a start that was killed has left of its tidying.
        fs::create_dir(&void).unwrap();
        fs::write(void.join("server-1"), "").unwrap();
        forget(folder, start).unwrap();
        assert!(!own.exists() && !void.exists());
        forget(folder, start).unwrap();
    }

    #[test]
    fn a_folder_that_cannot_be_told_is_not_one_without_tls() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let all = folder.join(FOLDER);
        fs::create_dir_all(all.parent().unwrap()).unwrap();
        fs::write(&all, "the one secret of an earlier version").unwrap();
        for error in [
            are_wanted(folder).unwrap_err(),
            make(folder, task(7, 0), &rank()).unwrap_err(),
        ] {
            assert!(error.to_string().contains("submit it again"), "{error}");
        }
        prepare(folder, true).unwrap();
        assert!(are_wanted(folder).unwrap());
    }

    #[test]
    fn a_secret_that_nobody_used_in_time_is_void_and_one_that_was_used_is_not() {
        let folder = folder();
        let folder = folder.path();
        let path = task(7, 0).path(folder);
        let old = |key: Option<&str>| {
            let mut written = Written::read(&path).unwrap().unwrap();
            written.made = wall() - FIRST_USE_S - 10.0;
            written.write(&path).unwrap();
            if let Some(key) = key {
                assert!(UsedFor::key(key.as_bytes()).claim(&path).unwrap());
            }
            written.secret
        };
        let secret = old(None);
        let late = used(folder, task(7, 0), &secret, "own");
        assert_eq!(late, Err("expired-secret"));
        let secret = old(Some("own"));
        assert_eq!(used(folder, task(7, 0), &secret, "own"), Ok(rank().uri()));
    }

    #[test]
    fn secrets_are_their_owners_alone_and_none_are_made_without_tls() {
        use std::os::unix::fs::PermissionsExt;
        let folder = folder();
        let folder = folder.path();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let file = task(7, 0).path(folder);
        assert_eq!(mode(&file), 0o600);
        assert_eq!(mode(file.parent().unwrap()), 0o700);
        assert_eq!(mode(&folder.join(FOLDER)), 0o700);
        // Tasks of other jobs may be under way.
        prepare(folder, true).unwrap();
        assert!(file.exists());
        prepare(folder, false).unwrap();
        make(folder, task(7, 1), &rank()).unwrap();
        assert!(!are_wanted(folder).unwrap());
        // Of an earlier version.
        fs::write(folder.join(FOLDER), "one for all").unwrap();
        prepare(folder, true).unwrap();
        assert!(are_wanted(folder).unwrap());
        let missing = of_task(folder, task(7, 1)).unwrap().unwrap_err();
        assert!(
            missing.contains("rank 3 of group 1 in start 1 of job 7 has no secret"),
            "{missing}"
        );
    }
}
