//! What a machine can keep of the house rules.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests lies in the workspace")
}

/// Rust files below a folder, without generated ones.
fn sources(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "gen") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    assert!(!found.is_empty(), "no sources in {folder}");
    found
}

#[test]
fn the_readme_has_every_key() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let table = tradewind_common::config::keys::markdown();
    assert!(
        readme.contains(&format!("<!-- keys: begin -->\n{table}<!-- keys: end -->")),
        "the table in README.md is old; put the output of `tradewind config --keys` there"
    );
}

/// Whether a line has `word`, and not as the end of a longer one.
fn names(line: &str, word: &str) -> bool {
    let mut found = line.match_indices(word);
    found.any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
}

#[test]
fn cores_know_no_clock_no_runtime_and_no_network() {
    let forbidden = [
        "std::time",
        "std::net::Tcp",
        "std::net::Udp",
        "std::fs",
        "tokio",
        "tonic",
        "tch::",
        "rand::",
        "std::thread",
    ];
    for folder in ["common/src", "server/src/core", "worker/client/src/core"] {
        for path in sources(folder) {
            let text = fs::read_to_string(&path).unwrap();
            let code = text
                .lines()
                .filter(|line| !line.trim_start().starts_with("//"));
            for (number, line) in code.enumerate() {
                let word = forbidden.iter().find(|word| names(line, word));
                assert!(
                    word.is_none(),
                    "{}: {:?} in {line:?} ({number})",
                    path.display(),
                    word
                );
            }
        }
    }
}

#[test]
fn only_the_worker_links_libtorch() {
    for package in ["common", "proto", "server", "deploy"] {
        let manifest = fs::read_to_string(root().join(package).join("Cargo.toml")).unwrap();
        for forbidden in ["tch", "tradewind-worker"] {
            assert!(
                !manifest.contains(&format!("\n{forbidden}.")),
                "{package} depends on {forbidden}"
            );
        }
    }
}

#[test]
fn shipped_configurations_are_right() {
    let mut seen = 0;
    for entry in fs::read_dir(root().join("deploy/configs")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let name = path.display().to_string();
        let config =
            tradewind_common::config::Config::parse(&text, &name, path.parent().unwrap(), &[]);
        config.unwrap_or_else(|error| panic!("{error}"));
        seen += 1;
    }
    assert!(seen > 0);
}

#[test]
fn links_in_the_documents_lead_somewhere() {
    let documents = [
        "README.md",
        "ARCHITECTURE.md",
        "docs/experiments.md",
        "docs/run-folder.md",
        "docs/protocol.md",
        "docs/bench.md",
        "docs/performance.md",
        "docs/gpu.md",
    ];
    for document in documents {
        let path = root().join(document);
        let text = fs::read_to_string(&path).unwrap();
        for link in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            if !link.starts_with("http") && !link.starts_with('#') {
                let target = path.parent().unwrap().join(link);
                assert!(target.exists(), "{document}: {link} leads nowhere");
            }
        }
    }
}
