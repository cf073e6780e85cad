//! One rank of a group is lost (rule 2).

use tonic::Code;
use tradewind_common::spec::RunSpec;
use tradewind_proto::refusal;
use tradewind_tests::cluster::client::Client;
use tradewind_tests::cluster::fleet::{Fleet, Setup};
use tradewind_tests::cluster::member::{Joining, Member, Who, read};
use tradewind_tests::cluster::until;

use super::pushing::{Pushing, member};
use super::watch::{events, frame, shows, status};
use super::{LONG_MS, RUN, after, gradient, initial, layout, spec};

/// Long enough for two ranks to join one after the other; a test waits for it.
const GRACE_MS: u64 = 3_000;

fn with_grace(reform_grace_ms: u64) -> RunSpec {
    let mut spec = spec(&[3, 1], 1);
    spec.faults.reform_grace_ms = reform_grace_ms;
    spec
}

/// A rank of group 0.
fn who(rank: u32, life: u64, after: u64) -> Who<'static> {
    Who {
        rank,
        life,
        after,
        ..Who::group(RUN, 0)
    }
}

async fn join(fleet: &Fleet, spec: &RunSpec, who: Who<'_>) -> Joining {
    let joined = Joining::try_join(fleet, who, spec).await;
    joined.unwrap().keeping()
}

/// Group 0 with three ranks, group 1 with one that pushes.
async fn begin(fleet: &Fleet, spec: &RunSpec) -> ([Member; 3], Pushing) {
    let rank = |rank| async move {
        let joining = join(fleet, spec, who(rank, 1, 0)).await;
        joining.begin(&initial(layout(spec).elements())).await
    };
    let (zero, one, two, other) = tokio::join!(rank(0), rank(1), rank(2), member(fleet, 1, spec));
    ([zero, one, two], Pushing::start(1, other))
}

/// So many exchanges of all ranks of group 0; the clocks.
async fn step<const N: usize>(ranks: &mut [Member; N], times: u64) -> std::ops::Range<u64> {
    let start = ranks[0].clock();
    for clock in start..start + times {
        for rank in ranks.iter_mut() {
            assert_eq!(rank.clock(), clock);
            let gradient = gradient(0, clock, rank.values.len());
            rank.push(&gradient, 4).await.unwrap();
        }
    }
    start..start + times
}

/// Waits until ranks have been told that this life of the group is over.
async fn told(ranks: &[Member]) {
    until("the other ranks to be told", async || {
        ranks.iter().all(Member::lost).then_some(())
    })
    .await;
}

async fn assert_fenced(client: &Client, incarnation: u64, clock: u64) {
    let late = client.push(0, frame((0, incarnation), (clock, 0))).await;
    let late = late.expect_err("the former life is fenced");
    let got = (late.code(), refusal::reason(&late));
    let want = (Code::PermissionDenied, Some("stale-incarnation"));
    assert_eq!(got, want, "{late}");
}

async fn assert_holds(fleet: &Fleet, spec: &RunSpec, pushed: &[(u32, std::ops::Range<u64>)]) {
    let layout = layout(spec);
    let all = after(layout.elements(), pushed);
    assert_eq!(read(fleet, RUN, &layout).await, all);
}

#[test]
fn a_group_goes_on_with_those_who_are_left_and_again_with_one_who_comes_later() {
    let fleet = Setup::of(1).start();
    fleet.block_on(async {
        let spec = with_grace(GRACE_MS);
        let client = fleet.client().await;
        let (mut ranks, other) = begin(&fleet, &spec).await;
        let first = step(&mut ranks, 3).await;
        let [zero, one, two] = ranks;
        drop(two);
        told(&[zero, one]).await;
        let lost = events(&status(&client).await, "rank_lost");
        let [lost] = lost.as_slice() else {
            panic!("{lost:?}")
        };
        assert_eq!((lost.group, lost.rank, lost.life), (Some(0), Some(2), 1));
        assert!(lost.text.contains("connection broke"), "{}", lost.text);
        other.goes_on(3).await;

        let (zero, one) = tokio::join!(
            join(&fleet, &spec, who(0, 1, 1)),
            join(&fleet, &spec, who(1, 1, 1))
        );
        let of = |j: &Joining| {
            (
                j.joined.incarnation.0,
                j.joined.group_size,
                j.joined.group_rank.0,
            )
        };
        assert_eq!((of(&zero), of(&one)), ((2, 2, 0), (2, 2, 1)));
        let (zero, one) = tokio::join!(zero.begin(&[]), one.begin(&[]));
        assert_fenced(&client, 1, first.end).await;
        let mut ranks = [zero, one];
        let second = step(&mut ranks, 3).await;
        assert!(second.start >= first.end, "no clock is computed twice");

        // A process in the place of the lost one: the group forms once more, whole.
        let rest = async {
            told(&ranks).await;
            let again = |rank| join(&fleet, &spec, who(rank, 1, 2));
            tokio::join!(again(0), again(1))
        };
        let (two, (zero, one)) = tokio::join!(join(&fleet, &spec, who(2, 2, 0)), rest);
        let lives = [of(&zero), of(&one), of(&two)];
        assert_eq!(lives, [(3, 3, 0), (3, 3, 1), (3, 3, 2)]);
        let (zero, one, two) = tokio::join!(zero.begin(&[]), one.begin(&[]), two.begin(&[]));
        assert_fenced(&client, 2, second.end).await;
        let third = step(&mut [zero, one, two], 2).await;
        assert!(third.start >= second.end);
        let other = other.stop().await;
        let pushed = [(0, first), (0, second), (0, third), (1, 0..other.clock())];
        assert_holds(&fleet, &spec, &pushed).await;
    });
}

#[test]
fn a_replacement_within_the_grace_makes_the_group_whole() {
    let fleet = Setup::of(1).start();
    fleet.block_on(async {
        let spec = with_grace(LONG_MS);
        let client = fleet.client().await;
        let (mut ranks, other) = begin(&fleet, &spec).await;
        let first = step(&mut ranks, 2).await;
        let [zero, one, two] = ranks;
        drop(one);
        told(&[zero, two]).await;

        let waiting = |rank| join(&fleet, &spec, who(rank, 1, 1));
        let replaced = async {
            // Those who are left wait for it.
            shows(&client, "two ranks to wait", |status| {
                (status.groups[0].ranks.len() == 2).then_some(())
            })
            .await;
            other.goes_on(2).await;
            join(&fleet, &spec, who(1, 2, 0)).await
        };
        let (zero, one, two) = tokio::join!(waiting(0), replaced, waiting(2));
        for (rank, joining) in (0..).zip([&zero, &one, &two]) {
            let joined = &joining.joined;
            let of = (joined.incarnation.0, joined.group_size, joined.group_rank.0);
            assert_eq!(of, (2, 3, rank));
        }
        let (zero, one, two) = tokio::join!(zero.begin(&[]), one.begin(&[]), two.begin(&[]));
        assert_fenced(&client, 1, first.end).await;
        let second = step(&mut [zero, one, two], 2).await;
        let other = other.stop().await;
        assert_holds(
            &fleet,
            &spec,
            &[(0, first), (0, second), (1, 0..other.clock())],
        )
        .await;
    });
}
