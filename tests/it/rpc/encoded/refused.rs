//! What is wrong with an encoding, told one by one.

use tonic::Code;
use tradewind_proto::v1::DType;
use tradewind_tests::cluster::fleet::Fleet;

use super::super::{Expected, TOKEN, assert_refused, bytes};
use super::{BF16, BLOCK, GOOD_BF16, INT8, Run, TOP_K, compressed, form, int8, push_of, top_k};

/// What is wrong with a gradient for block 2 of a run that compresses so: type and bytes.
type Fault = (&'static str, DType, (i32, Vec<u8>), Expected);

pub(super) const fn malformed(text: &'static str) -> Expected {
    (Code::InvalidArgument, "malformed", text)
}

const fn length(text: &'static str) -> Expected {
    (Code::InvalidArgument, "wrong-length", text)
}

const fn not_finite(text: &'static str) -> Expected {
    (Code::InvalidArgument, "not-finite", text)
}

fn lengths() -> Vec<Fault> {
    let none = length("the frame brought 0");
    let values = bytes(&[1.0; 3]).to_vec();
    let bf16 = |n| (BF16 as i32, vec![0; n]);
    let small = |n| (INT8 as i32, vec![0; n]);
    let top = |n| (TOP_K as i32, vec![0; n]);
    let takes = length("3 values, which take 6 bytes in the run's form; the frame brought 4");
    vec![
        ("bf16: nothing", BF16, bf16(0), none),
        ("bf16: a value too few", BF16, bf16(4), takes),
        ("bf16: half a value", BF16, bf16(5), length("brought 5")),
        ("bf16: a value too many", BF16, bf16(8), length("brought 8")),
        (
            "bf16: f32",
            BF16,
            (BF16 as i32, values),
            length("brought 12"),
        ),
        ("int8: nothing", INT8, small(0), none),
        ("int8: no scale", INT8, small(3), length("take 7 bytes")),
        (
            "int8: a value too few",
            INT8,
            small(6),
            length("take 7 bytes"),
        ),
        (
            "int8: a value too many",
            INT8,
            small(8),
            length("brought 8"),
        ),
        ("top-k: nothing", TOP_K, top(0), none),
        (
            "top-k: one too few",
            TOP_K,
            top(10),
            length("take 16 bytes"),
        ),
        ("top-k: one too many", TOP_K, top(22), length("brought 22")),
    ]
}

fn contents() -> Vec<Fault> {
    let with = |at: usize, upper: u16| {
        let mut bytes = GOOD_BF16.to_vec();
        bytes[2 * at..][..2].copy_from_slice(&upper.to_le_bytes());
        (BF16 as i32, bytes)
    };
    let scaled = |scale| (INT8 as i32, int8(scale, [1, 2, 3]));
    let top = |count, indices, values| (TOP_K as i32, top_k(count, indices, values));
    let (one, nan) = ([1.0, 2.0], [1.0, f32::NAN]);
    let scale = |text| malformed(text);
    let value = not_finite("value 1 for block 2 is not finite");
    vec![
        ("bf16: NaN", BF16, with(1, 0x7FC0), value),
        ("bf16: infinity", BF16, with(1, 0x7F80), value),
        ("bf16: −infinity", BF16, with(1, 0xFF80), value),
        (
            "int8: NaN",
            INT8,
            scaled(f32::NAN),
            scale("from 0 on is NaN"),
        ),
        (
            "int8: infinity",
            INT8,
            scaled(f32::INFINITY),
            scale("on is inf"),
        ),
        ("int8: below 0", INT8, scaled(-0.5), scale("on is -0.5")),
        (
            "int8: too large",
            INT8,
            scaled(3e38),
            scale("values: the scale"),
        ),
        (
            "top-k: one listed",
            TOP_K,
            top(1, [0, 2], one),
            malformed("list 1 values"),
        ),
        (
            "top-k: three listed",
            TOP_K,
            top(3, [0, 2], one),
            malformed("instead of 2"),
        ),
        (
            "top-k: past the end",
            TOP_K,
            top(2, [0, 3], one),
            malformed("value 3 of 3"),
        ),
        (
            "top-k: twice",
            TOP_K,
            top(2, [1, 1], one),
            malformed("not after the one"),
        ),
        (
            "top-k: out of order",
            TOP_K,
            top(2, [2, 0], one),
            malformed("names value 0"),
        ),
        ("top-k: NaN", TOP_K, top(2, [0, 1], nan), value),
    ]
}

fn types() -> Vec<Fault> {
    let plain = DType::DtypeF32;
    let int8 = || int8(1.0, [1, 2, 3]);
    let top = || top_k(2, [0, 2], [1.0, 2.0]);
    let bf16 = || GOOD_BF16.to_vec();
    let other = malformed("is not a type in which this run exchanges such values");
    vec![
        ("bf16 in a plain run", plain, (BF16 as i32, bf16()), other),
        ("int8 in a plain run", plain, (INT8 as i32, int8()), other),
        ("top-k in a plain run", plain, (TOP_K as i32, top()), other),
        ("int8 for bf16", BF16, (INT8 as i32, int8()), other),
        ("bf16 for int8", INT8, (BF16 as i32, bf16()), other),
        ("top-k for int8", INT8, (TOP_K as i32, top()), other),
        ("int8 for top-k", TOP_K, (INT8 as i32, int8()), other),
        ("no type", BF16, (0, bf16()), malformed("dtype: 0 is")),
        (
            "an unknown type",
            BF16,
            (77, bf16()),
            malformed("dtype: 77 is"),
        ),
    ]
}

#[test]
fn a_bad_encoding_is_refused_and_changes_nothing() {
    let fleet = Fleet::start(2, TOKEN);
    fleet.block_on(async {
        for up in [DType::DtypeF32, BF16, INT8, TOP_K] {
            let run = Run::new(&fleet, &format!("{up:?}"), compressed(form(up), None)).await;
            let good = push_of(&run, (0, BLOCK), &[1.0; 3]);
            run.send(good).await;
            let (before, mut refused) = run.shards().await;
            let all = [lengths(), contents(), types()].concat();
            for (name, _, (dtype, values), want) in all.into_iter().filter(|f| f.1 == up) {
                let bad = run.push((1, BLOCK), dtype, &values);
                let got = run.client.push(run.server(BLOCK), bad).await;
                assert_refused(name, got, want);
                refused += 1;
                assert_eq!(run.shards().await, (before.clone(), refused), "{name}");
            }
            let next = push_of(&run, (1, BLOCK), &[1.0; 3]);
            assert_eq!(run.send(next).await.version, 2, "{up:?}");
        }
    });
}
