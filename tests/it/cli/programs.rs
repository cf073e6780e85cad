//! What the programs need from the machine.

use std::fs;
use std::process::Command;

use tradewind_tests::cluster::programs;

#[test]
fn programs_start_from_any_folder_without_an_environment() {
    for name in [
        "tradewind",
        "tradewind-bench",
        "tradewind-server",
        "tradewind-worker",
    ] {
        let started = Command::new(programs().join(name))
            .arg("--version")
            .env_clear()
            .current_dir("/")
            .output()
            .unwrap();
        let (out, err) = (started.stdout, String::from_utf8_lossy(&started.stderr));
        assert!(started.status.success(), "{name}: {err}");
        // Who starts workers says for which libtorch they are.
        let libtorch = match name {
            "tradewind" => ", for libtorch 2.11.0",
            _ => "",
        };
        let version = format!("{name} {}{libtorch}\n", env!("CARGO_PKG_VERSION"));
        assert_eq!(String::from_utf8_lossy(&out), version);
    }
}

#[test]
fn only_the_worker_needs_libtorch() {
    for (name, needs) in [
        ("tradewind", false),
        ("tradewind-bench", false),
        ("tradewind-server", false),
        ("tradewind-worker", true),
    ] {
        let listed = Command::new("ldd")
            .arg(programs().join(name))
            .output()
            .unwrap();
        assert!(listed.status.success(), "{listed:?}");
        let libraries = String::from_utf8_lossy(&listed.stdout);
        // One worker serves machines with and without GPUs: these are loaded when they are wanted.
        for gpu in ["libcuda.so", "libtorch_cuda", "libc10_cuda", "libnccl"] {
            assert!(!libraries.contains(gpu), "{name}:\n{libraries}");
        }
        let torch = libraries.contains("libtorch") || libraries.contains("libc10");
        assert_eq!(torch, needs, "{name}:\n{libraries}");
    }
}

/// libtorch's destructors, which take long, destroy nothing that would not go with the process.
#[test]
fn a_worker_has_said_all_when_it_ends_and_calls_no_destructor() {
    let folder = tempfile::tempdir().unwrap();
    let (source, library) = (folder.path().join("end.c"), folder.path().join("end.so"));
    let end = "#include <unistd.h>\n__attribute__((destructor)) static void end(void) { write(2, \"destroyed\", 9); }";
    fs::write(&source, end).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(source);
    assert!(cc.status().unwrap().success());
    let worker = |arguments: &[&str]| {
        let mut command = Command::new(programs().join("tradewind-worker"));
        command.args(arguments).env("LD_PRELOAD", &library);
        let ended = command.env_remove("TRADEWIND_TOKEN").output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (ended.status.code(), text(ended.stdout), text(ended.stderr))
    };
    // That is answered before it is a worker.
    let (_, _, said) = worker(&["--version"]);
    assert_eq!(said, "destroyed");
    let (status, tasks, said) = worker(&["tasks", "--json"]);
    assert_eq!((status, said.as_str()), (Some(0), ""));
    assert!(tasks.ends_with('\n'), "{tasks:?}");
    let (status, _, said) = worker(&["check", "--config", "nowhere.toml"]);
    assert_eq!(status, Some(1));
    assert!(
        said.contains("cannot read the configuration nowhere.toml"),
        "{said}"
    );
    assert!(
        said.ends_with('\n') && !said.contains("destroyed"),
        "{said}"
    );
}
