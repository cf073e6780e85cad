//! A configuration as people write it.

use std::fs;
use std::path::Path;

use tradewind_config::Config;
use tradewind_fuzz::target;

#[test]
fn what_is_taken_is_taken_again_as_it_was_resolved() {
    target!(shipped()).each(|bytes, _| {
        let Ok(text) = std::str::from_utf8(bytes) else {
            return;
        };
        let folder = Path::new("/nowhere");
        match Config::parse(text, "run.toml", folder, &[]) {
            Ok(config) => {
                let resolved = config.resolved();
                let again = Config::parse(resolved, "config.toml", folder, &[]);
                let again = again.unwrap_or_else(|error| panic!("{error}\n{resolved}"));
                assert_eq!(again.resolved(), resolved);
            }
            Err(error) => assert!(!error.to_string().is_empty() && !error.0.is_empty()),
        }
    });
}

/// Those that are shipped, the longest left out.
fn shipped() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/configs");
    let files = fs::read_dir(folder).expect("the tree is there");
    let mut paths: Vec<_> = files.map(|file| file.expect("a name").path()).collect();
    paths.sort();
    let texts = paths
        .iter()
        .map(|path| fs::read_to_string(path).expect("text"));
    texts.collect()
}
