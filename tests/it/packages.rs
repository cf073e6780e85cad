//! What may depend on what: packages of the workspace, and modules inside each of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tradewind_tests::cluster::root;

/// What cargo prints.
fn cargo(arguments: &[&str]) -> String {
    let mut cargo = Command::new(env!("CARGO"));
    let cargo = cargo.current_dir(root()).arg("--offline").args(arguments);
    let output = cargo.output().unwrap();
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{complaints}");
    String::from_utf8(output.stdout).unwrap()
}

/// A package of the workspace.
struct Package {
    folder: String,
    /// Packages of the workspace that it depends on, but for its tests.
    needs: BTreeSet<String>,
}

/// The packages of the product, by name; those of tests use what they like.
fn packages() -> BTreeMap<String, Package> {
    let metadata = cargo(&["metadata", "--no-deps", "--format-version=1"]);
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let all = metadata["packages"].as_array().unwrap().iter();
    let named = all.map(|package| {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let folder = manifest.parent().unwrap().strip_prefix(root()).unwrap();
        let needs = package["dependencies"].as_array().unwrap().iter();
        let needs = needs.filter(|need| need["kind"].is_null() && need["path"].is_string());
        let needs = needs.map(|need| need["name"].as_str().unwrap().to_owned());
        (
            package["name"].as_str().unwrap().to_owned(),
            Package {
                folder: folder.display().to_string(),
                needs: needs.collect(),
            },
        )
    });
    named
        .filter(|(_, is)| {
            !["tests", "examples"]
                .iter()
                .any(|of| is.folder.starts_with(of))
        })
        .collect()
}

/// The table of ARCHITECTURE.md is what the manifests say: a new arrow is a line there.
#[test]
fn the_table_of_packages_is_true() {
    let mut table = String::from("| package | folder | depends on |\n|---|---|---|\n");
    for (name, Package { folder, needs }) in packages() {
        let needs: Vec<&str> = needs
            .iter()
            .map(|need| need.trim_start_matches("tradewind-"))
            .collect();
        table += &format!("| `{name}` | `{folder}/` | {} |\n", needs.join(", "));
    }
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let wanted = format!("<!-- packages: begin -->\n{table}<!-- packages: end -->");
    assert!(
        page.contains(&wanted),
        "ARCHITECTURE.md should have\n{wanted}"
    );
}

/// Purity is what a package depends on. (What of std the cores must not use is in `tidy.rs`.)
#[test]
fn cores_depend_on_no_runtime_and_no_network() {
    let forbidden = ["tokio", "tonic", "hyper", "h2", "tch", "rand", "tracing"];
    for package in ["tradewind-core", "tradewind-common", "tradewind-config"] {
        let tree = cargo(&[
            "tree",
            "--package",
            package,
            "--edges=normal",
            "--prefix=none",
        ]);
        let names: BTreeSet<&str> = tree
            .lines()
            .filter_map(|line| line.split(' ').next())
            .collect();
        assert!(names.contains(package), "{tree}");
        for name in forbidden {
            assert!(!names.contains(name), "{package} depends on {name}");
        }
    }
}

/// Examples of documentation are tests where there are some; going through the other libraries would find none.
#[test]
fn examples_in_documentation_are_run() {
    let metadata = cargo(&["metadata", "--no-deps", "--format-version=1"]);
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    let targets = packages.flat_map(|package| package["targets"].as_array().unwrap());
    let libraries = targets.filter(|target| {
        let kinds = target["kind"].as_array().unwrap();
        kinds.iter().any(|kind| kind == "lib" || kind == "cdylib")
    });
    let mut run = 0;
    for library in libraries {
        let source = Path::new(library["src_path"].as_str().unwrap());
        let folder = source.parent().unwrap();
        let begins = |line: &str| {
            let line = line.trim_start();
            line.starts_with("/// ```") || line.starts_with("//! ```")
        };
        let mut files = Vec::new();
        sources(folder, &mut files);
        let examples = files
            .iter()
            .any(|file| fs::read_to_string(file).unwrap().lines().any(begins));
        assert_eq!(
            library["doctest"].as_bool().unwrap(),
            examples,
            "{}: `doctest` in its Cargo.toml should be {examples}, because there are examples or none",
            folder.display()
        );
        run += u32::from(examples);
    }
    assert!(run > 5, "{run}");
}

/// A feature that tests alone ask of a crate makes another crate of it, and of all that stands on it: what was
/// built for the tests would be built again for the programs, and for the documentation.
#[test]
fn tests_and_programs_are_built_of_the_same_crates() {
    let crates = |edges: &str| -> BTreeSet<String> {
        let edges = format!("--edges={edges}");
        let format = "--format={p} with features {f}";
        let tree = cargo(&["tree", "--workspace", &edges, "--prefix=none", format]);
        let lines = tree.lines().map(|line| line.trim_end_matches(" (*)"));
        lines.map(str::to_owned).collect()
    };
    let (programs, all) = (crates("normal,build"), crates("normal,build,dev"));
    assert!(programs.len() > 100, "{programs:?}");
    let twice: Vec<&String> = programs.difference(&all).collect();
    assert!(
        twice.is_empty(),
        "built once more with what only tests ask of them; give these features to the crates in Cargo.toml: {twice:?}"
    );
}

#[test]
fn only_the_worker_links_libtorch() {
    for package in packages().into_keys() {
        let tree = cargo(&[
            "tree",
            "--package",
            &package,
            "--edges=normal",
            "--prefix=none",
        ]);
        let links = tree.lines().any(|line| line.starts_with("tch v"));
        assert_eq!(links, package == "tradewind-worker", "{package}");
    }
}

/// Rust files below a folder, without tests and what is generated.
fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap();
        if ["tests", "testing", "fixture", "gen"].contains(&stem) {
        } else if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

/// The names behind `prefix` in a piece of code: one, or those in braces.
fn named<'a>(code: &'a str, prefix: &str) -> Vec<&'a str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut names = Vec::new();
    for (at, _) in code.match_indices(prefix) {
        if code[..at].ends_with(is_word) || code[..at].ends_with("super::") {
            continue;
        }
        let rest = &code[at + prefix.len()..];
        let listed = match rest.strip_prefix('{') {
            Some(list) => list.split('}').next().unwrap().split(',').collect(),
            None => vec![rest],
        };
        let first = |name: &'a str| name.trim().split(|c| !is_word(c)).next();
        names.extend(listed.into_iter().filter_map(first));
    }
    names
}

/// Which modules at the root of a package name which others.
fn arrows(src: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut files = Vec::new();
    sources(src, &mut files);
    let mut arrows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in files {
        let relative = file.strip_prefix(src).unwrap().with_extension("");
        let mut way: Vec<&str> = relative.iter().map(|part| part.to_str().unwrap()).collect();
        if way.last() == Some(&"mod") {
            way.pop();
        }
        let text = fs::read_to_string(&file).unwrap();
        let text = text.split("\nmod tests {").next().unwrap();
        let code = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        let code: String = code.flat_map(|line| [line, "\n"]).collect();
        let mut names = named(&code, "crate::");
        names.extend(named(&code, &"super::".repeat(way.len())));
        let names = names.into_iter().filter(|name| *name != way[0]);
        let names = names.map(str::to_owned);
        arrows.entry(way[0].to_owned()).or_default().extend(names);
    }
    let modules: BTreeSet<String> = arrows.keys().cloned().collect();
    for ends in arrows.values_mut() {
        ends.retain(|end| modules.contains(end));
    }
    arrows
}

/// A way from `from` back to itself, if there is one.
fn circle(arrows: &BTreeMap<String, BTreeSet<String>>, from: &str) -> Option<Vec<String>> {
    let mut ways = vec![vec![from.to_owned()]];
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop() {
        for next in &arrows[way.last().unwrap()] {
            let mut further = way.clone();
            further.push(next.clone());
            if next == from {
                return Some(further);
            }
            if seen.insert(next.clone()) {
                ways.push(further);
            }
        }
    }
    None
}

#[test]
fn modules_do_not_import_in_circles() {
    let mut looked_at = 0;
    for (name, package) in packages() {
        let arrows = arrows(&root().join(&package.folder).join("src"));
        looked_at += arrows.len();
        for module in arrows.keys() {
            let circle = circle(&arrows, module);
            assert!(circle.is_none(), "{name}: {}", circle.unwrap().join(" → "));
        }
    }
    assert!(looked_at > 150, "{looked_at}");
}

#[test]
fn a_circle_would_be_found() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    fs::create_dir(folder.path().join("deep")).unwrap();
    write("lib.rs", "mod a;\nmod b;\nmod deep;\n");
    write("a.rs", "use crate::{b::One, c};\n");
    write(
        "b.rs",
        "// use crate::a;\nuse super::deep::Two;\nmod tests {\n use crate::a;\n",
    );
    write("deep/mod.rs", "");
    let way = |text: &str| {
        write("deep/down.rs", text);
        circle(&arrows(folder.path()), "a").map(|way| way.join(" "))
    };
    assert_eq!(way("use super::a;\n"), None);
    assert_eq!(way("use super::super::a;\n").as_deref(), Some("a b deep a"));
    assert_eq!(
        way("fn f() { crate::a::g() }\n").as_deref(),
        Some("a b deep a")
    );
}

/// Whoever takes it for their own model copies it out of the workspace.
#[test]
fn the_example_is_a_package_of_its_own_elsewhere() {
    let example = root().join("examples/own-model-rust");
    let elsewhere = tempfile::tempdir().unwrap();
    let to = |name: &str| elsewhere.path().join(name);
    fs::create_dir(to("src")).unwrap();
    for name in ["build.rs", "src/main.rs"] {
        fs::copy(example.join(name), to(name)).unwrap();
    }
    fs::copy(root().join("Cargo.lock"), to("Cargo.lock")).unwrap();
    let text = fs::read_to_string(example.join("Cargo.toml")).unwrap();
    let worker = root().join("worker").display().to_string();
    let corrected = text.replace("../../worker", &worker);
    assert_ne!(corrected, text);
    fs::write(to("Cargo.toml"), corrected).unwrap();

    let manifest = format!("--manifest-path={}", to("Cargo.toml").display());
    // What other platforms need has not been fetched.
    let cargo_is = cargo(&["--version", "--verbose"]);
    let host = cargo_is
        .lines()
        .find_map(|line| line.strip_prefix("host: "));
    let platform = format!("--filter-platform={}", host.unwrap());
    let metadata = cargo(&["metadata", "--format-version=1", &platform, &manifest]);
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let members = metadata["workspace_members"].as_array().unwrap();
    assert_eq!(members.len(), 1, "{members:?}");
    let packages = metadata["packages"].as_array().unwrap().iter();
    let names: BTreeSet<&str> = packages.map(|is| is["name"].as_str().unwrap()).collect();
    assert!(names.contains("own-model-rust") && names.contains("tradewind-worker"));
    // It needs nothing of what starts runs, nor of what tests Tradewind.
    for name in ["tradewind", "tradewind-launch", "tradewind-tests"] {
        assert!(!names.contains(name), "it depends on {name}");
    }
}
