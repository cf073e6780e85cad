use super::*;
use crate::layout::TensorSpec;

fn layout(elements: &[u64], block_bytes: usize) -> Layout {
    let tensors: Vec<_> = elements
        .iter()
        .enumerate()
        .map(|(index, elements)| TensorSpec {
            name: index.to_string(),
            shape: vec![*elements],
            kind: match index {
                0 => TensorKind::Parameter,
                _ => TensorKind::Buffer,
            },
        })
        .collect();
    Layout::new(&tensors, block_bytes).unwrap()
}

fn placed(layout: &Layout, servers: u32) -> Placement {
    Placement::by_bytes(layout, servers)
}

fn run<'a>(layout: &'a Layout, placement: &'a Placement, group_sizes: &'a [u32]) -> Run<'a> {
    Run {
        layout,
        placement,
        group_sizes,
        connections: 1,
        up: Compression::None,
        down: Compression::None,
        copies: 1,
    }
}

/// 1 MiB in 4 blocks of 256 KiB, 2 servers, 3 groups of 2 ranks. A rank has 2 blocks: 524,288
/// bytes, and for each 2 HTTP/2 frames and a head: 2 × (9 + 9 + 56) = 148 bytes up,
/// 2 × (9 + 9 + 32) = 100 down. A server has 2 blocks, too, and 3 groups.
#[test]
fn a_rank_has_its_slice_and_a_server_its_shard_of_every_group() {
    let layout = layout(&[262_144], 256 << 10);
    let placement = placed(&layout, 2);
    let run = run(&layout, &placement, &[2, 2, 2]);
    let rank = Traffic {
        values: 131_072,
        sent: Flow {
            messages: 2,
            payload: 524_288,
            wire: 524_436,
        },
        received: Flow {
            messages: 2,
            payload: 524_288,
            wire: 524_388,
        },
    };
    for (group, number) in [(0, 0), (1, 1), (2, 0)] {
        assert_eq!(run.rank(GroupId(group), Rank(number)), rank);
    }
    assert_eq!(run.rank(GroupId(3), Rank(0)), Traffic::default());
    assert_eq!(run.busiest_rank(), rank);
    let server = run.server(ShardId(1), 3);
    assert_eq!(server, run.busiest_server(3));
    assert_eq!((server.values, server.received.messages), (393_216, 6));
    assert_eq!(server.received.wire, 3 * 524_436);
    assert_eq!(server.sent.wire, 3 * 524_388);
    assert_eq!(run.servers().sent.wire, 6 * 524_388);
}

/// 5 blocks of 4 KiB among 3 ranks: 2, 2, 1. A ring of 3 passes 2 × 2/3 of 20,480 bytes on for a
/// sum, and 2 × 8,192 for the gather, since slices are padded to the longest.
#[test]
fn inside_a_group() {
    let layout = layout(&[5120], 4096);
    let placement = placed(&layout, 1);
    let run = run(&layout, &placement, &[3]);
    let want = Collectives {
        reduce: 27_307,
        gather: 16_384,
    };
    assert_eq!(run.collectives(3), want);
    assert_eq!(run.collectives(1), Collectives::default());
    assert_eq!(run.busiest_rank().sent.payload, 8192);
    assert_eq!(run.rank(GroupId(0), Rank(2)).sent.payload, 4096);
}

/// Parameters and statistics of ResNet-50 for 1,000 classes, in the order of creation.
fn resnet50() -> Vec<TensorSpec> {
    let mut tensors = Vec::new();
    let mut add = |shape: &[u64], kind| {
        tensors.push(TensorSpec {
            name: tensors.len().to_string(),
            shape: shape.to_vec(),
            kind,
        });
    };
    let mut convolution = |output: u64, input: u64, side: u64| {
        add(&[output, input, side, side], TensorKind::Parameter);
        // Scale, shift, and the running mean and variance.
        for kind in [TensorKind::Parameter, TensorKind::Buffer] {
            (0..2).for_each(|_| add(&[output], kind));
        }
    };
    convolution(64, 3, 7);
    let mut input = 64;
    for (width, blocks) in [(64, 3), (128, 4), (256, 6), (512, 3)] {
        for block in 0..blocks {
            convolution(width, input, 1);
            convolution(width, width, 3);
            convolution(4 * width, width, 1);
            if block == 0 {
                convolution(4 * width, input, 1);
            }
            input = 4 * width;
        }
    }
    add(&[1000, 2048], TensorKind::Parameter);
    add(&[1000], TensorKind::Parameter);
    tensors
}

/// What all ranks send to all is the model, padded by at most a block a rank.
#[test]
fn a_group_of_many_ranks_gathers_hardly_more_than_its_model() {
    // 302.1 MiB, as the climate network of Kurth et al., SC17, in groups of 1,066 nodes.
    let climate = [26_214].into_iter().chain((0..302).map(|_| 1 << 18));
    let climate = climate.enumerate().map(|(index, elements)| TensorSpec {
        name: index.to_string(),
        shape: vec![elements],
        kind: TensorKind::Parameter,
    });
    let climate: Vec<_> = climate.collect();
    let check = |tensors: &[TensorSpec], ranks: u32, block_bytes: u64, longest: u64| {
        let layout = Layout::new(tensors, block_bytes as usize).unwrap();
        let placement = placed(&layout, 1);
        let sizes = [ranks];
        let run = run(&layout, &placement, &sizes);
        let (values, ranks) = (layout.elements() as u64, u64::from(ranks));
        let gather = run.collectives(sizes[0]).gather;
        assert_eq!(gather, (ranks - 1) * longest, "{ranks} of {block_bytes}");
        assert!(gather <= values * 4 + ranks * block_bytes);
        assert_eq!(run.busiest_rank().values * 4, longest);
        values
    };
    // 1,209 blocks of 65,503 or 65,504 values: 2 for some; 4,834 of 16,382 or 16,383.
    let of_climate = check(&climate, 1066, 256 << 10, 4 * (65_503 + 65_504));
    check(&climate, 1066, 64 << 10, 327_652);
    check(&climate, 8, 256 << 10, 39_826_112);
    assert_eq!(of_climate, 302 * (1 << 18) + 26_214);

    let resnet = resnet50();
    // One of 390 blocks.
    let of_resnet = check(&resnet, 1066, 256 << 10, 4 * 65_531);
    // Six blocks of 4,096 values: 2 % more than the model.
    check(&resnet, 1066, 16 << 10, 98_296);
    assert_eq!(of_resnet, 25_557_032 + 53_120);
}

/// 65,536 parameters and 1,024 values of a buffer, blocks of 64 KiB: top-k of 1 % is 4 pages of
/// counts and 4 × 164 entries of 6 bytes. Buffers are f32 in both directions.
#[test]
fn parameters_are_compressed_and_buffers_are_not() {
    let layout = layout(&[65_536, 1024], 64 << 10);
    let placement = placed(&layout, 1);
    let run = Run {
        up: Compression::TopK { fraction: 0.01 },
        down: Compression::Bf16,
        ..run(&layout, &placement, &[1])
    };
    let rank = run.rank(GroupId(0), Rank(0));
    assert_eq!((rank.sent.messages, rank.values), (5, 66_560));
    assert_eq!(rank.sent.payload, 4 * (4 + 6 * 164) + 4096);
    assert_eq!(rank.received.payload, 131_072 + 4096);
    // Small values share a frame with their head: 9 + 56 bytes a message.
    assert_eq!(rank.sent.wire, rank.sent.payload + 5 * (9 + 56));
}

/// One block, two copies: a server takes in the gradient, and another one as a copy with the
/// confirmation of its own; it sends the values, the gradient and a confirmation.
#[test]
fn copies_are_sent_every_gradient_and_confirm_it() {
    let layout = layout(&[16_384], 64 << 10);
    let placement = placed(&layout, 1);
    let one = run(&layout, &placement, &[1]);
    let two = Run { copies: 2, ..one };
    let (one, two) = (one.server(ShardId(0), 1), two.server(ShardId(0), 1));
    let confirmation = 9 + 64;
    assert_eq!(two.received.wire, 2 * one.received.wire + confirmation);
    assert_eq!(
        two.sent.wire,
        one.sent.wire + one.received.wire + confirmation
    );
    assert_eq!((one.received.messages, two.received.messages), (1, 3));
    assert_eq!(two.received.payload, 131_072);
}

/// 3 ranks with 2, 2 and 1 of 5 blocks; block 4 and the even ones lie on server 0.
#[test]
fn a_rank_has_no_more_connections_than_blocks() {
    let layout = layout(&[5120], 4096);
    let placement = placed(&layout, 2);
    let count = |connections, groups: &[u32]| {
        let run = Run {
            connections,
            ..run(&layout, &placement, groups)
        };
        [run.connections(ShardId(0)), run.connections(ShardId(1))]
    };
    assert_eq!(count(1, &[1]), [1, 1]);
    assert_eq!(count(8, &[1]), [3, 2]);
    // Slices {0, 3}, {1, 4}, {2}.
    assert_eq!(count(8, &[3]), [3, 2]);
    assert_eq!(count(8, &[3, 3, 1]), [9, 6]);
}

/// 100 values in 1 block, 2 groups of a rank; 4 × 100 + 9 + 56 = 465 bytes up, 441 down.
#[test]
fn what_has_most_to_do_sets_the_time() {
    let layout = layout(&[100], 400);
    let placement = placed(&layout, 1);
    let run = run(&layout, &placement, &[1, 1]);
    let ample = Rates {
        link: 1e9,
        rank: 1e9,
        server: 1e9,
        apply: 1e9,
        apply_bytes_per_value: 12.0,
        latency: 0.0,
        shared_cores: None,
    };
    let check = |rates: Rates, groups, seconds: f64, limit| {
        let exchange = run.exchange(rates, groups);
        assert_eq!(exchange.limit, limit, "{rates:?}");
        assert!((exchange.seconds / seconds - 1.0).abs() < 1e-12);
    };
    let link = Rates {
        link: 465.0,
        ..ample
    };
    check(link, 2, 2.0, Limit::ServerLink);
    check(
        Rates {
            rank: 400.0,
            ..ample
        },
        2,
        2.0,
        Limit::RankCore,
    );
    let server = Rates {
        server: 400.0,
        ..ample
    };
    check(server, 1, 2.0, Limit::ServerCores);
    check(server, 2, 4.0, Limit::ServerCores);
    let apply = Rates {
        apply: 600.0,
        ..ample
    };
    check(apply, 2, 4.0, Limit::ShardCore);
    let late = Rates {
        latency: 0.5,
        ..apply
    };
    check(late, 2, 4.5, Limit::ShardCore);
    // 800 bytes a group: 2 s of a core for its rank, of two that also move 1,600 for the server.
    let shared = Rates {
        rank: 400.0,
        server: 1600.0,
        shared_cores: Some(2.0),
        ..ample
    };
    check(shared, 1, 2.0, Limit::RankCore);
    check(shared, 2, 3.0, Limit::SharedCores);

    // In 0.75 s: 930 bytes need 2.67 links of 465, 1,600 bytes 5.3 servers of 400, 2,400 bytes of
    // arithmetic 1.33 cores of 2,400.
    let rates = Rates {
        link: 465.0,
        rank: 1.0,
        server: 400.0,
        apply: 2400.0,
        apply_bytes_per_value: 12.0,
        latency: 0.0,
        shared_cores: None,
    };
    let servers = run.servers_needed(rates, 0.75);
    assert_eq!((servers.link, servers.cores, servers.shard), (3, 6, 2));
    assert_eq!(servers.needed(), (6, Limit::ServerCores));
    assert_eq!(
        run.servers_needed(ample, 1.0).needed(),
        (1, Limit::ServerLink)
    );
    let copies = Run { copies: 3, ..run };
    assert_eq!(copies.servers_needed(ample, 1.0).needed().0, 3);
}

/// 2 blocks of 200 bytes on a server each: 2 × (200 + 9 + 56) = 530 bytes up for the rank, half of
/// that for a server.
#[test]
fn more_servers_leave_the_link_of_the_rank() {
    let layout = layout(&[100], 200);
    let placement = placed(&layout, 2);
    let rates = Rates {
        link: 530.0,
        rank: 1e9,
        server: 1e9,
        apply: 1e9,
        apply_bytes_per_value: 12.0,
        latency: 0.0,
        shared_cores: None,
    };
    let exchange = run(&layout, &placement, &[1]).exchange(rates, 1);
    assert_eq!((exchange.seconds, exchange.limit), (1.0, Limit::RankLink));
}
