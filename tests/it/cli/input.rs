//! Bad input is refused before any process of the run is started, naming what is wrong and where.

use std::fs;
use std::process::Command;

use tradewind_tests::cluster::root;
use tradewind_tests::cluster::run::Run;

/// Exit status for a bad configuration, and for data or devices that it names and that cannot be used.
const BAD_CONFIGURATION: i32 = 2;
const BAD_DATA: i32 = 2;

#[track_caller]
fn check(run: Run, status: i32, wanted: &[&str]) {
    let ended = run.complete();
    assert_eq!(ended.status.code(), Some(status), "{}", ended.stderr);
    for text in wanted {
        assert!(
            ended.stderr.contains(text),
            "{text:?} is not in {}",
            ended.stderr
        );
    }
    assert!(
        !ended.out().exists(),
        "a run that never began has no folder"
    );
}

#[test]
fn a_bad_configuration_names_key_line_and_the_nearest_name() {
    let bad = |key, value, wanted: &[&str]| {
        let run = Run::new().key(key, value);
        let line = run.text().lines().position(|line| line.starts_with(key));
        let line = format!("config.toml, line {}: {key}", line.unwrap() + 1);
        let mut all = wanted.to_vec();
        all.push(&line);
        check(run, BAD_CONFIGURATION, &all);
    };
    bad(
        "train.sampels",
        "64",
        &[
            "is no key; did you mean \"train.samples\"?",
            "\nsee docs/configuration.md#train\n",
        ],
    );
    bad(
        "training.batch",
        "64",
        &["is no key; did you mean \"train.batch\"?"],
    );
    bad(
        "train.batch",
        "\"eight\"",
        &["= \"eight\"; it takes an integer"],
    );
    bad(
        "train.batch",
        "0",
        &["= 0; it takes an integer from 1 to 1000000"],
    );
    bad("optimizer.name", "\"adma\"", &["did you mean \"adam\"?"]);
    bad("data.held_out", "[210, 200]", &["is an empty range"]);
    bad(
        "liveness.heartbeat_ms",
        "9000",
        &["a third of liveness.lease_ms"],
    );
}

#[test]
fn a_bad_override_is_told_from_the_file() {
    let set = |setting: &str, wanted: &[&str]| {
        let run = Run::new().argument("--set").argument(setting);
        check(run, BAD_CONFIGURATION, wanted);
    };
    set(
        "train.bacth=8",
        &["--set: train.bacth is no key; did you mean \"train.batch\"?"],
    );
    set(
        "train.batch=many",
        &["--set: train.batch = \"many\"; it takes an integer"],
    );
    set("train.batch", &["--set train.batch: give it as key=value"]);
}

#[test]
fn bad_data_is_named_before_anything_is_started() {
    let file = |name: &str| format!("[{name:?}]");
    let missing = Run::new().key("data.files", file("nowhere.nc"));
    let path = missing.folder().join("nowhere.nc").display().to_string();
    check(missing, BAD_DATA, &[&path]);

    let whole = fs::read(root().join(".deps/data/E1_north_america.nc")).unwrap();
    for (name, bytes) in [
        ("short.nc", &whole[..whole.len() / 2]),
        ("empty.nc", &[]),
        ("text.nc", b"not a data file"),
    ] {
        let damaged = Run::new().key("data.files", file(name));
        fs::write(damaged.folder().join(name), bytes).unwrap();
        let path = damaged.folder().join(name).display().to_string();
        check(damaged, BAD_DATA, &[&path]);
    }

    let written = Run::new().key("data.files", file("written.nc"));
    let path = written.folder().join("written.nc");
    fs::write(&path, &whole).unwrap();
    // Until the end of this test.
    let _writer = hdf5_metno::File::open_rw(&path).unwrap();
    let path = path.display().to_string();
    check(
        written,
        BAD_DATA,
        &[&path, "cannot be locked", "another program writes it"],
    );

    let variable = Run::new().key("data.variable", "\"air_temprature\"");
    check(
        variable,
        BAD_DATA,
        &["air_temprature", "E1_north_america.nc"],
    );

    let beyond = Run::new().key("data.held_out", "[200, 9999]");
    check(beyond, BAD_DATA, &["9999"]);
}

/// NVIDIA's driver, as far as it is asked which GPUs there are: `COUNT` of them.
const DRIVER: &str = r#"
#include <string.h>
int cuInit(unsigned flags) { return 0; }
int cuGetErrorString(int code, const char **words) { return 1; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGetCount(int *count) { *count = COUNT; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDeviceGetName(char *name, int length, int device) { strcpy(name, "Double"); return 0; }
int cuDeviceGetUuid_v2(char *uuid, int device) { memset(uuid, device, 16); return 0; }
"#;

#[test]
fn gpus_that_are_missing_or_of_no_use_are_told_before_anything_is_started() {
    let folder = tempfile::tempdir().unwrap();
    let see = |count: u32| {
        let source = folder.path().join("driver.c");
        fs::write(&source, DRIVER).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", &format!("-DCOUNT={count}"), "-o"]);
        cc.arg(folder.path().join("libcuda.so.1")).arg(source);
        assert!(cc.status().unwrap().success());
    };
    let run = |device: &str| {
        let run = Run::new().libraries(folder.path());
        run.key("compute.device", format!("{device:?}"))
    };
    see(0);
    let none = "compute.device = \"cuda\", but no GPU was found";
    check(run("cuda"), BAD_DATA, &["nothing was started", none]);
    let f16 = run("auto").key("compute.precision", "\"fp16\"");
    check(f16, BAD_DATA, &["compute.precision = \"fp16\" needs a GPU"]);

    see(2);
    let three = run("auto").key("cluster.groups", "[2, 1]");
    let few =
        "the last of 3 ranks on this node asks for GPU 2, but 2 GPUs were found: 0 (Double), 1";
    check(three, BAD_DATA, &[few, "compute.device = \"cuda:0\""]);
    check(
        run("cuda:2"),
        BAD_DATA,
        &["\"cuda:2\", but 2 GPUs were found"],
    );
    // libtorch cannot compute on a double, whichever libraries this machine has; nobody falls back
    // to the CPU.
    check(
        run("auto"),
        BAD_DATA,
        &["2 GPUs", "set compute.device = \"cpu\""],
    );
}
