//! What `make release SIGN_KEY=…` signs, and who may rely on it: `deploy/release/sign.sh` with keys of the test.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output};

use tradewind_tests::cluster::root;

const ARCHIVE: &str = "tradewind.tar.gz";
const WHO: &str = "releases@example.org";

/// Without a terminal, where a key that is locked would be asked for its passphrase.
fn sign(folder: &Path, key: Option<&str>, words: &[&str]) -> Output {
    let mut command = Command::new("setsid");
    command
        .arg("--wait")
        .arg(root().join("deploy/release/sign.sh"))
        .args(words)
        .current_dir(folder)
        .env_remove("SIGN_KEY")
        .env_remove("SSH_ASKPASS")
        .env_remove("SSH_AUTH_SOCK");
    if let Some(key) = key {
        command.env("SIGN_KEY", key);
    }
    command.output().expect("the script starts")
}

fn make_key(folder: &Path, name: &str, passphrase: &str) {
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", passphrase, "-f", name])
        .current_dir(folder)
        .status();
    assert!(made.expect("ssh-keygen starts").success());
}

/// As the page on installing says it.
fn verifies(folder: &Path, namespace: &str) -> bool {
    let signature = format!("{ARCHIVE}.sig");
    let verified = Command::new("ssh-keygen")
        .args(["-Y", "verify", "-f", "allowed_signers", "-I", WHO])
        .args(["-n", namespace, "-s", &signature])
        .stdin(File::open(folder.join(ARCHIVE)).unwrap())
        .current_dir(folder)
        .output();
    verified.expect("ssh-keygen starts").status.success()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_release_is_signed_by_its_key_alone() {
    // Asked for its usage it fails; where it is missing it does not start.
    if Command::new("ssh-keygen").arg("-?").output().is_err() {
        eprintln!("skipped: there is no ssh-keygen here");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let archive = path.join(ARCHIVE);
    make_key(path, "key", "");
    make_key(path, "other", "");
    make_key(path, "locked", "a passphrase");
    fs::write(path.join("garbage"), "no key\n").unwrap();
    let allow = |name: &str| {
        let key = fs::read_to_string(path.join(name)).unwrap();
        let line = format!("{WHO} namespaces=\"tradewind-release\" {key}");
        fs::write(path.join("allowed_signers"), line).unwrap();
    };

    // Without a key it is not, in a line.
    let unsigned = sign(path, None, &["sign", ARCHIVE]);
    let said = text(&unsigned.stdout);
    assert!(unsigned.status.success(), "{unsigned:?}");
    assert!(
        said.contains("not signed") && said.contains("SIGN_KEY=") && said.lines().count() == 1,
        "{said}"
    );
    assert!(!path.join(format!("{ARCHIVE}.sig")).exists());

    // A key that cannot sign is told of before there is anything to sign.
    for (key, want) in [
        ("missing", "there is no file missing"),
        ("garbage", "garbage is no key that can sign"),
        ("locked", "locked is no key that can sign"),
    ] {
        let refused = sign(path, Some(key), &["check"]);
        let said = text(&refused.stderr);
        assert!(
            !refused.status.success() && said.contains(want),
            "{key}: {said}"
        );
    }
    assert!(sign(path, Some("key"), &["check"]).status.success());
    assert!(sign(path, None, &["check"]).status.success());

    // Twice: the signature of a release before is not left there.
    for byte in [6, 7] {
        fs::write(&archive, [byte; 10_000]).unwrap();
        let signed = sign(path, Some("key"), &["sign", ARCHIVE]);
        assert!(signed.status.success(), "{}", text(&signed.stderr));
    }
    allow("key.pub");
    assert!(verifies(path, "tradewind-release"));
    assert!(
        !verifies(path, "file"),
        "it is no signature of files at large"
    );
    allow("other.pub");
    assert!(
        !verifies(path, "tradewind-release"),
        "another key is allowed"
    );
    allow("key.pub");
    fs::write(&archive, [7; 10_001]).unwrap();
    assert!(!verifies(path, "tradewind-release"), "it was changed");
}
