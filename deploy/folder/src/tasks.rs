//! What a worker program of somebody's own tells of its tasks.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tradewind_config::{KnownTask, Task, TaskDefinition, Tasks, Unfit, described};
use tradewind_programs::worker::{TasksArguments, WorkerArguments};

/// How long it may take. It loads libtorch, perhaps from a file system that many nodes read just now.
const ANSWER: Duration = Duration::from_secs(60);

/// Pause between two looks.
const LOOK: Duration = Duration::from_millis(10);

/// The built-in tasks with those of this program, which is asked once.
pub(crate) fn of(program: &Path) -> Tasks {
    static ASKED: Mutex<BTreeMap<PathBuf, Tasks>> = Mutex::new(BTreeMap::new());
    let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    let tasks = asked.entry(program.to_owned()).or_insert_with(|| {
        let asked = ask(program);
        asked.unwrap_or_else(|why| {
            Tasks::unanswered(format!("cannot be asked for its tasks: {why}"))
        })
    });
    tasks.clone()
}

fn ask(program: &Path) -> Result<Tasks, String> {
    let keys = TasksArguments {
        json: true,
        check: None,
    };
    let answer = answer(program, keys, "")?;
    let definitions = described(&answer).map_err(|why| not_a_worker(&why))?;
    let known = definitions.into_iter().map(|definition| {
        let program = program.to_owned();
        KnownTask::elsewhere(definition, move |task| check(&program, definition, task))
    });
    Tasks::with(known.collect())
}

/// What the program says of a task's settings, which have the types and ranges that it has told.
fn check(program: &Path, definition: TaskDefinition, task: &Task) -> Vec<Unfit> {
    let arguments = TasksArguments {
        json: false,
        check: Some(definition.name.to_owned()),
    };
    let found = answer(program, arguments, &task.to_toml()).and_then(|answer| {
        let found: Result<Vec<(String, String)>, _> = serde_json::from_str(&answer);
        found.map_err(|why| not_a_worker(&why.to_string()))
    });
    let key = |name: &str| {
        let mut own = definition.keys.iter();
        own.find(|key| key.name == name).map(|key| key.name)
    };
    match found {
        Ok(found) => found
            .into_iter()
            .map(|(name, problem)| match key(&name) {
                Some(key) => Unfit { key, problem },
                None => Unfit {
                    key: "model.program",
                    problem: format!(
                        "has a problem with {name}, which is none of its keys: {problem}"
                    ),
                },
            })
            .collect(),
        Err(why) => vec![Unfit {
            key: "model.program",
            problem: format!("cannot check the settings of {:?}: {why}", definition.name),
        }],
    }
}

fn not_a_worker(why: &str) -> String {
    format!(
        "it answers with something else ({why}); is it a program of tradewind_worker::main, built with this version of Tradewind?"
    )
}

/// What it prints.
fn answer(program: &Path, arguments: TasksArguments, input: &str) -> Result<String, String> {
    let mut command = WorkerArguments::from(arguments).to_command(program);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = command
        .spawn()
        .map_err(|error| format!("it cannot be run: {error}; build it, or correct the path"))?;
    let output = finished(child, input)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let first = said.lines().find(|line| !line.trim().is_empty());
        return Err(format!(
            "it ended with {} and said: {}; is it a program of tradewind_worker::main?",
            output.status,
            first.unwrap_or("nothing").trim()
        ));
    }
    String::from_utf8(output.stdout).map_err(|_| not_a_worker("no text"))
}

/// Waits for its end; kills it if that takes too long.
fn finished(mut child: Child, input: &str) -> Result<Output, String> {
    let io = |error: std::io::Error| error.to_string();
    let stdin = child.stdin.take();
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    std::thread::scope(|scope| {
        // One that does not read what it is told answers nevertheless, or does not.
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input.as_bytes())));
        let stdout = scope.spawn(move || text_of(stdout.as_mut()));
        let stderr = scope.spawn(move || text_of(stderr.as_mut()));
        let mut waited = Duration::ZERO;
        let status = loop {
            if let Some(status) = child.try_wait().map_err(io)? {
                break status;
            }
            if waited >= ANSWER {
                child.kill().and_then(|()| child.wait()).map_err(io)?;
                return Err(format!("it does not answer within {ANSWER:?}"));
            }
            std::thread::sleep(LOOK);
            waited += LOOK;
        };
        let lost = |_| "its words were lost".to_owned();
        Ok(Output {
            status,
            stdout: stdout.join().map_err(lost)?,
            stderr: stderr.join().map_err(lost)?,
        })
    })
}

fn text_of(stream: Option<&mut impl std::io::Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        // What came until it broke is what there is.
        let _ = stream.read_to_end(&mut bytes);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use crate::config::parse;

    const RUN: &str = "[run]\nname = \"r\"\n[model]\nprogram = \"own\"\nname = \"rings\"\n\
                       [rings]\nwidth = 3\n[train]\nsamples = 100\n[optimizer]\nlearning_rate = 1\n";

    /// A program that answers so, in a folder of its own.
    fn program(script: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("own");
        std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        folder
    }

    const TELLS: &str = r#"case "$2" in
    --json) echo '{"tradewind": "0.1.0", "tasks": [{"name": "rings", "about": "rings", "validation_metric": "error",
        "keys": [{"name": "rings.width", "type": "int", "min": 1, "max": 9, "default": "4", "meaning": "Width."}]}]}' ;;
    *) read line; echo "[[\"rings.width\", \"is odd in: $line\"]]" ;;
    esac"#;

    #[test]
    fn a_program_tells_its_keys_and_checks_them() {
        let check = |script: &str, set: &[&str], want: &str| {
            let folder = program(script);
            let set: Vec<String> = set.iter().map(|set| (*set).to_owned()).collect();
            let error = parse(RUN, "c.toml", folder.path(), &set).unwrap_err();
            let text = error.to_string();
            let want = want.replace("OWN", &folder.path().join("own").display().to_string());
            assert!(text.starts_with(&want), "{text}");
        };
        let cannot = "c.toml, line 4: model.program = \"own\" cannot be asked for its tasks: ";
        check(
            TELLS,
            &[],
            "c.toml, line 7: rings.width = 3 is odd in: rings.width = 3",
        );
        check(
            TELLS,
            &["rings.width=10"],
            "--set: rings.width = 10; it takes an integer from 1 to 9",
        );
        check(
            TELLS,
            &["rings.with=1"],
            "--set: rings.with is no key; did you mean \"rings.width\"?",
        );
        check(
            "echo broken >&2; exit 3",
            &[],
            &format!("{cannot}it ended with exit status: 3 and said: broken; is it a program"),
        );
        check(
            "echo hello",
            &[],
            &format!("{cannot}it answers with something else"),
        );
        check(
            TELLS,
            &["model.program=other"],
            "--set: model.program = \"other\" cannot be asked for its tasks: it cannot be run: No such file",
        );
    }
}
