//! The coordinator's process dies, or is cut off, and another one follows it (rule 5).

use tonic::Code;
use tradewind_common::spec::RunSpec;
use tradewind_proto::v1::{CoordinateRequest, JoinRequest, PingRequest, Verdict};
use tradewind_tests::cluster::client::{Client, answer};
use tradewind_tests::cluster::fleet::{Fleet, Setup};
use tradewind_tests::cluster::member::{Joining, Who, read};
use tradewind_tests::cluster::until;

use super::pushing::{Pushing, member, pushes};
use super::watch::{
    all_full, answers, assert_copies_agree, events, frame, holders, shows, status, try_status,
};
use super::{LEASE_MS, RUN, after, initial, layout, spec};

/// Has a server host the coordinator; which life of it that is, once everybody can find it.
pub(super) async fn coordinate(fleet: &Fleet, server: usize) -> u64 {
    let client = fleet.client_of(server).await;
    let request = CoordinateRequest { servers: 3 };
    let reply = answer(client.hosts[server].clone().coordinate(request)).await;
    let reply = reply.unwrap().into_inner();
    until("the coordinator's new address", async || {
        (fleet.try_coordinator_address()? == reply.address).then_some(())
    })
    .await;
    reply.incarnation
}

fn join(spec: &RunSpec, group: u32) -> JoinRequest {
    JoinRequest {
        run: RUN.into(),
        group,
        life: 1,
        spec: Some(spec.into()),
        ..JoinRequest::default()
    }
}

fn block_of(shards: &[u32], shard: u32) -> u32 {
    let block = shards.iter().position(|of| *of == shard);
    block.expect("every shard has blocks") as u32
}

#[test]
fn exchanges_go_on_without_a_coordinator_and_the_rest_with_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup {
        lease_ms: LEASE_MS,
        ..Setup::of(3).folder(folder.path())
    };
    let fleet = setup.start();
    fleet.block_on(async {
        let spec = spec(&[1, 1, 1], 2);
        let former = fleet.client().await;
        let zero = member(&fleet, 0, &spec).await;
        let one = member(&fleet, 1, &spec).await;
        all_full(&former, 1).await;
        let before = status(&former).await;
        let zero = Pushing::start(0, zero);
        zero.goes_on(3).await;

        // It answered for shard 0, too, and had the copy of shard 2. Shard 1 needs neither.
        fleet.kill(0);
        let block = block_of(&before.placement.unwrap().shards, 1);
        for clock in 0..5 {
            let applied = former.push(1, frame((1, 1), (clock, block))).await;
            assert_eq!(applied.unwrap().verdict(), Verdict::Applied);
        }
        assert!(try_status(&former).await.is_none());
        let waiting = Joining::try_join(&fleet, Who::group(RUN, 2), &spec);
        tokio::pin!(waiting);
        tokio::select! {
            biased;
            joined = &mut waiting => panic!("joined without a coordinator: {}", joined.is_ok()),
            () = tokio::task::yield_now() => {}
        }

        let life = coordinate(&fleet, 1).await;
        assert!(life > before.coordinator, "{life}");
        let client = fleet.client().await;
        let joined = waiting.await.unwrap();
        answers(&client, 0, 1).await;
        answers(&client, 2, 2).await;
        zero.goes_on(3).await;
        let elements = layout(&spec).elements();
        let mut two = joined.keeping().begin(&initial(elements)).await;
        let start = two.clock();
        pushes(2, &mut two, 2).await;

        // The server is started again, as one among others.
        fleet.begin(0);
        all_full(&client, 1).await;
        zero.goes_on(3).await;
        let zero = zero.stop().await;
        assert!(!zero.lost() && !one.lost() && !two.lost());
        let now = status(&client).await;
        assert_eq!(now.coordinator, life);
        assert!(
            now.groups
                .iter()
                .all(|g| (g.incarnation, g.state.as_str()) == (1, "live"))
        );
        let pushed = [(0, 0..zero.clock()), (2, start..two.clock())];
        let mut all = after(elements, &pushed);
        let range = block as usize * 8..block as usize * 8 + 8;
        let with = [pushed.as_slice(), &[(1, 0..5)]].concat();
        all[range.clone()].copy_from_slice(&after(elements, &with)[range]);
        assert_eq!(read(&fleet, RUN, &layout(&spec)).await, all);
        assert_copies_agree(&fleet, None).await;
    });
}

/// The former coordinator is alive and cut off from all but the one who asks it.
#[test]
fn a_deposed_coordinator_can_do_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup {
        lease_ms: LEASE_MS,
        gated: vec![0],
        ..Setup::of(3).folder(folder.path())
    };
    let fleet = setup.start();
    fleet.block_on(async {
        let spec = spec(&[1, 1], 2);
        let zero = member(&fleet, 0, &spec).await;
        let client = fleet.client().await;
        all_full(&client, 1).await;
        let zero = Pushing::start(0, zero);
        zero.goes_on(3).await;

        fleet.gate(0, false);
        let former: Client = fleet.client_of(0).await;
        let before = status(&former).await;
        let life = coordinate(&fleet, 1).await;
        assert!(life > before.coordinator);
        let joined = answer(former.coordinator.clone().join(join(&spec, 1))).await;
        let refused = joined.expect_err("nobody joins at a former coordinator");
        assert_eq!(refused.code(), Code::Unavailable, "{refused}");
        until("the former one to say so", async || {
            let mut host = former.hosts[0].clone();
            let pong = answer(host.ping(PingRequest {}))
                .await
                .unwrap()
                .into_inner();
            (!pong.coordinates).then_some(())
        })
        .await;
        assert!(try_status(&former).await.is_none());

        let client: Client = fleet.client().await;
        shows(&client, "the servers at the next one", |status| {
            let up = |server: usize| status.servers[server].alive;
            // The way from the former one to others is open: it may have come there, too, before its
            // lease was over, and then keeps its shard.
            let settled = up(0) || holders(status, 0).primary != Some(0);
            (up(1) && up(2) && settled).then_some(())
        })
        .await;
        // Whoever joins does so at the next one.
        fleet.gate(0, true);
        let mut one = member(&fleet, 1, &spec).await;
        let start = one.clock();
        pushes(1, &mut one, 3).await;
        zero.goes_on(3).await;
        all_full(&client, 1).await;
        let zero = zero.stop().await;
        let now = status(&client).await;
        assert_eq!(now.coordinator, life);
        assert_eq!(events(&now, "coordinator").len(), 1);
        let layout = layout(&spec);
        let pushed = [(0, 0..zero.clock()), (1, start..one.clock())];
        let all = after(layout.elements(), &pushed);
        assert_eq!(read(&fleet, RUN, &layout).await, all);
        let updates = zero.clock() + one.clock() - start;
        assert_copies_agree(&fleet, updates).await;
    });
}
