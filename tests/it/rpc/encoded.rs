//! Encoded values byte by byte, as a foreign client sends and receives them: what is accepted, what is
//! answered, and what is refused.

mod refused;

use tonic::Code;
use tradewind_common::Layout;
use tradewind_proto::v1::setting::Value;
use tradewind_proto::v1::{
    Choice, DType, JoinRequest, PullFrame, PushFrame, RunSpec, ShardStatusReply, TensorKind,
    Verdict, push_frame,
};
use tradewind_tests::cluster::client::Client;
use tradewind_tests::cluster::fleet::Fleet;

use self::refused::malformed;
use super::coordinator::{Call, join};
use super::frames::gradient;
use super::stage::{await_ready, join_as};
use super::{TOKEN, assert_refused, choice, create, floats, frame, push, spec, tensor};

const BF16: DType = DType::DtypeBf16;
const INT8: DType = DType::DtypeInt8;
const TOP_K: DType = DType::DtypeTopK;

/// Two of three values.
const FRACTION: f64 = 0.5;

fn form(dtype: DType) -> Option<Choice> {
    match dtype {
        DType::DtypeBf16 => Some(choice("bf16", &[])),
        DType::DtypeInt8 => Some(choice("int8", &[])),
        DType::DtypeTopK => top(FRACTION),
        DType::DtypeF32 | DType::DtypeUnspecified => None,
    }
}

fn top(fraction: f64) -> Option<Choice> {
    let fraction = Value::Number(fraction);
    Some(choice("topk", &[("exchange.topk_fraction", fraction)]))
}

/// A run of one group, ready, with all values 0: block 0 is a parameter of 4 values,
/// blocks 1 and 2 are parameters of 3, block 3 is a buffer of 2.
struct Run {
    client: Client,
    name: String,
    owners: Vec<usize>,
}

/// The block of the tests.
const BLOCK: u32 = 2;
const BUFFER: u32 = 3;

fn compressed(up: Option<Choice>, down: Option<Choice>) -> RunSpec {
    let mut spec = spec(&[1]);
    let mut mean = tensor("mean", 2);
    mean.kind = TensorKind::Buffer.into();
    spec.tensors.push(mean);
    RunSpec { up, down, ..spec }
}

impl Run {
    async fn new(fleet: &Fleet, name: &str, spec: RunSpec) -> Self {
        let client = fleet.client().await;
        let request = JoinRequest {
            run: name.into(),
            group: 0,
            spec: Some(spec.clone()),
            ..join()
        };
        let joined = join_as(&client, request).await.unwrap();
        let owners = joined.placement.unwrap().shards;
        let run = Self {
            client,
            name: name.into(),
            owners: owners.iter().map(|server| *server as usize).collect(),
        };
        let told = await_ready(&run.client, (name, 0, 1), false).await.unwrap();
        assert!(told.create);
        let layout: Layout = tradewind_common::spec::RunSpec::try_from(spec)
            .unwrap()
            .check()
            .unwrap();
        assert_eq!(layout.blocks[BLOCK as usize].elements.len(), 3);
        for block in &layout.blocks {
            let zeros = vec![0.0; block.elements.len()];
            let zeros = create((name, 0, 1), block.id.0, &zeros);
            run.send(zeros).await;
        }
        let ready = await_ready(&run.client, (name, 0, 1), true).await.unwrap();
        assert_eq!((ready.create, ready.start_clock), (false, 0));
        run
    }

    fn server(&self, block: u32) -> usize {
        self.owners.get(block as usize).copied().unwrap_or(0)
    }

    async fn send(&self, frame: PushFrame) -> PullFrame {
        let server = self.server(frame.block);
        self.client.push(server, frame).await.unwrap()
    }

    /// A gradient in `dtype` at a clock, for an answer that builds on `holds`.
    fn push(&self, (clock, block): (u64, u32), dtype: i32, values: &[u8]) -> PushFrame {
        let mut frame = push((&self.name, 0, 1), (clock, block), clock, &[]);
        let gradient = gradient(&mut frame);
        gradient.dtype = dtype;
        gradient.values = values.to_vec().into();
        frame
    }

    fn pull(&self, block: u32, incarnation: u64) -> PushFrame {
        let pull = push_frame::Action::Pull(Default::default());
        frame((&self.name, 0, incarnation), block, pull)
    }

    /// Both shards, and how many frames they have refused.
    async fn shards(&self) -> (Vec<ShardStatusReply>, u64) {
        let mut shards = Vec::new();
        let mut refused = 0;
        for server in 0..2 {
            let shard = self.client.shard_status(server, &self.name).await;
            let mut shard = shard.unwrap();
            refused += std::mem::take(&mut shard.refused);
            // What was refused has travelled all the same.
            (shard.pushed_bytes, shard.pulled_bytes) = (0, 0);
            shards.push(shard);
        }
        (shards, refused)
    }

    async fn read(&self, block: u32) -> Vec<f32> {
        let read = self.send(self.pull(block, 0)).await;
        assert_eq!(
            (read.dtype, read.difference),
            (DType::DtypeF32.into(), false)
        );
        floats(&read.values)
    }
}

/// 1, 2, −2.
const GOOD_BF16: [u8; 6] = [0x80, 0x3F, 0x00, 0x40, 0x00, 0xC0];

/// A scale and three integers.
fn int8(scale: f32, integers: [i8; 3]) -> Vec<u8> {
    let integers = integers.map(|q| q as u8);
    [&scale.to_le_bytes()[..], &integers].concat()
}

/// One page: a count, two indices, two values.
fn top_k(count: u32, indices: [u16; 2], values: [f32; 2]) -> Vec<u8> {
    let indices = indices.into_iter().flat_map(u16::to_le_bytes);
    let head = count.to_le_bytes().into_iter().chain(indices);
    head.chain(values.into_iter().flat_map(f32::to_le_bytes))
        .collect()
}

#[test]
fn every_form_is_understood() {
    let fleet = Fleet::start(2, TOKEN);
    let check = async |up: DType, encoded: &[u8], gradient: [f32; 3]| {
        let name = format!("{up:?}");
        let run = Run::new(&fleet, &name, compressed(form(up), None)).await;
        let push = run.push((0, BLOCK), up.into(), encoded);
        let answer = run.send(push).await;
        assert_eq!(answer.verdict(), Verdict::Applied, "{name}");
        let want = gradient.map(|g| -0.5 * g);
        assert_eq!(floats(&answer.values), want, "{name}");

        // A client that does not compress takes part as well.
        let plain = push_of(&run, (1, BLOCK), &[1.0; 3]);
        let answer = run.send(plain).await;
        let want = want.map(|x| x - 0.5);
        assert_eq!(floats(&answer.values), want, "{name}: f32");
        let mean = push_of(&run, (0, BUFFER), &[0.25, 0.5]);
        let answer = run.send(mean).await;
        assert_eq!(floats(&answer.values), [0.25, 0.5], "{name}: a buffer");
    };
    fleet.block_on(async {
        check(BF16, &GOOD_BF16, [1.0, 2.0, -2.0]).await;
        check(INT8, &int8(0.5, [2, -128, 127]), [1.0, -64.0, 63.5]).await;
        check(TOP_K, &top_k(2, [0, 2], [1.0, -2.0]), [1.0, 0.0, -2.0]).await;
    });
}

fn push_of(run: &Run, (clock, block): (u64, u32), values: &[f32]) -> PushFrame {
    push((&run.name, 0, 1), (clock, block), clock, values)
}

/// Initial values and buffers come as f32, and a block that is none is that before all else.
#[test]
fn only_gradients_of_parameters_are_encoded() {
    let fleet = Fleet::start(2, TOKEN);
    fleet.block_on(async {
        let run = Run::new(&fleet, "r", compressed(form(BF16), form(INT8))).await;
        let (before, refused) = run.shards().await;
        let mean = run.push((0, BUFFER), BF16.into(), &GOOD_BF16[..4]);
        let got = run.client.push(run.server(BUFFER), mean).await;
        assert_refused("a buffer", got, malformed("dtype: 2 is not a type"));
        let nowhere = run.push((0, 99), BF16.into(), &GOOD_BF16);
        let unknown = (Code::NotFound, "unknown-block", "block 99");
        assert_refused(
            "a block that is none",
            run.client.push(0, nowhere).await,
            unknown,
        );
        let elsewhere = run.push((0, BLOCK), BF16.into(), &GOOD_BF16);
        let got = run.client.push(1 - run.server(BLOCK), elsewhere).await;
        let moved = (Code::Unavailable, "not-primary", "does not answer for");
        assert_refused("a block of another server", got, moved);
        // That of the buffer, and that of the block that is none.
        assert_eq!(run.shards().await, (before, refused + 2));
    });
}

/// The fields `difference`, `dtype` and `values` of answers, for each form.
#[test]
fn answers_are_differences_to_what_the_frame_holds() {
    let fleet = Fleet::start(2, TOKEN);
    let check = async |down: DType, want: &[u8], arrived: [f32; 3]| {
        let run = Run::new(&fleet, &format!("{down:?}"), compressed(None, form(down))).await;
        let whole = (DType::DtypeF32 as i32, false);
        let kind = |answer: &PullFrame| (answer.dtype, answer.difference);
        let read = run.send(run.pull(BLOCK, 1)).await;
        assert_eq!(
            (kind(&read), read.version),
            (whole, 0),
            "{down:?}: holds nothing"
        );

        let holding = |clock, holds| PushFrame {
            holds: Some(holds),
            ..push_of(&run, (clock, BLOCK), &[-2.0, -4.0, 3.999])
        };
        let answer = run.send(holding(0, 0)).await;
        assert_eq!(kind(&answer), (down as i32, true), "{down:?}");
        assert_eq!(answer.values, want, "{down:?}: 1, 2, −1.9995");
        assert_eq!(
            run.read(BLOCK).await,
            [1.0, 2.0, -1.9995],
            "{down:?}: nobody"
        );
        let again = run.send(holding(0, 0)).await;
        assert_eq!(
            (kind(&again), again.repeated_verdict),
            (whole, true),
            "{down:?}"
        );
        assert_eq!(
            floats(&again.values),
            arrived,
            "{down:?}: as it was answered"
        );
        let answer = run.send(holding(1, 1)).await;
        assert_eq!(kind(&answer), (down as i32, true), "{down:?}: goes on");
        let lost = run.send(holding(2, 1)).await;
        assert_eq!(kind(&lost), (whole), "{down:?}: an answer was lost");
        assert_eq!(floats(&lost.values), run.read(BLOCK).await, "{down:?}");

        let quiet = PushFrame {
            without_values: true,
            ..holding(3, 3)
        };
        let quiet = run.send(quiet).await;
        assert_eq!(
            (quiet.values.len(), quiet.difference),
            (0, false),
            "{down:?}"
        );
        let mean = PushFrame {
            holds: Some(0),
            ..push_of(&run, (0, BUFFER), &[0.1, 0.2])
        };
        let mean = run.send(mean).await;
        assert_eq!(kind(&mean), whole, "{down:?}: a buffer");
    };
    fleet.block_on(async {
        let step = 2.0f32 / 127.0;
        let third = -127.0 * step;
        check(BF16, &GOOD_BF16, [1.0, 2.0, -2.0]).await;
        // 63.5 is rounded to the even 64.
        let bytes = int8(step, [64, 127, -127]);
        check(INT8, &bytes, [64.0 * step, 127.0 * step, third]).await;
        let bytes = top_k(2, [1, 2], [2.0, -1.9995]);
        check(TOP_K, &bytes, [0.0, 2.0, -1.9995]).await;
    });
}

#[test]
fn a_joiner_with_another_fraction_is_told_the_direction() {
    let fleet = Fleet::start(2, TOKEN);
    let spec = |up, down| {
        let mut spec = compressed(top(up), top(down));
        spec.group_sizes = vec![1, 1];
        spec
    };
    fleet.block_on(async {
        let client = fleet.client().await;
        let request = |group, up, down| JoinRequest {
            run: "r".into(),
            group,
            spec: Some(spec(up, down)),
            ..join()
        };
        join_as(&client, request(0, 0.01, 0.02)).await.unwrap();
        for (field, up, down) in [("up", 0.02, 0.02), ("down", 0.01, 0.01)] {
            let got = Call::join(request(1, up, down)).send(&client).await;
            let text = format!("with another {field};");
            let status = got.expect_err(field);
            assert!(status.message().contains(&text), "{status}");
            let want = (Code::FailedPrecondition, "specification-differs", field);
            assert_refused(field, Err::<(), _>(status), want);
        }
        let same = Call::join(request(1, 0.01, 0.02)).send(&client).await;
        same.unwrap();
    });
}
