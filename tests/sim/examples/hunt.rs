//! Runs many seeds of a mixture of faults, and prints every run that breaks a rule, and what happened
//! how often: `hunt combined2 0 10000`. Without arguments it prints the mixtures that there are.

use std::collections::BTreeMap;

use tradewind_sim::report::Counts;
use tradewind_sim::scenario::COMBINATIONS;
use tradewind_sim::{Scenario, World};

type Mixture = Box<dyn Fn(Scenario) -> Scenario>;

fn mixtures() -> BTreeMap<String, Mixture> {
    let mut all: BTreeMap<String, Mixture> = BTreeMap::new();
    for copies in 1..=3 {
        let name = format!("combined{copies}");
        all.insert(name, Box::new(move |s| s.with_combined_faults(copies)));
        let name = format!("servers{copies}");
        all.insert(name, Box::new(move |s| s.with_failing_servers(copies)));
    }
    for which in COMBINATIONS {
        let name = format!("{which:?}");
        all.insert(name, Box::new(move |s| s.with_combination(2, which)));
    }
    all.insert(
        "everything".into(),
        Box::new(|s| {
            let copies = 1 + (s.seed % 3) as u32;
            let s = s.with_combined_faults(copies).with_failing_coordinator();
            let s = s.with_failing_disk().with_dying_ranks();
            match s.seed % 4 {
                0 => s.with_resume(),
                1 => s.with_groups_that_come_and_go(),
                _ => s,
            }
        }),
    );
    all.insert(
        "disk".into(),
        Box::new(|s| {
            let s = s.with_failing_servers(2).with_failing_coordinator();
            s.with_failing_disk().with_failing_disk()
        }),
    );
    all.insert(
        "resume".into(),
        Box::new(|s| s.with_combined_faults(2).with_resume()),
    );
    all
}

/// Failures of one rule that are printed.
const SHOWN_MAX: u64 = 8;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut mixtures = mixtures();
    let [name, from, to] = &arguments[..] else {
        let names: Vec<&String> = mixtures.keys().collect();
        println!("hunt <mixture> <first seed> <seed after the last>; mixtures: {names:?}");
        return;
    };
    let mixture = mixtures.remove(name).expect("a mixture of that name");
    // A coordinator that knows no patience takes whom it has lost for dead after a lease.
    let patience_ms = std::env::var("HUNT_PATIENCE_MS").ok();
    let patience_ms: Option<u64> = patience_ms.map(|text| text.parse().expect("milliseconds"));
    let plain = std::env::var_os("HUNT_PLAIN").is_some();
    let number = |text: &String| text.parse::<u64>().expect("a number");
    let (mut sum, mut runs, mut failures) = (Counts::default(), 0u64, BTreeMap::new());
    for seed in number(from)..number(to) {
        runs += 1;
        let mut scenario = mixture(Scenario::of_seed(seed));
        scenario.patience_ms = patience_ms.unwrap_or(scenario.patience_ms);
        if plain {
            scenario.malformed_every_us = 0;
        }
        match World::new(scenario).run() {
            Ok(report) => sum += &report.counts,
            Err(failure) => {
                let rule = format!("{:?}", failure.violation.rule);
                let times = failures.entry(rule).or_insert(0u64);
                *times += 1;
                if *times <= SHOWN_MAX {
                    let text: String = failure.to_string().chars().take(2400).collect();
                    println!("{text}");
                }
            }
        }
    }
    println!("{name}: {runs} runs; broken: {failures:?}");
    let counts = sum.all().into_iter().filter(|(_, times)| *times > 0);
    let counts: Vec<String> = counts.map(|(name, n)| format!("{name} {n}")).collect();
    println!("{}", counts.join(", "));
}
