//! What is said to the authority of certificates, what it answers, and certificates that are shown.

use std::fs;

use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tradewind_common::identity::Identity;
use tradewind_fuzz::target;
use tradewind_launch::slurm::enrolment::{Reply, Request, TaskName, TaskSecrets, Tasked, answer};
use tradewind_proto::authority::{Authority, Key};
use tradewind_proto::tls::Tls;

const SECRET: &str = "0123456789abcdef";

fn rank() -> Identity {
    Identity::of_uri("tradewind:rank/climate/3").expect("a rank")
}

fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .map(|one| one.expect("a certificate"))
        .collect()
}

#[test]
fn who_does_not_show_the_secret_is_issued_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let own = folder.path().join("slurm/enrolment/7-0");
    fs::create_dir_all(&own).expect("a folder");
    let authority = Authority::new("climate").expect("an authority");
    let judge =
        Tls::from_pem(&authority.pass(&Identity::Server(None)).expect("a pass")).expect("its own");
    let key = Key::new().expect("a key");
    let name = |task| TaskName {
        job: 7,
        restarts: 0,
        task,
    };
    let tasks = [
        (name(Tasked::Rank { group: 3, rank: 0 }), rank()),
        (name(Tasked::Server(1)), Identity::Server(None)),
    ];
    let line = |secret: &str, task: TaskName| {
        let request = Request {
            task,
            secret: secret.into(),
            public: key.public().to_vec(),
        };
        serde_json::to_string(&request).expect("JSON") + "\n"
    };
    let examples = [
        line(SECRET, tasks[0].0),
        line(SECRET, tasks[1].0),
        line("guessed", tasks[0].0),
    ];
    let files = ["group-3-rank-0", "server-1"];
    let secrets = TaskSecrets::of(folder.path());
    let unused = || {
        for (file, (_, identity)) in files.iter().zip(&tasks) {
            let identity = identity.uri();
            let text = format!(r#"{{"identity":"{identity}","secret":"{SECRET}","made":1e12}}"#);
            fs::write(own.join(file), text).expect("a secret");
            // There is none before its first use.
            let _ = fs::remove_file(own.join(format!("{file}.key")));
        }
    };
    unused();
    let issued = examples
        .iter()
        .map(|line| matches!(answer(&authority, &secrets, line, |_| {}), Reply::Issued(_)));
    assert!(issued.eq([true, true, false]));
    target!(examples).each(|bytes, _| {
        unused();
        let line = String::from_utf8_lossy(bytes);
        let mut refused = None;
        let first = answer(&authority, &secrets, &line, |no_good| {
            refused = Some(no_good.clone());
        });
        assert_eq!(matches!(first, Reply::Refused(_)), refused.is_some());
        let Reply::Issued(pem) = first else {
            return;
        };
        let mut request: Request = serde_json::from_str(&line).expect("it was understood");
        assert_eq!(request.secret, SECRET);
        let (_, identity) = { &tasks }
            .iter()
            .find(|(task, _)| *task == request.task)
            .expect("a task that has a secret");
        // A key that is none makes a certificate that nobody can show.
        if let Ok(judged) = judge.judge(Some(&certificates(&pem)[..1])) {
            assert_eq!(judged, *identity);
        }
        // It is good for this key alone.
        request.public.push(0);
        let stolen = serde_json::to_string(&request).expect("JSON");
        let stolen = answer(&authority, &secrets, &stolen, |_| {});
        let Reply::Refused(refused) = stolen else {
            panic!("{stolen:?}");
        };
        assert_eq!(refused.reason, "used-secret");
    });
}

#[test]
fn a_certificate_that_was_changed_is_nobodys() {
    let authority = Authority::new("climate").expect("an authority");
    let judge =
        Tls::from_pem(&authority.pass(&Identity::Server(None)).expect("a pass")).expect("its own");
    let of = |identity: &Identity| {
        let pass = authority.pass(identity).expect("a pass");
        certificates(&pass).swap_remove(0).to_vec()
    };
    let own = [
        of(&rank()),
        of(&Identity::Server(None)),
        of(&Identity::Person(None)),
    ];
    target!(own.clone()).each(|bytes, _| {
        let shown = [CertificateDer::from(bytes)];
        let judged = judge.judge(Some(&shown));
        assert_eq!(
            judged.is_ok(),
            own.iter().any(|known| known == bytes),
            "{judged:?}"
        );
    });
}

#[test]
fn what_is_issued_may_be_anything() {
    let authority = Authority::new("climate").expect("an authority");
    let pass = authority.pass(&rank()).expect("a pass");
    let uris = [
        "tradewind:server",
        "tradewind:rank/climate/3",
        "tradewind:person",
    ];
    let examples = [pass.into_bytes()].into_iter().chain(uris.map(Vec::from));
    target!(examples).each(|bytes, _| {
        let text = String::from_utf8_lossy(bytes);
        if let Err(error) = Tls::from_pem(&text) {
            assert!(!error.to_string().is_empty());
        }
        if let Some(identity) = Identity::of_uri(&text) {
            assert_eq!(Identity::of_uri(&identity.uri()), Some(identity));
        }
    });
}
