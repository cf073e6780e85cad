//! The authority of a run or a fleet under Slurm, in tasks of its servers. That of server 0 founds it at each start of
//! the job; those of the first servers on the next nodes ([`Keepers`]) have its key handed on over mutual TLS, for the
//! certificates that they have enrolled for, and issue certificates beside it. So the authority outlives the node of server 0.
//! The key is in the memory of these tasks, and never in a folder.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tradewind_common::ServerId;
use tradewind_folder::run::make_folder;
use tradewind_process::whole;
use tradewind_proto::authorities::{KEEPERS, Keepers, Refused, Whereabouts, ask, file, listed};
use tradewind_proto::authority::{Authority, HandedOn};
use tradewind_proto::connector::Connector;
use tradewind_proto::refusal::Reason;
use tradewind_proto::renewal::Succession;
use tradewind_proto::tls::Tls;

use super::enrolment;
use super::task_secrets::{self, TaskSecrets};
use crate::issuing::{Enrol, Enrolling, Issuing, Site};
use crate::people::certify_people;

/// In the folder of a run or a fleet: where its authorities are. No secret.
const LISTING: &str = "slurm/authorities";

/// Pause after the first try to take the key over, and the longest one: each is twice as long as the one before.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// After so many tries in vain it is told, once: some seconds after the first.
const TOLD_AFTER: u32 = 5;

/// The folder where the authorities of the run or fleet in this folder are listed.
pub(super) fn listing(folder: &Path) -> PathBuf {
    folder.join(LISTING)
}

/// Removes where authorities of an earlier start were. The folder stays: others may have files of it open, which a file
/// system over a network keeps there under other names.
pub(super) fn forget(folder: &Path) -> anyhow::Result<()> {
    for keeper in 0..KEEPERS {
        let file = file(&listing(folder), keeper);
        match fs::remove_file(&file) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {}", file.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Becomes the authority of the run or fleet of this name, if TLS is spoken there: until this process ends. What a
/// person shows is then in the folder. Must be called in a runtime.
pub(super) async fn found(
    site: &Site,
    keepers: Keepers,
    (of, certificate_s): (&str, u32),
) -> anyhow::Result<Option<Arc<Authority>>> {
    let folder = &site.folder;
    if !task_secrets::are_wanted(folder)? {
        return Ok(None);
    }
    forget(folder)?;
    let listing = listing(folder);
    make_folder(&listing)?;
    let authority = Arc::new(Authority::lasting(of, certificate_s)?);
    let address = begin(&authority, site, keepers, ServerId(0)).await?;
    certify_people(folder, &authority, &site.people)?;
    list(&authority, site, 0, &address)?;
    Ok(Some(authority))
}

/// Answers in the task of this server from now on; where.
async fn begin(
    authority: &Arc<Authority>,
    site: &Site,
    keepers: Keepers,
    server: ServerId,
) -> anyhow::Result<String> {
    let listing = absolute(listing(&site.folder))?;
    let line = listing.to_str().filter(|line| !line.contains(['\n', '\r']));
    let line = line.with_context(|| {
        format!(
            "{} cannot be told to others: its name is no line of UTF-8",
            listing.display()
        )
    })?;
    authority.renews_at(line.to_owned());
    let secrets = TaskSecrets::of(&site.folder);
    let enrol: Enrol = Box::new(move |authority, notices, line| {
        enrolment::answer(authority, &secrets, line, |no_good| {
            notices.refused(no_good.reason, &no_good.text);
        })
    });
    let enrolling = Enrolling {
        server,
        keepers,
        listing,
        enrol,
    };
    Issuing::begin(authority, site, Some(enrolling)).await
}

/// Tells others where the keeper of this number answers.
fn list(authority: &Authority, site: &Site, keeper: u32, address: &str) -> anyhow::Result<()> {
    let there = Whereabouts {
        address: address.to_owned(),
        certificate: authority.certificate(),
    };
    let file = file(&listing(&site.folder), keeper);
    // On the disk: it is read when this node has died. Who could write to it could have tasks tell him their secrets.
    whole::replace_secret(&file, serde_json::to_string(&there)?)?;
    let mode = Permissions::from_mode(0o644);
    fs::set_permissions(&file, mode)
        .with_context(|| format!("cannot let others read {}", file.display()))
}

/// Whether asking again would come to the same: not where the certificate has expired, or the clock is wrong.
fn is_final(refused: &Refused) -> bool {
    [Reason::WrongRole, Reason::RevokedCertificate]
        .iter()
        .any(|reason| refused.reason == reason.word())
}

/// The task of a server that is to be an authority beside those there are, and how far it has come.
#[derive(Debug)]
pub(super) struct Successor {
    site: Site,
    keepers: Keepers,
    server: ServerId,
    /// What it has enrolled for.
    shown: Tls,
    authority: Option<Arc<Authority>>,
    /// Where it answers.
    address: Option<String>,
}

impl Successor {
    /// Of the task of this server, which has this pass.
    pub(super) fn new(
        site: Site,
        keepers: Keepers,
        server: ServerId,
        pass: &str,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            site,
            keepers,
            server,
            shown: Tls::from_pem(pass)?,
            authority: None,
            address: None,
        })
    }

    /// Becomes an authority, however long it takes; then it is one until this process ends. Not if the key is refused,
    /// which is returned. Must be called in a runtime.
    pub(super) async fn succeed(mut self) -> Result<(), Refused> {
        let mut pause = PAUSE_MIN;
        let mut failed = 0;
        loop {
            let why = match self.advance().await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(refused)) if is_final(&refused) => {
                    tradewind_process::complain!(
                        "server {} does not keep the authority's key: {refused}",
                        self.server
                    );
                    return Err(refused);
                }
                Ok(Err(refused)) => anyhow::anyhow!(refused.to_string()),
                Err(error) => error,
            };
            failed += 1;
            if failed == TOLD_AFTER {
                tradewind_process::complain!(
                    "server {} does not keep the authority's key yet: {why:#}; it is tried again",
                    self.server
                );
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Comes as far as it can now.
    async fn advance(&mut self) -> anyhow::Result<Result<(), Refused>> {
        let authority = match &self.authority {
            Some(authority) => authority.clone(),
            None => match self.take_over().await? {
                Ok(authority) => self.authority.insert(Arc::new(authority)).clone(),
                Err(refused) => return Ok(Err(refused)),
            },
        };
        let address = match &self.address {
            Some(address) => address.clone(),
            None => {
                let (site, keepers) = (&self.site, self.keepers);
                let address = begin(&authority, site, keepers, self.server).await?;
                self.address.insert(address).clone()
            }
        };
        let number = self.keepers.number(self.server);
        let number = number.context("no keeper has the key handed on")?;
        let site = self.site.clone();
        let listed = spawn_blocking(move || list(&authority, &site, number, &address));
        listed.await??;
        Ok(Ok(()))
    }

    /// Asks those that have the key.
    async fn take_over(&self) -> anyhow::Result<Result<Authority, Refused>> {
        let listing = listing(&self.site.folder);
        let listed = spawn_blocking(move || listed(&listing)).await??;
        let addresses: Vec<_> = listed.into_iter().map(|there| there.address).collect();
        let question = Succession::HandOn;
        let asked =
            ask::<HandedOn>(&Connector::new(Some(&self.shown)), &addresses, &question).await;
        let handed = match asked? {
            Ok(handed) => handed,
            Err(refused) => return Ok(Err(refused)),
        };
        Ok(Ok(Authority::taken_over(handed, &self.shown)?))
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::net::TcpStream;
    use tokio::runtime::{Builder, Runtime};
    use tokio::sync::mpsc;
    use tradewind_common::identity::Identity;
    use tradewind_common::run_files;
    use tradewind_folder::run::RunFolder;
    use tradewind_folder::runtime::one_thread;
    use tradewind_proto::authority::LIFE_S;
    use tradewind_proto::renewal::{Attempt, Renewing};
    use tradewind_server::store::Store;

    use super::*;
    use crate::slurm::enrol::{Applicant, prepare};
    use crate::slurm::start::Start;
    use crate::slurm::task_secrets::{TaskName, Tasked};

    /// A run whose authority is founded in a runtime of its own, as if on a node of its own.
    struct Run {
        _within: tempfile::TempDir,
        folder: RunFolder,
        node: Runtime,
        authority: Arc<Authority>,
    }

    impl Run {
        fn new(life_s: u32) -> Self {
            let within = tempfile::tempdir().unwrap();
            let folder = RunFolder::create(&within.path().join("run")).unwrap();
            fs::create_dir_all(folder.file("slurm")).unwrap();
            prepare(&folder, true).unwrap();
            let node = Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .unwrap();
            let site = site(folder.path());
            let founded = node.block_on(found(&site, ONE_A_NODE, ("climate", life_s)));
            let authority = founded.unwrap().expect("TLS is spoken");
            Self {
                _within: within,
                folder,
                node,
                authority,
            }
        }

        fn path(&self) -> &Path {
            self.folder.path()
        }

        fn listed(&self) -> Vec<Whereabouts> {
            listed(&listing(self.path())).unwrap()
        }

        /// A task that has a secret.
        fn applicant(&self, task: Tasked, identity: &Identity) -> Applicant {
            let start = Start {
                job: 7,
                restarts: 0,
            };
            let task = TaskName::new(start, task);
            task_secrets::make(self.path(), task, identity).unwrap();
            Applicant::new(self.path(), task).unwrap().unwrap()
        }

        /// What server 1 has enrolled for, to succeed.
        async fn successor(&self) -> Successor {
            let mut task = self.applicant(Tasked::Server(1), &server(Some(1)));
            let pass = task.pass().await.unwrap();
            Successor::new(site(self.path()), ONE_A_NODE, ServerId(1), &pass).unwrap()
        }

        /// The founder's node loses its power; its folder stays.
        async fn loses_its_first_node(self) -> (tempfile::TempDir, RunFolder) {
            let there: SocketAddr = self.listed().remove(0).address.parse().unwrap();
            self.node.shutdown_background();
            until(async || TcpStream::connect(there).await.is_err()).await;
            (self._within, self.folder)
        }
    }

    /// Waits for half a minute at most.
    async fn until(is_so: impl AsyncFn() -> bool) {
        for _ in 0..1500 {
            if is_so().await {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
        panic!("it does not come to that");
    }

    fn site(folder: &Path) -> Site {
        Site {
            folder: folder.to_owned(),
            host: "127.0.0.1".into(),
            people: Vec::new(),
        }
    }

    fn server(number: Option<u32>) -> Identity {
        Identity::Server(number.map(ServerId))
    }

    fn rank() -> Identity {
        Identity::of_uri("tradewind:rank/climate/1/0").unwrap()
    }

    const ONE_A_NODE: Keepers = Keepers {
        servers_per_node: 1,
    };

    const RANK: Tasked = Tasked::Rank { group: 1, rank: 0 };

    /// All files of a folder in which there is a private key.
    fn with_keys(folder: &Path) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                found.extend(with_keys(&path));
            } else if fs::read_to_string(&path).is_ok_and(|text| text.contains("PRIVATE KEY")) {
                found.push(path);
            }
        }
        found
    }

    /// How it comes out when what this pass shows is renewed.
    async fn renew(pass: &str) -> Attempt {
        let renewing = Renewing::of(&Tls::from_pem(pass).unwrap()).expect("it is told where");
        let (told, mut attempts) = mpsc::unbounded_channel();
        let keeping = renewing.keep(move |attempt| {
            let _ = told.send(attempt);
        });
        tokio::select! {
            never = keeping => match never {},
            attempt = attempts.recv() => attempt.unwrap(),
        }
    }

    #[test]
    fn the_authority_outlives_the_node_of_its_founder() {
        let run = Run::new(LIFE_S);
        one_thread().unwrap().block_on(async {
            // Two thirds of its life are over; whoever issued it knew of no successor.
            let due = run.authority.pass_for(&rank(), -7200..600).unwrap();
            let mut late = run.applicant(RANK, &rank());
            let persons = fs::read(run.folder.file(run_files::PERSON)).unwrap();

            run.successor().await.succeed().await.unwrap();
            let there = run.listed();
            assert_eq!(there.len(), 2);
            assert_eq!(there[0].certificate, there[1].certificate);
            let own = run.folder.file(run_files::PERSON);
            assert_eq!(fs::read(&own).unwrap(), persons);
            assert_eq!(with_keys(run.path()), [own]);

            let founders = run.authority.pass(&server(Some(0))).unwrap();
            let (_within, _folder) = run.loses_its_first_node().await;
            let pass = late.pass().await.unwrap();
            // Who knows the founder's certificate alone takes it for one of its own.
            assert_eq!(Tls::from_pem(&founders).unwrap().replace(&pass), Ok(()));
            let renewed = renew(&due).await;
            assert!(matches!(renewed, Attempt::Renewed), "{renewed:?}");
        });
    }

    #[test]
    fn a_successor_knows_what_the_founder_has_certified() {
        let run = Run::new(LIFE_S);
        one_thread().unwrap().block_on(async {
            let mut own = run.applicant(RANK, &rank());
            own.pass().await.unwrap();
            run.successor().await.succeed().await.unwrap();
            let secret = task_secrets::of_task(run.path(), own.task()).unwrap();
            let thief = enrolment::Request {
                task: own.task(),
                secret: secret.unwrap(),
                public: vec![4; 65],
            };
            let certificate = run.authority.certificate();
            let connector = Connector::without_certificate(&certificate).unwrap();
            for there in run.listed() {
                let asked = ask::<String>(&connector, &[there.address], &thief).await;
                let refused = asked.unwrap().unwrap_err();
                assert_eq!(refused.reason, "used-secret");
            }
        });
    }

    #[test]
    fn the_key_is_handed_on_to_the_first_servers_alone() {
        let run = Run::new(LIFE_S);
        revoke(&run, "tradewind:server/2");
        let pass = |identity: &Identity| run.authority.pass(identity).unwrap();
        let connector = |pass: &str| Connector::new(Some(&Tls::from_pem(pass).unwrap()));
        let other = Authority::new("climate").unwrap();
        // It knows the authority, as whoever can read the folder does.
        let foreign = other.pass(&server(Some(1))).unwrap();
        let foreign = foreign.replace(&other.certificate(), &run.authority.certificate());
        let cases = [
            (connector(&pass(&rank())), Reason::WrongRole),
            (connector(&pass(&Identity::Person(None))), Reason::WrongRole),
            (connector(&pass(&server(None))), Reason::WrongRole),
            // It founds the authority, and need not ask.
            (connector(&pass(&server(Some(0)))), Reason::WrongRole),
            (connector(&pass(&server(Some(KEEPERS)))), Reason::WrongRole),
            (
                connector(&pass(&server(Some(2)))),
                Reason::RevokedCertificate,
            ),
            (connector(&foreign), Reason::OtherAuthority),
            (
                Connector::without_certificate(&run.authority.certificate()).unwrap(),
                Reason::NoCertificate,
            ),
        ];
        one_thread().unwrap().block_on(async {
            let addresses = [run.listed().remove(0).address];
            for (connector, reason) in cases {
                let asked = ask::<HandedOn>(&connector, &addresses, &Succession::HandOn).await;
                let refused = asked.unwrap().unwrap_err();
                assert_eq!(refused.reason, reason.word(), "{refused}");
            }
            let shown = connector(&pass(&server(Some(1))));
            let asked = ask::<HandedOn>(&shown, &addresses, &Succession::HandOn).await;
            asked.unwrap().unwrap();
            // The task that is refused does not ask for ever.
            let shown = pass(&server(Some(2)));
            let revoked = Successor::new(site(run.path()), ONE_A_NODE, ServerId(2), &shown);
            let refused = revoked.unwrap().succeed().await.unwrap_err();
            assert_eq!(refused.reason, Reason::RevokedCertificate.word());
        });
        let told = async || {
            let text = fs::read_to_string(run.folder.file(run_files::EVENTS)).unwrap_or_default();
            let reasons = text.lines().filter_map(|line| {
                let line: serde_json::Value = serde_json::from_str(line).ok()?;
                Some(line["reason"].as_str()?.to_owned())
            });
            reasons.collect::<Vec<_>>()
        };
        let wanted = [
            Reason::WrongRole,
            Reason::RevokedCertificate,
            Reason::OtherAuthority,
            Reason::NoCertificate,
        ];
        // The first of each; others within a minute are counted in the next line. A thread writes them.
        one_thread().unwrap().block_on(async {
            until(async || told().await.len() >= wanted.len()).await;
            assert_eq!(told().await, wanted.map(Reason::word));
        });
    }

    /// As the coordinator writes it down.
    fn revoke(run: &Run, identity: &str) {
        let pass = run.authority.pass(&server(None)).unwrap();
        let authority = blake3::hash(Tls::from_pem(&pass).unwrap().authority());
        let state = serde_json::json!({
            "servers": {},
            "runs": {},
            "resuming": {},
            "passed": {"generation": 0, "incarnation": 0},
            "revoked": {"authority": authority.to_hex().as_str(), "identities": [identity]},
        });
        let claimed = Store::claim(run.path()).unwrap();
        claimed.store.write(state.to_string().as_bytes()).unwrap();
    }

    #[test]
    fn a_successor_that_finds_no_authority_tries_again() {
        let run = Run::new(LIFE_S);
        one_thread().unwrap().block_on(async {
            let successor = run.successor().await;
            let (own, hidden) = (file(&listing(run.path()), 0), run.path().join("hidden"));
            fs::rename(&own, &hidden).unwrap();
            let shown = async {
                sleep(PAUSE_MIN / 2).await;
                fs::rename(&hidden, &own).unwrap();
            };
            let (succeeded, ()) = tokio::join!(successor.succeed(), shown);
            succeeded.unwrap();
            assert_eq!(run.listed().len(), 2);
        });
    }

    #[test]
    fn what_people_show_is_renewed_by_a_successor_but_not_that_of_a_later_start() {
        // Which makes the pause between two looks a second.
        let run = Run::new(12);
        let own = run.folder.file(run_files::PERSON);
        one_thread().unwrap().block_on(async {
            run.successor().await.succeed().await.unwrap();
            let authority = run.authority.clone();
            let (_within, folder) = run.loses_its_first_node().await;
            let person = Identity::Person(None);
            let due = authority.pass_for(&person, -7200..600).unwrap();
            fs::write(&own, &due).unwrap();
            until(async || fs::read_to_string(&own).unwrap() != due).await;
            let later = Authority::new("climate").unwrap();
            let due = later.pass_for(&person, -7200..600).unwrap();
            list(&later, &site(folder.path()), 0, "127.0.0.1:1").unwrap();
            // In one instant, as a founder writes it.
            whole::write_secret(&own, &due).unwrap();
            sleep(Duration::from_millis(2500)).await;
            assert_eq!(fs::read_to_string(&own).unwrap(), due);
        });
    }
}
