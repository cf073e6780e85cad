//! Settings that all processes of a run must agree on, each defined once.
//!
//! [`settings!`](macro@crate::settings) defines fields with their keys, ranges, defaults and meanings.
//! [`choice!`](macro@crate::choice) defines such fields for one of several, an optimizer or a policy, in a
//! file of its own, with what other settings may ask of it; [`choices!`](macro@crate::choices) lists them,
//! or defines them all in place where each is a few lines.
//! The configuration's keys and their documentation, the form on the wire and in records, and the check of
//! ranges follow from these definitions.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};

/// A field, and the key of the configuration that it is read from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Field {
    /// `section.name`.
    pub key: &'static str,
    /// Type and range.
    pub kind: Kind,
    /// As TOML.
    pub default: &'static str,
    /// What it means, with its unit, in sentences that need no other row; Markdown, whose links are
    /// relative to docs/.
    pub meaning: &'static str,
}

/// Type and range of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A number.
    Number {
        /// The least.
        min: f64,
        /// The most.
        max: f64,
    },
    /// A whole number.
    Count {
        /// The least.
        min: u64,
        /// The most.
        max: u64,
    },
    /// Whole numbers, any number of them.
    Counts {
        /// The least of each.
        min: u64,
        /// The most of each.
        max: u64,
    },
    /// Numbers, any number of them.
    Numbers {
        /// The least of each.
        min: f64,
        /// The most of each.
        max: f64,
    },
    /// True or false.
    Flag,
    /// One of these words.
    Word(&'static [&'static str]),
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Setting {
    /// Of [`Kind::Flag`].
    Flag(bool),
    /// Of [`Kind::Count`].
    Count(u64),
    /// Of [`Kind::Number`].
    Number(f64),
    /// Of [`Kind::Word`].
    Word(String),
    /// Of [`Kind::Counts`].
    Counts(Vec<u64>),
    /// Of [`Kind::Numbers`].
    Numbers(Vec<f64>),
}

/// More than anybody counts to.
pub const MANY: u64 = 1_000_000_000_000;

impl Field {
    /// The value that it has if nobody says another.
    pub fn default_setting(&self) -> Setting {
        let read = match self.kind {
            Kind::Number { .. } => self.default.parse().ok().map(Setting::Number),
            Kind::Count { .. } => self.default.parse().ok().map(Setting::Count),
            Kind::Flag => self.default.parse().ok().map(Setting::Flag),
            Kind::Word(_) => Some(Setting::Word(self.default.trim_matches('"').to_owned())),
            Kind::Counts { .. } => (self.default == "[]").then(|| Setting::Counts(Vec::new())),
            Kind::Numbers { .. } => (self.default == "[]").then(|| Setting::Numbers(Vec::new())),
        };
        read.expect("defaults are of their kind")
    }
}

impl Kind {
    /// Whether a value may be one of such a field.
    fn holds(self, setting: &Setting) -> bool {
        match (self, setting) {
            (Self::Number { min, max }, Setting::Number(x)) => (min..=max).contains(x),
            (Self::Count { min, max }, Setting::Count(n)) => (min..=max).contains(n),
            (Self::Counts { min, max }, Setting::Counts(list)) => {
                list.iter().all(|n| (min..=max).contains(n))
            }
            (Self::Numbers { min, max }, Setting::Numbers(list)) => {
                list.iter().all(|x| (min..=max).contains(x))
            }
            (Self::Flag, Setting::Flag(_)) => true,
            (Self::Word(words), Setting::Word(word)) => words.contains(&word.as_str()),
            (
                Self::Number { .. }
                | Self::Count { .. }
                | Self::Counts { .. }
                | Self::Numbers { .. }
                | Self::Flag
                | Self::Word(_),
                _,
            ) => false,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number { min, max } => write!(f, "{min} to {max}"),
            Self::Count { min, max } => write!(f, "a whole number, {min} to {max}"),
            Self::Counts { min, max } => write!(f, "a list of whole numbers, {min} to {max}"),
            Self::Numbers { min, max } => write!(f, "a list of numbers, {min} to {max}"),
            Self::Flag => f.write_str("true or false"),
            Self::Word(words) => write!(f, "one of {}", words.join(", ")),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => flag.fmt(f),
            Self::Count(count) => count.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Word(word) => word.fmt(f),
            Self::Counts(list) => write!(f, "{list:?}"),
            Self::Numbers(list) => write!(f, "{list:?}"),
        }
    }
}

/// The type of a field in Rust.
pub trait Of: Clone {
    /// As a value.
    fn setting(&self) -> Setting;
    /// From a value; `None` if it has another type. Records have whole numbers for numbers.
    fn read(setting: Setting) -> Option<Self>;
}

macro_rules! of {
    ($($type:ty: $value:ident => $setting:expr, $($pattern:pat => $read:expr),+;)+) => { $(
        impl Of for $type {
            fn setting(&self) -> Setting {
                let $value = self;
                $setting
            }

            fn read(setting: Setting) -> Option<Self> {
                match setting {
                    $($pattern => $read,)+
                    _ => None,
                }
            }
        }
    )+ };
}

of! {
    f64: number => Setting::Number(*number),
        Setting::Number(number) => Some(number),
        Setting::Count(count) => Some(count as f64);
    u32: count => Setting::Count(u64::from(*count)), Setting::Count(count) => count.try_into().ok();
    u64: count => Setting::Count(*count), Setting::Count(count) => Some(count);
    bool: flag => Setting::Flag(*flag), Setting::Flag(flag) => Some(flag);
    Vec<u64>: list => Setting::Counts(list.clone()), Setting::Counts(list) => Some(list);
    Vec<f64>: list => Setting::Numbers(list.clone()),
        Setting::Numbers(list) => Some(list),
        Setting::Counts(list) => Some(list.into_iter().map(|count| count as f64).collect());
}

/// A key whose value cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} {problem}")]
pub struct Unfit {
    /// The key.
    pub key: &'static str,
    /// What is wrong with its value, to stand behind the key.
    pub problem: String,
}

/// Refuses the value of a key unless it is `good`.
///
/// # Errors
/// It is not.
pub fn fit(good: bool, key: &'static str, problem: &str) -> Result<(), Unfit> {
    if good {
        return Ok(());
    }
    let problem = problem.to_owned();
    Err(Unfit { key, problem })
}

/// Fields that a configuration sets; [`settings!`](macro@crate::settings) defines them.
pub trait Settings: Clone {
    /// With the names that they have in Rust and in records.
    const FIELDS: &'static [(&'static str, Field)];

    /// The values of the fields, in their order.
    fn settings(&self) -> Vec<Setting>;

    /// From the values of the fields, in their order; `None` if there are more or fewer, or one is of
    /// another type.
    fn of(settings: &[Setting]) -> Option<Self>;

    /// From the value that `given` has for a field, by its name in Rust and its definition, or its default;
    /// `None` if one is of another type.
    fn of_given(mut given: impl FnMut(&'static str, &Field) -> Option<Setting>) -> Option<Self> {
        let fields = Self::FIELDS.iter();
        let settings = fields
            .map(|(name, field)| given(name, field).unwrap_or_else(|| field.default_setting()));
        Self::of(&settings.collect::<Vec<_>>())
    }
}

/// One of several, with its fields; [`choice!`](macro@crate::choice) defines it.
pub trait Choice: Settings {
    /// What it is called in the configuration and on the wire.
    const NAME: &'static str;
    /// In a few words, beside its name.
    const ABOUT: &'static str;
    /// What it is called in records.
    const RECORD: &'static str;
}

/// How one of several is defined.
#[derive(Clone, Copy, Debug)]
pub struct Definition {
    /// [`Choice::RECORD`].
    pub record: &'static str,
    /// [`Choice::NAME`].
    pub name: &'static str,
    /// [`Choice::ABOUT`].
    pub about: &'static str,
    /// [`Settings::FIELDS`].
    pub fields: &'static [(&'static str, Field)],
}

/// All of several; [`choices!`](macro@crate::choices) lists them.
pub trait Choices: Sized {
    /// What they are, as in "`sgd` is no optimizer".
    const WHAT: &'static str;
    /// In their order.
    const ALL: &'static [Definition];

    /// Which one it is.
    fn definition(&self) -> &'static Definition;

    /// The values of its fields, in their order.
    fn settings(&self) -> Vec<Setting>;

    /// The one of this definition, from the values of its fields in their order.
    fn of(definition: &Definition, settings: &[Setting]) -> Option<Self>;

    /// The one of this definition whose fields have their defaults.
    fn of_defaults(definition: &Definition) -> Self {
        let fields = definition.fields.iter();
        let settings: Vec<Setting> = fields.map(|(_, is)| is.default_setting()).collect();
        Self::of(definition, &settings).expect("defaults are of their fields")
    }

    /// All of them, their fields with their defaults.
    fn every() -> impl Iterator<Item = Self> {
        Self::ALL.iter().map(Self::of_defaults)
    }

    /// The definition that has this name in the configuration.
    fn named(name: &str) -> Option<&'static Definition> {
        Self::ALL.iter().find(|definition| definition.name == name)
    }

    /// Whether every field is in its range.
    ///
    /// # Errors
    /// Names the first that is not.
    fn in_range(&self) -> Result<(), Unfit> {
        all_in_range(self.definition().fields, &self.settings())
    }
}

/// Whether every setting is in the range of its field.
///
/// # Errors
/// Names the first that is not.
pub fn all_in_range(fields: &[(&'static str, Field)], settings: &[Setting]) -> Result<(), Unfit> {
    for ((_, is), setting) in fields.iter().zip(settings) {
        if !is.kind.holds(setting) {
            let problem = format!("is {setting}, which is not {}", is.kind);
            return Err(Unfit {
                key: is.key,
                problem,
            });
        }
    }
    Ok(())
}

/// Defines fields that a configuration sets: a structure whose default, form in records, check and keys
/// follow from the definitions. Records may leave fields out, which then have their defaults.
#[macro_export]
macro_rules! settings {
    (@structure
        $(#[$doc:meta])*
        $Type:ident {
            $( $(#[$field_doc:meta])* $field:ident: $type:ty = $definition:expr ),* $(,)?
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct $Type {
            $( $(#[$field_doc])* pub $field: $type ),*
        }

        impl $crate::choice::Settings for $Type {
            const FIELDS: &'static [(&'static str, $crate::choice::Field)] =
                &[ $( (stringify!($field), $definition) ),* ];

            fn settings(&self) -> Vec<$crate::choice::Setting> {
                vec![ $( $crate::choice::Of::setting(&self.$field) ),* ]
            }

            fn of(settings: &[$crate::choice::Setting]) -> Option<Self> {
                let mut settings = settings.iter().cloned();
                let made = Self {
                    $( $field: <$type as $crate::choice::Of>::read(settings.next()?)? ),*
                };
                settings.next().is_none().then_some(made)
            }
        }
    };
    (
        $(#[$doc:meta])*
        $Type:ident { $($fields:tt)* }
    ) => {
        $crate::settings! { @structure $(#[$doc])* $Type { $($fields)* } }

        impl Default for $Type {
            fn default() -> Self {
                let made = <Self as $crate::choice::Settings>::of_given(|_, _| None);
                made.expect("defaults are of their fields")
            }
        }

        impl serde::Serialize for $Type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                $crate::choice::record_settings(self, to)
            }
        }

        impl<'de> serde::Deserialize<'de> for $Type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $crate::choice::recorded_settings(from)
            }
        }
    };
}

/// Writes settings into a record: `{"replication": 2, …}`.
#[doc(hidden)]
pub fn record_settings<T: Settings, S: Serializer>(of: &T, to: S) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(Some(T::FIELDS.len()))?;
    for ((name, _), setting) in T::FIELDS.iter().zip(of.settings()) {
        map.serialize_entry(name, &setting)?;
    }
    map.end()
}

/// Reads settings from a record.
#[doc(hidden)]
pub fn recorded_settings<'de, T: Settings, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    let mut given = std::collections::BTreeMap::<String, Setting>::deserialize(from)?;
    T::of_given(|name, _| given.remove(name))
        .ok_or_else(|| D::Error::custom("a setting has another type"))
}

/// Defines one of several: its name in the configuration, what it is in a few words, and its fields.
#[macro_export]
macro_rules! choice {
    (@record $Type:ident) => { stringify!($Type) };
    (@record $Type:ident $record:ident) => { stringify!($record) };
    (
        $(#[$doc:meta])*
        $name:literal ($about:literal) is $Type:ident $(recorded as $record:ident)? {
            $( $(#[$field_doc:meta])* $field:ident: $type:ty = $definition:expr ),* $(,)?
        }
    ) => {
        $crate::settings! { @structure
            $(#[$doc])*
            $Type { $( $(#[$field_doc])* $field: $type = $definition ),* }
        }

        impl $crate::choice::Choice for $Type {
            const NAME: &'static str = $name;
            const ABOUT: &'static str = $about;
            const RECORD: &'static str = $crate::choice!(@record $Type $($record)?);
        }
    };
}

/// Lists what there is of something, a line each, as an enumeration of it; or defines them in place: the
/// name in the configuration, what it is in a few words, the variant and its fields. Of those defined in
/// place the form in records is what the enumeration derives.
#[macro_export]
macro_rules! choices {
    (
        $(#[$doc:meta])*
        $what:literal is $Enum:ident {
            $(
                $(#[$variant_doc:meta])*
                $name:literal ($about:literal) is $Variant:ident $({
                    $( $(#[$field_doc:meta])* $field:ident: $type:ty = $definition:expr ),* $(,)?
                })?
            ),* $(,)?
        }
    ) => {
        $(#[$doc])*
        pub enum $Enum {
            $( $(#[$variant_doc])* $Variant $({ $( $(#[$field_doc])* $field: $type ),* })? ),*
        }

        impl $crate::choice::Choices for $Enum {
            const WHAT: &'static str = $what;
            const ALL: &'static [$crate::choice::Definition] = &[ $(
                $crate::choice::Definition {
                    record: stringify!($Variant),
                    name: $name,
                    about: $about,
                    fields: &[ $( $( (stringify!($field), $definition) ),* )? ],
                }
            ),* ];

            fn definition(&self) -> &'static $crate::choice::Definition {
                let name = match self {
                    $( Self::$Variant { .. } => $name ),*
                };
                Self::named(name).expect("all are listed")
            }

            fn settings(&self) -> Vec<$crate::choice::Setting> {
                match self {
                    $( Self::$Variant { $( $( $field ),* )? } => {
                        vec![ $( $( $crate::choice::Of::setting($field) ),* )? ]
                    } )*
                }
            }

            fn of(
                definition: &$crate::choice::Definition,
                settings: &[$crate::choice::Setting],
            ) -> Option<Self> {
                let mut settings = settings.iter().cloned();
                let made = $( if definition.name == $name {
                    Self::$Variant { $( $(
                        $field: <$type as $crate::choice::Of>::read(settings.next()?)?
                    ),* )? }
                } else )* {
                    return None;
                };
                settings.next().is_none().then_some(made)
            }
        }
    };
    (
        $(#[$doc:meta])*
        $what:literal is $Enum:ident, of which one may ask $Can:ident {
            $( $Type:ident ),* $(,)?
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum $Enum {
            $( #[doc = concat!("See [`", stringify!($Type), "`].")] $Type($Type) ),*
        }

        $(
            impl From<$Type> for $Enum {
                fn from(is: $Type) -> Self {
                    Self::$Type(is)
                }
            }
        )*

        impl $Enum {
            /// What other settings may ask of it.
            pub fn capabilities(&self) -> &dyn $Can {
                match self {
                    $( Self::$Type(is) => is ),*
                }
            }
        }

        impl $crate::choice::Choices for $Enum {
            const WHAT: &'static str = $what;
            const ALL: &'static [$crate::choice::Definition] = &[ $(
                $crate::choice::Definition {
                    record: <$Type as $crate::choice::Choice>::RECORD,
                    name: <$Type as $crate::choice::Choice>::NAME,
                    about: <$Type as $crate::choice::Choice>::ABOUT,
                    fields: <$Type as $crate::choice::Settings>::FIELDS,
                }
            ),* ];

            fn definition(&self) -> &'static $crate::choice::Definition {
                let name = match self {
                    $( Self::$Type(_) => <$Type as $crate::choice::Choice>::NAME ),*
                };
                Self::named(name).expect("all are listed")
            }

            fn settings(&self) -> Vec<$crate::choice::Setting> {
                match self {
                    $( Self::$Type(is) => $crate::choice::Settings::settings(is) ),*
                }
            }

            fn of(
                definition: &$crate::choice::Definition,
                settings: &[$crate::choice::Setting],
            ) -> Option<Self> {
                $( if definition.name == <$Type as $crate::choice::Choice>::NAME {
                    return <$Type as $crate::choice::Settings>::of(settings).map(Self::$Type);
                } )*
                None
            }
        }

        impl serde::Serialize for $Enum {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                $crate::choice::record(self, to)
            }
        }

        impl<'de> serde::Deserialize<'de> for $Enum {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $crate::choice::recorded(from)
            }
        }
    };
}

/// Writes one into a record, as serde writes a variant with fields: `{"Sgd": {"momentum": 0.9, …}}`, or
/// `"Elastic"` if it has none.
#[doc(hidden)]
pub fn record<C: Choices, S: Serializer>(choice: &C, to: S) -> Result<S::Ok, S::Error> {
    struct Fields<'a>(&'a Definition, Vec<Setting>);

    impl Serialize for Fields<'_> {
        fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            let mut map = to.serialize_map(Some(self.1.len()))?;
            for ((name, _), setting) in self.0.fields.iter().zip(&self.1) {
                map.serialize_entry(name, setting)?;
            }
            map.end()
        }
    }

    let definition = choice.definition();
    if definition.fields.is_empty() {
        return to.serialize_str(definition.record);
    }
    let mut map = to.serialize_map(Some(1))?;
    map.serialize_entry(definition.record, &Fields(definition, choice.settings()))?;
    map.end()
}

/// Reads one from a record.
#[doc(hidden)]
pub fn recorded<'de, C: Choices, D: Deserializer<'de>>(from: D) -> Result<C, D::Error> {
    struct Read<C>(PhantomData<C>);

    /// Fields that a record has; those without a value count as missing.
    #[derive(Deserialize)]
    #[serde(transparent)]
    struct Fields(std::collections::BTreeMap<String, Option<Setting>>);

    fn made<C: Choices, E: serde::de::Error>(record: &str, fields: &Fields) -> Result<C, E> {
        let named = || C::ALL.iter().filter(|is| is.record == record);
        if named().next().is_none() {
            return Err(E::custom(format!("{record:?} is no {}", C::WHAT)));
        }
        // Of several with one name it is the one that has the given fields.
        let given: Vec<&str> = fields
            .0
            .iter()
            .filter(|(_, of)| of.is_some())
            .map(|(name, _)| name.as_str())
            .collect();
        let fits = |is: &&Definition| {
            let has = |name: &&str| is.fields.iter().any(|(field, _)| field == name);
            is.fields.len() == given.len() && given.iter().all(has)
        };
        let definition = named().find(fits);
        let other = || {
            E::custom(format!(
                "{record} has other fields than {}",
                given.join(", ")
            ))
        };
        let definition = definition.ok_or_else(other)?;
        let settings = definition
            .fields
            .iter()
            .filter_map(|(field, _)| fields.0.get(*field)?.clone());
        let settings: Vec<Setting> = settings.collect();
        C::of(definition, &settings)
            .ok_or_else(|| E::custom(format!("a field of {record} has another type")))
    }

    impl<'de, C: Choices> Visitor<'de> for Read<C> {
        type Value = C;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a kind of {} with its fields", C::WHAT)
        }

        fn visit_str<E: serde::de::Error>(self, record: &str) -> Result<C, E> {
            made(record, &Fields(std::collections::BTreeMap::new()))
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<C, A::Error> {
            let Some((record, fields)) = map.next_entry::<String, Fields>()? else {
                return Err(A::Error::custom(format!("no kind of {} is named", C::WHAT)));
            };
            if map.next_entry::<String, IgnoredAny>()?.is_some() {
                return Err(A::Error::custom(format!(
                    "more than one kind of {}",
                    C::WHAT
                )));
            }
            made(&record, &fields)
        }
    }

    from.deserialize_any(Read(PhantomData))
}
