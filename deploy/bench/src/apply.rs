//! `tradewind bench apply`: how fast each optimizer updates a vector that no cache holds, beside a
//! triad `a[i] = b[i] + s·c[i]` over vectors of the same size.
//!
//! Bytes are those that the arithmetic needs, each value read or written counted once; a processor
//! that reads what it is about to write moves more.

mod report;

use std::hint::black_box;
use std::sync::Barrier;
use tradewind_common::optimizer::{AdamW, Larc, Lars};

use tradewind_client::stopwatch::Stopwatch;
use tradewind_common::pieces::norm;
use tradewind_common::spec::OptimizerSpec;
use tradewind_core::optimizer::{Step, from_spec};

use self::report::{ApplyReport, Cores};
use super::model::{OptimizerName, gradient, values};
use super::steady::{RUNS_MAX, Series, enough};
use super::{Stop, size};
use tradewind_process::log::say;
use tradewind_process::usage;

/// Vectors that are held: values, gradient, and two slots.
const VECTORS: usize = 4;

const TRUST: f64 = 0.001;

/// What is measured: the triad first, then every optimizer, then what LARS and LARC need besides.
const KERNELS: [(&str, Kernel); 8] = [
    ("triad", Kernel::Triad),
    ("sgd", Kernel::Apply(OptimizerName::Sgd.spec())),
    ("momentum", Kernel::Apply(OptimizerName::Momentum.spec())),
    ("adam", Kernel::Apply(OptimizerName::Adam.spec())),
    (
        "adamw",
        Kernel::Apply(OptimizerSpec::AdamW(AdamW {
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.01,
        })),
    ),
    (
        "lars",
        Kernel::Apply(OptimizerSpec::Lars(Lars {
            momentum: 0.9,
            weight_decay: 0.01,
            trust: TRUST,
        })),
    ),
    (
        "larc",
        Kernel::Apply(OptimizerSpec::Larc(Larc {
            momentum: 0.9,
            weight_decay: 0.01,
            trust: TRUST,
        })),
    ),
    ("norms", Kernel::Norms),
];

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Size of each vector; four are held. Much more than the caches, or they are measured.
    #[arg(long, value_name = "SIZE", default_value = "400MB", value_parser = size::parse)]
    bytes: usize,
    /// Most samples; fewer are taken when 7 or more have steady medians.
    #[arg(long, value_name = "N", default_value_t = 25)]
    runs: usize,
    /// One JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// A pass over all values.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kernel {
    Triad,
    Apply(OptimizerSpec),
    /// Of values and gradient.
    Norms,
}

impl Kernel {
    /// Bytes that are read and written for each value.
    fn bytes_per_value(self) -> usize {
        match self {
            // Two read, one written.
            Self::Triad => 12,
            // Value and gradient read, value written; each slot is read and written besides.
            Self::Apply(spec) => 12 + 8 * from_spec(spec).slots(),
            // Two read.
            Self::Norms => 8,
        }
    }
}

/// One thread's part of every vector.
struct Part {
    values: Vec<f32>,
    gradient: Vec<f32>,
    slots: [Vec<f32>; 2],
    updates: u64,
}

/// The rates of a number of cores, 10^9 bytes a second, in the order of [`KERNELS`].
struct Measured {
    cores: usize,
    rates: [Series; KERNELS.len()],
    /// Of each kernel to the triad of the same round.
    ratios: [Series; KERNELS.len()],
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Stop> {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    check(arguments, cores).map_err(Stop::Input)?;
    let mut parts = parts(arguments.bytes / 4, cores);
    let mut measured = vec![Measured::new(1)];
    if cores > 1 {
        measured.push(Measured::new(cores));
    }
    let bar = super::progress(arguments.runs);
    // Touches what the first pass would have to wait for.
    for (_, kernel) in KERNELS {
        pass(kernel, &mut parts, cores);
    }
    while !enough(measured.iter().flat_map(|m| &m.ratios[1..]), arguments.runs) {
        for measured in &mut measured {
            measured.round(arguments.bytes / 4, &mut parts);
        }
        let last = measured.last().expect("one core at least");
        let triad = last.rates[0].median().unwrap_or(f64::NAN);
        bar.set_message(format!("triad on {} cores {triad:.2} GB/s", last.cores));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let report = ApplyReport::new(arguments.bytes, measured.iter().map(Cores::new).collect());
    say(match arguments.json {
        true => report.json(),
        false => report.table(),
    });
    Ok(())
}

/// What cannot be measured, and the way out.
fn check(arguments: &Arguments, cores: usize) -> Result<(), String> {
    let bytes = arguments.bytes;
    if !bytes.is_multiple_of(4) || bytes < 4 * cores {
        let text = size::text(bytes);
        return Err(format!(
            "--bytes is {text}, not a multiple of 4 with a value for each core"
        ));
    }
    if !(1..=RUNS_MAX).contains(&arguments.runs) {
        return Err(format!("--runs is {}, not 1 to {RUNS_MAX}", arguments.runs));
    }
    let free = usage::available_bytes();
    let wanted = bytes.saturating_mul(VECTORS) as u64;
    match free {
        Some(free) if wanted > free => Err(format!(
            "four vectors of {} do not fit into the {} MB of memory that are free; give a smaller --bytes",
            size::text(bytes),
            free / 1_000_000
        )),
        _ => Ok(()),
    }
}

/// The vectors in equal parts, one a core, each touched first by a thread of its own.
fn parts(elements: usize, cores: usize) -> Vec<Part> {
    std::thread::scope(|scope| {
        let lengths = (0..cores).map(|i| (i + 1) * elements / cores - i * elements / cores);
        let making: Vec<_> = lengths
            .map(|length| scope.spawn(move || Part::new(length)))
            .collect();
        let parts = making.into_iter();
        parts
            .map(|part| part.join().expect("a vector fits into memory"))
            .collect()
    })
}

impl Part {
    fn new(length: usize) -> Self {
        Self {
            values: values(length),
            gradient: gradient(length),
            // Written, so that no read finds the kernel's one page of zeros.
            slots: [
                gradient(length),
                values(length).iter().map(|x| x * x).collect(),
            ],
            updates: 0,
        }
    }

    /// One pass. Values stay finite: the triad makes them anew, and updates are small.
    fn pass(&mut self, kernel: Kernel) {
        match kernel {
            Kernel::Triad => {
                let sources = self.gradient.iter().zip(&self.slots[0]);
                for (a, (b, c)) in self.values.iter_mut().zip(sources) {
                    *a = b + 0.5 * c;
                }
            }
            Kernel::Apply(spec) => {
                let optimizer = from_spec(spec);
                self.updates += 1;
                let step = Step::new(1e-6, self.updates);
                let slots = &mut self.slots[..optimizer.slots()];
                let mut slots: Vec<&mut [f32]> = slots.iter_mut().map(Vec::as_mut_slice).collect();
                optimizer.apply(step, &mut self.values, &mut slots, &self.gradient);
            }
            Kernel::Norms => {
                black_box((norm(&self.values), norm(&self.gradient)));
            }
        }
    }
}

impl Measured {
    fn new(cores: usize) -> Self {
        Self {
            cores,
            rates: Default::default(),
            ratios: Default::default(),
        }
    }

    /// A pass of every kernel.
    fn round(&mut self, elements: usize, parts: &mut [Part]) {
        let rates = KERNELS.map(|(_, kernel)| {
            let seconds = pass(kernel, parts, self.cores);
            (kernel.bytes_per_value() * elements) as f64 / 1e9 / seconds
        });
        for (index, rate) in rates.into_iter().enumerate() {
            self.rates[index].push(rate);
            self.ratios[index].push(rate / rates[0]);
        }
    }
}

/// Seconds of a pass over all parts, on one thread or on one for each part.
fn pass(kernel: Kernel, parts: &mut [Part], threads: usize) -> f64 {
    let start = Barrier::new(threads + 1);
    let share = parts.len() / threads;
    std::thread::scope(|scope| {
        let mut passing = Vec::new();
        for parts in parts.chunks_mut(share) {
            let start = &start;
            passing.push(scope.spawn(move || {
                start.wait();
                parts.iter_mut().for_each(|part| part.pass(kernel));
            }));
        }
        start.wait();
        let watch = Stopwatch::start();
        for thread in passing {
            thread.join().expect("a pass does not panic");
        }
        watch.elapsed().as_secs_f64()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_what_the_arithmetic_needs() {
        let bytes: Vec<_> = KERNELS
            .iter()
            .map(|(_, kernel)| kernel.bytes_per_value())
            .collect();
        assert_eq!(bytes, [12, 12, 20, 28, 28, 20, 20, 8]);
    }

    #[test]
    fn parts_tile_the_vectors_and_stay_finite() {
        let mut parts = parts(1003, 4);
        let total: usize = parts.iter().map(|part| part.values.len()).sum();
        assert_eq!(total, 1003);
        for threads in [1, 4] {
            for (_, kernel) in KERNELS.into_iter().cycle().take(100) {
                assert!(pass(kernel, &mut parts, threads) > 0.0);
            }
        }
        for part in &parts {
            let all = part.values.iter().chain(part.slots.iter().flatten());
            assert!(all.clone().all(|x| x.is_finite()));
        }
    }

    #[test]
    fn what_cannot_be_measured_is_named() {
        let arguments = |bytes, runs| Arguments {
            bytes,
            runs,
            json: false,
        };
        let check = |bytes, runs, wanted: &str| {
            let error = super::check(&arguments(bytes, runs), 2).unwrap_err();
            assert!(error.contains(wanted), "{error}");
        };
        check(10, 5, "--bytes is 10 B, not a multiple of 4");
        check(4, 5, "a value for each core");
        check(8, 0, "--runs is 0");
        check(usize::MAX - 3, 5, "give a smaller --bytes");
        assert_eq!(super::check(&arguments(8, 5), 2), Ok(()));
    }
}
