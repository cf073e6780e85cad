//! A rank whose certificate is not renewed says so with its heartbeats, and the coordinator's server tells it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tonic::Request;
use tradewind_client::coordinator::{Coordinator, RankId};
use tradewind_client::directory::Directory;
use tradewind_client::heartbeat::HeartbeatState;
use tradewind_client::lease::{Lease, keep_lease};
use tradewind_client::network::Reach;
use tradewind_common::{GroupId, Incarnation, Rank, RunId};
use tradewind_proto::auth::Credentials;
use tradewind_proto::renewal::Attempt;
use tradewind_proto::v1::Beat;
use tradewind_tests::cluster::client::answer;
use tradewind_tests::cluster::until;

use super::TOKEN;
use super::roles::{Guarded, rank};
use super::stage::READY;

/// Of an event, and of which field.
const NOT_RENEWED: (&str, &str) = ("certificate_not_renewed", "text");

/// A pause between beats, and a lease that no machine is too slow for.
const BEAT: Duration = Duration::from_millis(20);
const LEASE: Duration = Duration::from_secs(600);

#[test]
fn a_count_that_rises_is_told_of() {
    let guarded = Guarded::new();
    guarded.fleet.block_on(async {
        let member = guarded.client(&rank(READY, 0));
        let beats = [0, 2, 2].map(|renewals_failed| Beat {
            run: READY.into(),
            incarnation: 1,
            renewals_failed,
            ..Beat::default()
        });
        let beats = tokio_stream::iter(beats).chain(tokio_stream::pending());
        let held = answer(member.coordinator.clone().keep_lease(Request::new(beats))).await;
        let mut held = held.unwrap().into_inner();
        for _ in 0..3 {
            held.message().await.unwrap().expect("a beat is answered");
        }
        let told = until("the event", async || {
            let told = guarded.events(NOT_RENEWED.0, NOT_RENEWED.1);
            (!told.is_empty()).then_some(told)
        });
        let told: Vec<String> = told.await.into_iter().collect();
        assert_eq!(
            told,
            [
                "server 0: the certificate of rank 0 of group 0 was not renewed, 2 times in all; its log says why"
            ]
        );
    });
}

#[test]
fn a_rank_that_lives_tells_what_fails_with_its_next_beat() {
    let guarded = Guarded::new();
    // Two thirds of its life are over, and nobody answers where it is renewed.
    guarded.authority.renews_at("127.0.0.1:1".into());
    let due_s = -7200..600;
    let pass = guarded.authority.pass_for(&rank(READY, 0), due_s).unwrap();
    let credentials = Credentials::new(TOKEN, Some(&pass)).unwrap();
    let renewing = credentials.renewing().unwrap();
    guarded.fleet.block_on(async {
        let reach = Reach {
            credentials,
            retry: LEASE,
            connections: 1,
        };
        let mut coordinator = Coordinator::new(guarded.fleet.coordinator(), reach);
        let run = RunId::new(READY).unwrap();
        let placed = coordinator.placement(&run).await.unwrap();
        let (_directory, news) = Directory::new(placed.holding);
        let heartbeat = Arc::<HeartbeatState>::default();
        let lost = Arc::<AtomicBool>::default();
        let lease = Lease {
            id: RankId {
                run,
                group: GroupId(0),
                rank: Rank(0),
            },
            incarnation: Incarnation(1),
            pause: BEAT,
            length: LEASE,
            heartbeat: heartbeat.clone(),
            news,
        };
        let over = lost.clone();
        let _beats = keep_lease(&coordinator, lease, move |_| {
            over.store(true, Ordering::Relaxed);
        });
        let answered = until("an answered beat", async || {
            (heartbeat.streams_answered() > 0).then_some(())
        });
        answered.await;

        // It is tried once: another try would be half a second later.
        let (told, mut attempts) = mpsc::unbounded_channel();
        let keeping = renewing.keep(move |attempt| {
            let _ = told.send(attempt);
        });
        let attempt = tokio::select! {
            never = keeping => match never {},
            attempt = attempts.recv() => attempt.unwrap(),
        };
        assert!(matches!(attempt, Attempt::Failed(_)), "{attempt:?}");
        let told = until("the event", async || {
            let told = guarded.events(NOT_RENEWED.0, NOT_RENEWED.1);
            (!told.is_empty()).then_some(told)
        });
        let told: Vec<String> = told.await.into_iter().collect();
        let words = "server 0: the certificate of rank 0 of group 0 was not renewed, 1 time";
        assert!(told.len() == 1 && told[0].starts_with(words), "{told:?}");
        assert_eq!(heartbeat.streams_answered(), 1);
        assert!(!lost.load(Ordering::Relaxed), "it keeps its lease");
    });
}
