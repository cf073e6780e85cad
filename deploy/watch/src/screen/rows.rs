//! What a sight has, as tables: the rows of the page, as rows of the screen.

use crate::look::{GroupRow, Look, RankRow, ServerRow, ShardRow, Tone, seconds};
use crate::standing::FleetRun;
use crate::words::{DASH, bytes, moment, number, or_dash, percent, rate};

/// A column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) title: &'static str,
    /// Set to the right.
    pub(super) is_number: bool,
    /// Where there is no room for all columns, those with the highest go first; 0 stays.
    pub(super) expendable: u8,
}

const fn words(title: &'static str, expendable: u8) -> Column {
    Column {
        title,
        is_number: false,
        expendable,
    }
}

const fn digits(title: &'static str, expendable: u8) -> Column {
    Column {
        title,
        is_number: true,
        expendable,
    }
}

/// A text, and how what it says stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) tone: Tone,
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        let tone = Tone::Plain;
        Self { text, tone }
    }
}

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Row {
    /// A cell for each column.
    Cells(Vec<Cell>),
    /// Below the row before, over all columns.
    More(String),
}

/// Rows under titles.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) columns: &'static [Column],
    pub(super) rows: Vec<Row>,
}

const RUNS: &[Column] = &[
    words("run", 0),
    words("state", 0),
    words("groups live", 1),
    digits("clock", 2),
];

/// Runs of a fleet.
pub(super) fn runs(look: &Look) -> Table {
    let row = |run: &FleetRun| {
        let state = run.failure.as_ref().map(|why| format!("failed: {why}"));
        let cells = [
            run.run.clone(),
            state.unwrap_or_else(|| run.phase.clone()),
            format!("{} of {}", run.groups_live, run.groups),
            run.clock.to_string(),
        ];
        Row::Cells(cells.map(Cell::from).into())
    };
    Table {
        columns: RUNS,
        rows: look.runs.iter().map(row).collect(),
    }
}

const GROUPS: &[Column] = &[
    words("group", 0),
    words("does", 1),
    digits("ranks", 7),
    digits("exchanges", 6),
    digits("lag", 2),
    digits("delay", 4),
    digits("loss", 3),
    digits("samples/s", 3),
    digits("step", 5),
    digits("last", 8),
    digits("GPU", 9),
];

/// Groups, each with its ranks if these are asked for.
pub(super) fn groups(look: &Look, with_ranks: bool) -> Table {
    let mut rows = Vec::new();
    for row in &look.groups {
        rows.push(Row::Cells(group(look, row)));
        if with_ranks {
            rows.extend(row.ranks.iter().map(rank));
        }
        if with_ranks && row.ranks.is_empty() {
            rows.push(Row::More("its ranks are not known here".into()));
        }
    }
    Table {
        columns: GROUPS,
        rows,
    }
}

fn group(look: &Look, row: &GroupRow) -> Vec<Cell> {
    let here = match row.ranks.len() {
        0 => row.size as usize,
        here => here,
    };
    let last = row.latest.map(|latest| match (look.over, look.begun) {
        (true, Some(begun)) => moment(latest - begun),
        _ => format!("{} ago", seconds((look.now - latest).max(0.0))),
    });
    let is_behind = look
        .facts
        .staleness_bound
        .is_some_and(|bound| row.lag > Some(bound));
    let gpu = row.gpu.map(|gpu| {
        let busy = or_dash(gpu.utilization, percent);
        format!("{busy}, {}", bytes(gpu.device_memory_bytes))
    });
    vec![
        row.group.to_string().into(),
        Cell {
            text: row.does.text.clone(),
            tone: row.does.tone,
        },
        format!("{here} of {}", row.size).into(),
        or_dash(row.clock, |clock| clock.to_string()).into(),
        Cell {
            text: or_dash(row.lag, |lag| lag.to_string()),
            tone: if is_behind { Tone::Warn } else { Tone::Plain },
        },
        or_dash(row.delay, |delay| delay.to_string()).into(),
        or_dash(row.loss, number).into(),
        or_dash(row.samples_per_second, rate).into(),
        or_dash(row.step_seconds, seconds).into(),
        last.unwrap_or_else(|| DASH.into()).into(),
        gpu.unwrap_or_default().into(),
    ]
}

fn rank(rank: &RankRow) -> Row {
    let lease_left = rank.lease_left_ms.map(|ms| seconds(ms as f64 / 1000.0));
    let told = [
        rank.host.clone(),
        rank.pid.map(|pid| format!("process {pid}")),
        rank.life
            .filter(|life| *life > 1)
            .map(|life| format!("started {life} times")),
        rank.clock.map(|clock| format!("clock {clock}")),
        lease_left.map(|left| format!("lease {left}")),
    ];
    let told: Vec<String> = told.into_iter().flatten().collect();
    Row::More(format!("rank {}: {}", rank.rank, told.join(", ")))
}

const SERVERS: &[Column] = &[
    words("server", 0),
    words("state", 1),
    digits("life", 6),
    words("answers for", 2),
    words("copies of", 5),
    digits("pushed to it", 3),
    digits("pulled from it", 3),
    digits("memory", 4),
    digits("lease", 7),
    words("address", 8),
];

/// Servers.
pub(super) fn servers(look: &Look) -> Table {
    let shards = |of: &[u32]| match of {
        [] => DASH.to_owned(),
        _ => format!("shard {}", listed(of)),
    };
    let row = |row: &ServerRow| {
        let state = Cell {
            text: row.state.into(),
            tone: match row.state {
                "up" => Tone::Good,
                "gone" => Tone::Bad,
                _ => Tone::Plain,
            },
        };
        Row::Cells(vec![
            row.server.to_string().into(),
            state,
            or_dash(row.life, |life| life.to_string()).into(),
            shards(&row.primary_of).into(),
            shards(&row.copy_of).into(),
            per_second(row.traffic.map(|is| is.pushed)).into(),
            per_second(row.traffic.map(|is| is.pulled)).into(),
            or_dash(row.memory_bytes, bytes).into(),
            or_dash(row.lease_left_ms, |ms| seconds(ms as f64 / 1000.0)).into(),
            or_dash(row.address.clone(), |address| address).into(),
        ])
    };
    Table {
        columns: SERVERS,
        rows: look.servers.iter().map(row).collect(),
    }
}

const SHARDS: &[Column] = &[
    words("shard", 0),
    words("primary", 0),
    words("copies", 2),
    digits("size", 4),
    digits("versions", 3),
    digits("pushed", 5),
    digits("pulled", 5),
    words("waits for", 1),
];

/// Shards.
pub(super) fn shards(look: &Look) -> Table {
    let row = |row: &ShardRow| {
        let filling = row.filling.iter().map(|copy| format!("{copy} (filling)"));
        let copies: Vec<String> = row
            .copies
            .iter()
            .map(u32::to_string)
            .chain(filling)
            .collect();
        let primary = match row.primary {
            Some(server) => format!("server {server}").into(),
            None => Cell {
                text: "nobody".into(),
                tone: Tone::Bad,
            },
        };
        let versions = row.version_min.zip(row.version_max);
        Row::Cells(vec![
            row.shard.to_string().into(),
            primary,
            or_dash(Some(copies.join(", ")).filter(|of| !of.is_empty()), |of| of).into(),
            or_dash(row.bytes, bytes).into(),
            or_dash(versions, |(min, max)| match min == max {
                true => min.to_string(),
                false => format!("{min} to {max}"),
            })
            .into(),
            per_second(row.traffic.map(|is| is.pushed)).into(),
            per_second(row.traffic.map(|is| is.pulled)).into(),
            Cell {
                text: row.waits_for.join("; "),
                tone: Tone::Warn,
            },
        ])
    };
    Table {
        columns: SHARDS,
        rows: look.shards.iter().map(row).collect(),
    }
}

fn listed(of: &[u32]) -> String {
    let of: Vec<String> = of.iter().map(u32::to_string).collect();
    of.join(", ")
}

fn per_second(of: Option<f64>) -> String {
    or_dash(of, |of| format!("{}/s", bytes(of as u64)))
}
