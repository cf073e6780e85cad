//! Exchanges in every pair of forms, through the real client: what arrives at the shards, what
//! groups make of the answers, and streams that break in the middle.

use std::sync::Arc;

use tradewind_common::layout::Block;
use tradewind_common::spec::RunSpec;
use tradewind_common::{Compression, Layout, TensorKind, TensorSpec};
use tradewind_tests::cluster::fleet::Fleet;
use tradewind_tests::cluster::member::{Joining, Member, read};
use tradewind_tests::cluster::proxy::{Cut, Proxy};

use super::TOKEN;

const FRACTION: f64 = 0.05;

const FORMS: [Compression; 4] = [
    Compression::None,
    Compression::Bf16,
    Compression::Int8,
    Compression::TopK { fraction: FRACTION },
];

/// Plain SGD at rate 0.5. Two tensors in blocks of 1,250 and 1,030 values, which are no multiples
/// of anything, and a buffer.
fn spec(groups: usize, up: Compression, down: Compression) -> RunSpec {
    let tensor = |name: &str, elements, kind| TensorSpec {
        name: name.into(),
        shape: vec![elements],
        kind,
    };
    let spec = RunSpec::try_from(super::spec(&vec![1; groups])).expect("a good one");
    RunSpec {
        tensors: vec![
            tensor("a", 2500, TensorKind::Parameter),
            tensor("mean", 7, TensorKind::Buffer),
            tensor("b", 1030, TensorKind::Parameter),
        ],
        bucket_bytes: Some(6000),
        block_bytes: 6000,
        samples: 1_000_000,
        up,
        down,
        ..spec
    }
}

/// What a group brings at a clock: values of either sign and of many sizes.
fn gradient(group: u32, clock: u64, elements: usize) -> Vec<f32> {
    let phase = group as f32 * 0.9 + clock as f32 * 1.7;
    let value = |i: usize| {
        let size = 0.1 * (1 + i % 13) as f32;
        (i as f32 * 0.37 + phase).sin().powi(3) * size
    };
    (0..elements).map(value).collect()
}

fn initial(elements: usize) -> Vec<f32> {
    (0..elements).map(|i| (i as f32 * 0.11).cos()).collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

/// The shards' values as they must be: x − 0.5 × decode(encode(gradient + residual)), and of buffers
/// the group's part of the way to what it has pushed.
struct Reference {
    layout: Arc<Layout>,
    up: Compression,
    values: Vec<f32>,
    /// Of each group.
    residuals: Vec<Vec<f32>>,
}

impl Reference {
    fn new(groups: usize, up: Compression, layout: &Arc<Layout>) -> Self {
        let elements = layout.elements();
        Self {
            layout: layout.clone(),
            up,
            values: initial(elements),
            residuals: vec![vec![0.0; elements]; groups],
        }
    }

    fn push(&mut self, group: u32, gradient: &[f32]) {
        let share = 1.0 / self.residuals.len() as f32;
        let residual = &mut self.residuals[group as usize];
        for Block { elements, kind, .. } in &self.layout.blocks {
            let values = self.values[elements.clone()].iter_mut();
            let gradient = &gradient[elements.clone()];
            if *kind == TensorKind::Buffer {
                values
                    .zip(gradient)
                    .for_each(|(x, g)| *x += share * (g - *x));
                continue;
            }
            let (mut bytes, mut arrived) = (Vec::new(), vec![0.0; gradient.len()]);
            let residual = &mut residual[elements.clone()];
            self.up.encode(gradient, Some(residual), &mut bytes);
            self.up.decode(&bytes, &mut arrived).unwrap();
            values.zip(&arrived).for_each(|(x, g)| *x -= 0.5 * g);
        }
    }
}

/// What may be missing of each value when the way from `before` to `fresh` has come in `form`.
fn bounds(form: Compression, before: &[f32], fresh: &[f32]) -> Vec<f64> {
    let steps = before.iter().zip(fresh);
    let steps: Vec<f64> = steps.map(|(a, b)| f64::from((b - a).abs())).collect();
    match form {
        Compression::None => vec![0.0; steps.len()],
        Compression::Bf16 => steps.iter().map(|step| step / 256.0).collect(),
        Compression::Int8 => {
            let of_piece = |piece: &[f64]| {
                let largest = piece.iter().copied().fold(0.0, f64::max);
                vec![largest / 254.0 * 1.0001; piece.len()]
            };
            steps.chunks(512).flat_map(of_piece).collect()
        }
        Compression::TopK { fraction } => {
            let sent = (fraction * steps.len() as f64).ceil() as usize;
            let mut sorted = steps.clone();
            sorted.sort_by(|a, b| b.total_cmp(a));
            let least = sorted[sent - 1];
            let bound = |step: &f64| if *step > least { 0.0 } else { *step };
            steps.iter().map(bound).collect()
        }
    }
}

/// Checks what a group has made of an answer; whether anything is missing.
fn check(
    what: &str,
    down: Compression,
    layout: &Layout,
    [before, fresh, got]: [&[f32]; 3],
) -> bool {
    for Block { elements, kind, .. } in &layout.blocks {
        let form = match kind {
            TensorKind::Parameter => down,
            TensorKind::Buffer => Compression::None,
        };
        let range = || elements.clone();
        let bounds = bounds(form, &before[range()], &fresh[range()]);
        for (i, bound) in range().zip(bounds) {
            // The difference and the sum are rounded to f32, too.
            let largest = before[i].abs().max(fresh[i].abs());
            let rounding = if form.lossy() { largest / 4e6 } else { 0.0 };
            let missing = f64::from((fresh[i] - got[i]).abs());
            assert!(
                missing <= bound + f64::from(rounding),
                "{what}: value {i} went from {} to {}, the group has {}",
                before[i],
                fresh[i],
                got[i]
            );
        }
    }
    fresh != got
}

#[test]
fn two_groups_exchange_in_every_pair_of_forms() {
    let fleet = Fleet::start(2, TOKEN);
    for (up, down) in FORMS
        .into_iter()
        .flat_map(|up| FORMS.map(|down| (up, down)))
    {
        fleet.block_on(exchange(&fleet, up, down));
    }
}

async fn exchange(fleet: &Fleet, up: Compression, down: Compression) {
    let (what, spec) = (format!("up-{up}-down-{down}"), spec(2, up, down));
    let zero = Joining::join(fleet, (&what, 0), &spec).await;
    let one = Joining::join(fleet, (&what, 1), &spec).await;
    let layout = Arc::new(spec.check().unwrap());
    let initial = initial(layout.elements());
    let mut members = [zero.begin(&initial).await, one.begin(&initial).await];
    let mut reference = Reference::new(2, up, &layout);
    let mut missing = false;
    for round in 0..8 {
        // The second group is the slower one.
        for group in 0..1 + u32::from(round % 3 == 1) {
            let member = &mut members[group as usize];
            let gradient = gradient(group, member.clock(), layout.elements());
            let before = member.values.clone();
            member.push(&gradient, 4).await.unwrap();
            reference.push(group, &gradient);
            let fresh = read(fleet, &what, &layout).await;
            assert_eq!(bits(&fresh), bits(&reference.values), "{what}: applied");
            missing |= check(&what, down, &layout, [&before, &fresh, &member.values]);
        }
    }
    assert_eq!(missing, down.lossy(), "{what}: something is left out");
}

const EXCHANGES: u64 = 60;

/// What a run comes to: the shards' digests, how many frames came twice, the client's values.
type Outcome = ([Vec<u8>; 2], u64, Vec<f32>);

#[test]
fn a_stream_that_breaks_changes_nothing() {
    let fleet = Fleet::start(2, TOKEN);
    // In the head of a frame, in its values, after a few frames.
    let cuts = [400, 1_300, 3_100, 7_000];
    let cuts: Vec<Cut> = cuts
        .iter()
        .flat_map(|n| [Cut::Down(*n), Cut::Up(*n)])
        .collect();
    let top = FORMS[3];
    for (up, down) in [
        (Compression::None, Compression::None),
        (Compression::Bf16, Compression::None),
        (Compression::Int8, Compression::Int8),
        (top, Compression::Bf16),
        (top, top),
    ] {
        let what = format!("{up} up, {down} down");
        fleet.block_on(async {
            let name = |way: &str| format!("{up}-{down}-{way}");
            let whole = train(&fleet, &name("whole"), (up, down), &[]).await;
            assert_eq!(whole.1, 0, "{what}: nothing is sent twice");
            let broken = train(&fleet, &name("broken"), (up, down), &cuts).await;
            assert_eq!(broken.0, whole.0, "{what}: the shards");
            assert!(broken.1 > 0, "{what}: decided frames are sent again");
            if down == Compression::None {
                assert_eq!(bits(&broken.2), bits(&whole.2), "{what}: the group");
            }
        });
    }
}

/// Has one group exchange over ways that break.
async fn train(
    fleet: &Fleet,
    run: &str,
    (up, down): (Compression, Compression),
    cuts: &[Cut],
) -> Outcome {
    let spec = spec(1, up, down);
    let mut ways = Vec::new();
    for address in fleet.addresses() {
        ways.push(Proxy::start(&address, cuts.iter().copied()).await);
    }
    let through: Vec<String> = ways.iter().map(|way| way.address().to_owned()).collect();
    let joining = Joining::join(fleet, (run, 0), &spec).await;
    let joining = joining.through(&through);
    let layout = Arc::new(spec.check().unwrap());
    let mut member: Member = joining.begin(&initial(layout.elements())).await;
    let mut reference = Reference::new(1, up, &layout);
    for clock in 0..EXCHANGES {
        let gradient = gradient(0, clock, layout.elements());
        let before = member.values.clone();
        member.push(&gradient, 4).await.unwrap();
        reference.push(0, &gradient);
        let fresh = &reference.values;
        check(run, down, &layout, [&before, fresh, &member.values]);
    }
    for way in &ways {
        assert_eq!(way.made(), cuts.len(), "{run}: every cut was made");
    }
    let client = fleet.client().await;
    let shards = [0, 1].map(|server| client.shard_status(server, run));
    let [zero, one] = shards.map(|status| async { status.await.unwrap() });
    let (zero, one) = (zero.await, one.await);
    let twice = zero.duplicate + one.duplicate;
    let digests = [zero, one].map(|shard| shard.digest.to_vec());
    (digests, twice, member.values)
}
