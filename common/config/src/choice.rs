//! Settings, optimizers and policies from the values of their keys, whichever there are.

use tradewind_common::choice::{Choices, Field, Kind, Setting, Settings};

use super::Values;

/// The one that `key` names, with its fields.
pub(super) fn read<C: Choices>(values: &Values<'_>, key: &str) -> C {
    named(values, values.text(key))
}

/// The one of this name, with its fields.
pub(super) fn named<C: Choices>(values: &Values<'_>, name: &str) -> C {
    let definition = C::named(name).expect("the key has no other choices");
    let fields = definition.fields.iter();
    let settings: Vec<Setting> = fields.map(|(_, field)| setting(values, field)).collect();
    C::of(definition, &settings).expect("values are of their fields")
}

/// Settings that belong together.
pub(super) fn together<T: Settings>(values: &Values<'_>) -> T {
    T::of_given(|_, field| Some(setting(values, field))).expect("values are of their fields")
}

fn setting(values: &Values<'_>, field: &Field) -> Setting {
    match field.kind {
        Kind::Number { .. } => Setting::Number(values.float(field.key)),
        Kind::Count { .. } => Setting::Count(values.int(field.key).unsigned_abs()),
        Kind::Counts { .. } => Setting::Counts(values.counts(field.key)),
        Kind::Numbers { .. } => Setting::Numbers(values.floats(field.key).to_vec()),
        Kind::Flag => Setting::Flag(values.flag(field.key)),
        Kind::Word(_) => Setting::Word(values.text(field.key).to_owned()),
    }
}
