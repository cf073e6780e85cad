//! `tradewind bench predict`: what the exchanges of a run would move and take, from the cost model
//! (`tradewind_common::cost`). Nothing is measured.

mod report;

use tradewind_common::compress::Compression;
use tradewind_common::cost::{Rates, Run};
use tradewind_common::layout::{Layout, TensorKind, TensorSpec};
use tradewind_common::placement::Placement;
use tradewind_common::spec::{BLOCK_BYTES_MAX, GROUP_SIZE_MAX, GROUPS_MAX};
use tradewind_core::optimizer::from_spec;

use self::report::PredictReport;
use super::model::{Form, OptimizerName};
use super::{Stop, size};
use tradewind_process::log::say;

/// Most parameters, as a layout has it.
const PARAMETERS_MAX: f64 = (1u64 << 40) as f64;

/// Most servers, as `cluster.servers` has it.
const SERVERS_MAX: u64 = 1024;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Parameters of the model, such as 25M or 7B (10^9).
    #[arg(long, value_name = "N", value_parser = parameters)]
    parameters: u64,
    /// Groups.
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=GROUPS_MAX as i64))]
    groups: u32,
    /// Ranks of each group.
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(GROUP_SIZE_MAX)))]
    ranks: u32,
    /// Servers; as many as the run needs if not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=SERVERS_MAX))]
    servers: Option<u64>,
    /// Connections of each rank to each server.
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=64))]
    connections: u32,
    /// Copies of every block.
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=16))]
    copies: u32,
    /// Upper limit of a block.
    #[arg(long, value_name = "SIZE", default_value = "256KiB", value_parser = size::parse)]
    block_bytes: usize,
    /// How gradients travel.
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Form::None)]
    up: Form,
    /// How fresh values travel.
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Form::None)]
    down: Form,
    /// Part of the values that topk sends.
    #[arg(long, value_name = "PART", default_value_t = 0.01)]
    topk_fraction: f64,
    /// What servers do with a gradient.
    #[arg(long, value_name = "NAME", value_enum, default_value_t = OptimizerName::Sgd)]
    optimizer: OptimizerName,
    /// Seconds from one step of a group to the next.
    #[arg(long, value_name = "S", default_value_t = 0.5)]
    step_seconds: f64,
    /// Rate of the link of every rank and every server, each way, in 10^9 bits of TCP's payload a
    /// second: Ethernet's line rate less 1 % with packets of 9,000 bytes, less 6 % of 1,500.
    #[arg(long, value_name = "GBIT", default_value_t = 200.0)]
    link: f64,
    /// What all cores of a server move, 10^9 bytes a second, both directions as f32: cores over
    /// `cpu_seconds_per_gb_by.server` of `bench exchange --json`, measured with the run's forms and
    /// optimizer. The default is that of 8 cores at 0.25 seconds.
    #[arg(long, value_name = "RATE", default_value_t = 32.0)]
    server_gb_per_s: f64,
    /// What the one core of a rank that exchanges moves, likewise: 1 over
    /// `cpu_seconds_per_gb_by.client`. The default is that of 0.25 seconds.
    #[arg(long, value_name = "RATE", default_value_t = 4.0)]
    rank_gb_per_s: f64,
    /// What the core that applies a shard's updates moves, 10^9 bytes a second: `gb_per_s` of the
    /// optimizer on one core in `bench apply --json`.
    #[arg(long, value_name = "RATE", default_value_t = 20.0)]
    apply_gb_per_s: f64,
    /// What an exchange of next to nothing takes, in microseconds: `exchange_seconds.p50` of `bench
    /// exchange --bytes 4KB --json`, measured on the run's network.
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0.0)]
    latency_us: f64,
    /// Cores that all ranks and servers share, where they are processes of one machine;
    /// --server-gb-per-s is then what all these cores move.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    shared_cores: Option<u32>,
    /// One JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Stop> {
    let report = predict(arguments).map_err(Stop::Input)?;
    say(match arguments.json {
        true => report.json(),
        false => report.table(),
    });
    Ok(())
}

/// The prediction; or what cannot be predicted, and the way out.
fn predict(arguments: &Arguments) -> Result<PredictReport, String> {
    check(arguments)?;
    let layout = layout(arguments)?;
    let group_sizes = vec![arguments.ranks; arguments.groups as usize];
    let rates = arguments.rates();
    let step = arguments.step_seconds;
    // How many it takes does not follow from how many there are.
    let one = Placement::by_bytes(&layout, 1);
    let mut run = Run {
        layout: &layout,
        placement: &one,
        group_sizes: &group_sizes,
        connections: arguments.connections,
        up: arguments.form(arguments.up),
        down: arguments.form(arguments.down),
        copies: arguments.copies,
    };
    let needed = run.servers_needed(rates, step);
    let servers = arguments.servers.unwrap_or(needed.needed().0);
    let most = (layout.blocks.len() as u64).min(SERVERS_MAX);
    if servers > most {
        return Err(format!(
            "{servers} servers for {} blocks; at most {most} share them: give a longer \
             --step-seconds, faster servers, or --servers",
            layout.blocks.len()
        ));
    }
    if servers < u64::from(arguments.copies) {
        return Err(format!(
            "--copies is {}, more than the {servers} servers that hold them",
            arguments.copies
        ));
    }
    let placement = Placement::by_bytes(&layout, servers as u32);
    run.placement = &placement;
    Ok(PredictReport::new(arguments, &run, rates, needed))
}

fn check(arguments: &Arguments) -> Result<(), String> {
    let Arguments {
        step_seconds,
        link,
        server_gb_per_s,
        rank_gb_per_s,
        apply_gb_per_s,
        ..
    } = *arguments;
    for (option, given) in [
        ("step-seconds", step_seconds),
        ("link", link),
        ("server-gb-per-s", server_gb_per_s),
        ("rank-gb-per-s", rank_gb_per_s),
        ("apply-gb-per-s", apply_gb_per_s),
    ] {
        if !(given > 0.0 && given.is_finite()) {
            return Err(format!("--{option} is {given}, not a number above 0"));
        }
    }
    if !(0.0..=1e9).contains(&arguments.latency_us) {
        let given = arguments.latency_us;
        return Err(format!("--latency-us is {given}, not 0 to 10^9"));
    }
    if !(4..=BLOCK_BYTES_MAX).contains(&arguments.block_bytes) {
        let given = size::text(arguments.block_bytes);
        return Err(format!("--block-bytes is {given}, not 4 bytes to 64 MiB"));
    }
    for form in [arguments.up, arguments.down] {
        let checked = arguments.form(form).check();
        checked.map_err(|unfit| format!("--topk-fraction {}", unfit.problem))?;
    }
    Ok(())
}

/// Where a run's tensors end makes no difference to its blocks.
fn layout(arguments: &Arguments) -> Result<Layout, String> {
    let all = TensorSpec {
        name: "all".into(),
        shape: vec![arguments.parameters],
        kind: TensorKind::Parameter,
    };
    Layout::new(&[all], arguments.block_bytes).map_err(|error| error.to_string())
}

impl Arguments {
    fn rates(&self) -> Rates {
        let slots = from_spec(self.optimizer.spec()).slots();
        Rates {
            link: self.link * 1e9 / 8.0,
            rank: self.rank_gb_per_s * 1e9,
            server: self.server_gb_per_s * 1e9,
            apply: self.apply_gb_per_s * 1e9,
            // As `bench apply` counts them.
            apply_bytes_per_value: (12 + 8 * slots) as f64,
            latency: self.latency_us * 1e-6,
            shared_cores: self.shared_cores.map(f64::from),
        }
    }

    fn form(&self, form: Form) -> Compression {
        form.compression(self.topk_fraction)
    }
}

/// A number such as 25M, 1.5B or 4096.
fn parameters(text: &str) -> Result<u64, String> {
    let units = [("K", 1e3), ("M", 1e6), ("B", 1e9), ("T", 1e12)];
    let unit = units.iter().find_map(|(name, unit)| {
        let number = text.strip_suffix(name)?;
        Some((number, *unit))
    });
    let (number, unit) = unit.unwrap_or((text, 1.0));
    let given = number.parse::<f64>().ok().map(|number| number * unit);
    let whole = given.filter(|n| *n >= 1.0 && n.fract() == 0.0 && *n <= PARAMETERS_MAX);
    let whole = whole.ok_or_else(|| {
        format!("{text:?} is no number of parameters; give 1 to 2^40, such as 25M or 1.5B")
    })?;
    Ok(whole as u64)
}

#[cfg(test)]
mod tests;
