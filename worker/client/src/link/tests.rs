use std::sync::Arc;
use std::time::Duration;

use tradewind_common::schedule::Seen;
use tradewind_common::{Clock, GroupId, Incarnation, RunId, TensorKind, layout::TensorSpec};
use tradewind_proto::auth::Credentials;
use tradewind_proto::v1::Verdict;

use super::*;
use crate::core::session::Session;
use crate::directory::testing::holding;
use crate::exchange::Exchange;
use crate::network::{PAUSE, PING};
use crate::testing::{Does, FakeShard};

/// For a slow and noisy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A rank whose three blocks, of four values each, are one shard.
fn exchange(directory: &Directory, retry: Duration) -> Exchange {
    let weight = TensorSpec {
        name: "weight".into(),
        shape: vec![12],
        kind: TensorKind::Parameter,
    };
    let layout = Arc::new(Layout::new(&[weight], 16).unwrap());
    assert_eq!(layout.blocks.len(), 3);
    let identity = Identity {
        run: RunId::new("r").unwrap(),
        group: GroupId(0),
        incarnation: Incarnation(1),
    };
    let blocks = (0..3).map(|block| (BlockId(block), ShardId(0)));
    let session = Session::new(identity, Clock(5), blocks);
    let reach = Reach {
        credentials: Credentials::default(),
        retry,
        connections: 1,
    };
    Exchange::new(layout, session, directory, &reach)
}

/// Applies what it is told, at this version and lineage, for whatever block; its values are all
/// `value`.
fn applied(frame: &PushFrame, value: f32) -> Does<PullFrame> {
    Does::Answers(PullFrame {
        block: frame.block,
        clock: frame.clock,
        verdict: Verdict::Applied.into(),
        version: 7,
        lineage: 3,
        dtype: DType::DtypeF32.into(),
        values: Bytes::copy_from_slice(bytemuck::cast_slice(&[value; 4])),
        ..PullFrame::default()
    })
}

const GRADIENT: Purpose = Purpose::Gradient { samples: 2 };

async fn push(exchange: &mut Exchange, values: &mut [f32]) -> Result<(), ExchangeError> {
    let run = exchange.run(GRADIENT, Seen::default(), &|_| vec![1.0; 4].into(), values);
    let ended = tokio::time::timeout(PATIENCE, run).await;
    ended.expect("it ends").map(|_| ())
}

async fn until(good: impl Fn() -> bool) {
    while !good() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn blocks(shard: &FakeShard) -> Vec<u32> {
    shard.heard().iter().map(|frame| frame.block).collect()
}

#[tokio::test]
async fn one_that_waits_goes_on_at_the_new_primary_with_what_is_unanswered() {
    let slow = FakeShard::new(|frame| match frame.block {
        0 => applied(frame, 1.0),
        _ => Does::Waits,
    });
    let quick = FakeShard::new(|frame| applied(frame, 2.0));
    let (old, new) = (slow.run(), quick.run());
    let (directory, news) = Directory::new(holding(3, Some((0, &old.address))));
    let mut exchange = exchange(&directory, Duration::ZERO);
    let mut values = vec![0.0; 12];
    let moves = async {
        until(|| slow.heard().len() == 3).await;
        // The answer of block 0 is on its way; if it has not come, its block would be asked for again.
        tokio::time::sleep(Duration::from_millis(100)).await;
        news.tell(holding(4, Some((1, &new.address))));
    };
    let (pushed, ()) = tokio::join!(push(&mut exchange, &mut values), moves);
    // Without a retry: following the directory is none.
    pushed.unwrap();
    assert_eq!(blocks(&quick), [1, 2]);
    assert_eq!(values, [[1.0; 4], [2.0; 4], [2.0; 4]].concat());

    // The next exchange begins where the shard is now.
    push(&mut exchange, &mut values).await.unwrap();
    assert_eq!(blocks(&quick), [1, 2, 0, 1, 2]);
    let heard = quick.heard();
    let last = heard.last().unwrap();
    assert_eq!((last.clock, last.holds), (6, Some(7)));
    let Some(push_frame::Action::Gradient(gradient)) = &last.action else {
        panic!("{last:?}");
    };
    assert_eq!((gradient.pulled_version, gradient.lineage), (7, 3));
}

#[tokio::test]
async fn one_that_waits_gives_up_when_the_lease_is_lost() {
    let slow = FakeShard::new(|_| Does::Waits);
    let running = slow.run();
    let (directory, news) = Directory::new(holding(3, Some((0, &running.address))));
    let mut exchange = exchange(&directory, PATIENCE);
    let mut values = vec![0.0; 12];
    let loses = async {
        until(|| slow.heard().len() == 3).await;
        news.end();
    };
    let (pushed, ()) = tokio::join!(push(&mut exchange, &mut values), loses);
    let Err(ExchangeError::Refused { status, .. }) = pushed else {
        panic!("{pushed:?}");
    };
    assert_eq!(refusal::reason(&status), Some(Reason::NotLive.word()));
}

#[tokio::test]
async fn an_idle_stream_is_left_when_the_shard_moves() {
    let shards = [1.0, 2.0].map(|value| FakeShard::new(move |frame| applied(frame, value)));
    let (old, new) = (shards[0].run(), shards[1].run());
    let (directory, news) = Directory::new(holding(3, Some((0, &old.address))));
    let mut exchange = exchange(&directory, Duration::ZERO);
    let mut values = vec![0.0; 12];
    push(&mut exchange, &mut values).await.unwrap();
    news.tell(holding(4, Some((1, &new.address))));
    push(&mut exchange, &mut values).await.unwrap();
    assert_eq!(shards.each_ref().map(|shard| shard.heard().len()), [3, 3]);
    assert_eq!(values, [2.0; 12]);
}

#[tokio::test]
async fn a_shard_without_a_primary_is_waited_for_within_the_retries() {
    let shard = FakeShard::new(|frame| applied(frame, 1.0));
    let running = shard.run();
    let (directory, news) = Directory::new(holding(3, None));
    let mut values = vec![0.0; 12];

    let mut impatient = exchange(&directory, Duration::ZERO);
    let error = push(&mut impatient, &mut values).await.unwrap_err();
    let nobody = matches!(&error, ExchangeError::Unreachable { shard, .. } if *shard == ShardId(0));
    assert!(nobody, "{error}");

    let mut patient = exchange(&directory, PATIENCE);
    let tell = async {
        tokio::time::sleep(PAUSE / 2).await;
        news.tell(holding(4, Some((0, &running.address))));
    };
    let (pushed, ()) = tokio::join!(push(&mut patient, &mut values), tell);
    pushed.unwrap();
    assert_eq!(values, [1.0; 12]);
}

#[tokio::test]
async fn who_says_that_it_is_not_the_primary_is_asked_again() {
    let count = std::sync::atomic::AtomicU32::new(0);
    let shard = FakeShard::new(move |frame| {
        match count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => Does::Ends(Err(Status::unavailable("not the primary yet"))),
            1 => Does::Ends(Ok(())),
            2 => Does::Ends(Err(refusal::status(Reason::UnknownRun, "none yet".into()))),
            _ => applied(frame, 1.0),
        }
    });
    let running = shard.run();
    let directory = Directory::fixed(holding(3, Some((0, &running.address))));
    let mut values = vec![0.0; 12];
    push(&mut exchange(&directory, PATIENCE), &mut values)
        .await
        .unwrap();
    assert_eq!(values, [1.0; 12]);
}

#[tokio::test]
async fn a_refusal_ends_the_exchange() {
    let shard = FakeShard::new(|_| Does::Ends(Err(Status::permission_denied("not live"))));
    let running = shard.run();
    let directory = Directory::fixed(holding(3, Some((0, &running.address))));
    let error = push(&mut exchange(&directory, PATIENCE), &mut [0.0; 12]).await;
    let error = error.unwrap_err();
    assert!(matches!(error, ExchangeError::Refused { .. }), "{error}");
    assert!(error.to_string().contains(&running.address), "{error}");
}

/// As a rank that computes for long: its exchanges' runtime stands still, also with an answer on its way that nobody
/// waits for.
#[test]
fn one_between_long_steps_keeps_its_connection() {
    let shard = FakeShard::new(|frame| applied(frame, 1.0));
    let running = shard.run();
    let (directory, _news) = Directory::new(holding(3, Some((0, &running.address))));
    let wire = crate::network::wire().unwrap();
    let mut exchange = exchange(&directory, Duration::ZERO);
    let mut values = vec![0.0; 12];
    wire.block_on(push(&mut exchange, &mut values)).unwrap();
    for _ in 0..2 {
        std::thread::sleep(PING + Duration::from_millis(100));
        // What is due by now is done, and not what follows from it.
        wire.block_on(async {
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
        });
    }
    wire.block_on(push(&mut exchange, &mut values)).unwrap();
    assert_eq!((shard.heard().len(), running.connections()), (6, 1));
}
