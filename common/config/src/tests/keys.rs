//! What is said of keys and sections, for whoever reads docs/configuration.md.

use std::collections::BTreeSet;
use std::path::Path;

use toml_edit::Document;
use tradewind_common::choice::Choices;
use tradewind_common::policy::{MomentumSpec, StalenessSpec};
use tradewind_common::spec::OptimizerSpec;

use crate::Config;
use crate::keys::{self, Key, MINIMAL, Section};
use crate::page;
use crate::value::Kind;

/// The lines of an example as overrides.
fn settings(example: &str) -> Vec<String> {
    let document = Document::parse(example).unwrap_or_else(|error| panic!("{example}: {error}"));
    let mut found = Vec::new();
    for (section, table) in document.iter() {
        let table = table.as_table().expect("keys are in sections");
        for (name, item) in table.iter() {
            let value = item.as_value().expect("a value").clone().decorated("", "");
            found.push(format!("{section}.{name}={value}"));
        }
    }
    found
}

fn on_top(settings: &[String]) -> Result<Config, crate::ConfigError> {
    Config::parse(MINIMAL, "c.toml", Path::new("/"), settings)
}

#[test]
fn the_minimal_configuration_has_what_has_to_be_given_and_no_more() {
    on_top(&[]).unwrap();
    let given: BTreeSet<String> = settings(MINIMAL)
        .into_iter()
        .map(|setting| setting.split('=').next().unwrap().to_owned())
        .collect();
    let required = keys::all().filter(|key| key.default.is_none() && key.is_for("forecast"));
    assert_eq!(given, required.map(|key| key.name.to_owned()).collect());
}

#[test]
fn examples_are_right() {
    for Section { name, example, .. } in keys::sections() {
        let settings = settings(example);
        let own = settings.iter().any(|s| s.starts_with(&format!("{name}.")));
        assert!(own, "the example of {name} has none of its keys");
        // A script has no data that Tradewind knows of.
        let base = match *name {
            "script" => &MINIMAL.replace("[data]", "[script]"),
            _ => MINIMAL,
        };
        let base = Config::parse(base, "c.toml", Path::new("/"), &settings);
        let config = base.unwrap_or_else(|error| panic!("[{name}]: {error}"));
        let idle = config.idle();
        assert!(idle.is_empty(), "[{name}]: {idle:?}");
    }
}

#[test]
fn sections_are_whole() {
    let mut names = BTreeSet::new();
    for section in keys::sections() {
        let Section { name, about, .. } = section;
        assert!(names.insert(name), "{name} is there twice");
        assert!(about.ends_with('.'), "[{name}]: {about}");
        let has_keys = !section.keys.is_empty();
        assert!(has_keys || *name == "script", "{name} has no keys");
        for Key { name: key, .. } in &section.keys {
            let own = key
                .strip_prefix(name)
                .is_some_and(|rest| rest.starts_with('.'));
            assert!(own, "{key} is in section {name}");
        }
    }
}

/// A row is read alone.
#[test]
fn meanings_need_no_other_row() {
    const RIDDLES: [&str; 14] = [
        "as", "by", "it", "its", "of", "same", "that", "the same", "their", "these", "they",
        "this", "those", "where",
    ];
    const UNITS: [(&str, &str); 5] = [
        ("_ms", "milliseconds"),
        ("_ms_max", "milliseconds"),
        ("_seconds", "seconds"),
        ("_bytes", "bytes"),
        ("_gpus", "GPUs"),
    ];
    for Key {
        name,
        kind,
        meaning,
        default,
        ..
    } in keys::all()
    {
        let lower = meaning.to_lowercase();
        for riddle in RIDDLES {
            let begins = lower.starts_with(&format!("{riddle} "));
            assert!(!begins, "{name} begins with {riddle:?}: {meaning}");
        }
        let first = meaning.chars().next().expect("some words");
        let begun = first.is_uppercase() || first.is_ascii_digit() || first == '`';
        assert!(begun && meaning.ends_with('.'), "{name}: {meaning}");
        assert!(meaning.split(' ').count() > 3, "{name}: {meaning}");
        assert!(!meaning.contains(['|', '\n']), "{name} is no cell");
        // It is in the message that says it is missing.
        assert!(default.is_some() || !meaning.contains("]("), "{name}");
        for (end, unit) in UNITS {
            let told = !name.ends_with(end) || meaning.contains(unit);
            assert!(told, "{name} does not say {unit}: {meaning}");
        }
        if let Kind::Choice(choices) = kind {
            for choice in *choices {
                let told = meaning.contains(&format!("`{choice}`"));
                assert!(told, "{name} does not say what {choice} is: {meaning}");
            }
        }
    }
}

#[test]
fn keys_that_the_page_names_are_there() {
    let page = page::markdown();
    let mut seen = 0;
    // Every other piece is code.
    for code in page.split('`').skip(1).step_by(2) {
        let name = code.split([' ', '=']).next().unwrap_or_default();
        let section = name.split_once('.').map(|(section, _)| section);
        if keys::sections().any(|known| Some(known.name) == section) {
            assert!(keys::find(name).is_some(), "{name} is no key");
            seen += 1;
        }
    }
    assert!(seen > keys::all().count(), "{seen}");
}

#[test]
fn rows_say_beside_what_a_key_has_an_effect() {
    let page = page::markdown();
    let check = |name: &str, want: Option<&str>| {
        let begin = format!("| `{name}` |");
        let mut rows = page.lines().filter(|line| line.starts_with(&begin));
        let row = rows.next().expect("a row of each key");
        assert_eq!(rows.next(), None, "{name} has two rows");
        let only = row.split_once(" Used only if ").map(|(_, rest)| rest);
        let only = only.map(|rest| rest.trim_end_matches(". |"));
        assert_eq!(only, want, "{name}");
    };
    keys::all().for_each(|key| {
        let only = crate::idle::condition(key);
        if only.is_some() {
            check(key.name, only.as_deref());
        }
    });
    check("train.samples", None);
    check(
        "data.folder",
        Some("`model.name` is `mnist`, `replay`, `cosmoflow`, `hep`, `deepcam` or `climate-boxes`"),
    );
    check("merge.wait_ms_max", Some("`merge.min_groups` is above 1"));
    check(
        "optimizer.trust",
        Some("`optimizer.name` is `lars` or `larc`"),
    );
    check(
        "local.momentum",
        Some("`local.algorithm` is `diloco` or `easgd` and the inner optimizer is `sgd`"),
    );
}

/// Several may have a key in common, with one range and one default.
#[test]
fn fields_of_one_key_agree() {
    fn check<C: Choices>() {
        for (_, field) in C::ALL.iter().flat_map(|is| is.fields) {
            let key = keys::find(field.key).expect("it is a key");
            assert_eq!(key.default, Some(field.default), "{}", field.key);
            assert_eq!(key.kind, crate::defined::kind_of(field), "{}", field.key);
        }
    }
    check::<OptimizerSpec>();
    check::<StalenessSpec>();
    check::<MomentumSpec>();
}
