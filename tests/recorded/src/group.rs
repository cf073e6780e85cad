//! A group of one rank: it joins, keeps its lease, creates if it is told to, pulls, and pushes clock
//! after clock, in as many lives as it takes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::sync::mpsc;
use tokio::time::{interval, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tradewind_proto::v1::{
    AwaitReadyReply, AwaitReadyRequest, Beat, BeatReply, Holding, JoinReply, JoinRequest, PullFrame,
};

use super::link::{Ask, Link, PAUSE, over};
use super::{LEASE_MS, RUN, Shared};

/// Until a call that waits for others is made again.
const CALL: Duration = Duration::from_secs(10);

/// Longest time of a step.
const STEP_MS: u64 = 40;

/// Lives of a group, one after the other; `life` names the process.
pub(super) async fn lives(shared: Arc<Shared>, (group, life): (u32, u64), seed: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    while !shared.stop.load(Ordering::Relaxed) {
        if let Err(status) = live(&shared, (group, life), &mut rng).await {
            eprintln!("group {group}: {status}");
            sleep(PAUSE).await;
        }
    }
}

/// One life, to its end.
async fn live(
    shared: &Arc<Shared>,
    (group, life): (u32, u64),
    rng: &mut ChaCha8Rng,
) -> Result<(), Status> {
    let joined = join(shared, group, life).await?;
    let incarnation = joined.incarnation;
    let placement = joined.placement.unwrap_or_default();
    let shards = placement.shards.clone();
    shared.placement.send_if_modified(|known| {
        let empty = known.shards.is_empty();
        if empty {
            known.clone_from(&placement);
        }
        empty
    });
    tell(shared, placement.holding);
    tokio::select! {
        pushed = push(shared, (group, incarnation), &shards, rng) => pushed,
        status = beat(shared, (group, incarnation)) => Err(status),
    }
}

async fn join(shared: &Shared, group: u32, life: u64) -> Result<JoinReply, Status> {
    let request = JoinRequest {
        run: RUN.into(),
        group,
        rank: 0,
        life,
        spec: Some(shared.spec.clone()),
        store_address: String::new(),
    };
    let mut coordinator = shared.network.coordinator()?;
    let joined = timeout(CALL, coordinator.join(request)).await;
    Ok(joined.map_err(|_| silent())??.into_inner())
}

async fn await_ready(
    shared: &Shared,
    (group, incarnation): (u32, u64),
    created: bool,
) -> Result<AwaitReadyReply, Status> {
    let request = AwaitReadyRequest {
        run: RUN.into(),
        group,
        incarnation,
        rank: 0,
        created,
    };
    loop {
        let asked = async {
            let mut coordinator = shared.network.coordinator()?;
            let ready = timeout(CALL, coordinator.await_ready(request.clone())).await;
            Ok::<_, Status>(ready.map_err(|_| silent())??.into_inner())
        };
        match asked.await {
            Err(status) if !over(&status) => sleep(PAUSE).await,
            ready => return ready,
        }
    }
}

fn silent() -> Status {
    Status::unavailable("no answer")
}

/// Takes a holding that is newer than the one that is known.
fn tell(shared: &Shared, holding: Option<Holding>) {
    let Some(holding) = holding else { return };
    shared.placement.send_if_modified(|known| {
        let generation = known.holding.as_ref().map_or(0, |known| known.generation);
        let newer = holding.generation > generation;
        if newer {
            known.holding = Some(holding);
        }
        newer
    });
}

/// Keeps the lease; returns when this life is over.
async fn beat(shared: &Shared, (group, incarnation): (u32, u64)) -> Status {
    loop {
        let status = beats(shared, (group, incarnation)).await;
        if over(&status) {
            return status;
        }
        sleep(PAUSE).await;
    }
}

/// One stream of beats; returns why it has ended.
async fn beats(shared: &Shared, (group, incarnation): (u32, u64)) -> Status {
    let mut coordinator = match shared.network.coordinator() {
        Ok(coordinator) => coordinator,
        Err(status) => return status,
    };
    let (beats, outgoing) = mpsc::channel(4);
    let beat = Beat {
        run: RUN.into(),
        group,
        incarnation,
        ..Beat::default()
    };
    let mut sent = VecDeque::from([shared.recorder.now_us()]);
    let _ = beats.try_send(beat.clone());
    let lease = Duration::from_millis(LEASE_MS);
    let opened = coordinator.keep_lease(ReceiverStream::new(outgoing));
    let mut replies = match timeout(lease, opened).await {
        Ok(Ok(replies)) => replies.into_inner(),
        Ok(Err(status)) => return status,
        Err(_) => return silent(),
    };
    let mut pause = interval(lease / 10);
    pause.tick().await;
    loop {
        tokio::select! {
            reply = timeout(lease, replies.message()) => match reply {
                Ok(Ok(Some(BeatReply { holding, .. }))) => {
                    tell(shared, holding);
                    if let Some(at_us) = sent.pop_front() {
                        shared.recorder.lived(group, incarnation, at_us);
                    }
                }
                Ok(Ok(None)) => return Status::unavailable("the beats have ended"),
                Ok(Err(status)) => return status,
                Err(_) => return silent(),
            },
            _ = pause.tick() => {
                let at_us = shared.recorder.now_us();
                if beats.try_send(beat.clone()).is_ok() {
                    sent.push_back(at_us);
                }
            }
        }
    }
}

/// Exchanges until the run stops.
async fn push(
    shared: &Shared,
    (group, incarnation): (u32, u64),
    shards: &[u32],
    rng: &mut ChaCha8Rng,
) -> Result<(), Status> {
    let mut by_shard: BTreeMap<u32, (Link, BTreeSet<u32>, ChaCha8Rng)> = BTreeMap::new();
    for (block, shard) in shards.iter().enumerate() {
        let seed: u64 = rng.random();
        let link = || {
            let rng = ChaCha8Rng::seed_from_u64(seed);
            (Link::new(*shard as usize), BTreeSet::new(), rng)
        };
        let (_, due, _) = by_shard.entry(*shard).or_insert_with(link);
        due.insert(block as u32);
    }
    let mut held = BTreeMap::new();
    let mut ready = await_ready(shared, (group, incarnation), false).await?;
    if ready.create {
        let who = (group, incarnation, 0);
        exchange(shared, (who, Ask::Create), &mut by_shard, &held).await?;
        ready = await_ready(shared, (group, incarnation), true).await?;
    }
    let mut clock = ready.start_clock;
    shared.recorder.lives(group, incarnation, clock);
    let mut ask = Ask::Pull;
    while !shared.stop.load(Ordering::Relaxed) {
        let who = (group, incarnation, clock);
        held.extend(exchange(shared, (who, ask), &mut by_shard, &held).await?);
        if ask != Ask::Pull {
            clock += 1;
            shared.exchanges[group as usize].fetch_add(1, Ordering::Relaxed);
        }
        ask = match rng.random_bool(0.05) {
            true => Ask::Skip,
            false => Ask::Contribute,
        };
        sleep(Duration::from_millis(rng.random_range(0..STEP_MS))).await;
    }
    Ok(())
}

/// Asks the same of every block, all shards at once.
async fn exchange(
    shared: &Shared,
    (who, ask): ((u32, u64, u64), Ask),
    by_shard: &mut BTreeMap<u32, (Link, BTreeSet<u32>, ChaCha8Rng)>,
    held: &BTreeMap<u32, PullFrame>,
) -> Result<BTreeMap<u32, PullFrame>, Status> {
    let asked = by_shard.values_mut().map(|(link, due, rng)| {
        let answers = link.ask(shared, (who, ask), due, (held, rng));
        Box::pin(answers)
    });
    let mut answers = BTreeMap::new();
    for answered in all(asked.collect()).await {
        answers.extend(answered?);
    }
    Ok(answers)
}

/// What futures come to that run side by side on this task.
async fn all<F: Future + Unpin>(mut futures: Vec<F>) -> Vec<F::Output> {
    let mut done: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, done) in futures.iter_mut().zip(&mut done) {
            if done.is_none()
                && let std::task::Poll::Ready(output) = std::pin::Pin::new(future).poll(context)
            {
                *done = Some(output);
            }
        }
        match done.iter().all(Option::is_some) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    done.into_iter().flatten().collect()
}
