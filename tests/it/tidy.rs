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
fn the_docs_have_every_key() {
    let page = fs::read_to_string(root().join("docs/configuration.md")).unwrap();
    assert!(
        page == tradewind_config::page::markdown(),
        "docs/configuration.md is old: target/debug/tradewind config --keys > docs/configuration.md"
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
    for folder in [
        "common/src",
        "common/config/src",
        "server/core/src",
        "worker/client/src/core",
    ] {
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

/// A source up to its tests, which stand last, without comments; each line with its number.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let code = text.lines().enumerate();
    let code = code.take_while(|(_, line)| !line.starts_with("mod tests {"));
    code.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// Sources of what runs while others train, without tests and without measurements.
fn products() -> Vec<PathBuf> {
    let folders = [
        "common/src",
        "common/config/src",
        "server/core/src",
        "server/src",
        "worker/src",
        "worker/client/src",
        "worker/data/src",
        "deploy/src",
        "deploy/doctor/src",
        "deploy/folder/src",
        "deploy/lab/src",
        "deploy/launch/src",
        "deploy/report/src",
        "deploy/watch/src",
    ];
    let sources = folders.into_iter().flat_map(sources);
    let apart = ["tests", "testing.rs", "tests.rs", "fixture.rs"];
    let is_product = |path: &PathBuf| {
        let relative = path.strip_prefix(root()).unwrap();
        !relative
            .iter()
            .any(|part| apart.iter().any(|name| part == *name))
    };
    sources.filter(is_product).collect()
}

/// A task that panics would be missed by nobody. Those that may end alone say why.
#[test]
fn tasks_are_supervised() {
    let starts = [
        "tokio::spawn(",
        "thread::Builder::new()",
        "thread::spawn(",
        "runtime.spawn(",
    ];
    for path in products() {
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in code(&text) {
            let before = &lines[number.saturating_sub(2)..number];
            let told = before
                .iter()
                .any(|line| line.contains("// Not supervised: "));
            let watched = before.iter().any(|line| line.contains("watched("));
            assert!(
                told || watched || !starts.iter().any(|start| line.contains(start)),
                "{}:{}: start it with tradewind_process::supervise, or say why it is \"Not supervised: …\"",
                path.display(),
                number + 1
            );
        }
    }
}

/// The macros of std panic where nothing can be written: a full disk would end what trains.
#[test]
fn nothing_is_printed_past_the_log() {
    let measuring = ["deploy/bench/src", "deploy/chaos/src"].into_iter();
    for path in products().into_iter().chain(measuring.flat_map(sources)) {
        let forbidden = ["println!(", "print!(", "eprintln!(", "eprint!(", "dbg!("];
        let text = fs::read_to_string(&path).unwrap();
        for (number, line) in code(&text) {
            assert!(
                !forbidden.iter().any(|name| names(line, name)),
                "{}:{}: print with tradewind_process::log, or complain!",
                path.display(),
                number + 1
            );
        }
    }
}

/// Built as programs are: a number that runs over panics, and does not wrap.
#[test]
fn numbers_are_checked() {
    let counted = std::panic::catch_unwind(|| std::hint::black_box(u8::MAX) + 1);
    assert!(counted.is_err(), "overflow-checks are off in this profile");
    let profiles = [
        (".cargo/config.toml", "[profile.dev]"),
        ("Cargo.toml", "[profile.release]"),
    ];
    for (file, profile) in profiles {
        let file = fs::read_to_string(root().join(file)).unwrap();
        let section = file.split(profile).nth(1).expect("a profile");
        let section = section.split("\n[").next().expect("its keys");
        assert!(section.contains("overflow-checks = true"), "{profile}");
    }
}

#[test]
fn shipped_configurations_are_right() {
    let mut seen = 0;
    for entry in fs::read_dir(root().join("deploy/configs")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let name = path.display().to_string();
        let config = tradewind_config::Config::parse(&text, &name, path.parent().unwrap(), &[]);
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
    let folders = ["", "docs", "docs/decisions"].map(|folder| root().join(folder));
    let entries = folders
        .iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap());
    let paths = entries.map(|entry| entry.unwrap().path());
    let pages = paths.filter(|path| path.extension().is_some_and(|of| of == "md"));
    pages.collect()
}

/// Files that are named in passing, from the root of the tree.
#[test]
fn files_that_the_documents_name_are_there() {
    let folders = [
        "server", "worker", "common", "proto", "deploy", "tests", "docs", "examples",
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
