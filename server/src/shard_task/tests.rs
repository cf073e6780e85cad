//! A shard's task that panics ends its process: copies take over, and nobody waits for a shard that
//! answers nothing.

use std::collections::BTreeMap;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tradewind_common::exit::Exit;
use tradewind_common::holders::Holders;
use tradewind_common::schedule::Seen;
use tradewind_common::spec::RunSpec;
use tradewind_common::{
    BlockId, Clock, Generation, GroupId, Incarnation, RunId, ServerId, ShardId, TensorKind,
    TensorSpec,
};
use tradewind_proto::auth::Credentials;

use super::{Message, Ordered, ShardHandle};
use crate::budget::Budget;
use crate::clock::Origin;
use crate::limits::Notices;
use crate::surroundings::Surroundings;
use tradewind_core::ReplyTo;
use tradewind_core::askers::Wants;
use tradewind_core::block::Gradient;
use tradewind_core::shard::{Action, Push, Shard};
use tradewind_core::state::BlockState;
use tradewind_core::view::{OrderedView, View};

/// The life of group 0.
const LIFE: Incarnation = Incarnation(5);

/// An `async` run of plain SGD on one block of three values.
pub(crate) fn spec() -> RunSpec {
    let weight = TensorSpec {
        name: "weight".into(),
        shape: vec![3],
        kind: TensorKind::Parameter,
    };
    RunSpec::plain(vec![1], vec![weight], 16)
}

/// A shard whose next update is one too many to be counted, and that update.
async fn counts_too_far() {
    let (spec, layout) = (spec(), spec().check().unwrap());
    let server = ServerId(0);
    let shard = Shard::new(server, ShardId(3), Arc::new(spec), &layout, [BlockId(0)]);
    let (reports, _heard) = mpsc::channel(8);
    let origin = Origin::start();
    let surroundings = Surroundings {
        server,
        origin,
        credentials: Credentials::default(),
        folder: None,
        reports,
        arriving: Budget::new(Arc::new(Notices::new(server, origin, None))),
    };
    let name = (RunId::new("counted").unwrap(), ShardId(3));
    let handle = ShardHandle::spawn(shard, name, surroundings);
    let lineage = Generation(1);
    let state = BlockState {
        id: BlockId(0),
        values: Arc::new(vec![1.0; 3]),
        slots: Vec::new(),
        version: u64::MAX,
        samples_applied: 0,
        decided: BTreeMap::new(),
    };
    let ordered = Ordered {
        view: OrderedView::Whole(View {
            generation: lineage,
            live: BTreeMap::from([(GroupId(0), (LIFE, Clock(0)))]),
            joined: BTreeMap::from([(GroupId(0), LIFE)]),
            creator: None,
            groups: 1,
        }),
        holders: Holders {
            lineage,
            ..Holders::alone(server)
        },
        copies: Vec::new(),
        recorder: None,
        restored: Some((vec![state], lineage)),
        captures: Vec::new(),
    };
    handle.follow(ordered).await.unwrap().unwrap();
    let status = handle.status(false).await.unwrap();
    assert_eq!(status.versions, (u64::MAX, u64::MAX));
    let gradient = Gradient {
        values: vec![1.0; 3],
        samples: 1,
        pulled_version: u64::MAX,
        lineage,
        seen: Seen::default(),
        norms: Vec::new(),
    };
    let push = Push {
        group: GroupId(0),
        incarnation: LIFE,
        clock: Clock(0),
        block: BlockId(0),
        wants: Wants::Values,
        action: Action::Contribute(Some(gradient)),
    };
    let pushed = Message::Push(push, 12, ReplyTo(1));
    handle.send(pushed).await.unwrap();
    // Whoever asks the shard now may hear that it is gone before the process is.
    tokio::time::sleep(Duration::from_secs(60)).await;
    unreachable!("the process has ended with its task");
}

#[test]
#[ignore = "plays a process, for the test below"]
fn plays_a_server_whose_shard_panics() {
    tradewind_process::run(|| {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(counts_too_far());
        ExitCode::SUCCESS
    });
}

#[test]
fn a_shard_that_panics_ends_its_process_with_a_word() {
    let played = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--nocapture", "--exact"])
        .arg("shard_task::tests::plays_a_server_whose_shard_panics")
        .env("RUST_BACKTRACE", "1")
        .output()
        .unwrap();
    let errors = String::from_utf8(played.stderr).unwrap();
    let status = i32::from(Exit::TaskEnded.number());
    assert_eq!(played.status.code(), Some(status), "{errors}");
    let told = |text: &str| assert!(errors.contains(text), "{errors}");
    told("shard 3 of run counted");
    told("overflow");
    // The backtrace, which names functions however little debug info there is; those that are inlined it lacks, but
    // never the future that the task polls. Sanitizers have names written as `<ShardTask>::run`.
    let named = errors.replace(['<', '>'], "");
    assert!(named.contains("ShardTask::run"), "{errors}");
}
