//! Runs many seeds of one kind of scenario and lists what breaks.
use tradewind_common::spec::ConsistencySpec::{Async, Bounded, Sync};
use tradewind_sim::*;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let kind = args[1].as_str();
    let (from, count): (u64, u64) = (args[2].parse().unwrap(), args[3].parse().unwrap());
    let mut sum = report::Counts::default();
    let mut rules = std::collections::BTreeMap::<String, (u64, u64, String)>::new();
    let (mut events, mut virt) = (0, 0);
    let mut failures = 0;
    for seed in from..from + count {
        let consistency = match seed % 5 {
            0 => Sync,
            1 => Bounded { staleness_bound: 0 },
            2 => Bounded { staleness_bound: 1 },
            3 => Bounded { staleness_bound: 3 },
            _ => Async,
        };
        let mut s = Scenario::random(seed, consistency);
        let bits = seed / 5;
        if bits % 2 == 1 {
            s = s.with_overlap();
        }
        if bits % 4 >= 2 {
            s = s.with_differences();
        }
        for part in kind.split('+') {
            s = match part {
                "plain" => s,
                "ranks" => s.with_dying_ranks(),
                "s1" => s.with_failing_servers(1),
                "s2" => s.with_failing_servers(2),
                "s3" => s.with_failing_servers(3),
                "coord" => s.with_failing_coordinator(),
                "disk" => s.with_failing_disk(),
                "resume" => s.with_resume(),
                "nofaults" => {
                    s.faults.clear();
                    s
                }
                other => panic!("{other}"),
            };
        }
        let result = std::panic::catch_unwind(|| World::new(s.clone()).run());
        match result {
            Ok(Ok(r)) => {
                sum += &r.counts;
                events += r.events;
                virt += r.end_us;
            }
            Ok(Err(f)) => {
                failures += 1;
                let mut text = f.violation.text.clone();
                text.truncate(600);
                let key: String = text
                    .chars()
                    .filter(|c| !c.is_ascii_digit())
                    .take(45)
                    .collect();
                let e = rules
                    .entry(format!("{:?} {key}", f.violation.rule))
                    .or_insert((0, seed, format!("at {} {text}", f.at_us)));
                e.0 += 1;
            }
            Err(_) => {
                failures += 1;
                let e = rules
                    .entry("panic".into())
                    .or_insert((0, seed, String::new()));
                e.0 += 1;
            }
        }
    }
    for (key, (n, seed, text)) in &rules {
        println!("{n}x {key}\n   seed {seed}: {text}");
    }
    println!(
        "{count} runs, {failures} failed, {events} events, {} virtual s",
        virt / 1_000_000
    );
    for (name, n) in sum.all() {
        print!("{name} {n}, ");
    }
    println!();
}
