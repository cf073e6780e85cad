//! Two servers hold each shard, and one of them dies (rule 4).

use tradewind_proto::v1::Verdict;
use tradewind_tests::cluster::fleet::Setup;

use super::pushing::{Pushing, all_go_on, each_counts_once, member, pushes};
use super::watch::{all_full, answers, events, frame, pull, status, values};
use super::{after, layout, spec};

/// Two groups push without a pause. The servers of two shards are killed one after the other, the
/// first of them is begun again in between and filled; every answered update counts, once.
#[test]
fn nothing_answered_is_lost() {
    let fleet = Setup::of(3).start();
    fleet.block_on(async {
        let spec = spec(&[1, 1], 2);
        let client = fleet.client().await;
        let members = [
            member(&fleet, 0, &spec).await,
            member(&fleet, 1, &spec).await,
        ];
        let groups = (0..).zip(members);
        let groups: Vec<_> = groups.map(|(group, m)| Pushing::start(group, m)).collect();
        all_full(&client, 1).await;
        all_go_on(&groups, 5).await;

        fleet.kill(1);
        answers(&client, 1, 2).await;
        all_go_on(&groups, 5).await;

        // Filled up as a copy while they go on.
        fleet.begin(1);
        all_full(&client, 1).await;
        all_go_on(&groups, 5).await;

        fleet.kill(2);
        answers(&client, 2, 0).await;
        answers(&client, 1, 1).await;
        all_go_on(&groups, 5).await;

        let status = each_counts_once(&fleet, &client, &spec, groups).await;
        assert_eq!(events(&status, "server_lost").len(), 2);
    });
}

/// What the former primary has answered, the promoted copy answers the same when it is asked again:
/// the verdict, the version, the values.
#[test]
fn a_repeat_is_answered_by_the_promoted_copy_as_it_was_before() {
    let fleet = Setup::of(2).start();
    fleet.block_on(async {
        let spec = spec(&[1], 2);
        let client = fleet.client().await;
        let mut group = member(&fleet, 0, &spec).await;
        all_full(&client, 1).await;
        pushes(0, &mut group, 3).await;
        let layout = layout(&spec);
        let of_one = status(&client).await.placement.unwrap().shards;
        let blocks = (0u32..).zip(of_one).filter(|(_, shard)| *shard == 1);
        let blocks: Vec<u32> = blocks.map(|(block, _)| block).take(3).collect();
        let mut before = Vec::new();
        for block in &blocks {
            before.push(client.push(1, frame((0, 1), (3, *block))).await.unwrap());
        }

        fleet.kill(1);
        answers(&client, 1, 0).await;
        let all = after(layout.elements(), &[(0, 0..4)]);
        for (block, before) in blocks.iter().zip(before) {
            let repeated = client.push(0, frame((0, 1), (3, *block))).await.unwrap();
            assert!(repeated.repeated_verdict && !before.repeated_verdict);
            let facts = |answer: &tradewind_proto::v1::PullFrame| {
                (answer.verdict(), answer.version, answer.samples_applied)
            };
            assert_eq!(facts(&before), (Verdict::Applied, 4, 16));
            assert_eq!(facts(&repeated), facts(&before));
            assert_eq!(repeated.values, before.values);
            let read = client.push(0, pull(*block)).await.unwrap();
            assert_eq!(values(&read), all[*block as usize * 8..][..8]);
        }
    });
}
