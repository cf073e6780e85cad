//! What `tradewind --version` and every `summary.json` say: a release names the commit it was built from.
//! Other builds do not, or they would be built anew after each commit. And the libtorch that the worker beside it is
//! built for.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Where libtorch's headers say its version: since 2.9, and before.
const VERSION_HEADERS: [&str; 2] = [
    "torch/headeronly/version.h",
    "torch/csrc/api/include/torch/version.h",
];

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
    let libtorch = libtorch().map_or_else(String::new, |of| format!(", for libtorch {of}"));
    println!("cargo:rustc-env=TRADEWIND_VERSION_AND_LIBTORCH={version}{libtorch}");
}

/// The version of the libtorch that worker/build.rs finds; nothing where there is none, as for servers alone.
fn libtorch() -> Option<String> {
    let set = |name: &str| {
        println!("cargo:rerun-if-env-changed={name}");
        env::var(name).ok()
    };
    let (root, include) = (set("LIBTORCH"), set("LIBTORCH_INCLUDE"));
    let in_environment = set("VIRTUAL_ENV").is_some();
    if set("LIBTORCH_USE_PYTORCH").is_some() {
        let python = if in_environment { "python" } else { "python3" };
        let said = Command::new(python)
            .args(["-c", "import torch; print(torch.__version__)"])
            .output()
            .ok()?;
        let version = String::from_utf8(said.stdout).ok()?;
        return said.status.success().then(|| version.trim().to_owned());
    }
    let folder = PathBuf::from(include.or(root).unwrap_or_else(|| "/usr".into()));
    VERSION_HEADERS.iter().find_map(|header| {
        let header = folder.join("include").join(header);
        let text = fs::read_to_string(&header).ok()?;
        println!("cargo:rerun-if-changed={}", header.display());
        // The text may stand on the next line.
        let (_, defined) = text.split_once("#define TORCH_VERSION ")?;
        Some(defined.split('"').nth(1)?.to_owned())
    })
}

/// What git says; nothing where it is missing, or this is no clone.
fn git(arguments: &[&str]) -> Option<String> {
    let said = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(said.stdout).ok()?;
    said.status.success().then(|| text.trim().to_owned())
}
