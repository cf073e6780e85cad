//! `tradewind init`: writes a commented configuration to begin with.

mod data;
mod draft;

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::builder::{PossibleValue, PossibleValuesParser};
use tradewind_config::{TaskDefinition, Tasks, Value};
use tradewind_folder::input::{self, BadInput};
use tradewind_process::Docs;
use tradewind_process::log::say;

use data::Found;
use draft::Draft;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// A PyTorch script of your own, which is to be each rank.
    #[arg(long, value_name = "SCRIPT", conflicts_with_all = ["data", "model"])]
    script: Option<PathBuf>,
    /// Data to train on, a folder or a file. Without --model the model is the one that such data are for.
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// A built-in model; forecast if neither a script nor data are named.
    #[arg(long, value_name = "NAME", value_parser = models())]
    model: Option<String>,
    /// The file to write, which must not be there yet; if not given NAME.toml, by the name of the script, the
    /// data or the model.
    file: Option<PathBuf>,
}

/// The names that there are, with a few words on each.
fn models() -> PossibleValuesParser {
    let models = Tasks::built_in().definitions();
    let values = models.map(|is| PossibleValue::new(is.name).help(is.about));
    values.collect::<Vec<_>>().into()
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match init(arguments) {
        Ok(told) => {
            say(told);
            ExitCode::SUCCESS
        }
        Err(error) => input::fail(&error, Docs::COMMANDS).into(),
    }
}

/// Writes the file; what is said of it.
fn init(arguments: &Arguments) -> anyhow::Result<String> {
    let draft = draft(arguments)?;
    let file = arguments.file.clone();
    let file = file.unwrap_or_else(|| PathBuf::from(format!("{}.toml", draft.name())));
    let text = draft.text(&file);
    create(&file, &text)?;
    let path = file.display();
    let mut told = format!("{path} is written");
    let open = draft.open();
    if !open.is_empty() {
        told += &format!("; set {} in it", open.join(", "));
    }
    Ok(format!(
        "{told}. Then `tradewind config {path}` checks it, and `tradewind run {path}` trains"
    ))
}

fn draft(arguments: &Arguments) -> anyhow::Result<Draft> {
    if let Some(script) = &arguments.script {
        if !script.is_file() {
            bail!(BadInput(format!("there is no script {}", script.display())));
        }
        return Ok(Draft::of_script(&name_of(script), command(script)));
    }
    // Paths in a file are relative to its folder, those on a command line to the present one.
    let beside = arguments.file.as_deref().and_then(Path::parent);
    let is_here = beside.is_none_or(|folder| folder.as_os_str().is_empty());
    let written = |path: &Path| match is_here {
        true => Ok(path.to_owned()),
        false => std::path::absolute(path),
    };
    let Some(given) = &arguments.data else {
        let model = arguments.model.as_deref().unwrap_or("forecast");
        return Ok(Draft::of_model(definition(model), model, None));
    };
    if !given.exists() {
        bail!(BadInput(format!(
            "there are no data at {}",
            given.display()
        )));
    }
    let data = written(given).with_context(|| format!("cannot name {}", given.display()))?;
    let found = match &arguments.model {
        Some(model) => Found::for_model(definition(model), &data)?,
        None => Found::look(&data)?,
    };
    let name = name_of(given);
    Ok(Draft::of_model(definition(found.model), &name, Some(found)))
}

fn definition(model: &str) -> &'static TaskDefinition {
    let known = Tasks::built_in().named(model);
    &known.expect("clap knows the models").definition
}

/// The command that starts a script.
fn command(script: &Path) -> Value {
    let path = script.display().to_string();
    let is_python = script.extension().is_some_and(|ending| ending == "py");
    Value::Texts(match is_python {
        true => vec!["python".into(), path],
        // As a shell has it, which looks for bare names elsewhere.
        false if path.contains('/') => vec![path],
        false => vec![format!("./{path}")],
    })
}

/// The name of a run, from that of a file or folder.
fn name_of(path: &Path) -> String {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let stem = match path.is_dir() {
        true => absolute.file_name(),
        false => absolute.file_stem(),
    };
    let stem = stem.map(|stem| stem.to_string_lossy().into_owned());
    let allowed = |c: char| match c {
        c if c.is_ascii_alphanumeric() || "._-".contains(c) => c,
        _ => '-',
    };
    let name: String = stem.unwrap_or_default().chars().map(allowed).collect();
    let name = name.trim_start_matches(['.', '_', '-']);
    match name.chars().take(64).collect::<String>() {
        empty if empty.is_empty() => "first".into(),
        name => name,
    }
}

/// Writes a file that is not there yet.
fn create(path: &Path, text: &str) -> anyhow::Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    let mut file = match File::create_new(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let there = path.display();
            let text = format!("{there} is there already, and stays as it is; name another file");
            bail!(BadInput(text));
        }
        opened => opened.with_context(cannot)?,
    };
    let written = file.write_all(text.as_bytes());
    if written.is_err() {
        // A part of it would be in the way of the next try.
        let _ = std::fs::remove_file(path);
    }
    written.with_context(cannot)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tradewind_common::exit::Exit;
    use tradewind_config::{Config, Forecast};
    use tradewind_data::hdf5::write_sample;
    use tradewind_data::packed::{Settings, Writer};
    use tradewind_data::{Field, Kind};

    use super::*;

    fn asked(words: &[&str]) -> Arguments {
        use clap::Parser;
        let all = ["tradewind", "init"].iter().chain(words);
        match crate::Arguments::try_parse_from(all).unwrap().verb {
            crate::Verb::Init(arguments) => arguments,
            other => panic!("{other:?}"),
        }
    }

    /// The configuration that is written, checked; and what was said.
    #[track_caller]
    fn written(root: &Path, words: &[&str]) -> (Config, String, String) {
        let file = root.join("out.toml");
        let _ = fs::remove_file(&file);
        let path = file.display().to_string();
        let words: Vec<&str> = words.iter().copied().chain([path.as_str()]).collect();
        let told = init(&asked(&words)).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        (parsed(&text, root), text, told)
    }

    #[track_caller]
    fn parsed(text: &str, root: &Path) -> Config {
        Config::parse(text, "out.toml", root, &[]).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    /// The text with what it offers switched on.
    fn all_on(text: &str) -> String {
        let on = |line: &str| match line.strip_prefix('#') {
            Some(key) if key.starts_with(|c: char| c.is_ascii_lowercase()) => format!("{key}\n"),
            _ => format!("{line}\n"),
        };
        text.lines().map(on).collect()
    }

    #[test]
    fn what_is_written_for_a_model_is_right() {
        let root = tempfile::tempdir().unwrap();
        for task in Tasks::built_in().definitions() {
            let (config, text, _) = written(root.path(), &["--model", task.name]);
            assert_eq!(config.task.name(), task.name);
            assert!(!text.contains(".deps"), "its data are elsewhere: {text}");
            assert_eq!(config.idle(), <[String; 0]>::default(), "{text}");
            for key in task.keys {
                let name = key.name.split_once('.').unwrap().1;
                let of = |line: &str| {
                    line.trim_start_matches('#')
                        .starts_with(&format!("{name} = "))
                };
                assert!(text.lines().any(of), "{} is not in\n{text}", key.name);
            }
            parsed(&all_on(&text), root.path());
        }
    }

    #[test]
    fn a_script_is_each_rank() {
        let root = tempfile::tempdir().unwrap();
        let script = root.path().join("my net.py");
        fs::write(&script, "import tradewind").unwrap();
        let path = script.display().to_string();
        let (config, text, told) = written(root.path(), &["--script", &path]);
        assert!(config.is_script());
        assert_eq!(config.name.as_str(), "my-net");
        assert!(
            text.contains(&format!("command = [\"python\", \"{path}\"]")),
            "{text}"
        );
        assert!(told.contains("; set train.samples in it."), "{told}");
        let on = all_on(&text);
        assert!(on.contains("\nwidth = 64"), "{on}");
        parsed(&on, root.path());
    }

    fn pack(folder: &Path, fields: &[Field]) {
        fs::create_dir_all(folder).unwrap();
        let path = folder.join("0.pack");
        let mut writer = Writer::create(&path, fields, Settings::default()).unwrap();
        let values: Vec<Vec<u8>> = fields.iter().map(|is| vec![0; is.bytes_max()]).collect();
        let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
        writer.push("0", &values).unwrap();
        writer.finish().unwrap();
    }

    #[test]
    fn the_model_follows_from_the_data() {
        let root = tempfile::tempdir().unwrap();
        let f32s = |name: &str, shape: &[usize]| Field::new(name, Kind::F32, shape);
        let label = |name: &str, shape: &[usize]| Field::new(name, Kind::U8, shape).classes(2);
        let cases = [
            (
                "universes",
                vec![f32s("volume", &[4, 8, 8, 8]), f32s("target", &[4])],
                "cosmoflow",
            ),
            (
                "weather",
                vec![f32s("image", &[16, 4, 8]), label("mask", &[4, 8])],
                "deepcam",
            ),
            (
                "events",
                vec![f32s("data", &[3, 4, 4]), label("label", &[])],
                "hep",
            ),
        ];
        for (name, fields, model) in cases {
            let folder = root.path().join(name);
            for split in ["train", "validation", "held_out"] {
                pack(&folder.join(split), &fields);
            }
            let path = folder.display().to_string();
            let (config, text, told) = written(root.path(), &["--data", &path]);
            assert_eq!((config.task.name(), config.name.as_str()), (model, name));
            assert!(text.contains(&format!("folder = \"{path}\"")), "{text}");
            assert!(!told.contains("set "), "{told}");
            // What is named goes first.
            let of_name = ["--data", &path, "--model", "climate-boxes"];
            assert_eq!(
                written(root.path(), &of_name).0.task.name(),
                "climate-boxes"
            );
        }
        let loose = root.path().join("loose");
        pack(&loose, &[f32s("x", &[2])]);
        let (config, ..) = written(root.path(), &["--data", loose.to_str().unwrap()]);
        assert_eq!(config.task.name(), "replay");
        let digits = root.path().join("digits");
        fs::create_dir(&digits).unwrap();
        fs::write(digits.join("train-images-idx3-ubyte"), "").unwrap();
        let (config, ..) = written(root.path(), &["--data", digits.to_str().unwrap()]);
        assert_eq!(config.task.name(), "mnist");
    }

    #[test]
    fn a_series_is_forecast() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, time: usize| {
            let fields = [
                Field::new("lat", Kind::F32, &[4]),
                Field::new("t2m", Kind::F32, &[time, 4, 8]),
            ];
            let values = fields.each_ref().map(|is| vec![0; is.bytes_max()]);
            write_sample(&root.path().join(name), &fields, &values).unwrap();
        };
        write("b.nc", 60);
        write("a.nc", 70);
        let (config, text, told) = written(root.path(), &["--data", root.path().to_str().unwrap()]);
        let forecast: Forecast = config.task.settings().unwrap();
        let files = ["a.nc", "b.nc"].map(|name| root.path().join(name));
        assert_eq!(forecast.files, files);
        assert_eq!(forecast.variable, "t2m");
        // The last sixth of the shortest, and the sixth before.
        assert_eq!((forecast.validation, forecast.held_out), (40..50, 50..60));
        // 20 times all 8 + 1 consecutive maps of each.
        assert_eq!(config.train.samples, 20 * 2 * (40 - 8));
        assert!(text.contains("\n#time_origin = 0\n"), "{text}");
        assert!(!told.contains("set "), "{told}");
        // Not in all of them.
        write("a.nc", 2);
        let arguments = asked(&[
            "--model",
            "forecast",
            "--data",
            root.path().to_str().unwrap(),
        ]);
        let error = init(&arguments).unwrap_err().to_string();
        assert!(
            error.contains("with a variable of time, rows and columns"),
            "{error}"
        );
    }

    #[test]
    fn nothing_is_overwritten_and_what_cannot_be_is_told() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name).display().to_string();
        let refused = |words: &[&str], want: &str| {
            let error = init(&asked(words)).unwrap_err();
            assert_eq!(input::exit(&error), Exit::BadInput, "{error:#}");
            assert!(format!("{error:#}").contains(want), "{error:#}");
        };
        fs::write(at("mine.toml"), "mine").unwrap();
        refused(&[&at("mine.toml")], "is there already, and stays as it is");
        assert_eq!(fs::read_to_string(at("mine.toml")).unwrap(), "mine");
        let out = at("out.toml");
        refused(&["--script", &at("none.py"), &out], "there is no script");
        refused(&["--data", &at("none"), &out], "there are no data at");
        refused(&["--data", &at(""), &out], "nothing of it is understood");
        refused(
            &["--data", &at(""), "--model", "resnet50", &out],
            "takes no data",
        );
        pack(
            &root.path().join("odd/train"),
            &[Field::new("x", Kind::F32, &[2])],
        );
        refused(
            &["--data", &at("odd"), &out],
            "for which no built-in model is",
        );
        assert!(!Path::new(&out).exists());
    }

    #[test]
    fn a_run_is_named_as_its_file() {
        let check = |path: &str, want: &str| assert_eq!(name_of(Path::new(path)), want);
        check("a/train.py", "train");
        check("my data.nc", "my-data");
        check("/", "first");
        check(".hidden.d/…/-x", "x");
    }
}
