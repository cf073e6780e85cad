//! A client that knows the `.proto` and docs/protocol.md and nothing else of Tradewind trains a
//! run: two groups, plain SGD at rate 0.5, numbers that f32 holds exactly.

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Streaming};
use tradewind_proto::v1::{PullFrame, PushFrame, Verdict, push_frame};
use tradewind_tests::cluster::client::{Client, answer};
use tradewind_tests::cluster::fleet::Fleet;

use super::stage::{await_ready, join};
use super::{TOKEN, create, floats, frame, push};

const RUN: &str = "foreign";

/// One group's streams, one to each server.
struct Streams {
    sender: (&'static str, u32, u64),
    owners: Vec<u32>,
    up: Vec<mpsc::Sender<PushFrame>>,
    down: Vec<Streaming<PullFrame>>,
}

impl Streams {
    async fn open(client: &Client, sender: (&'static str, u32, u64), owners: &[u32]) -> Self {
        let mut streams = Self {
            sender,
            owners: owners.to_vec(),
            up: Vec::new(),
            down: Vec::new(),
        };
        for shard in &client.shards {
            let (up, frames) = mpsc::channel(4);
            let frames = Request::new(ReceiverStream::new(frames));
            let down = answer(shard.clone().exchange(frames)).await.unwrap();
            streams.up.push(up);
            streams.down.push(down.into_inner());
        }
        streams
    }

    /// Sends one frame a block and gathers the answers, in block order.
    async fn exchange(&mut self, frames: Vec<PushFrame>) -> Vec<PullFrame> {
        let mut due = vec![0; self.up.len()];
        for frame in frames {
            let owner = self.owners[frame.block as usize] as usize;
            due[owner] += 1;
            self.up[owner].send(frame).await.unwrap();
        }
        let mut answers = Vec::new();
        for (down, due) in self.down.iter_mut().zip(due) {
            for _ in 0..due {
                answers.push(answer(down.message()).await.unwrap().unwrap());
            }
        }
        answers.sort_by_key(|answer| answer.block);
        answers
    }

    /// A push of the flat gradient `g`, and the fresh flat vector.
    async fn push(&mut self, clock: u64, versions: &[u64], g: [f32; 10]) -> Vec<PullFrame> {
        let blocks = [&g[0..4], &g[4..7], &g[7..10]];
        let frames = (0..).zip(blocks).zip(versions);
        let frames =
            frames.map(|((block, values), at)| push(self.sender, (clock, block), *at, values));
        self.exchange(frames.collect()).await
    }
}

fn flat(answers: &[PullFrame]) -> Vec<f32> {
    answers.iter().flat_map(|a| floats(&a.values)).collect()
}

fn facts(answers: &[PullFrame]) -> Vec<(Verdict, bool, u64, u64)> {
    let fact = |a: &PullFrame| (a.verdict(), a.repeated_verdict, a.version, a.delay);
    answers.iter().map(fact).collect()
}

#[test]
fn two_groups_train() {
    let fleet = Fleet::start(2, TOKEN);
    fleet.block_on(async {
        let client = fleet.client().await;
        let joined = join(&client, (RUN, 0, 0), 17, &[1, 1]).await.unwrap();
        let owners = joined.placement.unwrap().shards;
        assert_eq!(owners, [0, 1, 1]);
        join(&client, (RUN, 1, 0), 18, &[1, 1]).await.unwrap();
        let mut zero = Streams::open(&client, (RUN, 0, 1), &owners).await;
        let mut one = Streams::open(&client, (RUN, 1, 1), &owners).await;

        // Group 0 creates 0, 1, 2 … 9 in flat order.
        assert!(
            await_ready(&client, (RUN, 0, 1), false)
                .await
                .unwrap()
                .create
        );
        let initial: [f32; 10] = std::array::from_fn(|i| i as f32);
        let blocks = [&initial[0..4], &initial[4..7], &initial[7..10]];
        let creations = (0..).zip(blocks);
        let creations = creations.map(|(block, values)| create((RUN, 0, 1), block, values));
        for created in zero.exchange(creations.collect()).await {
            assert_eq!(created.verdict(), Verdict::Created);
        }
        let ready = await_ready(&client, (RUN, 0, 1), true).await.unwrap();
        assert_eq!((ready.create, ready.start_clock), (false, 0));
        let ready = await_ready(&client, (RUN, 1, 1), false).await.unwrap();
        assert_eq!((ready.create, ready.start_clock), (false, 0));

        let pull = |block| {
            frame(
                (RUN, 1, 1),
                block,
                push_frame::Action::Pull(Default::default()),
            )
        };
        let pulled = one.exchange((0..3).map(pull).collect()).await;
        assert_eq!(flat(&pulled), initial);
        assert_eq!(facts(&pulled), [(Verdict::Read, false, 0, 0); 3]);

        // Both compute on version 0; the second one is applied with delay 1.
        let g: [f32; 10] = std::array::from_fn(|i| (i % 3) as f32);
        let first = zero.push(0, &[0; 3], g).await;
        let after_first: Vec<f32> = (0..10).map(|i| initial[i] - 0.5 * g[i]).collect();
        assert_eq!(facts(&first), [(Verdict::Applied, false, 1, 0); 3]);
        assert_eq!(flat(&first), after_first);

        let h: [f32; 10] = std::array::from_fn(|i| -(i as f32));
        let second = one.push(0, &[0; 3], h).await;
        let after_second: Vec<f32> = (0..10).map(|i| after_first[i] - 0.5 * h[i]).collect();
        assert_eq!(facts(&second), [(Verdict::Applied, false, 2, 1); 3]);
        assert_eq!(flat(&second), after_second);

        // The answer to the first push was lost: same verdict, same delay, current values.
        let mut fresh = Streams::open(&fleet.client().await, (RUN, 0, 1), &owners).await;
        let repeated = fresh.push(0, &[0; 3], g).await;
        assert_eq!(facts(&repeated), [(Verdict::Applied, true, 2, 0); 3]);
        assert_eq!(flat(&repeated), after_second);

        let skip = |block| PushFrame {
            clock: 1,
            ..frame(
                (RUN, 0, 1),
                block,
                push_frame::Action::Skip(Default::default()),
            )
        };
        let skipped = fresh.exchange((0..3).map(skip).collect()).await;
        assert_eq!(facts(&skipped), [(Verdict::Skipped, false, 2, 0); 3]);
        assert_eq!(flat(&skipped), after_second);
        assert!(skipped.iter().all(|a| a.samples_applied == 8 && !a.stop));
        for (server, (bytes, applied, skipped)) in [(16, 2, 1), (24, 4, 2)].iter().enumerate() {
            let shard = client.shard_status(server, RUN).await.unwrap();
            let got = (shard.bytes, shard.applied, shard.skipped);
            assert_eq!(got, (*bytes, *applied, *skipped));
            assert_eq!((shard.version_min, shard.version_max), (2, 2));
            assert_eq!(shard.refused, 0);
        }
    });
}
