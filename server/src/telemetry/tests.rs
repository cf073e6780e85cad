use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::Value;
use tradewind_common::{Clock, GroupId, Incarnation};
use tradewind_core::run::{GroupRow, GroupState};

use super::folder::room;
use super::members::OfRun;
use super::table::{ALL, markdown};

fn shipped(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_docs_have_every_metric() {
    let wanted = format!(
        "<!-- metrics: begin -->\n{}<!-- metrics: end -->",
        markdown()
    );
    assert!(
        shipped("docs/metrics.md").contains(&wanted),
        "the table in docs/metrics.md is old; put the output of `tradewind config --metrics` there"
    );
}

#[test]
fn metrics_are_named_as_the_rules_say() {
    let names: BTreeSet<&str> = ALL.iter().map(|metric| metric.name).collect();
    assert_eq!(names.len(), ALL.len());
    for metric in ALL {
        let is_counter = metric.kind == super::Kind::Counter;
        assert_eq!(
            metric.name.ends_with("_total"),
            is_counter,
            "{}",
            metric.name
        );
        assert!(metric.name.starts_with("tradewind_"), "{}", metric.name);
        assert!(!metric.labels.contains(&"rank"), "{}", metric.name);
    }
}

/// Names that begin as a metric's do.
fn named(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words
        .filter(|word| word.starts_with("tradewind_"))
        .collect()
}

/// All expressions of a dashboard.
fn expressions(panel: &Value, found: &mut Vec<String>) {
    match panel {
        Value::Object(keys) => {
            for (key, value) in keys {
                match (key.as_str(), value) {
                    ("expr" | "query", Value::String(text)) => found.push(text.clone()),
                    _ => expressions(value, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| expressions(value, found)),
        _ => {}
    }
}

#[test]
fn dashboard_and_alerts_name_metrics_that_there_are() {
    let known: BTreeSet<&str> = ALL.iter().map(|metric| metric.name).collect();
    let alerts = shipped("deploy/grafana/alerts.yml");
    let dashboard: Value = serde_json::from_str(&shipped("deploy/grafana/tradewind.json")).unwrap();
    let mut shown = Vec::new();
    expressions(&dashboard, &mut shown);
    let shown = shown.join("\n");
    for (file, text) in [("alerts.yml", &alerts), ("tradewind.json", &shown)] {
        let named = named(text);
        assert!(named.len() > 4, "{file}: {named:?}");
        let unknown: Vec<_> = named.difference(&known).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?} are no metrics");
    }
    let left: Vec<_> = known
        .iter()
        .filter(|name| !named(&shown).contains(*name))
        .collect();
    assert!(left.is_empty(), "the dashboard does not show {left:?}");
}

fn row(group: u32, state: GroupState, clock: u64) -> GroupRow {
    GroupRow {
        group: GroupId(group),
        size: 1,
        incarnation: Incarnation(1),
        state,
        clock: Clock(clock),
        lease_left_ms: 0,
        ranks: Vec::new(),
        draining: false,
    }
}

#[test]
fn groups_are_told_with_their_lag() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let page = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        let has = |lines: &[&str]| {
            let page = page.render();
            for line in lines {
                assert!(
                    page.lines().any(|told| told == *line),
                    "{line} is not in\n{page}"
                );
            }
        };
        let mut run = OfRun::of_test("r");
        let live = GroupState::Live;
        // A dead group is not behind, and nobody is behind it.
        run.tell_groups(&[
            row(0, live, 7),
            row(1, live, 4),
            row(2, GroupState::Gathering, 9),
        ]);
        has(&[
            r#"tradewind_groups{run="r",state="live"} 2"#,
            r#"tradewind_groups{run="r",state="dead"} 1"#,
            r#"tradewind_group_live{run="r",group="1"} 1"#,
            r#"tradewind_group_live{run="r",group="2"} 0"#,
            r#"tradewind_group_clock{run="r",group="2"} 9"#,
            r#"tradewind_group_lag{run="r",group="0"} 0"#,
            r#"tradewind_group_lag{run="r",group="1"} 3"#,
            r#"tradewind_group_lag{run="r",group="2"} 0"#,
        ]);
        let left = GroupState::Left;
        run.tell_groups(&[row(0, left, 8), row(1, live, 8), row(2, live, 10)]);
        has(&[
            r#"tradewind_groups{run="r",state="live"} 2"#,
            r#"tradewind_groups{run="r",state="dead"} 0"#,
            r#"tradewind_groups{run="r",state="left"} 1"#,
            r#"tradewind_group_live{run="r",group="0"} NaN"#,
            r#"tradewind_group_lag{run="r",group="1"} 2"#,
        ]);
        drop(run);
        has(&[
            r#"tradewind_groups{run="r",state="live"} 0"#,
            r#"tradewind_group_live{run="r",group="1"} NaN"#,
            r#"tradewind_group_lag{run="r",group="1"} 0"#,
        ]);
    });
}

#[test]
fn room_is_told() {
    let (free, size) = room(Path::new("/")).unwrap();
    assert!(0 < size && free <= size);
    assert_eq!(room(Path::new("/nowhere/at/all")), None);
}
