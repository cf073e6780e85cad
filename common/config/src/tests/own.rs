//! Tasks of somebody's own worker program.

use std::path::Path;

use crate::{
    Config, ConfigError, KnownTask, Task, TaskDefinition, TaskSettings, Tasks, Unfit, Wrong,
    described, description, task,
};

task! {
    /// Points on rings.
    "rings" ("a small network that tells on which ring a point is")
    measures "validation error" is Rings {
        /// Number of units of the hidden layer.
        width: u32 = "rings.width", int(1, 4096), default "32";
        /// Standard deviation of the noise of a point, as a part of
        /// the distance between two rings.
        noise: f64 = "rings.noise", float(0.0, 1.0), default "0.1";
        /// Distribution of the noise: `normal` or `uniform`.
        kind: String = "rings.kind", Choice(&["normal", "uniform"]), default "\"normal\"";
        /// File with further points.
        file: std::path::PathBuf = "rings.file", Path;
    }
    checked by fits
}

fn fits(rings: &Rings, wrong: &mut Wrong<'_>) {
    if rings.width % 2 == 1 {
        wrong("rings.width", "is odd".into());
    }
}

const GOOD: &str = "[run]\nname = \"r\"\n[model]\nname = \"rings\"\nprogram = \"own\"\n\
                    [rings]\nfile = \"more.csv\"\n[train]\nsamples = 100\n[optimizer]\nlearning_rate = 1\n";

/// As a worker program tells them, and as they are known to the command that has asked.
fn told(check: fn(&Task) -> Vec<Unfit>) -> Tasks {
    let text = description([Rings::DEFINITION].iter());
    let [definition] = described(&text).unwrap()[..] else {
        panic!("one task was told: {text}")
    };
    assert_eq!(definition, Rings::DEFINITION);
    Tasks::with(vec![KnownTask::elsewhere(definition, check)]).unwrap()
}

fn parse(tasks: &Tasks, text: &str, overrides: &[&str]) -> Result<Config, ConfigError> {
    let overrides: Vec<String> = overrides.iter().map(|s| (*s).to_owned()).collect();
    Config::parse_with(tasks, text, "c.toml", Path::new("/base"), &overrides)
}

/// What the program finds, from the values that it gets as text.
fn found(task: &Task) -> Vec<Unfit> {
    let task = Task::from_toml(Rings::DEFINITION, &task.to_toml()).unwrap();
    KnownTask::of::<Rings>().check(&task)
}

#[test]
fn its_settings_are_read_and_recorded() {
    let tasks = told(found);
    let config = parse(&tasks, GOOD, &["rings.noise=1"]).unwrap();
    let want = Rings {
        width: 32,
        noise: 1.0,
        kind: "normal".into(),
        file: "/base/more.csv".into(),
    };
    assert_eq!(config.task.settings(), Some(want));
    assert_eq!(config.task.settings::<crate::Mnist>(), None);
    assert_eq!(config.program.as_deref(), Some(Path::new("/base/own")));
    assert_eq!(config.task.validation_metric(), Rings::VALIDATION_METRIC);
    let noise = "the noise of a point, as a part of the distance";
    assert!(Rings::DEFINITION.keys[1].meaning.contains(noise));

    // A run's folder is read without the program.
    let again = Config::parse(config.resolved(), "c.toml", Path::new("/x"), &[]).unwrap();
    assert_eq!(again, config);
    assert!(
        again.identity().contains("rings.noise = 1.0"),
        "{}",
        again.identity()
    );
    assert!(!again.identity().contains("/base"), "{}", again.identity());

    let other = parse(&tasks, GOOD, &["model.name=resnet50"]).unwrap();
    assert!(!other.resolved().contains("rings"), "{}", other.resolved());
    let idle = "rings.file has no effect while model.name = \"resnet50\"";
    assert_eq!(other.idle(), [idle]);
}

#[test]
fn what_is_wrong_with_its_keys_is_told_with_all_else() {
    let tasks = told(found);
    let check = |overrides: &[&str], want: &[&str]| {
        let error = parse(&tasks, GOOD, overrides).unwrap_err().to_string();
        let lines: Vec<&str> = error.lines().collect();
        assert_eq!(lines, want);
    };
    check(
        &[
            "rings.widht=3",
            "rings.noise=2",
            "train.batch=no",
            "model.name=ring",
        ],
        &[
            "--set: rings.widht is no key; did you mean \"rings.width\"?",
            "--set: rings.noise = 2; it takes a number from 0 to 1",
            "--set: train.batch = \"no\"; it takes an integer from 1 to 1000000",
            "--set: model.name = \"ring\"; it takes one of \"forecast\", \"mnist\", \"resnet50\", \"replay\", \"cosmoflow\", \"hep\", \"deepcam\", \"climate-boxes\", \"rings\"; did you mean \"rings\"?",
        ],
    );
    check(
        &["rings.kind=norml"],
        &[
            "--set: rings.kind = \"norml\"; it takes one of \"normal\", \"uniform\"; did you mean \"normal\"?",
        ],
    );
    check(
        &["rings.width=3", "servers.replication=3"],
        &[
            "--set: rings.width = 3 is odd",
            "--set: servers.replication = 3 is more than cluster.servers: copies of a shard are on different servers",
        ],
    );
    let typed = GOOD.replace("[rings]\n", "[rings]\nnoize = 1\n");
    let error = parse(&tasks, &typed, &[]).unwrap_err().to_string();
    let line = "c.toml, line 7: rings.noize is no key; did you mean \"rings.noise\"?";
    assert_eq!(error, line);
    let missing = GOOD.replace("file = \"more.csv\"\n", "");
    let error = parse(&tasks, &missing, &[]).unwrap_err().to_string();
    assert_eq!(
        error,
        "c.toml: rings.file is missing. File with further points."
    );
}

#[test]
fn a_program_that_cannot_be_asked_is_told_with_all_else() {
    let tasks = Tasks::unanswered("cannot be run; build it".into());
    let error = parse(&tasks, GOOD, &["train.bach=3", "rings.any=1"]).unwrap_err();
    let lines: Vec<String> = error.to_string().lines().map(str::to_owned).collect();
    let want = [
        "--set: train.bach is no key; did you mean \"train.batch\"?",
        "c.toml, line 5: model.program = \"own\" cannot be run; build it",
    ];
    assert_eq!(lines, want);
    let error = parse(Tasks::built_in(), GOOD, &[]).unwrap_err().to_string();
    let name = "c.toml, line 4: model.name = \"rings\"; it takes one of \"forecast\", \"mnist\", \"resnet50\", \"replay\", \"cosmoflow\", \"hep\", \"deepcam\", \"climate-boxes\"; \
                a model of your own needs model.program, the worker program that has it";
    assert_eq!(error.lines().next(), Some(name));
}

#[test]
fn tasks_that_cannot_be_are_refused() {
    let check = |change: fn(&mut TaskDefinition), want: &str| {
        let mut definition = Rings::DEFINITION;
        change(&mut definition);
        let refused = Tasks::with(vec![KnownTask::recorded(definition)]).unwrap_err();
        assert!(refused.contains(want), "{refused}");
    };
    check(
        |is| is.name = "mnist",
        "its keys are mnist.KEY, not \"rings.width\"",
    );
    check(|is| is.name = "train", "there is a section of this name");
    check(|is| is.name = "Big rings", "lower-case letters");
    check(
        |is| is.keys = vec![is.keys[0], is.keys[0]].leak(),
        "rings.width is there twice",
    );
    check(
        |is| {
            let mut key = is.keys[0];
            key.default = Some("0");
            is.keys = vec![key].leak();
        },
        "the default of rings.width = 0; it takes an integer from 1 to 4096",
    );
    let twice = vec![KnownTask::of::<Rings>(), KnownTask::of::<Rings>()];
    assert!(
        Tasks::with(twice)
            .unwrap_err()
            .contains("another task of this name")
    );
}
