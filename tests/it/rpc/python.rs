//! A client in another language: `tests/foreign/client.py`, on grpcio and code that is generated
//! from the `.proto` files while the test runs. It checks every value that it is answered; what
//! the shards hold after it is checked here.

use std::process::Command;

use serde_json::Value;
use tradewind_tests::cluster::fleet::Fleet;
use tradewind_tests::cluster::root;

use super::TOKEN;
use super::stage::status;

const RUN: &str = "python";

/// Runs the client to its end.
fn client(coordinator: &str) -> Value {
    let python = root().join(".deps/venv/bin/python");
    assert!(
        python.exists(),
        "{} is missing; run `make setup`",
        python.display()
    );
    let client = Command::new(&python)
        .arg("-B")
        .arg(root().join("tests/foreign/client.py"))
        .args([coordinator, RUN])
        .arg(root().join("proto"))
        .env_clear()
        .env("TRADEWIND_TOKEN", TOKEN)
        .output()
        .expect("Python starts");
    let errors = String::from_utf8_lossy(&client.stderr);
    assert!(client.status.success(), "the client failed:\n{errors}");
    serde_json::from_slice(&client.stdout).expect("the client prints JSON")
}

fn number(value: &Value) -> u64 {
    value.as_u64().expect("a count")
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text
        .as_bytes()
        .chunks(2)
        .map(|two| std::str::from_utf8(two).unwrap());
    digits
        .map(|two| u8::from_str_radix(two, 16).unwrap())
        .collect()
}

#[test]
fn a_python_client_takes_part() {
    let fleet = Fleet::start(2, TOKEN);
    let made = client(&fleet.addresses()[0]);
    // Seven updates and a skip.
    assert_eq!(number(&made["clock"]), 8);
    let blocks = made["blocks"].as_array().unwrap();
    // 57 parameters in blocks of at most 16, and a buffer of 3 values, which comes whole.
    assert_eq!(blocks.len(), 5);
    assert_eq!(number(&made["differences"]), 7 * 4);
    fleet.block_on(async {
        let client = fleet.client().await;
        for server in 0..2 {
            let mut hasher = blake3::Hasher::new();
            let own = (0u32..).zip(blocks);
            let own = own.filter(|(_, block)| number(&block["shard"]) == server);
            let mut count = 0;
            for (id, block) in own {
                let (version, values) = (number(&block["version"]), block["values"].as_str());
                assert_eq!(version, 7);
                hasher.update(&id.to_le_bytes());
                hasher.update(&version.to_le_bytes());
                hasher.update(&unhex(values.unwrap()));
                count += 1;
            }
            let shard = client.shard_status(server as usize, RUN).await.unwrap();
            assert_eq!(shard.digest, hasher.finalize().as_bytes()[..], "{server}");
            assert_eq!((shard.version_min, shard.version_max), (7, 7));
            let counted = (shard.applied, shard.skipped, shard.duplicate);
            assert_eq!(counted, (7 * count, count, count), "server {server}");
        }
        let run = status(&client, RUN).await.unwrap();
        assert_eq!(run.groups[0].state, "left");
    });
}
