//! How processes of Slurm jobs come by their certificates. The task of the first server is the authority of its run or
//! fleet: its key is in that process alone. Each other task makes its key where it runs, and has a certificate issued
//! for it, over TLS, for the secret that whoever has submitted the job wrote into the folder.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tower_service::Service;
use tradewind_common::identity::Identity;
use tradewind_common::run_files;
use tradewind_folder::run::RunFolder;
use tradewind_process::{supervise, whole};
use tradewind_proto::auth::Credentials;
use tradewind_proto::authority::{Authority, Key};
use tradewind_proto::connector::Connector;

use super::enrolment::{self, Reply, Request};
use crate::{bare_host, secrets::secret};

/// In the folder of a run or a fleet: what a task shows to be issued a certificate. It is there under TLS alone.
const SECRET: &str = "slurm/enrolment";

/// Beside it: where the authority is, and its certificate. The authority writes it; no secret.
const AUTHORITY: &str = "slurm/authority.json";

/// How long an answer may take, at both ends.
const ANSWER: Duration = Duration::from_secs(10);

/// How long an authority is asked that does not answer, and the pause between two tries.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(500);

/// Longest message of either side: a secret and a key, or two certificates.
const MESSAGE_BYTES_MAX: u64 = 16 << 10;

/// Who is heard at a time; others wait in the system's queue.
const HEARD_MAX: usize = 64;

/// Where an authority is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Whereabouts {
    /// host:port
    address: String,
    /// PEM.
    certificate: String,
}

/// A key with its certificates, and the authority that has issued them.
#[derive(Clone, Debug)]
pub(super) struct Enrolled {
    /// What the process shows.
    pub(super) pass: String,
    by: Whereabouts,
}

/// Makes the tasks of a job ask for certificates from its first server's task on, or for none.
pub(super) fn prepare(folder: &RunFolder, tls: bool) -> anyhow::Result<()> {
    // Of an earlier start.
    for name in [SECRET, AUTHORITY, run_files::PERSON] {
        match fs::remove_file(folder.file(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {name}"));
            }
            _ => {}
        }
    }
    match tls {
        true => folder.write_secret(SECRET, &secret()?),
        false => Ok(()),
    }
}

/// The secret of a run or a fleet; `None` where no TLS is spoken.
fn secret_of(fleet: &Path) -> anyhow::Result<Option<String>> {
    let file = fleet.join(SECRET);
    match fs::read_to_string(&file) {
        Ok(secret) => Ok(Some(secret)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
}

/// Becomes the authority of the run or fleet in this folder, if TLS is spoken there: until this process ends. What a
/// person shows is then in the folder. Must be called in a runtime.
pub(super) async fn found(
    folder: &Path,
    of: &str,
    host: &str,
) -> anyhow::Result<Option<Arc<Authority>>> {
    let Some(secret) = secret_of(folder)? else {
        return Ok(None);
    };
    let authority = Arc::new(Authority::new(of)?);
    let listener = TcpListener::bind(format!("{}:0", bare_host(host)))
        .await
        .with_context(|| format!("the authority of certificates cannot listen on {host}"))?;
    let there = Whereabouts {
        address: listener.local_addr()?.to_string(),
        certificate: authority.certificate(),
    };
    let person = authority.pass(&Identity::Person)?;
    whole::write_secret(&folder.join(run_files::PERSON), &person)?;
    whole::write(&folder.join(AUTHORITY), &serde_json::to_string(&there)?)?;
    let answering = answer(listener, authority.clone(), secret)?;
    supervise("the authority of certificates", answering);
    Ok(Some(authority))
}

/// Answers tasks for ever.
fn answer(
    listener: TcpListener,
    authority: Arc<Authority>,
    secret: String,
) -> anyhow::Result<impl Future<Output = std::convert::Infallible>> {
    let own = Credentials::new("", Some(&authority.pass(&Identity::Server)?))?;
    let acceptor = own.tls().expect("it was given").acceptor();
    let (room, secret) = (Arc::new(Semaphore::new(HEARD_MAX)), Arc::new(secret));
    Ok(async move {
        loop {
            let place = room.clone().acquire_owned().await.expect("never closed");
            let Ok((stream, _)) = listener.accept().await else {
                // No descriptor is free.
                sleep(PAUSE).await;
                continue;
            };
            let (acceptor, authority) = (acceptor.clone(), authority.clone());
            let secret = secret.clone();
            // Not supervised: what breaks off here breaks this connection, and the task asks again.
            tokio::spawn(async move {
                let hearing = async {
                    let mut stream = BufReader::new(acceptor.accept(stream).await?);
                    let mut line = String::new();
                    let mut limited = (&mut stream).take(MESSAGE_BYTES_MAX);
                    limited.read_line(&mut line).await?;
                    let reply = enrolment::answer(&authority, &secret, &line);
                    if let Reply::Refused(why) = &reply {
                        tradewind_process::complain!("no certificate was issued: {why}");
                    }
                    let reply = serde_json::to_string(&reply)?;
                    stream.write_all(reply.as_bytes()).await?;
                    stream.shutdown().await
                };
                let heard: Result<io::Result<()>, _> = timeout(ANSWER, hearing).await;
                drop((heard, place));
            });
        }
    })
}

/// Has a certificate issued by the authority of the run or fleet in this folder; one that it has issued already is
/// kept. `None` where no TLS is spoken.
///
/// # Errors
/// The authority has refused, or does not answer.
pub(super) async fn enrol(
    folder: &Path,
    identity: &Identity,
    kept: Option<Enrolled>,
) -> anyhow::Result<Option<Enrolled>> {
    let Some(secret) = secret_of(folder)? else {
        return Ok(None);
    };
    let mut waited = Duration::ZERO;
    loop {
        let asked = async {
            let text = fs::read_to_string(folder.join(AUTHORITY))?;
            let there: Whereabouts = serde_json::from_str(&text)?;
            if let Some(kept) = kept.as_ref().filter(|kept| kept.by == there) {
                return Ok(Ok(kept.clone()));
            }
            anyhow::Ok(ask(there, &secret, identity).await?)
        };
        let error = match timeout(ANSWER, asked).await {
            Ok(Ok(Ok(enrolled))) => return Ok(Some(enrolled)),
            Ok(Ok(Err(refused))) => bail!("the authority issues no certificate: {refused}"),
            Ok(Err(error)) => error,
            Err(late) => late.into(),
        };
        if waited >= PATIENCE {
            return Err(error).context(
                "no certificate can be had: the task of the first server issues them, and does not answer",
            );
        }
        sleep(PAUSE).await;
        waited += PAUSE;
    }
}

/// Asks once; what was issued, or why nothing was.
async fn ask(
    there: Whereabouts,
    secret: &str,
    identity: &Identity,
) -> anyhow::Result<Result<Enrolled, String>> {
    let key = Key::new()?;
    let mut connector = Connector::without_certificate(&there.certificate)?;
    let uri = format!("http://{}", there.address).parse()?;
    let mut stream = connector.call(uri).await?.into_inner();
    let request = Request {
        secret: secret.to_owned(),
        identity: identity.uri(),
        public: key.public().to_vec(),
    };
    let line = serde_json::to_string(&request)? + "\n";
    stream.write_all(line.as_bytes()).await?;
    stream.flush().await?;
    let mut reply = String::new();
    stream
        .take(MESSAGE_BYTES_MAX)
        .read_to_string(&mut reply)
        .await?;
    Ok(match serde_json::from_str(&reply)? {
        Reply::Issued(certificates) => Ok(Enrolled {
            pass: key.pass(&certificates),
            by: there,
        }),
        Reply::Refused(why) => Err(why),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tradewind_folder::runtime::one_thread;

    fn rank(group: u32) -> Identity {
        Identity::of_uri(&format!("tradewind:rank/climate/{group}")).unwrap()
    }

    /// A folder with or without a secret.
    fn folder(tls: bool) -> (tempfile::TempDir, RunFolder) {
        let within = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(&within.path().join("run")).unwrap();
        fs::create_dir_all(folder.file("slurm")).unwrap();
        prepare(&folder, tls).unwrap();
        (within, folder)
    }

    #[test]
    fn a_task_with_the_secret_has_a_certificate_issued_and_no_key_is_in_the_folder() {
        let (_within, folder) = folder(true);
        let path = folder.path();
        one_thread().unwrap().block_on(async {
            let authority = found(path, "climate", "127.0.0.1").await.unwrap().unwrap();
            let enrolled = enrol(path, &rank(1), None).await.unwrap().unwrap();
            let server = authority.pass(&Identity::Server).unwrap();
            assert!(Credentials::new("", Some(&server)).is_ok());
            assert!(Credentials::new("", Some(&enrolled.pass)).is_ok());
            // The next process of the task shows the same, for as long as the authority is the same.
            let again = enrol(path, &rank(1), Some(enrolled.clone())).await;
            assert_eq!(again.unwrap().unwrap().pass, enrolled.pass);
            let _later = found(path, "climate", "127.0.0.1").await.unwrap().unwrap();
            let other = enrol(path, &rank(1), Some(enrolled.clone())).await;
            assert_ne!(other.unwrap().unwrap().pass, enrolled.pass);
            // Of all keys a person's alone is in the folder.
            let mut with_keys = Vec::new();
            for entry in [path, &folder.file("slurm")] {
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
    fn who_does_not_know_the_secret_is_issued_nothing() {
        let (_within, folder) = folder(true);
        let path = folder.path();
        one_thread().unwrap().block_on(async {
            found(path, "climate", "127.0.0.1").await.unwrap();
            folder.write_secret(SECRET, "guessed").unwrap();
            let error = enrol(path, &Identity::Server, None).await.unwrap_err();
            let error = error.to_string();
            assert!(
                error.contains("the secret is not that of this run"),
                "{error}"
            );
        });
        let authority = Authority::new("climate").unwrap();
        let asked = |identity: &str, secret: &str| {
            let request = Request {
                secret: secret.into(),
                identity: identity.into(),
                public: Key::new().unwrap().public().to_vec(),
            };
            enrolment::answer(
                &authority,
                "right",
                &serde_json::to_string(&request).unwrap(),
            )
        };
        assert!(matches!(
            asked("tradewind:server", "right"),
            Reply::Issued(_)
        ));
        for (identity, secret) in [
            ("tradewind:server", ""),
            ("tradewind:server", "righ"),
            ("tradewind:server", "rightly"),
            ("tradewind:authority", "right"),
        ] {
            assert!(
                matches!(asked(identity, secret), Reply::Refused(_)),
                "{identity} {secret}"
            );
        }
        assert!(matches!(
            enrolment::answer(&authority, "right", "{"),
            Reply::Refused(_)
        ));
    }

    #[test]
    fn without_tls_nobody_asks() {
        let (_within, folder) = folder(true);
        let path = folder.path();
        one_thread().unwrap().block_on(async {
            found(path, "climate", "127.0.0.1").await.unwrap();
            assert!(folder.file(run_files::PERSON).exists());
            prepare(&folder, false).unwrap();
            assert!(!folder.file(run_files::PERSON).exists());
            assert!(found(path, "climate", "127.0.0.1").await.unwrap().is_none());
            assert!(enrol(path, &rank(0), None).await.unwrap().is_none());
        });
    }
}
