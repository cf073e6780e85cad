//! What a machine can keep of the house rules.

use std::fs;
use std::path::PathBuf;

use tradewind_tests::cluster::root;

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

#[test]
fn the_docs_have_every_exit_status() {
    let page = fs::read_to_string(root().join("docs/run-folder.md")).unwrap();
    let table = tradewind_common::exit::Exit::markdown();
    assert!(
        page.contains(&format!(
            "<!-- statuses: begin -->\n{table}<!-- statuses: end -->"
        )),
        "the table in docs/run-folder.md is old; put the output of `tradewind config --statuses` there"
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

/// What a heading is linked by.
fn anchor(line: &str) -> Option<String> {
    let text = line.strip_prefix('#')?.trim_start_matches('#').trim();
    let kept = text.to_lowercase();
    let kept = kept
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    Some(kept.map(|c| if c == ' ' { '-' } else { c }).collect())
}

fn documents() -> Vec<PathBuf> {
    let docs = fs::read_dir(root().join("docs")).unwrap();
    let docs = docs.map(|entry| entry.unwrap().path());
    let pages = docs.filter(|path| path.extension().is_some_and(|of| of == "md"));
    let others = ["README.md", "ARCHITECTURE.md"].map(|name| root().join(name));
    pages.chain(others).collect()
}

/// Files that are named in passing, from the root of the tree.
#[test]
fn files_that_the_documents_name_are_there() {
    let folders = [
        "server", "worker", "common", "proto", "deploy", "tests", "docs",
    ];
    let mut seen = 0;
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        // Every other piece is code.
        for name in text.split('`').skip(1).step_by(2) {
            let is_path = name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
            let folder = name.split_once('/').map(|(folder, _)| folder);
            if is_path && folder.is_some_and(|folder| folders.contains(&folder)) {
                assert!(
                    root().join(name).exists(),
                    "{}: there is no {name}",
                    path.display()
                );
                seen += 1;
            }
        }
    }
    assert!(seen > 50, "{seen}");
}

#[test]
fn links_in_the_documents_lead_somewhere() {
    for path in documents() {
        let document = path.display();
        let text = fs::read_to_string(&path).unwrap();
        for link in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            if link.starts_with("http") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => path.clone(),
                file => path.parent().unwrap().join(file),
            };
            assert!(target.exists(), "{document}: {link} leads nowhere");
            if !heading.is_empty() {
                let text = fs::read_to_string(&target).unwrap();
                let mut anchors = text.lines().filter_map(anchor);
                let found = anchors.any(|anchor| anchor == heading);
                assert!(found, "{document}: {link} is no heading there");
            }
        }
    }
}
