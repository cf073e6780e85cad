//! A whole fleet ends, and another one goes on with its run from a snapshot.

use tradewind_common::RunId;
use tradewind_proto::v1::{LeaseChunkReply, LeaseChunkRequest};
use tradewind_tests::cluster::client::{Client, answer};
use tradewind_tests::cluster::fleet::Setup;
use tradewind_tests::cluster::member::{Joining, read};

use super::pushing::{member, pushes};
use super::watch::{all_full, events, shows, snapshot, status};
use super::{RUN, after, initial, layout, spec};

async fn lease(client: &Client, group: u32, incarnation: u64, finished: &[u64]) -> LeaseChunkReply {
    let request = LeaseChunkRequest {
        run: RUN.into(),
        group,
        incarnation,
        finished: finished.to_vec(),
        held: Vec::new(),
    };
    let chunk = answer(client.coordinator.clone().lease_chunk(request)).await;
    chunk.unwrap().into_inner()
}

#[test]
fn a_run_goes_on_with_other_numbers_of_servers_and_groups() {
    let folder = tempfile::tempdir().unwrap();
    let (saved, clock, begun) = {
        let fleet = Setup::of(2).folder(folder.path()).start();
        fleet.block_on(async {
            let spec = spec(&[1], 1);
            let client = fleet.client().await;
            let mut group = member(&fleet, 0, &spec).await;
            let first = lease(&client, 0, 1, &[]).await;
            pushes(0, &mut group, 4).await;
            // One chunk is used up, the next one is out when the snapshot is taken.
            let second = lease(&client, 0, 1, &[first.chunk]).await;
            snapshot(&client).await;
            pushes(0, &mut group, 2).await;
            assert_eq!(second.begin, first.end);
            let of = after(layout(&spec).elements(), &[(0, 0..4)]);
            (of, 4, second)
        })
    };

    let setup = Setup {
        resume: Some(RunId::new(RUN).unwrap()),
        ..Setup::of(3).folder(folder.path())
    };
    let fleet = setup.start();
    fleet.block_on(async {
        let spec = spec(&[1, 1], 2);
        let client = fleet.client().await;
        let zero = Joining::join(&fleet, (RUN, 0), &spec).await.keeping();
        let one = Joining::join(&fleet, (RUN, 1), &spec).await.keeping();
        let lives = [&zero, &one].map(|joining| joining.joined.incarnation.0);
        assert!(lives.iter().all(|life| *life > 1), "{lives:?}");
        // Nobody creates anything.
        let elements = layout(&spec).elements();
        let never = vec![f32::NAN; elements];
        let mut zero = zero.begin(&never).await;
        let mut one = one.begin(&never).await;
        assert_eq!((&zero.values, &one.values), (&saved, &saved));
        assert!(zero.clock() >= clock && one.clock() >= clock);
        let status = status(&client).await;
        assert_eq!(events(&status, "restored").len(), 3);

        let next = lease(&client, 1, lives[1], &[]).await;
        assert_eq!((next.epoch, next.begin), (begun.epoch, begun.begin));
        let (starts, times) = ([zero.clock(), one.clock()], 3);
        pushes(0, &mut zero, times).await;
        pushes(1, &mut one, times).await;
        let mut all = saved;
        let fresh = initial(elements);
        let pushed = [(0, starts[0]..zero.clock()), (1, starts[1]..one.clock())];
        for ((value, then), now) in all.iter_mut().zip(fresh).zip(after(elements, &pushed)) {
            *value += now - then;
        }
        assert_eq!(read(&fleet, RUN, &layout(&spec)).await, all);
        all_full(&client, 1).await;
        // Copies, snapshots: all of it goes on.
        let number = snapshot(&client).await;
        shows(&client, "a snapshot", |status| {
            (status.snapshot == Some(number)).then_some(())
        })
        .await;
    });
}
