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

use tradewind_common::choice::Settings;
use tradewind_common::data::DataSets;
use tradewind_common::policy::MergeSpec;
use tradewind_common::spec::FaultSpec;
use tradewind_common::straggler::Dials;

use super::defined::{chooser, fields, of_field};
use super::exchange;
pub use super::key::{Key, Section, float, int};
use super::key::{MANY, key};
use super::liveness::Liveness;
use super::loader::Loader;
use super::slurm;
pub(super) use update::BATCHES_PER_STEP;

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
