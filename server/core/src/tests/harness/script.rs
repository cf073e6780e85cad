//! Plays scripts.

use super::Harness;

fn lines(script: &str) -> impl Iterator<Item = &str> {
    script
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
}

/// Plays a script; prints what would have been right.
pub(in crate::tests) fn play(harness: &mut Harness, script: &str) {
    let mut wrong = false;
    let mut played = String::new();
    for line in lines(script) {
        let (command, want) = line.split_once("=>").unwrap_or((line, ""));
        let got = harness.happen(command);
        let mark = if got == want.trim() { ' ' } else { '!' };
        wrong |= mark == '!';
        played += &format!("{mark}       {} => {got}\n", command.trim());
    }
    assert!(!wrong, "it went differently:\n{played}");
}

/// Plays a script, and again with a coordinator that dies after every line.
pub(in crate::tests) fn check(new: impl Fn() -> Harness, script: &str) {
    play(&mut new(), script);
    let mut harness = new();
    for line in lines(script) {
        let (command, want) = line.split_once("=>").unwrap_or((line, ""));
        let got = harness.happen(command);
        let words = command.trim_start();
        if !words.starts_with("events") {
            assert_eq!(got, want.trim(), "of {line:?} after recovery");
        }
        if let Err(other) = harness.recover() {
            panic!("recovered after {line:?} it goes on differently:\n{other}");
        }
    }
}
