//! What is trained, and on what: sections `model`, `data` and `script`, with the keys of the built-in tasks.

use super::{Key, Section, key};
use crate::task::BUILT_IN;
use crate::value::Kind::{Choice, Path, TextsOrNone};

pub(super) fn sections() -> Vec<Section> {
    vec![model(), data(), script()]
}

fn model() -> Section {
    let own = vec![name(), program(), command()];
    Section {
        name: "model",
        about: "Chooses a model, and its size. A model comes with its own data, loss and metric. Some models are compiled into the worker program of Tradewind; a worker program of your own has your models besides ([a model](extending.md#a-model)).",
        example: r#"[model]
name = "forecast"
channels = 32
depth = 4
"#,
        keys: [own, of_tasks("model.")].concat(),
    }
}

fn name() -> Key {
    let names: Vec<&'static str> = BUILT_IN.iter().map(|is| is.definition.name).collect();
    let told = BUILT_IN.iter().map(|is| {
        let definition = is.definition;
        format!(" `{}` is {}.", definition.name, definition.about)
    });
    let told: String = told.collect();
    key(
        "model.name",
        Choice(names.leak()),
        Some("\"forecast\""),
        format!("Model, with its data, loss and metric.{told} A worker program of your own (`model.program`) has its models besides.").leak(),
    )
}

fn program() -> Key {
    key(
        "model.program",
        Path,
        Some("\"\""),
        "Worker program of your own, which has models besides the built-in ones; each has its keys in a section of its name. The path is relative to the configuration file, and under Slurm all nodes have to see the program there. `\"\"` is `tradewind-worker`, which lies beside `tradewind`.",
    )
}

fn command() -> Key {
    key(
        "model.command",
        TextsOrNone,
        Some("[]"),
        "Command that starts a PyTorch script of your own as a rank, such as `[\"python\", \"train.py\"]`. `tradewind run FILE -- python train.py` sets it. Programs and files in it are looked for as in a shell, from the folder in which `tradewind` is called. Model and data are then the script's, so `model.name` and `model.program` cannot be given as well. `[]` is no script.",
    )
}

/// The keys of the built-in tasks that begin so, once each. What a key means to one of several is told behind
/// its name.
fn of_tasks(begin: &str) -> Vec<Key> {
    let mut keys: Vec<Key> = Vec::new();
    let all = BUILT_IN.iter().flat_map(|is| is.definition.keys);
    for own in all.filter(|key| key.name.starts_with(begin)) {
        let Some(key) = keys.iter_mut().find(|key| key.name == own.name) else {
            keys.push(*own);
            continue;
        };
        let same = (key.kind, key.default) == (own.kind, own.default);
        assert!(same, "{} is two keys", key.name);
        key.tasks = [key.tasks, own.tasks].concat().leak();
        if !key.meaning.contains(own.meaning) {
            key.meaning = format!("{} `{}`: {}", key.meaning, own.tasks[0], own.meaning).leak();
        }
    }
    keys
}

fn data() -> Section {
    Section {
        name: "data",
        about: "Says which data the model trains on, and which part of them is for training, for validation and for the final metric. `model.name` decides which of these keys are used ([your own data](data.md)).",
        example: r#"[data]
files = ["temperature.nc"]
variable = "t2m"
history = 12
validation = [400, 440]    # 400 to 439; 0 to 399 are for training
held_out = [440, 480]
step_name = "month"
"#,
        keys: of_tasks("data."),
    }
}

/// Its keys are the script's alone.
fn script() -> Section {
    Section {
        name: "script",
        about: "Has the settings of your own script (`model.command`), with any names and values. Tradewind does not check them: it writes them down with the run and gives them to the script. `--set script.width=64` sets one, too.",
        example: r#"[model]
command = ["python", "train.py"]

[script]
width = 64
layers = ["wide", "narrow"]
"#,
        keys: Vec::new(),
    }
}
