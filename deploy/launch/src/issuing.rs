//! The authority of a run or a fleet as others reach it, in a process that has its key, for as long as that lives: over
//! TLS it certifies tasks of Slurm's for their secrets, renews the certificate of whoever shows one, and hands its key on
//! to the tasks of two other servers.

use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tradewind_common::ServerId;
use tradewind_common::identity::{Identity, PersonName};
use tradewind_process::supervise;
use tradewind_proto::authorities::{
    ANSWER, KEEPERS, Keepers, MESSAGE_BYTES_MAX, Refused, Reply, listed,
};
use tradewind_proto::authority::{Authority, HandedOn};
use tradewind_proto::refusal::Reason;
use tradewind_proto::renewal::{Renewal, Succession};
use tradewind_proto::tls::{Tls, Unfit};
use tradewind_server::hosting::shut_out;
use tradewind_server::limits::Notices;

use crate::bare_host;
use crate::hearing::Hearings;
use crate::people::{are_due, certify_people};

/// Pause after a connection that could not be accepted: no descriptor is free.
const PAUSE: Duration = Duration::from_millis(500);

/// Pause after certificates of people that could not be written, and the longest one: each is twice as long as the one
/// before.
const WRITE_PAUSE: Duration = Duration::from_secs(1);
const WRITE_PAUSE_MAX: Duration = Duration::from_secs(600);

/// Longest pause between two looks at certificates of people: the clock may be set meanwhile.
const LOOK_PAUSE_MAX: Duration = Duration::from_secs(600);

/// Answers a line by which a task asks to be certified for the first time, and tells of a refusal.
pub(crate) type Enrol = Box<dyn Fn(&Authority, &Notices, &str) -> Reply + Send + Sync>;

/// Where an authority answers, and for whom.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// Of the run or the fleet: what its coordinator writes down is there.
    pub(crate) folder: PathBuf,
    /// Of this process.
    pub(crate) host: String,
    /// Who has a certificate besides the owner.
    pub(crate) people: Vec<PersonName>,
}

/// What an authority in the task of a server does besides, under Slurm.
pub(crate) struct Enrolling {
    /// Whose task it is.
    pub(crate) server: ServerId,
    /// To whom it hands its key on.
    pub(crate) keepers: Keepers,
    /// The folder where the authorities of the present start are listed.
    pub(crate) listing: PathBuf,
    /// Certifies others for their secrets.
    pub(crate) enrol: Enrol,
}

/// An authority that answers.
pub(crate) struct Issuing {
    authority: Arc<Authority>,
    /// What it shows.
    own: Tls,
    site: Site,
    /// Under Slurm.
    enrolling: Option<Enrolling>,
    notices: Notices,
}

impl Issuing {
    /// Answers from now on, at a port of this host of its own; and from a while on keeps the certificates of people in the
    /// folder valid. Returns where it listens. Must be called in a runtime.
    pub(crate) async fn begin(
        authority: &Arc<Authority>,
        site: &Site,
        enrolling: Option<Enrolling>,
    ) -> anyhow::Result<String> {
        let host = &site.host;
        let listener = TcpListener::bind(format!("{}:0", bare_host(host))).await;
        let listener = listener
            .with_context(|| format!("the authority of certificates cannot listen on {host}"))?;
        let address = listener.local_addr()?.to_string();
        let own = authority.own_pass(&Identity::Server(None))?;
        let server = enrolling.as_ref().map(|enrolling| enrolling.server);
        let issuing = Arc::new(Self {
            authority: authority.clone(),
            own: Tls::from_pem(&own)?,
            site: site.clone(),
            enrolling,
            notices: Notices::of_authority(&site.folder, server)?,
        });
        let keeping = issuing.clone().keep_people();
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
        let reply = spawn_blocking(move || self.reply(caller, &line));
        let reply = reply.await.map_err(io::Error::other)??;
        stream.write_all(reply.as_bytes()).await?;
        stream.shutdown().await
    }

    /// The answer to a line.
    fn reply(&self, caller: Result<Identity, Unfit>, line: &str) -> serde_json::Result<String> {
        if let Ok(Renewal { public }) = serde_json::from_str(line) {
            return written(&self.renew(caller, &public));
        }
        match serde_json::from_str(line) {
            Ok(Succession::HandOn) => written(&self.hand_on(caller)),
            Err(_) => written(&self.enrol(line)),
        }
    }

    /// Another certificate of who has one that is valid, unless it is revoked.
    fn renew(&self, caller: Result<Identity, Unfit>, public: &[u8]) -> Reply {
        self.for_member(caller, |identity| {
            Ok(Reply::Issued(self.authority.issue(&identity, public)?))
        })
    }

    /// The key, for the task of a server that is to keep it, too.
    fn hand_on(&self, caller: Result<Identity, Unfit>) -> Reply<HandedOn> {
        let Some(Enrolling { keepers, .. }) = self.enrolling else {
            let text = "the authority of a run on this machine hands its key on to nobody";
            return self.refuse(Reason::WrongRole, text.into());
        };
        self.for_member(caller, |identity| match identity {
            Identity::Server(Some(server)) if keepers.succeeds(server) => {
                tradewind_process::complain!("the authority's key is handed on to server {server}");
                Ok(Reply::Issued(self.authority.hand_on()))
            }
            other => {
                let text = format!(
                    "the authority's key is for a server of each of the first {KEEPERS} nodes, and the caller is {other}"
                );
                Ok(self.refuse(Reason::WrongRole, text))
            }
        })
    }

    /// What somebody gets whose certificate is valid, and is not revoked.
    fn for_member<T>(
        &self,
        caller: Result<Identity, Unfit>,
        give: impl FnOnce(Identity) -> anyhow::Result<Reply<T>>,
    ) -> Reply<T> {
        let judged = caller.map(|identity| -> anyhow::Result<_> {
            let revoked = shut_out(&self.site.folder, &self.own)?;
            Ok(match identity.is_shut_out(&revoked) {
                Some(what) => Err(Unfit::Revoked(what)),
                None => Ok(give(identity)?),
            })
        });
        match judged {
            Ok(Ok(Ok(reply))) => reply,
            Ok(Err(error)) => Reply::Failed(format!("{error:#}")),
            Ok(Ok(Err(unfit))) | Err(unfit) => self.refuse(unfit.reason(), unfit.to_string()),
        }
    }

    fn enrol(&self, line: &str) -> Reply {
        match &self.enrolling {
            Some(Enrolling { enrol, .. }) => enrol(&self.authority, &self.notices, line),
            None => {
                let text = "what was asked for is no renewal of a certificate";
                self.refuse(Reason::Malformed, text.into())
            }
        }
    }

    fn refuse<T>(&self, reason: Reason, text: String) -> Reply<T> {
        self.notices.refused(reason, &text);
        let reason = reason.word().to_owned();
        Reply::Refused(Refused { reason, text })
    }

    /// Writes what people show anew, but for those who are shut out.
    fn certify(&self) -> anyhow::Result<()> {
        let Site { folder, people, .. } = &self.site;
        let revoked = shut_out(folder, &self.own)?;
        let is_let_in = |name: &&PersonName| {
            let person = Identity::Person(Some((*name).clone()));
            person.is_shut_out(&revoked).is_none()
        };
        let people: Vec<_> = people.iter().filter(is_let_in).cloned().collect();
        certify_people(folder, &self.authority, &people)
    }

    /// Whether the run or fleet has not been started again meanwhile, with another authority. Reads a file.
    fn is_present(&self) -> bool {
        let Some(Enrolling { listing, .. }) = &self.enrolling else {
            return true;
        };
        let own = self.authority.certificate();
        listed(listing).is_ok_and(|listed| listed[0].certificate == own)
    }

    /// Certifies people if that is due, or was tried in vain; an authority beside this one may have done it by now.
    fn certify_if_due(&self, failed: bool) -> anyhow::Result<()> {
        match self.is_present() && (failed || are_due(&self.site.folder, &self.own)) {
            true => self.certify(),
            false => Ok(()),
        }
    }

    /// Does that from time to time.
    async fn keep_people(self: Arc<Self>) -> Infallible {
        let life = Duration::from_secs(self.authority.life_s().into());
        let look = (life / 12).min(LOOK_PAUSE_MAX);
        let mut pause = look;
        let mut failed = WRITE_PAUSE;
        loop {
            sleep(pause).await;
            let (issuing, has_failed) = (self.clone(), failed > WRITE_PAUSE);
            let certified = spawn_blocking(move || issuing.certify_if_due(has_failed));
            pause = match certified
                .await
                .unwrap_or_else(|panicked| Err(panicked.into()))
            {
                Ok(()) => {
                    failed = WRITE_PAUSE;
                    look
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

/// A reply as it is sent.
fn written<T: Serialize>(reply: &Reply<T>) -> serde_json::Result<String> {
    if let Reply::Failed(why) = reply {
        tradewind_process::complain!("nothing was issued: {why}");
    }
    serde_json::to_string(reply)
}
