//! How processes of Slurm jobs come by their certificates. The tasks of up to three servers are the
//! [authority](super::authority) of their run or fleet. Each task but that of server 0 makes its key where it runs, and has
//! a certificate issued for it, over TLS, for the [secret](super::task_secrets) that its job has made for it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::time::sleep;
use tradewind_folder::clock::Clock;
use tradewind_folder::run::RunFolder;
use tradewind_proto::authorities::{Refused, Whereabouts, ask, listed};
use tradewind_proto::authority::Key;
use tradewind_proto::connector::Connector;
use tradewind_proto::refusal::Reason;
use tradewind_proto::renewal::{is_due, is_over};

use super::authority;
use super::enrolment::Request;
use super::task_secrets::{self, TaskName};
use crate::people::forget_people;

/// How long authorities are asked of which none answers, and the pause between two tries.
const PATIENCE: Duration = Duration::from_secs(75);
const PAUSE: Duration = Duration::from_millis(500);

/// How long a secret is shown that the authority does not know, and the pause between two tries. A file system over a
/// network may deny to a node for a minute that there is a file, where the node has looked for it before (NFS:
/// `acdirmax`).
const SHOWN: Retry = Retry {
    for_so_long: Duration::from_secs(75),
    pause: Duration::from_secs(2),
};

/// For how long something is tried again.
#[derive(Clone, Copy, Debug)]
struct Retry {
    for_so_long: Duration,
    pause: Duration,
}

/// Makes the tasks of a job ask for certificates from its start on, or for none.
pub(super) fn prepare(folder: &RunFolder, tls: bool) -> anyhow::Result<()> {
    // Of an earlier start.
    forget_people(folder.path())?;
    authority::forget(folder.path())?;
    task_secrets::prepare(folder.path(), tls)
}

/// A task that has certificates issued, with the key and the secret that it keeps for as long as it goes on.
#[derive(Debug)]
pub(super) struct Applicant {
    /// Of the run or the fleet.
    folder: PathBuf,
    task: TaskName,
    /// As it was read, once it was there.
    secret: Option<String>,
    key: Key,
    /// Where it is not there yet, or the authority does not know it.
    shown: Retry,
    /// What was issued last.
    enrolled: Option<Enrolled>,
}

/// What a task hears, for people.
enum Answered {
    /// It may show this.
    Issued(String),
    /// Its secret is not there, or the authority knows no such secret: it may have looked too early.
    Unknown(String),
    /// Nothing will be issued.
    Refused(String),
}

/// Certificates, and the authority that has issued them.
#[derive(Debug)]
struct Enrolled {
    /// What the process shows, with its key.
    pass: String,
    /// PEM.
    by: String,
}

impl Applicant {
    /// Of a task that has a secret in the folder of a run or fleet; `None` where no TLS is spoken.
    ///
    /// # Errors
    /// That cannot be told.
    pub(super) fn new(folder: &Path, task: TaskName) -> anyhow::Result<Option<Self>> {
        if !task_secrets::are_wanted(folder)? {
            return Ok(None);
        }
        Ok(Some(Self {
            folder: folder.to_owned(),
            task,
            secret: None,
            key: Key::new()?,
            shown: SHOWN,
            enrolled: None,
        }))
    }

    #[cfg(test)]
    pub(super) fn task(&self) -> TaskName {
        self.task
    }

    /// What its process shows, once it has been issued.
    pub(super) fn enrolled(&self) -> Option<&str> {
        self.enrolled.as_ref().map(|kept| kept.pass.as_str())
    }

    /// What its process shows: its key with certificates of the present authority, which are issued if that has not been
    /// done yet.
    ///
    /// # Errors
    /// An authority has refused, or none answers.
    pub(super) async fn pass(&mut self) -> anyhow::Result<String> {
        let waits = Clock::start();
        loop {
            let Retry { for_so_long, pause } = self.shown;
            let error = match self.enrol().await {
                Ok(Answered::Issued(pass)) => return Ok(pass),
                Ok(Answered::Refused(why)) => {
                    bail!("the authority issues no certificate: {why}")
                }
                Ok(Answered::Unknown(why)) if waits.elapsed() >= for_so_long => bail!(
                    "the authority issues no certificate: {why}; asked again for {} s, longer than a file system over a \
                     network hides a new file",
                    for_so_long.as_secs()
                ),
                Ok(Answered::Unknown(_)) => {
                    sleep(pause).await;
                    continue;
                }
                Err(error) => error,
            };
            if waits.elapsed() >= PATIENCE {
                return Err(error).context(
                    "no certificate can be had: the tasks of server 0 and of those that keep its key issue them, and none answers",
                );
            }
            sleep(PAUSE).await;
        }
    }

    /// Tries once.
    async fn enrol(&mut self) -> anyhow::Result<Answered> {
        let there = listed(&authority::listing(&self.folder))?;
        // All of them have the same.
        let Some(Whereabouts { certificate, .. }) = there.first() else {
            bail!("no authority is listed");
        };
        let kept = self.enrolled.as_ref();
        let kept = kept.filter(|kept| kept.by == *certificate);
        if let Some(kept) = kept.filter(|kept| !is_due(&kept.pass)) {
            return Ok(Answered::Issued(kept.pass.clone()));
        }
        let secret = match &self.secret {
            Some(secret) => secret.clone(),
            None => match task_secrets::of_task(&self.folder, self.task)? {
                Ok(secret) => self.secret.insert(secret).clone(),
                Err(missing) => return Ok(Answered::Unknown(missing)),
            },
        };
        let request = Request {
            task: self.task,
            secret,
            public: self.key.public().to_vec(),
        };
        let connector = Connector::without_certificate(certificate)?;
        let addresses: Vec<_> = there.iter().map(|there| there.address.clone()).collect();
        let asked = ask::<String>(&connector, &addresses, &request).await;
        // Good until it is over, where nobody issues another one.
        if asked.is_err()
            && let Some(kept) = kept.filter(|kept| !is_over(&kept.pass))
        {
            return Ok(Answered::Issued(kept.pass.clone()));
        }
        match asked? {
            Ok(certificates) => {
                let pass = self.key.pass(&certificates);
                let by = certificate.clone();
                let enrolled = Enrolled { pass, by };
                let pass = self.enrolled.insert(enrolled).pass.clone();
                Ok(Answered::Issued(pass))
            }
            Err(refused) => {
                let Refused { reason, .. } = &refused;
                let is_unknown = reason == Reason::UnknownSecret.word();
                let why = refused.to_string();
                Ok(match is_unknown {
                    true => Answered::Unknown(why),
                    false => Answered::Refused(why),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::ErrorKind;
    use std::sync::Arc;

    use super::*;
    use crate::hearing::HEARD_MAX;
    use crate::issuing::Site;
    use crate::slurm::start::Start;
    use crate::slurm::task_secrets::Tasked;
    use tradewind_common::identity::Identity;
    use tradewind_common::run_files;
    use tradewind_folder::runtime::one_thread;
    use tradewind_proto::auth::Credentials;
    use tradewind_proto::authorities::{self as authority_files, Keepers};
    use tradewind_proto::authority::{Authority, LIFE_S};

    const TASK: Tasked = Tasked::Rank { group: 1, rank: 0 };

    const ONE_A_NODE: Keepers = Keepers {
        servers_per_node: 1,
    };

    fn task(restarts: u32) -> TaskName {
        TaskName::new(Start { job: 7, restarts }, TASK)
    }

    fn rank() -> Identity {
        Identity::of_uri("tradewind:rank/climate/1").unwrap()
    }

    /// A folder in which a task has a secret, or without TLS.
    fn folder(tls: bool) -> (tempfile::TempDir, RunFolder) {
        let within = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(&within.path().join("run")).unwrap();
        fs::create_dir_all(folder.file("slurm")).unwrap();
        prepare(&folder, tls).unwrap();
        task_secrets::make(folder.path(), task(0), &rank()).unwrap();
        (within, folder)
    }

    fn site(path: &Path) -> Site {
        Site {
            folder: path.to_owned(),
            host: "127.0.0.1".into(),
            people: Vec::new(),
        }
    }

    async fn found(path: &Path, life_s: u32) -> Arc<Authority> {
        let founded = authority::found(&site(path), ONE_A_NODE, ("climate", life_s)).await;
        founded.unwrap().expect("TLS is spoken")
    }

    /// One that does not ask again.
    fn applicant(path: &Path, restarts: u32) -> Applicant {
        let applicant = Applicant::new(path, task(restarts)).unwrap().unwrap();
        let secret = task_secrets::of_task(path, task(restarts)).unwrap();
        Applicant {
            secret: secret.ok(),
            shown: Retry {
                for_so_long: Duration::ZERO,
                ..SHOWN
            },
            ..applicant
        }
    }

    /// The private key of a pass.
    fn key(pass: &str) -> &str {
        &pass[..pass.find("-----BEGIN CERTIFICATE").unwrap()]
    }

    async fn refused(applicant: &mut Applicant) -> String {
        applicant.pass().await.unwrap_err().to_string()
    }

    /// Refusals that the events tell, once their thread has written this many.
    async fn told(path: &Path, count: usize) -> Vec<(String, u64)> {
        let mut told = Vec::new();
        for _ in 0..600 {
            let text = fs::read_to_string(path.join(run_files::EVENTS)).unwrap_or_default();
            let lines = text.lines().filter_map(|line| {
                let line: serde_json::Value = serde_json::from_str(line).ok()?;
                let is_refusal = line["kind"] == "caller_refused";
                let reason = line["reason"].as_str().map(str::to_owned);
                is_refusal.then_some((reason?, line["times"].as_u64()?))
            });
            told = lines.collect();
            if told.len() >= count {
                break;
            }
            sleep(Duration::from_millis(20)).await;
        }
        told
    }

    #[test]
    fn a_task_with_a_secret_has_a_certificate_issued_and_no_key_is_in_the_folder() {
        let (_within, folder) = folder(true);
        let path = folder.path();
        one_thread().unwrap().block_on(async {
            let authority = found(path, LIFE_S).await;
            let mut own = applicant(path, 0);
            let pass = own.pass().await.unwrap();
            let server = authority.pass(&Identity::Server(None)).unwrap();
            assert!(Credentials::new("", Some(&server)).is_ok());
            assert!(Credentials::new("", Some(&pass)).is_ok());
            // The next process of the task shows the same, for as long as the authority is the same; then the same key.
            assert_eq!(own.pass().await.unwrap(), pass);
            let _later = found(path, LIFE_S).await;
            let other = own.pass().await.unwrap();
            assert_ne!(other, pass);
            assert_eq!(key(&other), key(&pass));
            // Of all keys a person's alone is in the folder.
            let mut with_keys = Vec::new();
            let folders = ["", "slurm", "slurm/authorities", "slurm/enrolment/7-0"];
            for entry in folders.map(|name| folder.file(name)) {
                for file in fs::read_dir(entry).unwrap() {
                    let file = file.unwrap().path();
                    let text = fs::read_to_string(&file).unwrap_or_default();
                    if text.contains("PRIVATE KEY") {
                        with_keys.push(file);
                    }
                }
            }
            assert_eq!(with_keys, [folder.file(run_files::PERSON)]);
        });
    }

    #[test]
    fn a_process_that_is_started_late_gets_another_certificate_for_the_same_key() {
        let (_within, folder) = folder(true);
        let path = folder.path();
        one_thread().unwrap().block_on(async {
            // Two thirds of a second are over at once, in whole seconds.
            found(path, 1).await;
            let mut own = applicant(path, 0);
            let pass = own.pass().await.unwrap();
            let later = own.pass().await.unwrap();
            assert_ne!(later, pass);
            assert_eq!(key(&later), key(&pass));
        });
    }

    #[test]
    fn a_secret_that_is_stolen_after_its_use_is_refused_and_counted() {
        let (_within, folder) = folder(true);
        let path = folder.path();
        one_thread().unwrap().block_on(async {
            found(path, LIFE_S).await;
            let (mut own, mut thief) = (applicant(path, 0), applicant(path, 0));
            assert_eq!(thief.secret, own.secret);
            let pass = own.pass().await.unwrap();
            for _ in 0..3 {
                let why = refused(&mut thief).await;
                assert!(
                    why.contains("rank 0 of group 1 in start 0 of job 7 has been used already"),
                    "{why}"
                );
                assert!(why.contains("(used-secret)"), "{why}");
            }
            assert_eq!(own.pass().await.unwrap(), pass);
            // Whoever guesses is told apart.
            thief.secret = Some("guessed".into());
            let why = refused(&mut thief).await;
            assert!(why.contains("(unknown-secret)"), "{why}");
            // What comes within a minute of the first is counted in the next one.
            let want = ["used-secret", "unknown-secret"].map(|word| (word.to_owned(), 1));
            assert_eq!(told(path, 2).await, want);
            // Another authority goes by the same files.
            found(path, LIFE_S).await;
            thief.secret.clone_from(&own.secret);
            let why = refused(&mut thief).await;
            assert!(why.contains("(used-secret)"), "{why}");
            assert_eq!(key(&own.pass().await.unwrap()), key(&pass));
        });
    }

    #[test]
    fn a_secret_that_is_not_to_be_seen_yet_is_shown_again() {
        let (_within, folder) = folder(true);
        let path = folder.path();
        let file = path.join("slurm/enrolment/7-0/group-1-rank-0");
        let hidden = file.with_extension("hidden");
        let asking = |for_so_long| Applicant {
            shown: Retry {
                for_so_long,
                pause: Duration::from_millis(20),
            },
            ..applicant(path, 0)
        };
        one_thread().unwrap().block_on(async {
            found(path, LIFE_S).await;
            // By the authority: as after a look before it was there.
            let mut early = asking(PATIENCE);
            fs::rename(&file, &hidden).unwrap();
            let shown = async {
                let want = [("unknown-secret".to_owned(), 1)];
                assert_eq!(told(path, 1).await, want);
                fs::rename(&hidden, &file).unwrap();
            };
            let (pass, ()) = tokio::join!(early.pass(), shown);
            pass.unwrap();
            // By the task itself.
            let mut late = Applicant {
                secret: None,
                key: early.key,
                ..asking(PATIENCE)
            };
            fs::rename(&file, &hidden).unwrap();
            let shown = async {
                sleep(Duration::from_millis(100)).await;
                fs::rename(&hidden, &file).unwrap();
            };
            let (pass, ()) = tokio::join!(late.pass(), shown);
            pass.unwrap();
            // And for so long.
            let mut never = asking(Duration::from_millis(100));
            fs::rename(&file, &hidden).unwrap();
            let why = refused(&mut never).await;
            for words in ["(unknown-secret)", "asked again for 0 s"] {
                assert!(why.contains(words), "{why}");
            }
            never.secret = None;
            let why = refused(&mut never).await;
            assert!(why.contains("has no secret"), "{why}");
        });
    }

    #[test]
    fn who_connects_and_says_nothing_keeps_nobody_out() {
        let (_within, folder) = folder(true);
        let path = folder.path();
        one_thread().unwrap().block_on(async {
            found(path, LIFE_S).await;
            let there = listed(&authority::listing(path)).unwrap().remove(0);
            let mut silent = Vec::new();
            for _ in 0..HEARD_MAX {
                let stream = tokio::net::TcpStream::connect(&there.address).await;
                silent.push(stream.unwrap());
            }
            applicant(path, 0).pass().await.unwrap();
            // It had not to wait until they had all had their time.
            let open = silent.iter().filter(|stream| {
                let read = stream.try_read(&mut [0]);
                read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
            });
            assert!(open.count() >= HEARD_MAX - 1);
        });
    }

    #[test]
    fn a_secret_that_is_stolen_before_its_use_is_found_by_its_task() {
        let (_within, folder) = folder(true);
        let path = folder.path();
        one_thread().unwrap().block_on(async {
            found(path, LIFE_S).await;
            let mut own = applicant(path, 0);
            applicant(path, 0).pass().await.unwrap();
            let why = refused(&mut own).await;
            assert!(why.contains("(used-secret)"), "{why}");
            // The next start of the job has secrets of its own, at the same authority.
            task_secrets::make(path, task(1), &rank()).unwrap();
            applicant(path, 1).pass().await.unwrap();
        });
    }

    #[test]
    fn where_nobody_answers_a_task_goes_on_with_what_it_has() {
        let (_within, folder) = folder(true);
        let path = folder.path();
        one_thread().unwrap().block_on(async {
            let authority = found(path, LIFE_S).await;
            let mut own = applicant(path, 0);
            own.pass().await.unwrap();
            // Two thirds of its life are over.
            let due = authority.pass_for(&rank(), -7200..600).unwrap();
            own.enrolled.as_mut().unwrap().pass.clone_from(&due);
            let there = authority_files::Whereabouts {
                address: "127.0.0.1:1".into(),
                certificate: authority.certificate(),
            };
            let file = authority_files::file(&authority::listing(path), 0);
            fs::write(&file, serde_json::to_string(&there).unwrap()).unwrap();
            assert_eq!(own.pass().await.unwrap(), due);
        });
    }

    #[test]
    fn without_tls_nobody_asks() {
        let (_within, folder) = folder(true);
        let path = folder.path();
        one_thread().unwrap().block_on(async {
            found(path, LIFE_S).await;
            assert!(folder.file(run_files::PERSON).exists());
            prepare(&folder, false).unwrap();
            assert!(!folder.file(run_files::PERSON).exists());
            let founded = authority::found(&site(path), ONE_A_NODE, ("climate", LIFE_S)).await;
            assert!(founded.unwrap().is_none());
            assert!(Applicant::new(path, task(0)).unwrap().is_none());
        });
    }
}
