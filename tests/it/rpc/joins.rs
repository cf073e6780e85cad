//! Thousands of groups join at once, while a server takes no orders.

use tradewind_tests::cluster::fleet::Setup;

use super::TOKEN;
use super::stage::{await_ready, create_all, join, push_all, status};

const RUN: &str = "many";

/// Twice as many as have ever been kept for one server.
const GROUPS: u32 = 2_000;

/// Joins on their way at once.
const AT_ONCE: u32 = 64;

#[test]
fn a_server_that_is_slow_to_take_orders_keeps_its_bond_however_many_groups_join() {
    let setup = Setup {
        bonds: vec![1],
        token: TOKEN.into(),
        ..Setup::of(2)
    };
    let fleet = setup.start();
    fleet.block_on(async {
        let client = fleet.client().await;
        let sizes = vec![1; GROUPS as usize];
        let joined = join(&client, (RUN, 0, 0), 1, &sizes).await.unwrap();
        assert_eq!(joined.incarnation, 1);
        create_all(&client, RUN, 0, 1).await;
        await_ready(&client, (RUN, 0, 1), true).await.unwrap();
        push_all(&client, (RUN, 0, 1), 0, 0).await;
        let since = async || {
            let status = status(&client, RUN).await.unwrap();
            let holding = status.placement.unwrap().holding.unwrap();
            let holders = holding.holders.into_iter();
            let since = holders.map(|shard| (shard.primary, shard.primary_since));
            (status.phase, since.collect::<Vec<_>>())
        };
        let before = since().await;

        fleet.bond(1, false);
        let joining = (1..=AT_ONCE).map(|first| {
            let (client, sizes) = (client.clone(), sizes.clone());
            tokio::spawn(async move {
                for group in (first..GROUPS).step_by(AT_ONCE as usize) {
                    join(&client, (RUN, group, 0), 1, &sizes).await.unwrap();
                }
            })
        });
        // All of them are under way before one is waited for.
        let joining: Vec<_> = joining.collect();
        for joins in joining {
            joins.await.unwrap();
        }
        fleet.bond(1, true);

        // Every primary has to have followed the order that says so.
        let last = (RUN, GROUPS - 1, 1);
        let ready = await_ready(&client, last, false).await.unwrap();
        push_all(&client, last, ready.start_clock, 1).await;
        assert_eq!(
            since().await,
            before,
            "nobody else ever answered for a shard"
        );
    });
}
