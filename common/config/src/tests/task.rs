//! Sections `model` and `data`.

use std::path::Path;

use super::{GOOD, parse};
use crate::{Config, Mnist, Replay, Resnet};

#[test]
fn a_task_needs_its_own_keys_alone() {
    const IMAGES: &str = "[run]\nname = \"r\"\n[model]\nname = \"resnet50\"\n\
                          [train]\nsamples = 100\n[optimizer]\nlearning_rate = 1\n";
    let config = parse(IMAGES, &["model.blocks=[1, 2, 1, 1]"]).unwrap();
    let want = Resnet {
        blocks: [1, 2, 1, 1],
        width: 64,
        image_size: 224,
        classes: 1000,
        samples: 12800,
    };
    assert_eq!(config.task.settings(), Some(want));
    assert!(
        !config.resolved().contains("files"),
        "{}",
        config.resolved()
    );
    let again = Config::parse(config.resolved(), "c.toml", Path::new("/"), &[]).unwrap();
    assert_eq!(again, config);

    let missing = |overrides: &[&str]| {
        let error = parse(IMAGES, overrides).unwrap_err();
        let keys = error.0.into_iter().map(|problem| problem.key);
        keys.collect::<Vec<_>>()
    };
    assert_eq!(
        missing(&["model.name=forecast"]),
        [
            "data.files",
            "data.variable",
            "data.validation",
            "data.held_out"
        ]
    );
    assert_eq!(missing(&["model.blocks=[3, 4]"]), ["model.blocks"]);

    let idle = parse(GOOD, &["model.name=resnet50", "model.channels=3"]).unwrap();
    let lines: Vec<_> = idle
        .idle()
        .iter()
        .filter(|l| l.contains("resnet50"))
        .collect();
    let told = [
        "model.channels",
        "data.files",
        "data.variable",
        "data.validation",
        "data.held_out",
    ];
    assert_eq!(lines.len(), told.len(), "{lines:?}");
    for (line, key) in lines.iter().zip(told) {
        assert_eq!(
            **line,
            format!("{key} has no effect while model.name = \"resnet50\"")
        );
    }
}

#[test]
fn the_folder_of_digits_is_relative_to_the_file() {
    const DIGITS: &str = "[run]\nname = \"r\"\n[model]\nname = \"mnist\"\n\
                          [train]\nsamples = 100\n[optimizer]\nlearning_rate = 1\n";
    let error = parse(DIGITS, &[]).unwrap_err();
    let keys: Vec<&str> = error.0.iter().map(|problem| problem.key.as_str()).collect();
    assert_eq!(keys, ["data.folder"]);
    let config = parse(DIGITS, &["data.folder=../digits"]).unwrap();
    let folder = Path::new("/base/../digits").to_owned();
    assert_eq!(config.task.settings(), Some(Mnist { folder }));
    let again = Config::parse(config.resolved(), "c.toml", Path::new("/elsewhere"), &[]).unwrap();
    assert_eq!(again, config);
}

#[test]
fn a_key_of_two_tasks_is_each_ones() {
    const SAMPLES: &str = "[run]\nname = \"r\"\n[model]\nname = \"replay\"\n[data]\nfolder = \"packed\"\n\
                           [train]\nsamples = 100\n[optimizer]\nlearning_rate = 1\n";
    let config = parse(SAMPLES, &["data.layout=cosmoflow"]).unwrap();
    let want = Replay {
        folder: "/base/packed".into(),
        layout: "cosmoflow".into(),
        validation_samples: 8,
        held_out_samples: 8,
        parameters: 0,
    };
    assert_eq!(config.task.settings(), Some(want));
    let again = Config::parse(config.resolved(), "c.toml", Path::new("/elsewhere"), &[]).unwrap();
    assert_eq!(again, config);
    let digits = parse(SAMPLES, &["model.name=mnist", "data.layout=hep"]).unwrap();
    let folder = Path::new("/base/packed").to_owned();
    assert_eq!(digits.task.settings(), Some(Mnist { folder }));
    let idle: Vec<_> = digits
        .idle()
        .iter()
        .filter(|l| l.contains("mnist"))
        .collect();
    assert_eq!(
        idle,
        ["data.layout has no effect while model.name = \"mnist\""]
    );
    let images = parse(SAMPLES, &["model.name=resnet50"]).unwrap();
    assert!(
        images
            .idle()
            .iter()
            .any(|line| line.starts_with("data.folder has no effect"))
    );
    let missing = parse(SAMPLES, &["model.name=forecast"]).unwrap_err();
    assert!(missing.0.iter().all(|problem| problem.key != "data.folder"));
}
