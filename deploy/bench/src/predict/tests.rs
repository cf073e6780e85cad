use clap::Parser;
use serde_json::Value;
use tradewind_common::cost::Limit;

use super::report::{Exchanges, Needed};
use super::*;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    arguments: Arguments,
}

fn parse(arguments: &[&str]) -> Result<Arguments, clap::Error> {
    let given = arguments.iter().any(|a| a.starts_with("--parameters"));
    let own: &[&str] = if given {
        &["x"]
    } else {
        &["x", "--parameters=1048576"]
    };
    let line = own.iter().chain(arguments);
    Ok(Line::try_parse_from(line)?.arguments)
}

fn report(arguments: &[&str]) -> PredictReport {
    predict(&parse(arguments).unwrap()).unwrap()
}

#[track_caller]
fn close(given: f64, want: f64) {
    assert!((given / want - 1.0).abs() < 1e-12, "{given} is not {want}");
}

/// 2^20 parameters: 4 MiB in 16 blocks of 262,144 bytes. 2 groups of 4 ranks: a rank has 4. On the wire a block is 262,144 + 9 + 9 + 56 = 262,218 bytes up and
/// 262,194 down. 2 servers with 8 blocks and 2 groups: 16 × 262,218 = 4,195,488 bytes in. Servers
/// alternate, so every rank's blocks lie on one of them, and 4 ranks speak to each.
///
/// Link of 8 Gbit/s: 10^9 bytes a second. A rank: 4 × 262,218 bytes, 1.048872 ms; its core moves
/// 8 × 262,144 bytes at 1 GB/s: 2.097152 ms. A server: 4.195488 ms on its link; its cores
/// 8 × 1,048,576 bytes at 4 GB/s: 2.097152 ms; updates 12 × 1,048,576 bytes at 2 GB/s:
/// 6.291456 ms; half of each for one group alone.
///
/// All groups bring 32 × 262,218 = 8,390,976 bytes; in 1 ms that is 8.4 links, 16,777,216 bytes are
/// 4.2 servers, 25,165,824 bytes of arithmetic 12.6 cores.
#[test]
fn as_computed_by_hand() {
    let arguments = [
        "--groups=2",
        "--ranks=4",
        "--servers=2",
        "--link=8",
        "--rank-gb-per-s=1",
        "--server-gb-per-s=4",
        "--apply-gb-per-s=2",
        "--step-seconds=0.001",
    ];
    let small = report(&arguments);
    assert_eq!(
        (small.rank.sent.messages, small.rank.sent.wire),
        (4, 1_048_872)
    );
    assert_eq!(small.rank.received.wire, 4 * 262_194);
    assert_eq!(small.server.received.wire, 4_195_488);
    assert_eq!(small.server.sent.payload, 4_194_304);
    assert_eq!((small.server_connections, small.slice_over_mean), (4, 1.0));
    // 2 × 3/4 of 4 MiB, and 3 slices of 1 MiB.
    assert_eq!(small.collectives.reduce, 6_291_456);
    assert_eq!(small.collectives.gather, 3_145_728);
    close(small.collectives_seconds, 9.437184e-3);
    let Exchanges { alone, at_once } = small.exchange;
    close(alone.seconds, 3.145728e-3);
    close(at_once.seconds, 6.291456e-3);
    assert_eq!(
        (alone.limit, at_once.limit),
        (Limit::ShardCore, Limit::ShardCore)
    );
    assert!(!small.hidden);
    let Needed { by, servers, limit } = small.servers_needed;
    assert_eq!((by.link, by.cores, by.shard), (9, 5, 13));
    assert_eq!((servers, limit), (13, Limit::ShardCore));

    let quick = report(
        &[
            &arguments[..6],
            &["--apply-gb-per-s=90", "--step-seconds=0.0042"],
        ]
        .concat(),
    );
    close(quick.exchange.alone.seconds, 2.097_744e-3);
    close(quick.exchange.at_once.seconds, 4.195488e-3);
    assert_eq!(quick.exchange.at_once.limit, Limit::ServerLink);
    assert!(quick.hidden);
    assert_eq!(quick.servers_needed.servers, 2);
}

/// As above, but on two cores that all share, and after 1 ms. 2 groups move 16 × 1,048,576 bytes: at 1 GB/s each of two
/// cores is busy for 8.388608 ms with those of the ranks, and at 4 GB/s both for 4.194304 ms with those of the servers.
#[test]
fn latency_and_shared_cores_lengthen_an_exchange() {
    let arguments = [
        "--groups=2",
        "--ranks=4",
        "--servers=2",
        "--link=8",
        "--rank-gb-per-s=1",
        "--server-gb-per-s=4",
        "--latency-us=1000",
        "--shared-cores=2",
    ];
    let Exchanges { alone, at_once } = report(&arguments).exchange;
    close(alone.seconds, 1e-3 + (8.388608e-3 + 4.194304e-3) / 2.0);
    close(at_once.seconds, 1e-3 + 8.388608e-3 + 4.194304e-3);
    assert_eq!(
        (alone.limit, at_once.limit),
        (Limit::SharedCores, Limit::SharedCores)
    );
    let table = report(&arguments).table();
    assert!(
        table.contains("cores that ranks and servers share"),
        "{table}"
    );
}

/// int8 is 1 byte a value and a scale of 4 bytes for 512: 66,048 bytes of a block. Adam moves 28
/// bytes a value.
#[test]
fn forms_and_optimizers_change_bytes() {
    let plain = report(&["--apply-gb-per-s=0.005"]);
    let other = report(&[
        "--apply-gb-per-s=0.005",
        "--up=int8",
        "--down=bf16",
        "--optimizer=adam",
    ]);
    assert_eq!(other.rank.sent.payload, 16 * 66_048);
    assert_eq!(other.rank.received.payload, 16 * 131_072);
    // 12 and 28 bytes of 2^20 values, at 5 MB/s in half a second.
    let shards = [plain, other].map(|report| report.servers_needed.by.shard);
    assert_eq!(shards, [6, 12]);
}

#[test]
fn servers_not_given_are_as_many_as_are_needed() {
    let report = report(&["--apply-gb-per-s=0.01", "--step-seconds=0.3"]);
    // 12 × 2^20 bytes at 10 MB/s: 1.26 s.
    assert_eq!(report.servers_needed.servers, 5);
    let json: Value = serde_json::from_str(&report.json()).unwrap();
    assert_eq!(json["servers"], 5);
    assert_eq!(json["servers_needed"]["limit"], "shard-core");
    assert_eq!(json["servers_needed"]["shard"], 5);
    assert_eq!(json["rank"]["sent"]["messages"], 16);
    assert_eq!(json["exchange"]["at_once"]["limit"], "shard-core");
    // 4 of 16 blocks: 262,144 values.
    close(
        json["exchange"]["at_once"]["seconds"].as_f64().unwrap(),
        0.3145728,
    );
    assert_eq!(json["hidden"], false);
}

#[test]
fn the_table_tells_what_limits_and_what_is_uneven() {
    let table = report(&["--ranks=12", "--servers=2", "--rank-gb-per-s=0.25"]).table();
    for want in [
        "1048576 parameters in 16 blocks of at most 256 KiB",
        "a rank pushes                     2       524.29 kB     524.44 kB",
        "of all at once         4.2 ms   core of a rank that exchanges",
        "it hides behind a step of 500.0 ms",
        "servers needed: 1",
        "the longest slice is 1.50 times the mean, and the gather is padded to it: \
         too few blocks for 12 ranks; lower block_bytes",
    ] {
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            squeezed(&table).contains(&squeezed(want)),
            "{want}\n{table}"
        );
    }
    let even = report(&["--ranks=8"]).table();
    assert!(!even.contains("longest slice"), "{even}");
}

#[test]
fn what_cannot_be_predicted_is_named() {
    let check = |arguments: &[&str], wanted: &str| {
        let error = match parse(arguments) {
            Ok(arguments) => predict(&arguments).unwrap_err(),
            Err(error) => error.to_string(),
        };
        assert!(error.contains(wanted), "{error}");
    };
    check(&["--link=0"], "--link is 0, not a number above 0");
    check(&["--step-seconds=NaN"], "--step-seconds is NaN");
    check(&["--up=topk", "--topk-fraction=2"], "--topk-fraction is 2");
    check(&["--latency-us=-1"], "--latency-us is -1");
    check(&["--block-bytes=2"], "--block-bytes is 2 B");
    check(
        &["--parameters=2M", "--block-bytes=4"],
        "raise exchange.block_bytes",
    );
    check(&["--servers=17"], "17 servers for 16 blocks");
    check(&["--servers=1", "--copies=2"], "--copies is 2, more than");
    check(&["--groups=0"], "--groups");
}

#[test]
fn parameters_are_read() {
    for (text, want) in [("25M", 25_000_000), ("1.5B", 1_500_000_000), ("7", 7)] {
        assert_eq!(parameters(text), Ok(want));
    }
    for bad in ["", "M", "0", "1.5", "-3K", "1G", "9T", "NaN"] {
        let error = parameters(bad).unwrap_err();
        assert!(error.contains("is no number of parameters"), "{error}");
    }
}
