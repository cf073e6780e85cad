//! A server is shut out while groups push: its copies take over, as where it dies (rule 4).

use tradewind_common::identity::Identity;
use tradewind_proto::v1::RevokeRequest;
use tradewind_tests::cluster::client::answer;
use tradewind_tests::cluster::fleet::Setup;
use tradewind_tests::cluster::member::read;
use tradewind_tests::cluster::until;

use super::pushing::{Pushing, all_go_on, member};
use super::watch::{all_full, answers, assert_copies_agree, events, holders, status};
use super::{RUN, after, layout, spec};

/// What it had answered before counts, and what came to it afterwards counts once, at another server.
#[test]
fn nothing_answered_is_lost_with_a_server_that_is_shut_out() {
    let fleet = Setup::of(3).under_tls().start();
    fleet.block_on(async {
        let spec = spec(&[1, 1], 2);
        let owner = fleet.client_as(&fleet.credentials_of(&Identity::Person(None)));
        let members = [
            member(&fleet, 0, &spec).await,
            member(&fleet, 1, &spec).await,
        ];
        let groups = (0..).zip(members);
        let groups: Vec<_> = groups.map(|(group, m)| Pushing::start(group, m)).collect();
        all_full(&owner, 1).await;
        answers(&owner, 1, 1).await;
        all_go_on(&groups, 5).await;

        let request = RevokeRequest {
            run: RUN.into(),
            servers: vec![1],
            ..RevokeRequest::default()
        };
        let revoked = answer(owner.coordinator.clone().revoke(request)).await;
        assert!(revoked.unwrap().into_inner().without.is_empty());
        answers(&owner, 1, 2).await;
        let ends = async || fleet.has_ended(1).then_some(());
        until("the end of its process", ends).await;
        fleet.kill(1);
        all_go_on(&groups, 5).await;

        let mut pushed = Vec::new();
        for (group, pushing) in (0..).zip(groups) {
            let member = pushing.stop().await;
            assert!(!member.lost());
            pushed.push((group, 0..member.clock()));
        }
        let layout = layout(&spec);
        let all = after(layout.elements(), &pushed);
        assert_eq!(read(&fleet, RUN, &layout).await, all);
        let updates: u64 = pushed.iter().map(|(_, clocks)| clocks.end).sum();
        assert_copies_agree(&fleet, updates).await;
        let status = status(&owner).await;
        assert_eq!(status.lost_updates, 0);
        assert_eq!(holders(&status, 1).lineage, 0, "nothing was restored");
        assert_eq!(events(&status, "certificate_revoked").len(), 1);
    });
}
