//! What is told of a simulation.

use serde_json::{Map, Value as Json, json};
use toml_edit::Value;

use crate::legs::Sizes;
use crate::outcome::{Outcome, Served};
use crate::plan::{Axis, Plan};

/// A simulation in numbers.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    setting: String,
    /// The values of a sweep's axes, by key.
    pub(crate) point: Vec<(String, Value)>,
    /// By name.
    figures: Vec<(&'static str, f64)>,
    /// What has most to do, and from when on it kept somebody waiting for longer than a step.
    busiest: &'static str,
    saturated: Vec<(&'static str, f64)>,
    /// Seconds after which each tenth of the samples was applied.
    milestones: Vec<f64>,
}

impl Report {
    pub(crate) fn new(plan: &Plan, sizes: &Sizes, outcome: &Outcome) -> Self {
        let tally = &outcome.tally;
        let seconds = outcome.seconds();
        let (busiest, load) = outcome.busiest();
        let load_of = |served: Served| served.busy / seconds;
        let together = tally.computing + tally.reducing + tally.exchanging;
        let part = |seconds: f64| {
            if together > 0.0 {
                seconds / together
            } else {
                0.0
            }
        };
        let legs = outcome.legs.first().expect("there is a group");
        let replication = u64::from(plan.config.faults.replication);
        let held = sizes.shard_bytes * (1 + sizes.slots) * replication;
        // Only what waits to be averaged is kept.
        let waiting = tally.waits_max.max(0) as u64 * sizes.shard_bytes;
        let buffers = if plan.config.train.overlap { 4 } else { 3 };
        let exchanges = tally.exchanges as f64;
        let ranks = f64::from(plan.config.world_size());
        let figures = vec![
            ("seconds", seconds),
            ("samples", tally.applied as f64),
            ("samples_lost", tally.lost as f64),
            ("samples_per_second", outcome.samples_per_second()),
            ("goodput", outcome.goodput()),
            ("groups", plan.config.cluster.groups.len() as f64),
            ("ranks", ranks),
            ("servers", f64::from(sizes.servers)),
            ("updates", outcome.updates as f64),
            ("dropped", outcome.dropped as f64),
            ("exchanges", exchanges),
            ("step_mean", tally.intervals.mean()),
            ("step_p50", tally.intervals.at(0.5)),
            ("step_p99", tally.intervals.at(0.99)),
            ("step_max", tally.intervals.max()),
            ("computing", part(tally.computing)),
            ("reducing", part(tally.reducing)),
            ("exchanging", part(tally.exchanging)),
            ("waiting", part(tally.waiting)),
            ("delay_p50", outcome.delay(0.5) as f64),
            ("delay_p99", outcome.delay(0.99) as f64),
            ("delay_max", outcome.delay(1.0) as f64),
            ("lag_p50", tally.lags.at(0.5).round()),
            ("lag_max", tally.lags.max()),
            ("rank_bytes_sent", legs.rank.sent.wire as f64),
            ("rank_bytes_received", legs.rank.received.wire as f64),
            (
                "server_bytes_received",
                legs.server.received.wire as f64 * exchanges,
            ),
            (
                "server_bytes_sent",
                legs.server.sent.wire as f64 * exchanges,
            ),
            ("load_server_in", load_of(outcome.receives)),
            ("load_server_out", load_of(outcome.sends)),
            ("load_server_cores", load_of(outcome.cores)),
            ("load_applying_core", load_of(outcome.applies)),
            (
                "load_rank",
                outcome.rank_busy * outcome.exchanges_of_a_group() / seconds,
            ),
            ("load_busiest", load),
            ("waited_server_in_max", outcome.receives.waited_max),
            ("waited_server_out_max", outcome.sends.waited_max),
            ("rank_bytes", (buffers * sizes.bytes()) as f64),
            ("server_bytes", held as f64),
            ("server_bytes_waiting", waiting as f64),
            ("node_failures", tally.node_failures as f64),
            ("server_failures", tally.server_failures as f64),
        ];
        let saturated = [
            ("server link in", outcome.receives),
            ("server link out", outcome.sends),
            ("server cores", outcome.cores),
            ("applying core", outcome.applies),
        ];
        let saturated = saturated.into_iter();
        let blocks = sizes.blocks();
        let train = &plan.config.train;
        Self {
            setting: format!(
                "{}: {} groups, {ranks} ranks, {:?}, {}; {} of values in {blocks} blocks",
                plan.config.name,
                plan.config.cluster.groups.len(),
                train.consistency,
                match sizes.servers {
                    1 => "1 server".to_owned(),
                    servers => format!("{servers} servers"),
                },
                bytes(sizes.bytes() as f64),
            ),
            point: Vec::new(),
            figures,
            busiest,
            saturated: saturated
                .filter_map(|(what, served)| Some((what, served.saturated?)))
                .collect(),
            milestones: tally.milestones.clone(),
        }
    }

    /// The same, of this point of a sweep.
    pub(crate) fn at(mut self, axes: &[Axis], values: Vec<Value>) -> Self {
        let keys = axes.iter().map(|axis| axis.key.clone());
        self.point = keys.zip(values).collect();
        self
    }

    /// A number by its name.
    pub(crate) fn figure(&self, name: &str) -> f64 {
        let found = self.figures.iter().find(|(of, _)| *of == name);
        found.expect("figures are named in this file").1
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let of = |name| self.figure(name);
        let percent = |name| format!("{:.1} %", 100.0 * of(name));
        let times = |name| time(of(name));
        let mut text = format!("{}\n", self.setting);
        let mut row = |name: &str, what: String| text += &format!("  {name:14}{what}\n");
        row(
            "ends",
            format!(
                "after {}: {} samples in {} updates of {} exchanges, {} dropped",
                times("seconds"),
                of("samples"),
                of("updates"),
                of("exchanges"),
                of("dropped")
            ),
        );
        row(
            "speed",
            format!(
                "{} samples/s, goodput {} of computing alone",
                short(of("samples_per_second")),
                percent("goodput")
            ),
        );
        row(
            "a step",
            format!(
                "{} mean, {} median, {} at 99 %, {} at most, from answer to answer",
                times("step_mean"),
                times("step_p50"),
                times("step_p99"),
                times("step_max")
            ),
        );
        row(
            "a group",
            format!(
                "computes {}, reduces {}, exchanges {}, of which it waits for others {}",
                percent("computing"),
                percent("reducing"),
                percent("exchanging"),
                percent("waiting")
            ),
        );
        row(
            "delay",
            format!(
                "{} median, {} at 99 %, {} at most; lag {} median, {} at most",
                of("delay_p50"),
                of("delay_p99"),
                of("delay_max"),
                of("lag_p50"),
                of("lag_max")
            ),
        );
        let tenth = |tenth: usize| self.milestones.get(tenth - 1).map_or(0.0, |s| *s);
        row(
            "samples",
            format!(
                "10 % after {}, half after {}, all after {}",
                time(tenth(1)),
                time(tenth(5)),
                time(tenth(10))
            ),
        );
        row(
            "bytes",
            format!(
                "an exchange of a rank {} up, {} down; a server in all {} in, {} out",
                bytes(of("rank_bytes_sent")),
                bytes(of("rank_bytes_received")),
                bytes(of("server_bytes_received")),
                bytes(of("server_bytes_sent"))
            ),
        );
        row(
            "load",
            format!(
                "server link {} in, {} out; its cores {}; the core that applies {}; a rank's link {}",
                percent("load_server_in"),
                percent("load_server_out"),
                percent("load_server_cores"),
                percent("load_applying_core"),
                percent("load_rank")
            ),
        );
        let saturated = self.saturated.iter();
        let saturated: Vec<String> = saturated
            .map(|(what, at)| format!("{what} from {} on", time(*at)))
            .collect();
        row(
            "saturated",
            match saturated.as_slice() {
                [] => format!("nothing; most to do has: {}", self.busiest),
                all => all.join(", "),
            },
        );
        row(
            "memory",
            format!(
                "a rank {} besides activations; a server {}, and {} of gradients that wait",
                bytes(of("rank_bytes")),
                bytes(of("server_bytes")),
                bytes(of("server_bytes_waiting"))
            ),
        );
        if of("node_failures") + of("server_failures") > 0.0 {
            row(
                "failures",
                format!(
                    "{} of nodes, {} of servers; {} samples applied and lost again",
                    of("node_failures"),
                    of("server_failures"),
                    of("samples_lost")
                ),
            );
        }
        text.trim_end().to_owned()
    }

    /// In a line, as a point of a sweep.
    pub(crate) fn line(&self) -> String {
        let point = self.point.iter();
        let point: Vec<String> = point
            .map(|(key, value)| format!("{key} = {}", value.clone().decorated("", "")))
            .collect();
        format!(
            "{}: {} samples/s, goodput {:.1} %, step {}, {} at {:.0} %",
            point.join(", "),
            short(self.figure("samples_per_second")),
            100.0 * self.figure("goodput"),
            time(self.figure("step_p50")),
            self.busiest,
            100.0 * self.figure("load_busiest")
        )
    }

    /// For programs.
    pub(crate) fn json(&self) -> String {
        let mut all = Map::new();
        for (key, value) in &self.point {
            all.insert(key.clone(), plain(value));
        }
        for (name, value) in &self.figures {
            all.insert((*name).to_owned(), json!(value));
        }
        all.insert("busiest".into(), json!(self.busiest));
        let saturated = self.saturated.iter().map(|(what, at)| json!([what, at]));
        all.insert("saturated".into(), saturated.collect());
        all.insert("tenths".into(), json!(self.milestones));
        Json::Object(all).to_string()
    }
}

fn plain(value: &Value) -> Json {
    match value {
        Value::Integer(number) => json!(number.value()),
        Value::Float(number) => json!(number.value()),
        Value::Boolean(flag) => json!(flag.value()),
        Value::String(text) => json!(text.value()),
        other => json!(other.to_string().trim()),
    }
}

/// A row a point.
pub(crate) fn csv(reports: &[Report]) -> anyhow::Result<Vec<u8>> {
    let mut table = csv::Writer::from_writer(Vec::new());
    let Some(first) = reports.first() else {
        return Ok(Vec::new());
    };
    let keys = first.point.iter().map(|(key, _)| key.as_str());
    let names = first.figures.iter().map(|(name, _)| *name);
    table.write_record(keys.chain(names).chain(["busiest"]))?;
    for report in reports {
        let point = report.point.iter();
        let point = point.map(|(_, value)| plain(value).to_string().trim_matches('"').to_owned());
        let figures = report.figures.iter().map(|(_, value)| value.to_string());
        table.write_record(point.chain(figures).chain([report.busiest.to_owned()]))?;
    }
    Ok(table.into_inner()?)
}

/// Bytes with a unit of powers of ten.
fn bytes(count: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB", "PB"];
    let power = (count.max(1.0).log10() / 3.0) as usize;
    let power = power.min(units.len() - 1);
    let scaled = count / 1000f64.powi(power as i32);
    match power {
        0 => format!("{scaled:.0} B"),
        _ => format!("{scaled:.1} {}", units[power]),
    }
}

/// Seconds in a unit that is easily read.
pub(crate) fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s if s < 600.0 => format!("{s:.2} s"),
        s if s < 2.0 * 86_400.0 => format!("{:.2} h", s / 3600.0),
        s => format!("{:.2} d", s / 86_400.0),
    }
}

/// Three digits and more.
fn short(number: f64) -> String {
    match number {
        n if n < 10.0 => format!("{n:.3}"),
        n if n < 1000.0 => format!("{n:.1}"),
        n => format!("{n:.0}"),
    }
}
