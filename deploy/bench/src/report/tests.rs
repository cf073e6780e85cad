//! Reports from given samples.

use super::*;
use crate::fleet::ClientSample;
use crate::model::{Form, OptimizerName};
use crate::orders::Done;

const BYTES: usize = 1_000_000;

fn model(clients: u32) -> Model {
    Model {
        clients,
        bytes: BYTES,
        block_bytes: BYTES / 4,
        connections: 1,
        optimizer: OptimizerName::Sgd,
        up: Form::None,
        down: Form::None,
        topk_fraction: None,
        group: false,
        step_seconds: None,
    }
}

/// Clients that take so many milliseconds for each of two exchanges.
fn sample(milliseconds: &[f64], server_cpu: Option<f64>) -> Sample {
    let client = |ms: &f64| ClientSample {
        bytes: BYTES,
        done: Done {
            elapsed: 2.0 * ms / 1e3,
            seconds: vec![ms / 1e3; 2],
            beats: None,
        },
    };
    Sample {
        clients: milliseconds.iter().map(client).collect(),
        cpu: Cpu {
            client: 0.004,
            server: server_cpu,
        },
    }
}

fn side(samples: Vec<Sample>, server: Option<u64>) -> Side {
    Side {
        servers: 1,
        model: model(samples[0].clients.len() as u32),
        samples,
        peaks: Peaks {
            client: 3_000_000,
            server,
        },
    }
}

/// Two clients, 1 and 2 ms an exchange: 2 and 1 GB/s.
fn measured(other: Option<Other>) -> Measured {
    Measured {
        main: side(vec![sample(&[1.0, 2.0], Some(0.012)); 3], Some(5_000_000)),
        pushes: vec![sample(&[1.0, 1.0], Some(0.0))],
        pulls: vec![sample(&[1.0, 1.0], Some(0.0))],
        other,
        seconds: 0.5,
        server_threads: Some(1),
        tls: false,
    }
}

fn floor() -> Side {
    side(vec![sample(&[0.5, 1.0], Some(0.004)); 3], Some(1))
}

fn near(value: &serde_json::Value, want: f64) {
    let value = value.as_f64().unwrap_or(f64::NAN);
    assert!((value - want).abs() < 1e-9, "{value} is not {want}");
}

#[test]
fn json_follows_from_the_samples() {
    let json = |m: &Measured| serde_json::to_value(ExchangeReport::new(m)).unwrap();
    let report = json(&measured(Some(Other::Floor(floor()))));
    near(&report["gb_per_s"]["exchange"], 3.0);
    near(&report["gb_per_s"]["push"], 2.0);
    near(&report["gb_per_s"]["pull"], 2.0);
    near(&report["exchange_seconds"]["p50"], 0.0015);
    near(&report["exchange_seconds"]["p99"], 0.002);
    // 16 ms for two clients' two exchanges of 1 MB, up and down: 8 MB.
    near(&report["cpu_seconds_per_gb"], 2.0);
    near(&report["cpu_seconds_per_gb_by"]["client"], 0.5);
    near(&report["cpu_seconds_per_gb_by"]["server"], 1.5);
    near(&report["cpu_seconds_per_gb_by"]["total"], 2.0);
    near(&report["floor_gb_per_s"], 6.0);
    near(&report["floor_cpu_seconds_per_gb"], 1.0);
    near(&report["ratio_to_floor"], 0.5);
    near(&report["spread"]["ratio"], 0.0);
    near(&report["slowest_client_over_fastest"], 0.5);
    for (key, want) in [
        ("servers", 1),
        ("clients", 2),
        ("bytes", 1_000_000),
        ("blocks", 4),
        ("runs", 3),
    ] {
        assert_eq!(report[key], want, "{key}");
    }
    assert_eq!(report["compression"]["up"], "none");
    assert_eq!(report["peak_rss_bytes"]["server"], 5_000_000);
    assert_eq!(report["baseline"], serde_json::Value::Null);

    let report = json(&measured(Some(Other::Baseline(floor()))));
    near(&report["ratio_to_baseline"], 0.5);
    near(&report["baseline"]["gb_per_s"], 6.0);
    near(&report["spread"]["baseline"], 0.0);
    assert_eq!(report["ratio_to_floor"], serde_json::Value::Null);
}

#[test]
fn servers_that_ran_already_are_not_measured() {
    let mut attached = measured(None);
    attached.main = side(vec![sample(&[1.0], None); 2], None);
    attached.server_threads = None;
    let report = ExchangeReport::new(&attached);
    let json = serde_json::to_value(&report).unwrap();
    for pointer in [
        "/cpu_seconds_per_gb",
        "/cpu_seconds_per_gb_by/server",
        "/peak_rss_bytes/server",
        "/floor_gb_per_s",
        "/ratio_to_floor",
        "/server_threads",
    ] {
        assert_eq!(
            json.pointer(pointer),
            Some(&serde_json::Value::Null),
            "{pointer}"
        );
    }
    near(&json["cpu_seconds_per_gb_by"]["client"], 1.0);
    let table = report.table();
    assert!(table.contains("the servers ran already"), "{table}");
    assert!(table.contains("not measured"), "{table}");
}

#[test]
fn the_table_has_a_line_for_each_side() {
    let table = ExchangeReport::new(&measured(Some(Other::Floor(floor())))).table();
    let want = "\
1 MB in 4 blocks of at most 250 KB, sgd; 1 server, 2 clients, 1 connection to each server

                GB/s   spread   core-s/GB   most memory of a client, a server
exchange       3.000    0.0 %       2.000   3 MB, 5 MB
floor          6.000    0.0 %       1.000
push           2.000
pull           2.000

exchange over floor: 0.500, spread 0.0 %
one exchange: median 1.500 ms, 99th percentile 2.000 ms
slowest client over fastest: 0.500
3 samples of 0.5 s. GB = 10^9 bytes, payload counted once in each direction, as f32; spread = interquartile range / median.";
    assert_eq!(table, want);
    let table = ExchangeReport::new(&measured(Some(Other::Baseline(floor())))).table();
    assert!(
        table.contains("\nbaseline: 4 blocks of at most 250 KB; 1 server, 2 clients\n"),
        "{table}"
    );
    assert!(table.contains("\nexchange over baseline: 0.500"), "{table}");
    let tls = Measured {
        tls: true,
        ..measured(Some(Other::Baseline(floor())))
    };
    let table = ExchangeReport::new(&tls).table();
    assert!(
        table.contains("1 connection to each server, over mutual TLS\nbaseline: ")
            && table.contains("1 server, 2 clients, in clear\n"),
        "{table}"
    );
}
