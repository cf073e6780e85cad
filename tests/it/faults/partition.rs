//! A primary that is cut off from its copy and from the coordinator, and not from those who push
//! (rule 4: safety rests on no clock).

use tradewind_proto::v1::{PullFrame, PushFrame, Verdict};
use tradewind_tests::cluster::client::Client;
use tradewind_tests::cluster::fleet::Setup;
use tradewind_tests::cluster::member::read;

use super::pushing::{member, push, pushes};
use super::watch::{
    all_full, answers, assert_copies_agree, frame, holders, pull, shows, status, values,
};
use super::{LEASE_MS, RUN, after, layout, spec};

/// A frame that waits for its answer.
fn ask(
    client: &Client,
    server: usize,
    frame: PushFrame,
) -> tokio::task::JoinHandle<Result<PullFrame, tonic::Status>> {
    let client = client.clone();
    tokio::spawn(async move { client.push(server, frame).await })
}

#[test]
fn a_primary_that_is_cut_off_answers_nothing_and_holds_nothing_afterwards() {
    let setup = Setup {
        lease_ms: LEASE_MS,
        gated: vec![1, 2],
        bonds: vec![1],
        ..Setup::of(3)
    };
    let fleet = setup.start();
    fleet.block_on(async {
        let spec = spec(&[1, 1], 2);
        let client = fleet.client().await;
        let mut zero = member(&fleet, 0, &spec).await;
        let mut one = member(&fleet, 1, &spec).await;
        all_full(&client, 1).await;
        pushes(0, &mut zero, 3).await;
        pushes(1, &mut one, 2).await;
        // Shard 1: server 1 answers for it, server 2 has the copy.
        let shards = status(&client).await.placement.unwrap().shards;
        let block = shards.iter().position(|shard| *shard == 1).unwrap() as u32;
        let before = fleet.client().await.push(1, pull(block)).await.unwrap();
        assert_eq!(before.version, 5);

        let set = |open| {
            fleet.gate(1, open);
            fleet.gate(2, open);
            fleet.bond(1, open);
        };
        set(false);
        // Those who push still reach it: a group with an update, and somebody who only reads.
        let pushed = ask(&client, 1, frame((0, 1), (3, block)));
        let pulled = ask(&client, 1, pull(block));
        answers(&client, 1, 2).await;
        assert!(!pushed.is_finished(), "nobody has confirmed the update");
        assert!(!pulled.is_finished(), "it may not be the primary any more");

        // The group goes on with the promoted copy, which has not heard of that update.
        let applied = client.push(2, frame((0, 1), (3, block))).await.unwrap();
        let facts = (applied.verdict(), applied.repeated_verdict, applied.version);
        assert_eq!(facts, (Verdict::Applied, false, 6));
        assert!(!pushed.is_finished() && !pulled.is_finished());

        // When the cut heals it learns what it is now.
        set(true);
        for told in [pushed, pulled] {
            let told = told.await.unwrap().unwrap_err();
            let word = tradewind_proto::refusal::reason(&told);
            assert_eq!(word, Some("not-primary"), "{told}");
        }
        let again = shows(&client, "server 1 to be a copy", |status| {
            let copy = holders(status, 1).copies.first()?;
            (copy.server == 1 && copy.full).then_some(copy.since)
        })
        .await;
        assert!(again > 0, "filled anew");
        push(0, &mut zero).await;
        push(1, &mut one).await;
        let layout = layout(&spec);
        let all = after(layout.elements(), &[(0, 0..4), (1, 0..3)]);
        assert_eq!(read(&fleet, RUN, &layout).await, all);
        all_full(&client, 1).await;
        assert_copies_agree(&fleet, 7).await;
        let read = client.push(2, pull(block)).await.unwrap();
        assert_eq!(values(&read), all[block as usize * 8..][..8]);
    });
}
