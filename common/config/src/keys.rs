//! Every configuration key, once: its type, range, default and meaning, and the section that it is
//! in. The parser, the resolved configuration, messages and docs/configuration.md are made from these
//! lists.

mod compute;
mod fleet;
mod operation;
mod optimizer;
mod task;
mod update;

use std::sync::LazyLock;

use tradewind_common::choice::{self, Choices, Field, Settings};
use tradewind_common::data::DataSets;
use tradewind_common::policy::MergeSpec;
use tradewind_common::spec::FaultSpec;
use tradewind_common::straggler::Dials;

use super::exchange;
pub use super::key::{Key, Section, float, int};
use super::key::{MANY, key};
use super::liveness::Liveness;
use super::loader::Loader;
use super::slurm;
use super::value::Kind::{self, Bool, Choice};
pub(super) use update::BATCHES_PER_STEP;

/// The key that chooses one of several, by name: what it decides, then what each of them does. `others` are
/// names of settings of some of them.
pub(super) fn chooser<C: Choices>(
    name: &'static str,
    default: &'static str,
    (what, afterwards): (&str, &str),
    others: &[(&'static str, &str)],
) -> Key {
    let defined = C::ALL.iter().map(|is| (is.name, is.about));
    let all: Vec<(&str, &str)> = defined.chain(others.iter().copied()).collect();
    let names: Vec<&'static str> = all.iter().map(|(name, _)| *name).collect();
    let told: String = all
        .iter()
        .map(|(name, about)| format!(" `{name}`: {about}."))
        .collect();
    key(
        name,
        Choice(names.leak()),
        Some(default),
        format!("{what}{told}{afterwards}").leak(),
    )
}

/// The keys of all fields that one of several has, once each. What a key means to one of them only is told
/// behind its name.
pub(super) fn fields<C: Choices>() -> Vec<Key> {
    let mut keys: Vec<Key> = Vec::new();
    for is in C::ALL {
        for (_, field) in is.fields {
            let own = of_field(field);
            match keys.iter_mut().find(|key| key.name == own.name) {
                None => keys.push(own),
                Some(key) if key.meaning.contains(own.meaning) => {}
                Some(key) => {
                    key.meaning = format!("{} `{}`: {}", key.meaning, is.name, own.meaning).leak();
                }
            }
        }
    }
    keys
}

fn of_field(field: &Field) -> Key {
    key(
        field.key,
        kind_of(field),
        Some(field.default),
        field.meaning,
    )
}

pub(super) fn kind_of(field: &Field) -> Kind {
    match field.kind {
        choice::Kind::Number { min, max } => float(min, max),
        choice::Kind::Count { min, max } => int(whole(min), whole(max)),
        choice::Kind::Counts { min, max } => Kind::IntsOrNone {
            min: whole(min),
            max: whole(max),
        },
        choice::Kind::Numbers { min, max } => Kind::FloatsOrNone { min, max },
        choice::Kind::Flag => Bool,
        choice::Kind::Word(words) => Choice(words),
    }
}

fn whole(bound: u64) -> i64 {
    bound.try_into().expect("bounds are integers of TOML")
}

/// Adds the keys of settings that are defined elsewhere, each to its section.
fn add<T: Settings>(sections: &mut [Section]) {
    for (_, field) in T::FIELDS {
        let (name, _) = field.key.split_once('.').expect("keys are section.name");
        let mut sections = sections.iter_mut();
        let section = sections.find(|section| section.name == name);
        let section = section.expect("there is a section of this name");
        section.keys.push(of_field(field));
    }
}

/// A configuration of the keys that have to be given, and no others.
pub const MINIMAL: &str = r#"[run]
name = "first"

[data]
files = ["temperature.nc"]
variable = "t2m"
validation = [400, 440]
held_out = [440, 480]

[train]
samples = 10000

[optimizer]
learning_rate = 0.01
"#;

/// All sections, but those of tasks in programs of somebody's own.
pub fn sections() -> impl Iterator<Item = &'static Section> {
    static ALL: LazyLock<Vec<Section>> = LazyLock::new(|| {
        let lists = [
            fleet::sections(),
            task::sections(),
            update::sections(),
            compute::sections(),
            optimizer::sections(),
            vec![exchange::section()],
            operation::sections(),
            vec![slurm::section()],
        ];
        let mut sections = lists.concat();
        add::<Loader>(&mut sections);
        add::<DataSets>(&mut sections);
        add::<Liveness>(&mut sections);
        add::<FaultSpec>(&mut sections);
        add::<MergeSpec>(&mut sections);
        add::<Dials>(&mut sections);
        sections
    });
    ALL.iter()
}

/// All keys, by section.
pub fn all() -> impl Iterator<Item = &'static Key> {
    sections().flat_map(|section| &section.keys)
}

impl Key {
    /// The default as a value; `None` for a key that has to be given.
    pub fn default_value(&self) -> Option<super::Value> {
        let value = self.kind.read_text(self.default?);
        Some(value.expect("defaults are of their kind"))
    }
}

/// The key of this name.
pub fn find(name: &str) -> Option<&'static Key> {
    all().find(|key| key.name == name)
}
