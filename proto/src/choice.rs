//! Optimizers and policies: `common` ↔ wire, whichever there are.

use tradewind_common::choice::{Choices, Setting};

use crate::malformed::{Malformed, malformed};
use crate::v1;
use crate::v1::setting::Value;

/// By its name, with all its fields.
pub(crate) fn to_wire<C: Choices>(choice: &C) -> v1::Choice {
    let definition = choice.definition();
    let fields = definition.fields.iter().zip(choice.settings());
    let settings = fields.map(|((_, field), setting)| {
        let value = Some(match setting {
            Setting::Number(number) => Value::Number(number),
            Setting::Count(count) => Value::Count(count),
            Setting::Flag(flag) => Value::Flag(flag),
        });
        (field.key.to_owned(), v1::Setting { value })
    });
    v1::Choice {
        name: definition.name.to_owned(),
        settings: settings.collect(),
    }
}

/// Fields that are absent have their defaults. Ranges are checked with the rest of the specification.
///
/// # Errors
/// There is none of this name, or it has no such field, or one of another type.
pub(crate) fn from_wire<C: Choices>(
    field: &'static str,
    mut wire: v1::Choice,
) -> Result<C, Malformed> {
    let name = wire.name;
    let Some(definition) = C::named(&name) else {
        return Err(malformed(field, format!("{name:?} is no {}", C::WHAT)));
    };
    let settings = definition.fields.iter().map(|(_, is)| {
        let given = wire.settings.remove(is.key).and_then(|given| given.value);
        given.map_or(is.default_setting(), |value| match value {
            Value::Number(number) => Setting::Number(number),
            Value::Count(count) => Setting::Count(count),
            Value::Flag(flag) => Setting::Flag(flag),
        })
    });
    let settings: Vec<Setting> = settings.collect();
    if let Some(key) = wire.settings.into_keys().next() {
        return Err(malformed(field, format!("{name} has no {key}")));
    }
    let wrong = || malformed(field, format!("a field of {name} has another type"));
    C::of(definition, &settings).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use tradewind_common::policy::{MomentumSpec, StalenessSpec};
    use tradewind_common::spec::OptimizerSpec;

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
    }

    #[test]
    fn what_cannot_be_is_named() {
        let refused = |name: &str, settings: &[(&str, Value)], want: &str| {
            let settings = settings.iter().map(|(key, value)| {
                let value = Some(*value);
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
