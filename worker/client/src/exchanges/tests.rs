//! A rank of its own making, from joining to leaving, with a coordinator and a shard that are fakes.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tradewind_common::{BlockId, GroupId, Layout, Rank, RunId, TensorKind, TensorSpec};
use tradewind_proto::auth::Credentials;
use tradewind_proto::refusal::{self, Reason};
use tradewind_proto::v1::{
    BeatReply, DType, Holders, Holding, JoinReply, Placement, PullFrame, PushFrame, ServerEndpoint,
    Verdict as Decision, push_frame,
};

use super::*;
use crate::coordinator::{Coordinator, CoordinatorAt, RankId};
use crate::main_memory::MainMemory;
use crate::membership::End;
use crate::network::Reach;
use crate::rank_process::RankProcess;
use crate::ranks::Alone;
use crate::step::{Ahead, Computed};
use crate::testing::{Does, FakeCoordinator, FakeShard, Running, spec};
use crate::verdict::Verdict;

/// The clock at which nothing is finite.
const SKIPPED: Clock = Clock(4);

/// A weight of four values and a statistic of two.
fn process(coordinator: &Running, overlap: bool, runtime: &Runtime) -> RankProcess {
    let statistic = TensorSpec {
        name: "mean".into(),
        shape: vec![2],
        kind: TensorKind::Buffer,
    };
    let mut spec = spec();
    spec.group_sizes = vec![1];
    spec.tensors.push(statistic);
    let reach = Reach {
        credentials: Credentials::default(),
        retry: Duration::ZERO,
        connections: 1,
    };
    let at = CoordinatorAt::Address(coordinator.address.clone());
    let mut process = RankProcess::new(RankSettings {
        id: RankId {
            run: RunId::new("r").unwrap(),
            group: GroupId(0),
            rank: Rank(0),
        },
        life: 77,
        layout: Arc::new(spec.check().unwrap()),
        spec: Arc::new(spec),
        coordinator: Coordinator::new(at, reach.clone()),
        reach,
        heartbeat: Duration::from_millis(50),
        patience: Duration::from_secs(60),
        overlap,
        runtime: runtime.handle().clone(),
    });
    process.pause = Duration::ZERO;
    process
}

fn joined(incarnation: u64, shard: &str) -> JoinReply {
    let server = ServerEndpoint {
        server: 0,
        address: shard.into(),
        incarnation: 1,
    };
    let holders = Holders {
        primary: Some(0),
        ..Holders::default()
    };
    JoinReply {
        incarnation,
        placement: Some(Placement {
            bucket_bytes: None,
            shards: vec![0, 0],
            holding: Some(Holding {
                generation: 1,
                servers: vec![server],
                holders: vec![holders],
            }),
        }),
        group_size: 1,
        ..JoinReply::default()
    }
}

/// The answer of a shard that decides everything; a pull brings 10, the exchange of clock c brings c + 1.
fn decided(frame: &PushFrame, stop: bool) -> Does<PullFrame> {
    let pull = matches!(frame.action, Some(push_frame::Action::Pull(_)));
    let (verdict, value) = match pull {
        true => (Decision::Read, 10.0),
        false => (Decision::Applied, frame.clock as f32 + 1.0),
    };
    let length = if frame.block == 0 { 4 } else { 2 };
    Does::Answers(PullFrame {
        block: frame.block,
        clock: frame.clock,
        verdict: verdict.into(),
        version: frame.clock + 1,
        stop: stop && !pull,
        dtype: DType::DtypeF32.into(),
        values: vec![value; length]
            .into_iter()
            .flat_map(f32::to_le_bytes)
            .collect::<Vec<u8>>()
            .into(),
        ..PullFrame::default()
    })
}

/// One incarnation of a rank that pushes its clock as the gradient of the weight, and the clock plus 100 as the
/// statistic; nothing finite at [`SKIPPED`].
fn once(process: &mut RankProcess, values: &mut [f32]) -> anyhow::Result<End> {
    let mut membership = process.join("")?;
    membership.formed(None);
    match train(process, &mut membership, values) {
        Ok(end) => {
            membership.leave(Vec::new())?;
            Ok(end)
        }
        Err(error) => {
            membership.break_off();
            Err(error)
        }
    }
}

fn train(
    process: &mut RankProcess,
    membership: &mut Membership,
    values: &mut [f32],
) -> anyhow::Result<End> {
    let layout = membership.settings().layout.clone();
    let slice = membership.slice();
    let start = membership.await_start(|| values.to_vec())?;
    let mut exchanges = Exchanges::new(membership, start, None)?;
    let mut gradient = vec![0.0; layout.elements()];
    let mut seen = {
        let mut replica = replica(&layout, &slice, &gradient, values, &|_| {});
        exchanges.pull(&mut replica)?.seen()
    };
    assert_eq!(values, [10.0; 6]);
    loop {
        membership.check()?;
        let clock = exchanges.clock();
        let pushed = if clock == SKIPPED {
            f32::NAN
        } else {
            clock.0 as f32
        };
        gradient[..4].fill(pushed);
        gradient[4..].fill(pushed + 100.0);
        let computed = Computed {
            loss: 1.0,
            finite: pushed.is_finite(),
            skips: 1,
            buckets: 1,
        };
        let ahead = Ahead {
            clock,
            loss_scale: None,
        };
        let step = computed.agree(3, false, ahead, &Alone)?;
        let spent = RefCell::new(Vec::new());
        let note = |range: &Range<usize>| spent.borrow_mut().push(range.clone());
        let mut replica = replica(&layout, &slice, &gradient, values, &note);
        let Some(ended) = exchanges.exchange(step, seen, &mut replica)? else {
            continue;
        };
        spent.borrow_mut().sort_by_key(|range| range.start);
        // With overlap a copy of the gradient was pushed.
        let want = if membership.settings().overlap {
            &[][..]
        } else {
            &[0..4, 4..6]
        };
        assert_eq!(*spent.borrow(), want, "of each block once");
        process.exchanged();
        seen = ended.summary.seen();
        if let Some(end) = membership.ended(&ended)? {
            return Ok(end);
        }
        exchanges.go_on_at(ended.summary.next);
    }
}

fn replica<'a>(
    layout: &'a Layout,
    slice: &'a [BlockId],
    gradient: &'a [f32],
    values: &'a mut [f32],
    spent: &'a dyn Fn(&Range<usize>),
) -> MainMemory<'a> {
    MainMemory {
        spent,
        layout,
        slice,
        gradient,
        values,
        group: &Alone,
        leave: &|| false,
    }
}

/// What was pushed of a block in an incarnation, `None` for a skip, from its first clock on.
fn pushed(heard: &[PushFrame], incarnation: u64, block: u32) -> Vec<Option<f32>> {
    let of = heard
        .iter()
        .filter(|frame| (frame.incarnation, frame.block) == (incarnation, block));
    let value = |frame: &PushFrame| match &frame.action {
        Some(push_frame::Action::Gradient(gradient)) => {
            let bytes = gradient.values.first_chunk().unwrap();
            Some(Some(f32::from_le_bytes(*bytes)))
        }
        Some(push_frame::Action::Skip(_)) => Some(None),
        _ => None,
    };
    of.filter_map(value).collect()
}

/// The first incarnation is refused by the shard, the second comes to the end.
#[test]
fn a_rank_joins_again_and_trains_to_the_end() {
    for overlap in [false, true] {
        let shard = FakeShard::new(|frame| match (frame.incarnation, frame.clock) {
            (1, 2..) => Does::Ends(Err(refusal::status(Reason::NotLive, "fenced".into()))),
            (_, clock) => decided(frame, clock == 5),
        });
        let shard_runs = shard.run();
        let address = shard_runs.address.clone();
        let coordinator = FakeCoordinator::beats(|_| Does::Answers(BeatReply::default()))
            .joined(move |before| Ok(joined(u64::from(before) + 1, &address)))
            .starting(|incarnation| [0, 3][incarnation as usize - 1]);
        let coordinator_runs = coordinator.run();
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let mut process = process(&coordinator_runs, overlap, &runtime);
        let mut values = vec![0.0; 6];

        let error = once(&mut process, &mut values).unwrap_err();
        let verdict = Verdict::of(&error);
        assert_eq!(verdict, Verdict::Again, "{error:#}");
        let pause = process.again(error, verdict).unwrap();
        assert_eq!(pause, Some(Duration::ZERO));
        let end = once(&mut process, &mut values).unwrap();
        assert_eq!(end, End::Applied);

        assert_eq!(coordinator.joins_heard().len(), 2);
        assert_eq!(coordinator.left(), [2]);
        let heard = shard.heard();
        assert_eq!(pushed(&heard, 2, 0), [Some(3.0), None, Some(5.0)]);
        assert_eq!(pushed(&heard, 2, 1), [Some(103.0), None, Some(105.0)]);
        // With overlap the last values that came are not the model's, whose statistic is its own.
        let (weight, mean) = if overlap { (5.0, 105.0) } else { (6.0, 6.0) };
        let want = [weight, weight, weight, weight, mean, mean];
        assert_eq!(values, want, "{overlap}");
    }
}
