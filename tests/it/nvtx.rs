//! The ranges of a step, as a profiler sees them that NVTX loads into real ranks.

use std::fs;
use std::path::Path;
use std::process::Command;

use tradewind_tests::cluster::{root, run::Run};

/// A thread's ranges: name, and what was open around it, outermost first.
type Ranges = Vec<(String, Vec<String>)>;

/// The threads of the run's only rank that have shown ranges, in the order of their first ones.
/// Each range must have ended in its place, and all of them at last.
fn shown(run: Run) -> Vec<Ranges> {
    let tool = run.folder().join("tool.so");
    let ranges = run.folder().join("ranges");
    fs::create_dir(&ranges).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(&tool);
    let source = root().join("tests/fake/nvtx_tool.c");
    assert!(cc.arg(source).status().expect("a C compiler").success());
    let run = run
        .variable("NVTX_INJECTION64_PATH", &tool)
        .variable("RANGES", &ranges);
    let ended = run.complete();
    assert!(ended.status.success(), "{}", ended.stderr);
    assert_eq!(ended.records().len(), 8);

    let files: Vec<_> = fs::read_dir(&ranges).unwrap().collect();
    let Some(file) = files.first() else {
        return Vec::new();
    };
    assert_eq!(files.len(), 1, "ranks alone open ranges");
    let file = file.as_ref().unwrap();
    let process = ended.processes().into_iter().find(|p| p.role == "worker");
    assert_eq!(*file.file_name(), *process.unwrap().pid.to_string());
    parse(&file.path())
}

fn parse(file: &Path) -> Vec<Ranges> {
    let mut threads: Vec<(String, Vec<String>, Ranges)> = Vec::new();
    for line in fs::read_to_string(file).unwrap().lines() {
        let (thread, what) = line.split_once(' ').unwrap();
        let at = threads.iter().position(|(id, ..)| id == thread);
        let at = at.unwrap_or_else(|| {
            threads.push((thread.into(), Vec::new(), Vec::new()));
            threads.len() - 1
        });
        let (_, open, seen) = &mut threads[at];
        match what.strip_prefix("+ ") {
            Some(name) => {
                seen.push((name.into(), open.clone()));
                open.push(name.into());
            }
            None => assert!(open.pop().is_some(), "{line}: nothing is open"),
        }
    }
    let whole = |(_, open, seen): (String, Vec<String>, Ranges)| {
        assert!(open.is_empty(), "{open:?} have not ended");
        seen
    };
    threads.into_iter().map(whole).collect()
}

/// A step with these parts inside.
fn step(clock: u64, parts: &[&str]) -> Ranges {
    let name = format!("step {clock}");
    let part = |part: &&str| {
        let part = part.replace("CLOCK", &clock.to_string());
        (part, vec![name.clone()])
    };
    let parts = parts.iter().map(part);
    std::iter::once((name.clone(), vec![]))
        .chain(parts)
        .collect()
}

/// Exchanges by themselves.
fn exchanges(clocks: std::ops::Range<u64>) -> Ranges {
    clocks.map(|c| (format!("exchange {c}"), vec![])).collect()
}

#[test]
fn a_step_is_shown_part_by_part() {
    let parts = [
        "data",
        "forward",
        "backward",
        "reduce",
        "exchange CLOCK",
        "reduce",
    ];
    let want: Ranges = (0..8).flat_map(|clock| step(clock, &parts)).collect();
    assert_eq!(shown(Run::new()), [want]);
}

#[test]
fn an_exchange_behind_the_next_step_is_shown_on_its_own_thread() {
    let parts = ["data", "forward", "backward", "reduce", "wait", "reduce"];
    // The last one's gradient is not pushed: the answers to the one before said stop.
    let want: Ranges = (0..9).flat_map(|clock| step(clock, &parts)).collect();
    let run = Run::new().key("train.overlap", "1");
    assert_eq!(shown(run), [want, exchanges(0..8)]);
}

#[test]
fn an_exchange_during_backward_is_shown_on_its_own_thread() {
    let parts = ["data", "forward", "backward", "reduce", "wait", "reduce"];
    let want: Ranges = (0..8).flat_map(|clock| step(clock, &parts)).collect();
    let run = Run::new().key("exchange.per_bucket", "true");
    assert_eq!(shown(run), [want, exchanges(0..8)]);
}

#[test]
fn ranges_can_be_turned_off() {
    assert!(shown(Run::new().variable("TRADEWIND_NVTX", "0")).is_empty());
}
