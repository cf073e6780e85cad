//! What the programs need from the machine.

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
        let version = format!("{name} {}\n", env!("CARGO_PKG_VERSION"));
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
