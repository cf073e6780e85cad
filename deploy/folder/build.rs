//! What `tradewind --version` and every `summary.json` say: a release names the commit it was built from.
//! Other builds do not, or they would be built anew after each commit.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let mut version = env::var("CARGO_PKG_VERSION").expect("cargo sets it");
    if env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
            println!("cargo:rerun-if-changed={log}");
        }
        // What was changed since that commit is "-dirty".
        for sources in [
            "..",
            "../../common",
            "../../proto",
            "../../server",
            "../../worker",
        ] {
            println!("cargo:rerun-if-changed={sources}");
        }
        if let Some(commit) = git(&["describe", "--always", "--dirty", "--exclude=*"]) {
            version += &format!(" ({commit})");
        }
    }
    println!("cargo:rustc-env=TRADEWIND_VERSION={version}");
}

/// What git says; nothing where it is missing, or this is no clone.
fn git(arguments: &[&str]) -> Option<String> {
    let said = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(said.stdout).ok()?;
    said.status.success().then(|| text.trim().to_owned())
}
