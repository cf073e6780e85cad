//! `tradewind data`: packs samples, looks at them, verifies them, counts them, lists files of them, and makes some.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::bail;
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Subcommand, ValueEnum};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use tradewind_common::exit::Exit;
use tradewind_data::packed::{Compression, Settings};
use tradewind_data::stats::{self, Channels, FieldStats};
use tradewind_data::walk::{self, Packing};
use tradewind_data::{DataError, Hdf5Folder, Layout, Source, manifest};
use tradewind_folder::input::{self, BadInput};
use tradewind_make::{Form, Order};
use tradewind_process::Docs;
use tradewind_process::log::say;

/// Bad samples that are told one by one.
const TOLD_MAX: usize = 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Put samples of any form into packed files, which are read fastest.
    Pack(Pack),
    /// Print what samples are made of, how many there are, and in which form.
    Inspect(Samples),
    /// Read every sample and name those that are damaged or have numbers that cannot be.
    Verify(Samples),
    /// Print mean, deviation and extremes of every field, and how often each class occurs.
    Stats(Stats),
    /// Write the list of a folder's files, so that a run need not look for them.
    Manifest(Manifest),
    /// Make data by simulation. Goes on where it was interrupted.
    Make(Make),
}

/// Where samples are.
#[derive(Debug, clap::Args)]
struct Samples {
    /// A packed file or a folder of them, a folder of HDF5 files or its manifest, an .npy or .npz file.
    path: PathBuf,
    /// What the datasets of HDF5 files are: deepcam, cosmoflow, hep, or such as image=climate/data:f32.
    #[arg(long)]
    layout: Option<String>,
    /// Readers at a time.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    readers: u16,
}

#[derive(Debug, clap::Args)]
struct Pack {
    #[command(flatten)]
    from: Samples,
    /// The folder to make.
    out: PathBuf,
    /// Number of files, to which samples are dealt evenly; nodes that stage data take whole files.
    #[arg(long, default_value_t = 1)]
    files: usize,
    /// Compress records: smaller files, which take longer to read.
    #[arg(long, value_enum, default_value_t = Compress::None)]
    compress: Compress,
    /// Leave out samples that are damaged or have numbers that cannot be, instead of ending.
    #[arg(long)]
    leave_out: bool,
    /// Take numbers that are NaN or infinite.
    #[arg(long)]
    any_numbers: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Compress {
    /// As they are.
    None,
    /// Transposed bytes and lz4.
    Lz4,
}

#[derive(Debug, clap::Args)]
struct Stats {
    #[command(flatten)]
    from: Samples,
    /// Which extent counts channels, of which each has statistics of its own.
    #[arg(long, value_enum, default_value_t = Extent::None)]
    channels: Extent,
    /// Write them to this file, too, as JSON.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Extent {
    /// None: all numbers of a field together.
    None,
    /// The first, as in [channels, y, x].
    First,
    /// The last, as in [y, x, channels].
    Last,
}

#[derive(Debug, clap::Args)]
struct Manifest {
    /// The folder of HDF5 files.
    folder: PathBuf,
    /// What their datasets are: deepcam, cosmoflow, hep, or such as image=climate/data:f32.
    #[arg(long)]
    layout: Option<String>,
    /// The file to write; samples.manifest in the folder if not given, where it is found.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct Make {
    /// What to make.
    #[arg(value_parser = recipes())]
    name: String,
    /// Number of samples of all splits together; a few more complete the last simulation.
    #[arg(long)]
    samples: Option<usize>,
    /// What all random numbers follow from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The folder to make, or to go on with; .deps/data/NAME if not given.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// How samples are stored.
    #[arg(long, value_enum, default_value_t = MakeForm::Packed)]
    form: MakeForm,
    /// Simulations at a time; as many as there are cores if not given.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// The Python that runs the generator of hep, with its packages; .deps/pythia/bin/python if not given.
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum MakeForm {
    /// Packed files, which are read fastest.
    Packed,
    /// A file for each sample, in the layout of the public data.
    Hdf5,
}

/// The names that there are, with a line on each.
fn recipes() -> PossibleValuesParser {
    let recipes = tradewind_make::RECIPES.iter();
    let values = recipes.map(|recipe| PossibleValue::new(recipe.name).help(recipe.about));
    values.collect::<Vec<_>>().into()
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let done = match &arguments.verb {
        Verb::Pack(arguments) => pack(arguments),
        Verb::Inspect(from) => inspect(from),
        Verb::Verify(from) => verify(from),
        Verb::Stats(arguments) => count(arguments),
        Verb::Manifest(arguments) => list(arguments),
        Verb::Make(arguments) => make(arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let exit = match error.downcast_ref::<DataError>() {
                Some(DataError::Asked(_)) => input::refuse(&error, Docs::DATA),
                Some(DataError::Interrupted) => {
                    tradewind_process::complain!("{error:#}");
                    Exit::Interrupted
                }
                _ => input::fail(&error, Docs::DATA),
            };
            exit.into()
        }
    }
}

impl Samples {
    fn open(&self) -> anyhow::Result<Arc<dyn Source>> {
        let layout = self.layout.as_deref().map(layout).transpose()?;
        let source = tradewind_data::open(&self.path, layout.as_ref(), self.readers.into(), None);
        // What was named cannot be used.
        let source = source.map_err(|error| BadInput(error.to_string()))?;
        Ok(source.into())
    }
}

fn layout(text: &str) -> Result<Layout, BadInput> {
    text.parse()
        .map_err(|error| BadInput(format!("--layout {text}: {error}")))
}

/// A bar over samples, with their bytes.
struct Bar(ProgressBar);

impl Bar {
    fn over(samples: usize, what: &'static str) -> Self {
        let style = "{prefix} [{bar:30}] {pos}/{len} samples, {msg}, {eta} left";
        let style = ProgressStyle::with_template(style).expect("the template is right");
        let bar = ProgressBar::new(samples as u64).with_style(style);
        bar.set_prefix(what);
        Self(bar)
    }

    fn at(&self) -> impl FnMut(usize, usize) + '_ {
        move |samples, bytes| {
            self.0.set_position(samples as u64);
            if samples.is_multiple_of(64) {
                self.0.set_message(HumanBytes(bytes as u64).to_string());
            }
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn pack(arguments: &Pack) -> anyhow::Result<()> {
    let source = arguments.from.open()?;
    let packing = Packing {
        files: arguments.files,
        readers: arguments.from.readers.into(),
        settings: Settings {
            compression: match arguments.compress {
                Compress::None => Compression::None,
                Compress::Lz4 => Compression::Lz4,
            },
            any_numbers: arguments.any_numbers,
        },
        leave_out: arguments.leave_out,
    };
    let bar = Bar::over(source.len(), "packing");
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // Who asks twice does not wait.
        flag::register_conditional_shutdown(
            signal,
            Exit::Interrupted.number().into(),
            Arc::clone(&stop),
        )?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    let done = walk::pack(&source, &arguments.out, packing, &mut bar.at(), &stop)?;
    drop(bar);
    tell(&done.left_out, "left out");
    say(format_args!(
        "{} samples, {}, are in {} of {}",
        done.samples,
        HumanBytes(done.bytes as u64),
        arguments.out.display(),
        match arguments.files {
            1 => format!("one file, {}", HumanBytes(done.stored)),
            files => format!("{files} files, {}", HumanBytes(done.stored)),
        },
    ));
    Ok(())
}

fn inspect(from: &Samples) -> anyhow::Result<()> {
    let source = from.open()?;
    let fields: Vec<String> = source
        .fields()
        .iter()
        .map(|field| {
            let classes = field.classes.map(|n| format!(", classes 0..{n}"));
            let bytes = HumanBytes(field.bytes_max() as u64);
            format!("  {field}, {bytes}{}", classes.unwrap_or_default())
        })
        .collect();
    let bytes = tradewind_data::batch_bytes(source.fields(), 1) as u64;
    say(format_args!(
        "{}: {} samples of at most {}",
        from.path.display(),
        source.len(),
        HumanBytes(bytes)
    ));
    say(fields.join("\n"));
    if let Some(last) = source.len().checked_sub(1) {
        say(format_args!("first: {}", source.name(0)));
        say(format_args!("last: {}", source.name(last)));
    }
    Ok(())
}

fn verify(from: &Samples) -> anyhow::Result<()> {
    let source = from.open()?;
    let bar = Bar::over(source.len(), "verifying");
    let bad = walk::verify(&source, from.readers.into(), &mut bar.at())?;
    drop(bar);
    tell(&bad, "bad");
    let (bad, all) = (bad.len(), source.len());
    if bad > 0 {
        bail!(
            "{bad} of {all} samples of {} cannot be used; `tradewind data pack --leave-out` packs the others",
            from.path.display()
        );
    }
    say(format_args!("all {all} samples are whole"));
    Ok(())
}

/// Names the first of some samples.
fn tell(samples: &[DataError], what: &str) {
    for error in samples.iter().take(TOLD_MAX) {
        tradewind_process::complain!("{what}: {error}");
    }
    if samples.len() > TOLD_MAX {
        tradewind_process::complain!("{what}: {} more", samples.len() - TOLD_MAX);
    }
}

fn count(arguments: &Stats) -> anyhow::Result<()> {
    let from = &arguments.from;
    let source = from.open()?;
    let channels = match arguments.channels {
        Extent::None => Channels::Together,
        Extent::First => Channels::First,
        Extent::Last => Channels::Last,
    };
    let bar = Bar::over(source.len(), "counting");
    let found = stats::stats(&source, channels, from.readers.into(), &mut bar.at())?;
    drop(bar);
    say(table(&found));
    if let Some(out) = &arguments.out {
        write(out, &found)?;
    }
    Ok(())
}

fn write(out: &Path, found: &[FieldStats]) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(found)?;
    tradewind_process::whole::write(out, text + "\n")?;
    say(format_args!("written to {}", out.display()));
    Ok(())
}

/// A line for each field, or for each of its channels.
fn table(found: &[FieldStats]) -> String {
    let mut lines = vec![format!(
        "{:<24} {:>13} {:>13} {:>13} {:>13}",
        "field", "mean", "deviation", "min", "max"
    )];
    for of in found {
        for (channel, numbers) in of.channels.iter().enumerate() {
            let name = match of.channels.len() {
                1 => of.field.name.clone(),
                _ => format!("{}[{channel}]", of.field.name),
            };
            lines.push(format!(
                "{name:<24} {:>13.6e} {:>13.6e} {:>13.6e} {:>13.6e}",
                numbers.mean, numbers.deviation, numbers.min, numbers.max
            ));
        }
        let all: u64 = of.classes.iter().sum();
        for (class, count) in of.classes.iter().enumerate() {
            let part = 100.0 * *count as f64 / all as f64;
            lines.push(format!("  class {class:<16} {count:>13} {part:>12.3}%"));
        }
        if let Some((least, mean, most)) = of.rows {
            lines.push(format!(
                "  rows of a sample: {least} to {most}, mean {mean:.2}"
            ));
        }
    }
    lines.join("\n")
}

fn list(arguments: &Manifest) -> anyhow::Result<()> {
    let folder = &arguments.folder;
    let default = || folder.join(manifest::FILE);
    let out = arguments.out.clone().unwrap_or_else(default);
    if out.exists() {
        let out = out.display();
        let text = format!("{out} is there already; delete it to have the folder listed again");
        return Err(BadInput(text).into());
    }
    let layout = arguments.layout.as_deref().map(layout).transpose()?;
    let listed = Hdf5Folder::open(folder, layout.as_ref());
    let listed = listed.map_err(|error| BadInput(error.to_string()))?;
    listed.write_manifest(&out)?;
    say(format_args!(
        "the files with {} samples are listed in {}",
        listed.len(),
        out.display()
    ));
    Ok(())
}

fn make(arguments: &Make) -> anyhow::Result<()> {
    let recipe = tradewind_make::named(&arguments.name).expect("no other name is taken");
    if arguments.python.is_some() && recipe.python.is_none() {
        let text = format!("--python: {} needs no Python", recipe.name);
        return Err(BadInput(text).into());
    }
    let default = || Path::new(".deps/data").join(recipe.name);
    let folder = arguments.out.clone().unwrap_or_else(default);
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let order = Order {
        folder: &folder,
        samples: arguments.samples.unwrap_or(recipe.samples),
        seed: arguments.seed,
        form: match arguments.form {
            MakeForm::Packed => Form::Packed,
            MakeForm::Hdf5 => Form::Hdf5,
        },
        threads: arguments.threads.map_or_else(cores, usize::from),
        python: arguments.python.as_deref(),
    };
    let style = "making [{bar:30}] {pos}/{len} samples, {eta} left";
    let style = ProgressStyle::with_template(style).expect("the template is right");
    let bar = ProgressBar::new(order.samples as u64).with_style(style);
    let made = (recipe.make)(&order, &mut |done, all| {
        if bar.length() != Some(all as u64) || bar.position() == 0 {
            bar.set_length(all as u64);
            // What was there says nothing about how fast others come.
            bar.set_position(done as u64);
            bar.reset_eta();
        }
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    let made = made.map_err(|error| match error {
        // The folder that was named is another one's, or cannot be had; nothing was begun.
        DataError::File { ref path, .. } if *path == folder => BadInput(error.to_string()).into(),
        error => anyhow::Error::from(error),
    })?;
    let found = match made.found {
        0 => String::new(),
        found => format!(", of which {found} were there"),
    };
    say(format_args!(
        "{} samples{found}, {}, are in {}; CARD.md there says what they are",
        made.samples,
        HumanBytes(made.bytes),
        folder.display()
    ));
    Ok(())
}
