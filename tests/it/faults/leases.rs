//! Who is silent is expelled; who is slow is not (rule 5).

use tradewind_common::spec::{ConsistencySpec, RunSpec};
use tradewind_tests::cluster::fleet::Setup;
use tradewind_tests::cluster::member::Joining;

use super::pushing::{Pushing, member, push};
use super::watch::{events, shows, status};
use super::{LEASE_MS, RUN, initial, layout, spec};

#[test]
fn a_silent_rank_is_expelled_when_its_lease_ends_and_a_slow_group_never() {
    let fleet = Setup::of(1).start();
    fleet.block_on(async {
        let spec = RunSpec {
            lease_ms: LEASE_MS,
            consistency: ConsistencySpec::Bounded { staleness_bound: 1 },
            ..spec(&[1, 1, 1], 1)
        };
        let client = fleet.client().await;
        let fast = member(&fleet, 0, &spec).await;
        let mut slow = member(&fleet, 1, &spec).await;
        let silent = Joining::join(&fleet, (RUN, 2), &spec).await;
        // It begins, and is not heard any more.
        let silent = silent.begin(&initial(layout(&spec).elements())).await;
        let fast = Pushing::start(0, fast);
        let lost = shows(&client, "the silent rank to be expelled", |status| {
            events(status, "rank_lost").first().cloned()
        })
        .await;
        assert_eq!((lost.group, lost.rank), (Some(2), Some(0)));
        assert!(lost.text.contains("its lease ran out"), "{}", lost.text);

        // The slow one has pushed nothing all the while, and holds the fast one up within the bound.
        assert!(!slow.lost() && fast.clock() <= 2, "{}", fast.clock());
        for clock in 0..5 {
            push(1, &mut slow).await;
            fast.reaches(clock + 3).await;
        }
        assert!(!slow.lost());
        let now = status(&client).await;
        let states: Vec<_> = now
            .groups
            .iter()
            .map(|g| (&*g.state, g.incarnation))
            .collect();
        assert_eq!(states, [("live", 1), ("live", 1), ("dead", 1)]);
        assert_eq!(events(&now, "rank_lost").len(), 1);
        drop(silent);
        // Nobody holds it up at the end.
        drop(slow);
        fast.stop().await;
    });
}
