//! Resolved configurations as keys and values.

use std::collections::BTreeMap;

use toml_edit::Document;
use tradewind_config::RECORDED;

/// Every key of a resolved configuration with its value as TOML.
pub fn keys_of(resolved: &str) -> BTreeMap<String, String> {
    let document = Document::parse(resolved).expect("a resolved configuration is TOML");
    let mut keys = BTreeMap::new();
    let sections = document.as_table().iter();
    for (section, item) in sections.filter(|(section, _)| *section != RECORDED) {
        for (name, value) in item.as_table_like().into_iter().flat_map(|t| t.iter()) {
            let value = value.as_value().map(|v| v.clone().decorated("", ""));
            let value = value.map_or(String::new(), |v| v.to_string());
            keys.insert(format!("{section}.{name}"), value);
        }
    }
    keys
}

/// Those of a setting: without what its runs differ in.
pub fn setting_keys(resolved: &str) -> BTreeMap<String, String> {
    let mut keys = keys_of(resolved);
    for own in ["run.name", "run.seed"] {
        keys.remove(own);
    }
    keys
}

/// Whether a configuration is synchronous training in which every group counts.
pub fn is_synchronous(keys: &BTreeMap<String, String>) -> bool {
    let backups = keys.get("train.backup_groups");
    let sync = keys
        .get("train.consistency")
        .is_some_and(|v| v == "\"sync\"");
    sync && backups.is_none_or(|n| n == "0")
}
