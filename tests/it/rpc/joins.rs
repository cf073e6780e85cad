//! Thousands of groups join at once, while a server takes no orders.

use tradewind_tests::cluster::fleet::Setup;

use super::TOKEN;
use super::stage::{await_ready, create_all, join, members, push_all, status};

const RUN: &str = "many";

/// Twice as many as have ever been kept for one server.
const GROUPS: u32 = 2_000;

/// Calls that a connection takes at once.
const PER_CONNECTION: usize = 100;

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
        let mut joining = Vec::new();
        for first in (1..GROUPS).step_by(PER_CONNECTION) {
            let client = fleet.client().await;
            for group in first..GROUPS.min(first + PER_CONNECTION as u32) {
                let (client, sizes) = (client.clone(), sizes.clone());
                joining.push(tokio::spawn(async move {
                    join(&client, (RUN, group, 0), 1, &sizes).await.unwrap()
                }));
            }
        }
        // The coordinator has ordered all that; nobody has followed.
        members(&client, RUN, GROUPS as usize).await;
        fleet.bond(1, true);
        for joined in joining {
            assert_eq!(joined.await.unwrap().incarnation, 1);
        }

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
