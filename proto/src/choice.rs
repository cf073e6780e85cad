//! Settings, optimizers and policies: `common` ↔ wire, whichever there are.

use std::collections::HashMap;

use tradewind_common::choice::{Choices, Field, Setting, Settings, all_in_range};

use crate::malformed::{Malformed, malformed};
use crate::v1;
use crate::v1::setting::Value;

/// By their keys.
pub(crate) fn settings_to_wire<'a>(
    fields: &'a [(&'static str, Field)],
    settings: Vec<Setting>,
) -> impl Iterator<Item = (String, v1::Setting)> + 'a {
    fields.iter().zip(settings).map(|((_, field), setting)| {
        let value = Some(match setting {
            Setting::Number(number) => Value::Number(number),
            Setting::Count(count) => Value::Count(count),
            Setting::Flag(flag) => Value::Flag(flag),
            Setting::Word(word) => Value::Word(word),
            Setting::Counts(values) => Value::Counts(v1::Counts { values }),
            Setting::Numbers(values) => Value::Numbers(v1::Numbers { values }),
        });
        (field.key.to_owned(), v1::Setting { value })
    })
}

/// In the order of the fields. Fields that are absent have their defaults. Ranges are checked with the rest
/// of the specification.
///
/// # Errors
/// There is no such field: its key.
fn settings_from_wire(
    fields: &[(&'static str, Field)],
    mut wire: HashMap<String, v1::Setting>,
) -> Result<Vec<Setting>, String> {
    let settings = fields.iter().map(|(_, is)| {
        let given = wire.remove(is.key).and_then(|given| given.value);
        given.map_or_else(
            || is.default_setting(),
            |value| match value {
                Value::Number(number) => Setting::Number(number),
                Value::Count(count) => Setting::Count(count),
                Value::Flag(flag) => Setting::Flag(flag),
                Value::Word(word) => Setting::Word(word),
                Value::Counts(v1::Counts { values }) => Setting::Counts(values),
                Value::Numbers(v1::Numbers { values }) => Setting::Numbers(values),
            },
        )
    });
    let settings = settings.collect();
    match wire.into_keys().next() {
        None => Ok(settings),
        Some(key) => Err(key),
    }
}

/// Settings that belong together.
///
/// # Errors
/// There is no such setting, or one has another type or is out of its range.
pub(crate) fn together<T: Settings>(
    field: &'static str,
    wire: HashMap<String, v1::Setting>,
) -> Result<T, Malformed> {
    let settings = settings_from_wire(T::FIELDS, wire)
        .map_err(|key| malformed(field, format!("there is no {key}")))?;
    all_in_range(T::FIELDS, &settings).map_err(|unfit| malformed(field, unfit.to_string()))?;
    T::of(&settings).ok_or_else(|| malformed(field, "a setting has another type"))
}

/// By its name, with all its fields.
pub(crate) fn to_wire<C: Choices>(choice: &C) -> v1::Choice {
    let definition = choice.definition();
    v1::Choice {
        name: definition.name.to_owned(),
        settings: settings_to_wire(definition.fields, choice.settings()).collect(),
    }
}

/// Fields that are absent have their defaults. Ranges are checked with the rest of the specification.
///
/// # Errors
/// There is none of this name, or it has no such field, or one of another type.
pub(crate) fn from_wire<C: Choices>(field: &'static str, wire: v1::Choice) -> Result<C, Malformed> {
    let name = wire.name;
    let Some(definition) = C::named(&name) else {
        return Err(malformed(field, format!("{name:?} is no {}", C::WHAT)));
    };
    let settings = settings_from_wire(definition.fields, wire.settings)
        .map_err(|key| malformed(field, format!("{name} has no {key}")))?;
    let wrong = || malformed(field, format!("a field of {name} has another type"));
    C::of(definition, &settings).ok_or_else(wrong)
}

/// The default if nothing was chosen.
///
/// # Errors
/// As of [`from_wire`].
pub(crate) fn or_default<C: Choices + Default>(
    field: &'static str,
    wire: Option<v1::Choice>,
) -> Result<C, Malformed> {
    wire.map_or_else(|| Ok(C::default()), |wire| from_wire(field, wire))
}

#[cfg(test)]
mod tests {
    use tradewind_common::compress::Compression;
    use tradewind_common::policy::{MomentumSpec, StalenessSpec, Weights};
    use tradewind_common::schedule::{Decay, Scaling, Unit};
    use tradewind_common::spec::{ConsistencySpec, DecayExempt, OptimizerSpec};

    use super::*;

    /// Every one, with its fields in the middle of their ranges, so that none is mistaken for another.
    fn check<C: Choices + PartialEq + std::fmt::Debug>() {
        for definition in C::ALL {
            let mut nth = 0.0;
            let settings = definition.fields.iter().map(|(_, field)| {
                nth += 1.0;
                match field.default_setting() {
                    Setting::Number(_) => Setting::Number(nth / 16.0),
                    Setting::Count(_) => Setting::Count(nth as u64),
                    Setting::Flag(_) => Setting::Flag(true),
                    Setting::Word(word) => Setting::Word(word),
                    Setting::Counts(_) => Setting::Counts(vec![3, 9]),
                    Setting::Numbers(_) => Setting::Numbers(vec![0.25, 3.0]),
                }
            });
            let settings: Vec<Setting> = settings.collect();
            let made = C::of(definition, &settings).unwrap();
            let wire = to_wire(&made);
            assert_eq!(wire.settings.len(), settings.len());
            assert_eq!(from_wire::<C>("it", wire), Ok(made));
        }
    }

    #[test]
    fn what_travels_comes_back() {
        check::<OptimizerSpec>();
        check::<StalenessSpec>();
        check::<MomentumSpec>();
        check::<Weights>();
        check::<ConsistencySpec>();
        check::<DecayExempt>();
        check::<Compression>();
        check::<Unit>();
        check::<Decay>();
        check::<Scaling>();
    }

    #[test]
    fn what_cannot_be_is_named() {
        let refused = |name: &str, settings: &[(&str, Value)], want: &str| {
            let settings = settings.iter().map(|(key, value)| {
                let value = Some(value.clone());
                ((*key).to_owned(), v1::Setting { value })
            });
            let wire = v1::Choice {
                name: name.to_owned(),
                settings: settings.collect(),
            };
            let error = from_wire::<OptimizerSpec>("optimizer", wire).unwrap_err();
            assert_eq!(error.to_string(), want);
        };
        refused("adamax", &[], "optimizer: \"adamax\" is no optimizer");
        let beta1 = ("optimizer.beta1", Value::Number(0.5));
        refused("sgd", &[beta1], "optimizer: sgd has no optimizer.beta1");
        let momentum = ("optimizer.momentum", Value::Flag(true));
        let want = "optimizer: a field of sgd has another type";
        refused("sgd", &[momentum], want);
    }

    #[test]
    fn what_is_absent_has_its_default() {
        let name = "adam".to_owned();
        let settings = [(
            "optimizer.beta1".to_owned(),
            v1::Setting {
                value: Some(Value::Number(0.5)),
            },
        )];
        let settings = settings.into_iter().collect();
        let made = from_wire::<OptimizerSpec>("optimizer", v1::Choice { name, settings }).unwrap();
        let want = [0.5, 0.999, 1e-8, 0.0].map(Setting::Number);
        assert_eq!(made.settings(), want);
    }
}
