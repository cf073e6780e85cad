//! What is exported of a run, and what is said where it cannot be. What services make of it is tried by `make
//! export-test`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tradewind_common::record::fixture;
use tradewind_folder::lock;

use super::*;

const CONFIG: &str = r#"
    [run]
    name = "r"
    [data]
    files = ["t.nc"]
    variable = "t"
    validation = [20, 25]
    held_out = [30, 40]
    [train]
    samples = 384
    [optimizer]
    learning_rate = 0.1
"#;

/// A run of two groups that has completed, with a metric.
fn ended(root: &Path) -> PathBuf {
    let folder = root.join("r");
    fs::create_dir(&folder).unwrap();
    let write = |name: &str, text: String| fs::write(folder.join(name), text).unwrap();
    write("config.toml", CONFIG.into());
    let rows = fixture::run(2, 6);
    let rows = rows
        .iter()
        .map(|row| serde_json::to_string(row).unwrap() + "\n");
    write("metrics.jsonl", rows.collect());
    let measure = |name: &str, value: f64| json!({"name": name, "unit": "K", "value": value});
    let metric = measure("held-out RMSE", 0.71);
    let summary = json!({"status": "completed", "version": "0.1.0", "train_seconds": 9.5,
        "loss": {"final": 0.2}, "faults": {"lost": null}, "metric": metric});
    write("summary.json", summary.to_string());
    let evaluation = json!({"metric": metric, "validation": measure("validation RMSE", f64::NAN),
        "baselines": [measure("persistence", 0.9)], "parts": [], "params_digest": "d", "parameters": 3,
        "picture": ""});
    write("evaluation.json", evaluation.to_string());
    write("loss.png", "png".into());
    write("model.safetensors", "model".into());
    write("token", "secret".into());
    folder
}

/// What stands in Python's place, and has a client if `client` is what it does.
fn python(root: &Path, client: &str) -> PathBuf {
    let python = root.join("python");
    // With the name of a client alone it is asked whether it has one.
    let text = format!(
        "#!/bin/sh\n[ $# = 3 ] && exit {}\n{client}\n",
        u8::from(client.is_empty())
    );
    fs::write(&python, text).unwrap();
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
    python
}

fn exported(folder: &Path, python: PathBuf) -> Result<String, (Exit, String)> {
    let arguments = Arguments {
        run_folder: Some(folder.to_owned()),
        to: To {
            mlflow: Some("http://nowhere:5000".into()),
            wandb_offline: None,
        },
        experiment: "e".into(),
        without_model: false,
        python: Some(python),
    };
    let told = export(&arguments, &Arc::default());
    told.map_err(|error| (input::exit(&error), format!("{error:#}")))
}

#[test]
fn a_client_is_told_all_of_a_run() {
    let root = tempfile::tempdir().unwrap();
    let folder = ended(root.path());
    let kept = root.path().join("kept");
    let client = format!(
        "cat > {}; echo noise; echo '{{\"done\": 1, \"of\": 2}}'; echo '{{\"told\": \"it is there\"}}'; echo \"$3 $4\" >> {}",
        kept.display(),
        root.path().join("asked").display()
    );
    let python = python(root.path(), &client);
    assert_eq!(exported(&folder, python.clone()), Ok("it is there".into()));
    let asked = fs::read_to_string(root.path().join("asked")).unwrap();
    assert_eq!(asked, "mlflow http://nowhere:5000\n");
    let first = fs::read_to_string(&kept).unwrap();
    let lines: Vec<Value> = first
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let about = &lines[0];
    assert_eq!(
        (&about["name"], &about["state"]),
        (&json!("r"), &json!("completed"))
    );
    assert_eq!(about["parameters"]["train.samples"], "384");
    assert_eq!(about["tags"]["tradewind.unit.held-out RMSE"], "K");
    assert_eq!(about["points"], lines.len() - 1);
    let files = about["files"].as_array().unwrap().iter();
    let files: Vec<&str> = files
        .map(|file| file[0].as_str().unwrap().rsplit('/').next().unwrap())
        .collect();
    let want = [
        "config.toml",
        "summary.json",
        "evaluation.json",
        "loss.png",
        "model.safetensors",
    ];
    assert_eq!(files, want, "and never its token");
    // A group's curve is its records, as in TensorBoard; of one without a loss there is none.
    let rows = fixture::run(2, 6).into_iter().filter(|row| row.group == 1);
    let want: Vec<Value> = rows
        .filter_map(|row| {
            Some(json!([
                "group-1/loss",
                row.samples_applied,
                row.wall,
                row.loss?
            ]))
        })
        .collect();
    assert_eq!(want.len(), 5);
    let of = |name: &str| -> Vec<Value> {
        lines[1..]
            .iter()
            .filter(|point| point[0] == name)
            .cloned()
            .collect()
    };
    assert_eq!(of("group-1/loss"), want);
    assert_eq!(of("held-out RMSE")[0][3], 0.71);
    assert_eq!(of("validation RMSE")[0][3], Value::Null);
    assert_eq!(of("baseline/persistence")[0][3], 0.9);
    assert_eq!(of("summary/train_seconds")[0][3], 9.5);
    assert_eq!(of("summary/lost_samples"), Vec::<Value>::new());
    // It is found again.
    exported(&folder, python).unwrap();
    assert_eq!(fs::read_to_string(&kept).unwrap(), first);
}

#[test]
fn what_cannot_be_exported_is_told() {
    let root = tempfile::tempdir().unwrap();
    let folder = ended(root.path());
    let check = |folder: &Path, client: &str, exit: Exit, want: &[&str]| {
        let (ended, told) = exported(folder, python(root.path(), client)).unwrap_err();
        assert_eq!(ended, exit, "{told}");
        for want in want {
            assert!(told.contains(want), "{want:?} is not in {told:?}");
        }
    };
    check(
        &root.path().join("x"),
        "",
        Exit::BadInput,
        &["there is no folder "],
    );
    check(
        &folder,
        "",
        Exit::BadInput,
        &["does not have MLflow's client: ", "-m pip install mlflow"],
    );
    let refuses = "cat > /dev/null; echo '{\"failed\": \"nobody is there\"}'; exit 1";
    check(
        &folder,
        refuses,
        Exit::Failed,
        &["MLflow at http://nowhere:5000: nobody is there"],
    );
    // One that reads nothing and dies; one that ends well and has said nothing.
    check(
        &folder,
        "echo broken >&2; exit 3",
        Exit::Failed,
        &["MLflow's client has failed", "exit status: 3", "broken"],
    );
    check(
        &folder,
        "cat > /dev/null",
        Exit::Failed,
        &["MLflow's client has failed"],
    );
    let (exit, told) = exported(&folder, root.path().join("none")).unwrap_err();
    assert!(
        exit == Exit::BadInput && told.contains("none does not run: "),
        "{told}"
    );
    let rows = fs::read_to_string(folder.join("metrics.jsonl")).unwrap();
    fs::write(folder.join("metrics.jsonl"), "").unwrap();
    check(
        &folder,
        refuses,
        Exit::BadInput,
        &["has trained nothing yet"],
    );
    fs::write(folder.join("metrics.jsonl"), rows).unwrap();
    // Others may be reading and writing.
    let launcher = lock::take(&folder).unwrap();
    check(
        &folder,
        refuses,
        Exit::BadInput,
        &["is not exported, for it goes on; "],
    );
    drop(launcher);
}
