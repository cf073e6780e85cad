//! The check of GPU machines, tested where there is none: all its parts on the CPU, with tiny sizes
//! and Gloo in NCCL's place.

use std::process::{Command, Output};

use serde_json::Value;
use tradewind_tests::cluster::{programs, root};

fn check(arguments: &[&str]) -> (Output, Value) {
    let data = root().join(".deps/data");
    with_data(&data.display().to_string(), arguments)
}

fn with_data(data: &str, arguments: &[&str]) -> (Output, Value) {
    let output = Command::new(programs().join("tradewind-gpu-check"))
        .args(["--data", data])
        .arg("--configs")
        .arg(root().join("deploy/configs"))
        .args(arguments)
        .env("CUDA_VISIBLE_DEVICES", "")
        .output()
        .expect("the check starts");
    let report = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (output, report)
}

#[test]
fn every_part_passes_on_the_cpu() {
    let (output, report) = check(&["--device", "cpu"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{report:#}");
    assert_eq!(
        (&report["device"], &report["verdict"]),
        (&"cpu".into(), &"pass".into())
    );
    let parts = report["parts"].as_array().expect("a list of parts");
    let names: Vec<_> = parts
        .iter()
        .map(|part| part["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "collectives",
            "agreement",
            "faults",
            "steps",
            "bandwidth",
            "run"
        ]
    );
    for (part, figure) in [
        (0, "/4_ranks/all_reduce_seconds"),
        (1, "/resnet50_gradient/device_error"),
        (1, "/resnet14_losses/device_error"),
        (1, "/groups_2x2_against_1x4_loss_relative_difference"),
        (2, "/killed/steps_again_after_seconds"),
        (2, "/stopped/steps_again_after_seconds"),
        (2, "/store_killed/other_groups_longest_pause_seconds"),
        (3, "/f32_plain/resident_step_seconds"),
        (3, "/f32_overlap_0/exposed_seconds"),
        (3, "/bf16_overlap_1/step_to_plain"),
        (3, "/bf16_overlap_1/idle_fraction"),
        (4, "/device_1_mb/step_gb_per_second"),
        (4, "/main_memory_1_mb/exchange_gb_per_second"),
        (5, "/f32/samples_per_second"),
        (5, "/bf16/held_out_error_percent"),
    ] {
        let found = parts[part]["figures"].pointer(figure);
        let found = found.and_then(Value::as_f64);
        assert!(
            found.is_some_and(f64::is_finite),
            "{figure}: {:#}",
            parts[part]
        );
    }
}

#[test]
fn a_wrong_sum_is_found() {
    let planted = [
        "--device",
        "cpu",
        "--parts",
        "collectives",
        "--plant",
        "wrong-sum",
    ];
    let (output, report) = check(&planted);
    assert!(!output.status.success());
    assert_eq!(report["verdict"], "fail", "{report:#}");
    let reason = report["parts"][0]["reason"].as_str().expect("a reason");
    assert!(
        reason.contains("4 ranks: gradient_to_cpu_distance"),
        "{reason}"
    );
}

#[test]
fn gradients_and_steps_that_are_one_per_cent_too_large_are_found() {
    let part = ["--device", "cpu", "--parts", "agreement"];
    let (output, report) = check(&[&part[..], &["--plant", "wrong-scale"]].concat());
    assert!(!output.status.success());
    assert_eq!(report["verdict"], "fail", "{report:#}");
    let reason = report["parts"][0]["reason"].as_str().expect("a reason");
    for found in [
        "forecast: gradients are",
        "resnet50: gradients are",
        "forecast: losses of 8 steps are",
        "resnet14: losses of 8 steps are",
    ] {
        assert!(reason.contains(found), "{found}: {reason}");
    }
}

#[test]
fn a_part_that_cannot_be_done_is_an_error_with_a_reason() {
    let part = ["--device", "cpu", "--parts", "agreement"];
    let (output, report) = with_data("/nowhere", &part);
    assert!(!output.status.success());
    assert_eq!(report["parts"][0]["verdict"], "error", "{report:#}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("/nowhere/A1B_north_america.nc does not exist"),
        "{said}"
    );
}

#[test]
fn the_report_is_there_after_each_part_and_says_what_time_was_too_short_for() {
    let folder = tempfile::tempdir().unwrap();
    let (out, work) = (
        folder.path().join("report.json"),
        folder.path().join("work"),
    );
    let (out_is, work_is) = (out.display().to_string(), work.display().to_string());
    let (output, report) = check(&[
        "--device",
        "cpu",
        "--parts",
        "agreement,steps",
        "--within",
        "1",
        "--out",
        &out_is,
        "--work",
        &work_is,
    ]);
    assert!(!output.status.success());
    let reasons = report["parts"].as_array().expect("a list of parts");
    let reasons: Vec<_> = reasons
        .iter()
        .map(|part| part["reason"].as_str().unwrap())
        .collect();
    assert_eq!(
        reasons,
        ["it ran out of time", "no time was left for it (--within)"]
    );
    let written: Value = serde_json::from_slice(&std::fs::read(out).unwrap()).unwrap();
    assert_eq!(written, report);
    assert_eq!(report["complete"], true);
    assert!(work.is_dir(), "logs are kept");
}

#[test]
fn without_a_gpu_it_says_so() {
    let (output, report) = check(&[]);
    assert_eq!((output.status.code(), report), (Some(2), Value::Null));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("no GPU can be checked") && said.contains("--device cpu"),
        "{said}"
    );
}
