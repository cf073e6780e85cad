//! What processes use while they are hurt again and again: memory, descriptors, threads, and the disk,
//! minute by minute; and whether any of it grows for ever.

mod growth;
mod usage;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use growth::{Growth, growth};
use tradewind_launch::{Member, Roster};
use usage::{Usage, files, usage};

/// Seconds between two looks.
pub(super) const EVERY: f64 = 10.0;

/// What a process has after its first seconds it needs; what comes later may be too much.
const WARM_UP: f64 = 600.0;

/// Fewer hours of processes of a sort than this say nothing about growth.
const HOURS: f64 = 0.5;

/// Growth is too much when it is surely (by so many standard errors) more than this in an hour: memory
/// by this part of itself, descriptors and threads by so many, the run's folder by so many bytes.
const SURELY: f64 = 3.0;
const MEMORY_PART: f64 = 0.2;
const DESCRIPTORS: f64 = 10.0;
const THREADS: f64 = 4.0;
const DISK_BYTES: f64 = 100e6;

/// Files that grow by less than this in an hour are not worth a line.
const FILE_BYTES: f64 = 1e6;

const MIB: f64 = 1024.0 * 1024.0;

/// All looks at the processes of a run.
#[derive(Clone, Debug, Default)]
pub struct Soak {
    looks: Vec<Look>,
}

/// A look at everybody.
#[derive(Clone, Debug, Default)]
struct Look {
    /// Seconds since the first one.
    at: f64,
    /// By name; and which process it is.
    processes: BTreeMap<String, (u32, Usage)>,
    /// Bytes of files, by their names, numbers in which are N.
    files: BTreeMap<String, u64>,
}

/// A sort of process, by the names of its processes.
const SORTS: [&str; 3] = ["server", "rank", "launcher"];

impl Soak {
    /// Looks at all processes, and at the folder of the run, so many seconds after the first look.
    pub(super) fn look(&mut self, at: f64, roster: &Roster, folder: &Path) {
        let members = roster.members().into_iter();
        let mut all: Vec<(String, u32)> = members
            .filter_map(|member| Some((name(member), roster.get(member)?.pid)))
            .collect();
        all.push(("launcher".into(), std::process::id()));
        let used = |(name, pid)| Some((name, (pid, usage(pid)?)));
        self.looks.push(Look {
            at,
            processes: all.into_iter().filter_map(used).collect(),
            files: files(folder),
        });
    }

    /// A line about the last look.
    pub(super) fn line(&self) -> String {
        let Some(look) = self.looks.last() else {
            return String::new();
        };
        let most = |sort: &str| look.most(sort).memory_bytes as f64 / MIB;
        format!(
            "memory of a server {:.0} MiB at most, of a rank {:.0} MiB, of the launcher {:.0} MiB; the folder has {:.0} MiB",
            most("server"),
            most("rank"),
            most("launcher"),
            look.folder() as f64 / MIB,
        )
    }

    /// What came of it.
    pub(super) fn report(&self) -> Soaked {
        let mut minutes = BTreeMap::new();
        for look in &self.looks {
            // The last look of a minute stands for it.
            minutes.insert((look.at / 60.0) as u64, look.minute());
        }
        Soaked {
            minutes,
            growth: self.growth(),
        }
    }

    fn growth(&self) -> Vec<Grown> {
        let mut grown = Vec::new();
        for sort in SORTS {
            let of = |value: fn(&Usage) -> u64| growth(self.series(sort, value));
            let Some(memory) = of(|usage| usage.memory_bytes) else {
                continue;
            };
            let mean = memory.mean;
            grown.push(Grown::new(
                format!("memory of a {sort} (bytes)"),
                memory,
                Some(mean * MEMORY_PART),
            ));
            for (what, value, bound) in [
                (
                    "descriptors",
                    (|usage| usage.descriptors) as fn(&Usage) -> u64,
                    DESCRIPTORS,
                ),
                ("threads", |usage| usage.threads, THREADS),
            ] {
                if let Some(growth) = of(value) {
                    grown.push(Grown::new(
                        format!("{what} of a {sort}"),
                        growth,
                        Some(bound),
                    ));
                }
            }
        }
        let warm = || self.looks.iter().filter(|look| look.at >= WARM_UP);
        let folder = warm().map(|look| (look.at, look.folder() as f64));
        if let Some(growth) = growth([folder.collect()]) {
            grown.push(Grown::new(
                "the folder (bytes)".into(),
                growth,
                Some(DISK_BYTES),
            ));
        }
        let names = self.looks.iter().flat_map(|look| look.files.keys());
        let names: std::collections::BTreeSet<&String> = names.collect();
        for name in names {
            let file = warm().map(|l| (l.at, l.files.get(name).copied().unwrap_or(0) as f64));
            let growth = growth([file.collect()]);
            if let Some(growth) = growth.filter(|growth| growth.per_hour.abs() >= FILE_BYTES) {
                grown.push(Grown::new(format!("{name} (bytes)"), growth, None));
            }
        }
        grown
    }

    /// What each process of a sort used, after it had warmed up.
    fn series(&self, sort: &str, value: fn(&Usage) -> u64) -> Vec<Vec<(f64, f64)>> {
        let mut begun: BTreeMap<u32, f64> = BTreeMap::new();
        let mut all: BTreeMap<u32, Vec<(f64, f64)>> = BTreeMap::new();
        for look in &self.looks {
            for (name, (pid, usage)) in &look.processes {
                if name.starts_with(sort) {
                    let begun = *begun.entry(*pid).or_insert(look.at);
                    if look.at - begun >= WARM_UP {
                        let one = all.entry(*pid).or_default();
                        one.push((look.at, value(usage) as f64));
                    }
                }
            }
        }
        all.into_values().collect()
    }
}

impl Look {
    /// The most that a process of a sort uses.
    fn most(&self, sort: &str) -> Usage {
        let of = self
            .processes
            .iter()
            .filter(|(name, _)| name.starts_with(sort));
        of.fold(Usage::default(), |most, (_, (_, usage))| most.max(*usage))
    }

    fn folder(&self) -> u64 {
        self.files.values().sum()
    }

    fn minute(&self) -> Minute {
        let processes = self.processes.iter();
        Minute {
            processes: processes
                .map(|(name, (_, usage))| (name.clone(), *usage))
                .collect(),
            files: self.files.clone(),
            most: SORTS.map(|sort| self.most(sort)).to_vec(),
            folder_bytes: self.folder(),
        }
    }
}

fn name(member: Member) -> String {
    match member {
        Member::Server(server) => format!("server {server}"),
        Member::Rank { group, rank } => format!("rank {group}.{rank}"),
    }
}

/// Of `chaos.json`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Soaked {
    /// By minute since faults began.
    minutes: BTreeMap<u64, Minute>,
    growth: Vec<Grown>,
}

/// At the end of a minute.
#[derive(Clone, Debug, Serialize)]
struct Minute {
    processes: BTreeMap<String, Usage>,
    files: BTreeMap<String, u64>,
    folder_bytes: u64,
    #[serde(skip)]
    most: Vec<Usage>,
}

/// By how much something grows in an hour, as a straight line through all looks.
#[derive(Clone, Debug, Serialize)]
struct Grown {
    what: String,
    #[serde(flatten)]
    growth: Growth,
    /// More than this is too much.
    bound: Option<f64>,
}

impl Grown {
    fn new(what: String, growth: Growth, bound: Option<f64>) -> Self {
        Self {
            what,
            growth,
            bound,
        }
    }

    fn is_too_much(&self) -> bool {
        let Growth {
            per_hour,
            error,
            hours,
            ..
        } = self.growth;
        let surely = per_hour - SURELY * error;
        hours >= HOURS && self.bound.is_some_and(|bound| surely > bound)
    }
}

impl Soaked {
    /// What grows too fast.
    pub(super) fn violations(&self) -> Vec<String> {
        let too_much = self.growth.iter().filter(|grown| grown.is_too_much());
        let said = too_much.map(|grown| {
            let Grown {
                what,
                growth,
                bound,
            } = grown;
            format!(
                "{what}: grows by {:.0} (standard error {:.0}) an hour, more than {:.0}",
                growth.per_hour,
                growth.error,
                bound.unwrap_or_default()
            )
        });
        said.collect()
    }

    /// Lines for people.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "{:>6} {:>26} {:>26} {:>26} {:>8}",
            "minute", "server", "rank", "launcher", "folder"
        )];
        for (minute, at) in &self.minutes {
            let most = at.most.iter().map(|usage| {
                let Usage {
                    memory_bytes,
                    descriptors,
                    threads,
                } = usage;
                let memory = *memory_bytes as f64 / MIB;
                format!("{memory:>9.1} MiB {descriptors:>5} fd {threads:>3} th")
            });
            let most: Vec<String> = most.collect();
            let folder = at.folder_bytes as f64 / MIB;
            lines.push(format!("{minute:>6} {} {folder:>8.1}", most.join(" ")));
        }
        if !self.growth.is_empty() {
            lines.push(format!(
                "{:>12} {:>10} {:>12} {:>16}   (in an hour, its standard error, the mean, the most that is well)",
                "grows by", "±", "of", "at most"
            ));
        }
        for grown in &self.growth {
            let Grown {
                what,
                growth,
                bound,
            } = grown;
            let bound = match bound {
                Some(bound) if growth.hours >= HOURS => format!("{bound:.0}"),
                Some(_) => "too short to say".into(),
                None => String::new(),
            };
            let Growth {
                per_hour,
                error,
                mean,
                ..
            } = growth;
            lines.push(format!(
                "{per_hour:>12.0} {error:>10.0} {mean:>12.0} {bound:>16}   {what}"
            ));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A look every ten seconds for an hour; server 0 is killed after half of it.
    fn soak(server: impl Fn(f64) -> Usage, file: impl Fn(f64) -> u64) -> Soaked {
        let looks = (0..360).map(|number| {
            let at = f64::from(number) * EVERY;
            let pid = if number < 180 { 10 } else { 11 };
            let own = at - if number < 180 { 0.0 } else { 1800.0 };
            let steady = Usage {
                memory_bytes: 50_000_000,
                descriptors: 40,
                threads: 5,
            };
            let processes = [
                ("server 0".to_owned(), (pid, server(own))),
                ("launcher".to_owned(), (1, steady)),
            ];
            Look {
                at,
                processes: processes.into_iter().collect(),
                files: BTreeMap::from([("metrics.jsonl".to_owned(), file(at))]),
            }
        });
        let looks = looks.collect();
        Soak { looks }.report()
    }

    fn used(memory_bytes: f64, descriptors: f64, threads: f64) -> Usage {
        Usage {
            memory_bytes: memory_bytes as u64,
            descriptors: descriptors as u64,
            threads: threads as u64,
        }
    }

    #[test]
    fn what_a_process_takes_in_its_first_minutes_and_what_moves_about_is_no_growth() {
        let settles = |own: f64| {
            let waves = (own / 50.0).sin() * 2e6;
            used(2e7 + 1e7 * (own / 100.0).min(1.0) + waves, 40.0, 5.0)
        };
        let soaked = soak(settles, |_| 1000);
        assert_eq!(soaked.violations(), Vec::<String>::new());
        assert_eq!(soaked.minutes.len(), 60);
    }

    #[test]
    fn what_grows_for_ever_is_named_though_the_process_dies_in_between() {
        for (server, file, what, per_hour) in [
            (
                (|own| used(2e7 + own / 3600.0 * 1e7, 40.0, 5.0)) as fn(f64) -> Usage,
                (|_| 1000) as fn(f64) -> u64,
                "memory of a server",
                1e7,
            ),
            (
                |own| used(2e7, 40.0 + own / 100.0, 5.0),
                |_| 1000,
                "descriptors of a server",
                36.0,
            ),
            (
                |own| used(2e7, 40.0, 5.0 + own / 200.0),
                |_| 1000,
                "threads of a server",
                18.0,
            ),
            (
                |_| used(2e7, 40.0, 5.0),
                |at| (at * 5e5) as u64,
                "the folder",
                1.8e9,
            ),
        ] {
            let soaked = soak(server, file);
            let found = soaked.violations();
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with(what), "{found:?}");
            let grown = soaked
                .growth
                .iter()
                .find(|grown| grown.what.starts_with(what));
            let found = grown.expect("it was said to grow").growth.per_hour;
            // What is counted grows by whole ones.
            assert!((found / per_hour - 1.0).abs() < 0.1, "{what}: {found}");
        }
    }
}
