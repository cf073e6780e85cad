//! Sections `model` and `data`.

use std::path::Path;

use super::{GOOD, parse};
use crate::{Config, Mnist, Resnet};

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
