//! Keys of what `common` and sections define with their fields: choices and settings.

use tradewind_common::choice::{self, Choices, Field};

use super::key::{Key, float, int, key};
use super::value::Kind::{self, Bool, Choice};

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

pub(super) fn of_field(field: &Field) -> Key {
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
