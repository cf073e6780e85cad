//! Streams to whoever answers for a shard, and the frames on them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};
use tradewind_history::Action;
use tradewind_proto::refusal;
use tradewind_proto::v1::shard_client::ShardClient;
use tradewind_proto::v1::{
    Create, DType, Gradient, Holding, Pull, PullFrame, PushFrame, ServerEndpoint, Skip, push_frame,
};

use super::recorder::{Number, operation, version};
use super::wait::until;
use super::{RUN, SAMPLES, Shared};

/// Pause before something that did not work is tried again.
pub(super) const PAUSE: Duration = Duration::from_millis(50);

/// Until an answer that has not come is asked for again.
const ANSWER: Duration = Duration::from_secs(5);

/// Pause between two reads of an observer.
const READ: Duration = Duration::from_millis(15);

/// Who speaks: group, life, clock.
pub(super) type Who = (u32, u64, u64);

/// What is asked of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    Create,
    Pull,
    Skip,
    Contribute,
}

/// One group's stream to the primary of a shard; it is opened when it is needed.
pub(super) struct Link {
    shard: usize,
    open: Option<Open>,
}

struct Open {
    /// To whom, and since when that is the primary.
    to: (ServerEndpoint, u64),
    frames: mpsc::Sender<PushFrame>,
    answers: Streaming<PullFrame>,
    /// By block, what was sent and not answered.
    sent: BTreeMap<u32, Option<Number>>,
}

impl Link {
    pub(super) fn new(shard: usize) -> Self {
        Self { shard, open: None }
    }

    /// Asks something of every block of `due` until each has been answered, whoever answers then.
    ///
    /// # Errors
    /// If a server refuses for good: this life of the group is over.
    pub(super) async fn ask(
        &mut self,
        shared: &Shared,
        (who, ask): (Who, Ask),
        due: &BTreeSet<u32>,
        (held, rng): (&BTreeMap<u32, PullFrame>, &mut ChaCha8Rng),
    ) -> Result<BTreeMap<u32, PullFrame>, Status> {
        let mut answers = BTreeMap::new();
        let mut due = due.clone();
        while !due.is_empty() {
            let asked = self.once(shared, (who, ask), &mut due, (held, rng), &mut answers);
            match asked.await {
                Ok(()) => {}
                Err(status) if over(&status) => return Err(status),
                Err(_) => {
                    self.open = None;
                    sleep(PAUSE).await;
                }
            }
        }
        Ok(answers)
    }

    async fn once(
        &mut self,
        shared: &Shared,
        (who, ask): (Who, Ask),
        due: &mut BTreeSet<u32>,
        (held, rng): (&BTreeMap<u32, PullFrame>, &mut ChaCha8Rng),
        answers: &mut BTreeMap<u32, PullFrame>,
    ) -> Result<(), Status> {
        let shard = self.shard;
        let open = self.opened(shared).await?;
        for block in due.iter() {
            open.push(shared, (who, ask, *block), held.get(block))
                .await?;
        }
        while !due.is_empty() {
            let mut placement = shared.placement.subscribe();
            let to = open.to.clone();
            let moved = placement.wait_for(|placement| {
                let now = placement.holding.as_ref();
                now.and_then(|now| primary(now, shard)).as_ref() != Some(&to)
            });
            let frame = tokio::select! {
                frame = timeout(ANSWER, open.answers.message()) => frame,
                _ = moved => return Err(Status::unavailable("another primary")),
            };
            let frame = frame.map_err(|_| Status::unavailable("no answer"))??;
            let frame = frame.ok_or_else(|| Status::unavailable("the stream has ended"))?;
            open.answered(shared, &frame);
            if due.remove(&frame.block) {
                // Some clients do not know that the answer came, and ask again.
                if ask == Ask::Contribute && !due.is_empty() && rng.random_bool(0.05) {
                    let again = (who, ask, frame.block);
                    open.push(shared, again, held.get(&frame.block)).await?;
                }
                answers.insert(frame.block, frame);
            }
        }
        Ok(())
    }

    /// The stream, to whoever answers for the shard now.
    async fn opened(&mut self, shared: &Shared) -> Result<&mut Open, Status> {
        let to = {
            let placement = shared.placement.borrow();
            let holding = placement.holding.as_ref();
            holding.and_then(|holding| primary(holding, self.shard))
        };
        let to = to.ok_or_else(|| Status::unavailable("nobody answers for the shard"))?;
        // What is still unanswered is of a former exchange, and would be taken for this one's.
        let fits = |open: &Open| open.to == to && open.sent.is_empty();
        if !self.open.as_ref().is_some_and(fits) {
            self.open = None;
            let mut client = ShardClient::new(shared.network.channel(&to.0.address)?);
            let (frames, outgoing) = mpsc::channel(64);
            let opened = timeout(ANSWER, client.exchange(ReceiverStream::new(outgoing))).await;
            let opened = opened.map_err(|_| Status::unavailable("no answer"))??;
            self.open = Some(Open {
                to,
                frames,
                answers: opened.into_inner(),
                sent: BTreeMap::new(),
            });
        }
        Ok(self.open.as_mut().expect("opened above"))
    }
}

impl Open {
    async fn push(
        &mut self,
        shared: &Shared,
        (who, ask, block): (Who, Ask, u32),
        held: Option<&PullFrame>,
    ) -> Result<(), Status> {
        let (frame, number) = frame(shared, (who, ask, block), held);
        self.sent.insert(block, number);
        let sent = self.frames.send(frame).await;
        sent.map_err(|_| Status::unavailable("the stream has ended"))
    }

    fn answered(&mut self, shared: &Shared, frame: &PullFrame) {
        if let Some(Some(number)) = self.sent.remove(&frame.block) {
            shared.recorder.answered(number, frame);
        }
    }
}

/// A frame, written down unless it creates.
fn frame(
    shared: &Shared,
    ((group, incarnation, clock), ask, block): (Who, Ask, u32),
    held: Option<&PullFrame>,
) -> (PushFrame, Option<Number>) {
    let length = shared.lengths[block as usize];
    let mut values = vec![0.0f32; length];
    let action = match ask {
        Ask::Contribute => Action::Contribute,
        Ask::Skip => Action::Skip,
        Ask::Create | Ask::Pull => Action::Pull,
    };
    let (incarnation, clock) = match ask {
        Ask::Create | Ask::Pull => (incarnation, 0),
        Ask::Skip | Ask::Contribute => (incarnation, clock),
    };
    let mut asked = operation((group, incarnation, clock), block, action);
    let action = match ask {
        Ask::Create => push_frame::Action::Create(Create {
            dtype: DType::DtypeF32.into(),
            values: bytes(&values),
        }),
        Ask::Pull => push_frame::Action::Pull(Pull {}),
        Ask::Skip => push_frame::Action::Skip(Skip {}),
        Ask::Contribute => {
            // The optimizer takes it away: what it leaves is −1 for each.
            values[group as usize] = 1.0;
            let held = held.cloned().unwrap_or_default();
            asked.computed_on = Some(version(&held));
            push_frame::Action::Gradient(Gradient {
                samples: SAMPLES,
                pulled_version: held.version,
                lineage: held.lineage,
                samples_seen: held.samples_applied,
                updates_seen: held.version,
                norms: Vec::new(),
                dtype: DType::DtypeF32.into(),
                values: bytes(&values),
            })
        }
    };
    let number = (ask != Ask::Create).then(|| shared.recorder.sent(asked));
    let frame = PushFrame {
        run: RUN.into(),
        group,
        incarnation,
        clock,
        block,
        action: Some(action),
        ..PushFrame::default()
    };
    (frame, number)
}

fn bytes(values: &[f32]) -> Bytes {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

/// Who answers for a shard, and since when.
fn primary(holding: &Holding, shard: usize) -> Option<(ServerEndpoint, u64)> {
    let holders = holding.holders.get(shard)?;
    let primary = holders.primary?;
    let mut servers = holding.servers.iter();
    let server = servers.find(|server| server.server == primary)?;
    Some((server.clone(), holders.primary_since))
}

/// Whether a refusal is for good.
pub(super) fn over(status: &Status) -> bool {
    let passes = ["superseded", "not-ready", "replaced", "clock-passed"];
    let passing = refusal::reason(status).is_some_and(|reason| passes.contains(&reason));
    !passing && !refusal::retryable(status)
}

/// Reads blocks as nobody in particular, of their primaries and of any other server: one that was
/// deposed without knowing it may still answer.
pub(super) async fn observe(shared: Arc<Shared>, number: u32, seed: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    while !shared.stop.load(Ordering::Relaxed) {
        sleep(READ).await;
        let placement = shared.placement.borrow().clone();
        let Some(holding) = &placement.holding else {
            continue;
        };
        let block = rng.random_range(0..placement.shards.len().max(1));
        let Some(shard) = placement.shards.get(block) else {
            continue;
        };
        let to = match number {
            0 => primary(holding, *shard as usize).map(|(server, _)| server),
            _ => {
                let any = rng.random_range(0..holding.servers.len().max(1));
                holding.servers.get(any).cloned()
            }
        };
        if let Some(to) = to {
            let _ = read(&shared, &to.address, block as u32).await;
        }
    }
}

async fn read(shared: &Shared, address: &str, block: u32) -> Result<(), Status> {
    let mut client = ShardClient::new(shared.network.channel(address)?);
    let (frame, number) = frame(shared, ((0, 0, 0), Ask::Pull, block), None);
    let asked = async {
        let answers = client.exchange(tokio_stream::iter([frame])).await?;
        answers.into_inner().message().await
    };
    let answer = timeout(ANSWER, asked).await;
    let answer = answer.map_err(|_| Status::unavailable("no answer"))??;
    let answer = answer.ok_or_else(|| Status::unavailable("the stream has ended"))?;
    shared
        .recorder
        .answered(number.expect("a pull is written down"), &answer);
    Ok(())
}

/// Reads every block of its primary.
pub(super) async fn read_all(shared: &Shared) {
    let placement = shared.placement.borrow().clone();
    for (block, shard) in placement.shards.iter().enumerate() {
        let what = format!("an answer for block {block}");
        until(&what, async || {
            let holding = placement.holding.as_ref()?;
            let (to, _) = primary(holding, *shard as usize)?;
            read(shared, &to.address, block as u32).await.ok()
        })
        .await;
    }
}
