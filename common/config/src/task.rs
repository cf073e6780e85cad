//! What is trained, and on what. A task has a name, which `model.name` chooses, and keys of its own;
//! [`task!`](macro@crate::task) defines it once. Those of other tasks need not be given.

mod boxes;
mod cosmoflow;
mod deepcam;
mod described;
mod field;
mod forecast;
mod hep;
mod known;
mod mnist;
mod replay;
mod resnet;

use std::collections::BTreeMap;
use std::path::Path;

use toml_edit::Document;

use super::key::Key;
use super::{Value, Values};
pub use boxes::ClimateBoxes;
pub use cosmoflow::Cosmoflow;
pub use deepcam::Deepcam;
pub use described::{described, description};
pub use field::Typed;
pub use forecast::Forecast;
pub use hep::Hep;
pub use known::KnownTask;
pub use mnist::Mnist;
pub use replay::Replay;
pub use resnet::Resnet;
pub use tradewind_common::choice::Unfit;

/// The tasks that every worker program has, a line each.
pub(crate) const BUILT_IN: &[KnownTask] = &[
    KnownTask::of::<Forecast>(),
    KnownTask::of::<Mnist>(),
    KnownTask::of::<Resnet>(),
    KnownTask::of::<Replay>(),
    KnownTask::of::<Cosmoflow>(),
    KnownTask::of::<Hep>(),
    KnownTask::of::<Deepcam>(),
    KnownTask::of::<ClimateBoxes>(),
];

/// What stands in the place of a task where ranks are a person's script, which brings model, data and loss. No
/// `model.name` chooses it.
pub(crate) const SCRIPT: TaskDefinition = TaskDefinition {
    name: "script",
    about: "a script of your own",
    validation_metric: "metric",
    keys: &[],
};

/// What a task is called and what can be said of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TaskDefinition {
    /// The value of `model.name`.
    pub name: &'static str,
    /// What it is, behind "`name` is"; without the full stop.
    pub about: &'static str,
    /// Name of what the task measures on its validation split, which is what a target is of.
    pub validation_metric: &'static str,
    /// Its own keys.
    pub keys: &'static [Key],
}

/// Whoever is told what does not fit together: the key, and what is wrong with its value, such as "is
/// an empty range".
pub type Wrong<'a> = dyn FnMut(&'static str, String) + 'a;

/// The settings of a task as a struct; [`task!`](macro@crate::task) defines one.
pub trait TaskSettings: Sized {
    /// The task.
    const DEFINITION: TaskDefinition;

    /// From the values of its keys.
    ///
    /// # Errors
    /// Names the key whose value its field cannot have.
    fn of(task: &Task) -> Result<Self, Unfit>;

    /// Tells what does not fit together.
    fn check(&self, wrong: &mut Wrong<'_>);
}

/// The chosen task with the values of its keys. Paths are absolute.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    definition: TaskDefinition,
    values: BTreeMap<&'static str, Value>,
}

impl Task {
    /// What it is.
    pub fn definition(&self) -> &TaskDefinition {
        &self.definition
    }

    /// The value of `model.name`.
    pub fn name(&self) -> &'static str {
        self.definition.name
    }

    /// Name of what the task measures on its validation split, which is what a target is of.
    pub fn validation_metric(&self) -> &'static str {
        self.definition.validation_metric
    }

    /// Its settings as a struct; `None` if they are those of another task, or one of them does not fit
    /// its field, which is refused before.
    pub fn settings<S: TaskSettings>(&self) -> Option<S> {
        let own = self.definition.name == S::DEFINITION.name;
        own.then(|| S::of(self).ok()).flatten()
    }

    /// The value of one of its keys as a field's type.
    ///
    /// # Errors
    /// The type cannot have it.
    pub fn field<T: Typed>(&self, key: &'static str) -> Result<T, Unfit> {
        let value = self.values.get(key).ok_or_else(|| Unfit {
            key,
            problem: "has no value".into(),
        })?;
        T::typed(value).ok_or_else(|| Unfit {
            key,
            problem: format!("is {value}, which its field cannot have"),
        })
    }

    /// Its keys with their values, as TOML.
    pub fn to_toml(&self) -> String {
        let lines = self.values.iter();
        lines
            .map(|(key, value)| format!("{key} = {value}\n"))
            .collect()
    }

    /// Reads what [`to_toml`](Self::to_toml) writes.
    ///
    /// # Errors
    /// What is no TOML, a key that is missing, or a value out of its range.
    pub fn from_toml(definition: TaskDefinition, text: &str) -> Result<Self, String> {
        let document = Document::parse(text).map_err(|error| error.message().to_owned())?;
        let mut values = BTreeMap::new();
        for key in definition.keys {
            let (section, name) = key.name.split_once('.').unwrap_or(("", key.name));
            let table = document.get(section).and_then(|item| item.as_table_like());
            let item = table.and_then(|table| table.get(name));
            let item = item.ok_or_else(|| format!("{} is missing", key.name))?;
            let value = key.kind.read(item);
            values.insert(
                key.name,
                value.map_err(|what| format!("{} {what}", key.name))?,
            );
        }
        Ok(Self { definition, values })
    }

    /// What the configuration says of the task that it chooses; `wrong` hears what does not fit
    /// together. Paths are relative to `folder`.
    pub(super) fn read(
        values: &Values<'_>,
        folder: &Path,
        wrong: &mut dyn FnMut(&str, String),
    ) -> Self {
        let name = values.text("model.name");
        if name == SCRIPT.name {
            return Self {
                definition: SCRIPT,
                values: BTreeMap::new(),
            };
        }
        let known = values.tasks.named(name);
        let known = known.expect("the key has no other choices");
        let definition = known.definition;
        let of_key = |key: &Key| (key.name, values.get(key.name).absolute(key.kind, folder));
        let task = Self {
            definition,
            values: definition.keys.iter().map(of_key).collect(),
        };
        for Unfit { key, problem } in known.check(&task) {
            wrong(key, problem);
        }
        task
    }
}

/// Defines a task: its name, what it is in a few words, what it measures on its validation split, and its
/// keys with the fields that they are read into. A key is documented by the comment of its field, which
/// has to be understood without others.
///
/// ```
/// tradewind_config::task! {
///     /// Points on rings.
///     "rings" ("a small network that tells on which ring a point is")
///     measures "validation error" is Rings {
///         /// Number of units of the hidden layer.
///         width: u32 = "rings.width", int(1, 4096), default "32";
///         /// Folder with the points, relative to the configuration file.
///         folder: std::path::PathBuf = "rings.folder", Path;
///     }
///     checked by fits
/// }
///
/// fn fits(rings: &Rings, wrong: &mut tradewind_config::Wrong<'_>) {
///     if rings.width % 2 == 1 {
///         wrong("rings.width", "is odd".into());
///     }
/// }
/// ```
///
/// Kinds of keys are those of [`Kind`](crate::Kind), besides [`int`](crate::key::int) and
/// [`float`](crate::key::float). Without `checked by` everything fits together.
#[macro_export]
macro_rules! task {
    (@default) => { None };
    (@default $default:literal) => { Some($default) };
    (@check $is:ident $wrong:ident) => { let _ = ($is, $wrong); };
    (@check $is:ident $wrong:ident $check:path) => { $check($is, $wrong) };
    (
        $(#[$doc:meta])*
        $name:literal ($about:literal) measures $metric:literal is $Type:ident {
            $(
                $(#[doc = $field_doc:literal])+
                $field:ident: $type:ty = $key:literal, $kind:expr $(, default $default:literal)?;
            )*
        }
        $(checked by $check:path)?
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $Type {
            $( $(#[doc = $field_doc])+ pub $field: $type ),*
        }

        impl $Type {
            /// Name of what is measured on the validation split.
            pub const VALIDATION_METRIC: &'static str = $metric;
        }

        impl $crate::TaskSettings for $Type {
            const DEFINITION: $crate::TaskDefinition = $crate::TaskDefinition {
                name: $name,
                about: $about,
                validation_metric: $metric,
                keys: {
                    #[allow(unused_imports, reason = "a task has keys of some kinds")]
                    use $crate::{key::{float, int}, Kind::*};
                    &[ $( $crate::key::Key {
                        name: $key,
                        kind: $kind,
                        default: $crate::task!(@default $($default)?),
                        tasks: &[$name],
                        meaning: concat!($($field_doc),+).trim_ascii(),
                    } ),* ]
                },
            };

            fn of(task: &$crate::Task) -> Result<Self, $crate::Unfit> {
                Ok(Self { $( $field: task.field($key)? ),* })
            }

            fn check(&self, wrong: &mut $crate::Wrong<'_>) {
                $crate::task!(@check self wrong $($check)?);
            }
        }
    };
}
