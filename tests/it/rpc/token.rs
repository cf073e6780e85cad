//! Without the fleet's token nothing is heard.

use tonic::{Code, Request};
use tradewind_proto::v1::server_report::Report;
use tradewind_proto::v1::{Register, ServerReport};
use tradewind_tests::cluster::client::answer;
use tradewind_tests::cluster::fleet::INCARNATION;

use super::coordinator::{Call, await_ready, heartbeat, join, lease, leave, member};
use super::stage::{READY, Stage};
use super::{Expected, assert_refused, push};

pub(super) const BAD_TOKEN: Expected = (Code::Unauthenticated, "bad-token", "no token, or another");

#[test]
fn every_call_asks_for_the_token() {
    let stage = Stage::new();
    stage.fleet.block_on(async {
        let before = stage.snapshot().await;
        for token in ["", "of-another-fleet", "of-the-fleet-and-more", "of-the"] {
            let stranger = stage.fleet.client_with(token).await;
            let calls = [
                Call::join(join()),
                await_ready(member()),
                heartbeat(member()),
                lease(member(), &[], &[]),
                leave(member()),
                Call::Status(READY.into()),
                Call::ShardStatus(READY.into()),
            ];
            for call in calls {
                let name = format!("{call:?} with token {token:?}");
                assert_refused(&name, call.send(&stranger).await, BAD_TOKEN);
            }
            let good = push((READY, 0, 2), (3, 1), 3, &[1.0; 3]);
            assert_refused("exchange", stranger.push(1, good).await, BAD_TOKEN);
            let register = ServerReport {
                report: Some(Report::Register(Register {
                    server: 1,
                    incarnation: INCARNATION + 1,
                    address: "127.0.0.1:1".into(),
                    host: String::new(),
                })),
            };
            let mut coordinator = stranger.coordinator.clone();
            let reports = Request::new(tokio_stream::iter([register]));
            let served = answer(coordinator.serve(reports)).await;
            assert_refused("serve", served.map(|_| ()), BAD_TOKEN);
        }
        assert_eq!(stage.snapshot().await, before);
    });
}
