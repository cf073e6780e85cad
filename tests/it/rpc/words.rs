//! docs/protocol.md lists every reason of a refusal, and the tests provoke every one of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use tradewind_proto::refusal::Reason;
use tradewind_tests::cluster::root;

use super::{
    coordinator, frames, people, repeats, replicate, revoked, roles, serve, snapshots,
    specification, token,
};

/// `NotFound` as gRPC writes it: `NOT_FOUND`.
fn code_name(reason: Reason) -> String {
    let mut name = String::new();
    for letter in format!("{:?}", reason.code()).chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.extend(letter.to_uppercase());
    }
    name
}

#[test]
fn the_protocol_lists_every_reason() {
    let path = root().join("docs/protocol.md");
    let text = fs::read_to_string(&path).unwrap();
    // Rows of the form | `word` | CODE | …
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| `")?.split('|').map(str::trim);
        let word = cells.next()?.strip_suffix('`')?.to_owned();
        Some((word, cells.next()?.to_owned()))
    };
    let listed: BTreeMap<String, String> = text.lines().filter_map(row).collect();
    let given = Reason::ALL
        .iter()
        .map(|r| (r.word().to_owned(), code_name(*r)));
    assert_eq!(listed, given.collect(), "the table of refusals is old");
}

#[test]
fn the_tests_provoke_every_reason() {
    let mut provoked: BTreeSet<&str> = BTreeSet::from([
        token::BAD_TOKEN.1,
        // In bytes.rs and in specification.rs.
        "unreadable",
        "specification-differs",
        // Of a copy that confirms nothing for 65,536 answers: the core's own tests.
        "busy",
        // Of a 1025th group that is revoked: the core's own tests.
        "too-many-revoked",
        // Of a certificate that names nobody: proto's own tests.
        "bad-certificate",
        // Of tasks of Slurm's that enrol: tests of tradewind-launch.
        "unknown-secret",
        "used-secret",
        "expired-secret",
        // Of a run that stops at a loss: the core's own tests.
        "lost",
    ]);
    provoked.extend(frames::GRADIENTS.iter().map(|row| row.2.1));
    provoked.extend(frames::CREATIONS.iter().map(|row| row.2.1));
    provoked.extend(coordinator::CALLERS.iter().map(|row| row.2.1));
    provoked.extend(coordinator::RANKS.iter().map(|row| row.2.1));
    provoked.extend(coordinator::JOINS.iter().map(|row| row.2.1));
    provoked.extend(coordinator::LEASES.iter().map(|row| row.3.1));
    provoked.extend(specification::BAD.iter().map(|row| row.1.1));
    provoked.extend(serve::REGISTRATIONS.iter().map(|row| row.2.1));
    provoked.extend(serve::REPORTS.iter().map(|row| row.2.1));
    provoked.insert(serve::NOT_REGISTERED.1);
    provoked.extend(coordinator::SNAPSHOTS.iter().map(|row| row.2.1));
    provoked.extend(replicate::RECORDS.iter().map(|row| row.3.1));
    provoked.extend(snapshots::REFUSED.iter().map(|want| want.1));
    provoked.extend(people::REFUSED.iter().map(|want| want.1));
    provoked.extend(repeats::REFUSED.iter().map(|want| want.1));
    provoked.extend(revoked::REFUSED.iter().map(|want| want.1));
    provoked.extend(roles::STRANGERS.into_iter().chain(roles::MEMBERS));
    let given: BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.word()).collect();
    assert_eq!(provoked, given);
}
