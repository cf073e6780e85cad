//! The authority of a run or a fleet as others reach it, in the process that has its key, for as long as that lives: over
//! TLS it certifies tasks of Slurm's for their secrets, and renews the certificate of whoever shows one.

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tradewind_common::ServerId;
use tradewind_common::identity::{Identity, PersonName};
use tradewind_process::supervise;
use tradewind_proto::authority::Authority;
use tradewind_proto::refusal::Reason;
use tradewind_proto::renewal::{ANSWER, MESSAGE_BYTES_MAX, Renewal, Reply};
use tradewind_proto::tls::{Tls, Unfit};
use tradewind_server::hosting::shut_out;
use tradewind_server::limits::Notices;

use crate::bare_host;
use crate::hearing::Hearings;
use crate::people::certify_people;

/// Pause after a connection that could not be accepted: no descriptor is free.
const PAUSE: Duration = Duration::from_millis(500);

/// Pause after certificates of people that could not be written, and the longest one: each is twice as long as the one
/// before.
const WRITE_PAUSE: Duration = Duration::from_secs(1);
const WRITE_PAUSE_MAX: Duration = Duration::from_secs(600);

/// Answers a line by which a task asks to be certified for the first time, and tells of a refusal.
pub(crate) type Enrol = Box<dyn Fn(&Authority, &Notices, &str) -> Reply + Send + Sync>;

/// An authority that answers.
pub(crate) struct Issuing {
    authority: Arc<Authority>,
    /// What it shows.
    own: Tls,
    /// Of the run or the fleet: what its coordinator writes down is there.
    folder: PathBuf,
    /// Under Slurm.
    enrol: Option<Enrol>,
    notices: Notices,
}

impl Issuing {
    /// Answers from now on, at a port of this host of its own, of which everybody is told for whom a certificate is
    /// issued afterwards; and keeps the certificates of people in the folder valid. Under Slurm it is the task of a
    /// server, and certifies others for their secrets. Returns where it listens. Must be called in a runtime.
    pub(crate) async fn begin(
        authority: &Arc<Authority>,
        folder: &Path,
        host: &str,
        people: &[PersonName],
        enrols: Option<(ServerId, Enrol)>,
    ) -> anyhow::Result<String> {
        let listener = TcpListener::bind(format!("{}:0", bare_host(host))).await;
        let listener = listener
            .with_context(|| format!("the authority of certificates cannot listen on {host}"))?;
        let address = listener.local_addr()?.to_string();
        authority.renews_at(address.clone());
        let own = authority.own_pass(&Identity::Server(None))?;
        let (server, enrol) = enrols.unzip();
        let issuing = Arc::new(Self {
            authority: authority.clone(),
            own: Tls::from_pem(&own)?,
            folder: folder.to_owned(),
            enrol,
            notices: Notices::of_authority(folder, server)?,
        });
        certify_people(folder, authority, people)?;
        let keeping = issuing.clone().keep_people(people.to_owned());
        supervise("the renewal of people's certificates", keeping);
        supervise("the authority of certificates", issuing.answer(listener));
        Ok(address)
    }

    async fn answer(self: Arc<Self>, listener: TcpListener) -> Infallible {
        let mut hearings = Hearings::new();
        loop {
            let Ok((stream, from)) = listener.accept().await else {
                sleep(PAUSE).await;
                continue;
            };
            hearings.room().await;
            let issuing = self.clone();
            // Not supervised: what breaks off here breaks this connection, and its peer asks again.
            let hearing = tokio::spawn(async move {
                let _: Result<io::Result<()>, _> = timeout(ANSWER, issuing.hear(stream)).await;
            });
            hearings.add(from.ip(), hearing.abort_handle());
        }
    }

    /// Hears what one asks for, and answers it.
    async fn hear(self: Arc<Self>, stream: TcpStream) -> io::Result<()> {
        let stream = self.own.acceptor().accept(stream).await?;
        let caller = self.own.judge(stream.get_ref().1.peer_certificates());
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        let mut limited = (&mut stream).take(MESSAGE_BYTES_MAX);
        limited.read_line(&mut line).await?;
        // Files are read.
        let reply = spawn_blocking(move || match serde_json::from_str(&line) {
            Ok(Renewal { public }) => self.renew(caller, &public),
            Err(_) => self.enrol(&line),
        });
        let reply = reply.await.map_err(io::Error::other)?;
        if let Reply::Failed(why) = &reply {
            tradewind_process::complain!("no certificate was issued: {why}");
        }
        let reply = serde_json::to_string(&reply)?;
        stream.write_all(reply.as_bytes()).await?;
        stream.shutdown().await
    }

    /// Another certificate of who has one that is valid, unless it is revoked.
    fn renew(&self, caller: Result<Identity, Unfit>, public: &[u8]) -> Reply {
        let issue = |identity: Identity| -> anyhow::Result<Result<String, Unfit>> {
            let revoked = shut_out(&self.folder, &self.own)?;
            Ok(match identity.is_shut_out(&revoked) {
                Some(what) => Err(Unfit::Revoked(what)),
                None => Ok(self.authority.issue(&identity, public)?),
            })
        };
        match caller.map(issue) {
            Ok(Ok(Ok(certificates))) => Reply::Issued(certificates),
            Ok(Err(error)) => Reply::Failed(format!("{error:#}")),
            Ok(Ok(Err(unfit))) | Err(unfit) => self.refuse(unfit.reason(), unfit.to_string()),
        }
    }

    fn enrol(&self, line: &str) -> Reply {
        match &self.enrol {
            Some(enrol) => enrol(&self.authority, &self.notices, line),
            None => {
                let text = "what was asked for is no renewal of a certificate";
                self.refuse(Reason::Malformed, text.into())
            }
        }
    }

    fn refuse(&self, reason: Reason, text: String) -> Reply {
        self.notices.refused(reason, &text);
        Reply::Refused {
            reason: reason.word().to_owned(),
            text,
        }
    }

    /// Writes what people show anew, but for those who are shut out.
    fn certify(&self, people: &[PersonName]) -> anyhow::Result<()> {
        let revoked = shut_out(&self.folder, &self.own)?;
        let is_let_in = |name: &&PersonName| {
            let person = Identity::Person(Some((*name).clone()));
            person.is_shut_out(&revoked).is_none()
        };
        let people: Vec<_> = people.iter().filter(is_let_in).cloned().collect();
        certify_people(&self.folder, &self.authority, &people)
    }

    /// Does that whenever two thirds of the life of a certificate have passed.
    async fn keep_people(self: Arc<Self>, people: Vec<PersonName>) -> Infallible {
        let life = Duration::from_secs(self.authority.life_s().into());
        let mut pause = life * 2 / 3;
        let mut failed = WRITE_PAUSE;
        loop {
            sleep(pause).await;
            pause = match self.certify(&people) {
                Ok(()) => {
                    failed = WRITE_PAUSE;
                    life * 2 / 3
                }
                Err(error) => {
                    let why = format!("what people show cannot be written anew: {error:#}");
                    self.notices.not_renewed(&why);
                    let next = (failed * 2).min(WRITE_PAUSE_MAX);
                    std::mem::replace(&mut failed, next)
                }
            };
        }
    }
}
