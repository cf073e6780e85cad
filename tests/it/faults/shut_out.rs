//! A server is shut out while groups push: its copies take over, as where it dies (rule 4).

use tradewind_common::identity::Identity;
use tradewind_proto::v1::RevokeRequest;
use tradewind_tests::cluster::client::answer;
use tradewind_tests::cluster::fleet::Setup;
use tradewind_tests::cluster::until;

use super::pushing::{Pushing, all_go_on, each_counts_once, member};
use super::watch::{all_full, answers, events};
use super::{RUN, spec};

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

        let status = each_counts_once(&fleet, &owner, &spec, groups).await;
        assert_eq!(events(&status, "certificate_revoked").len(), 1);
    });
}
