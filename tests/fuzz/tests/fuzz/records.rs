//! Records of a primary's log, into a copy of the shard.

use std::sync::Arc;

use bytes::Bytes;
use tradewind_common::holders::{CopyHolder, Holders, Primary};
use tradewind_common::spec::RunSpec;
use tradewind_common::{Generation, Layout, ServerId, ShardId};
use tradewind_core::shard::Shard;
use tradewind_core::view::View;
use tradewind_fuzz::target;
use tradewind_proto::frame::{Part, Reader};
use tradewind_proto::v1;
use tradewind_server::record::{Incoming, most_of};

use super::frames::{framed, records};
use super::specification::spec;

/// The log of the examples, and since when the copy is one.
const LOG: Generation = Generation(7);
const FILL: Generation = Generation(9);

const RECORD_BYTES_MAX: usize = 1 << 16;

#[test]
fn a_record_is_applied_whole_or_refused() {
    let spec = Arc::new(spec());
    let layout = spec.check().expect("a run");
    target!(examples()).each(|bytes, _| {
        let mut copy = copy(&spec, &layout);
        let mut reader = Reader::<v1::Record>::new(RECORD_BYTES_MAX);
        let mut bytes = Bytes::copy_from_slice(bytes);
        let mut arriving: Option<Incoming> = None;
        while let Ok(Some(part)) = reader.next(&mut bytes) {
            let incoming = match part {
                Part::Head(head, bulk) => {
                    let length =
                        |block| layout.block(block).map_or(0, |block| block.elements.len());
                    if most_of(&head, bulk, length).is_err() {
                        return;
                    }
                    Incoming::new(head, bulk)
                }
                Part::Bulk(piece) => {
                    let mut incoming = arriving.take().expect("after a head");
                    incoming.take(&piece);
                    incoming
                }
            };
            if !incoming.is_complete() {
                arriving = Some(incoming);
                continue;
            }
            let Ok(record) = incoming.finish() else {
                continue;
            };
            let before = copy.digest();
            let confirmed = copy.handle_record(record);
            match confirmed {
                Ok(confirm) => assert_eq!((confirm.log, confirm.fill), (LOG, FILL)),
                Err(_) => assert_eq!(
                    copy.digest(),
                    before,
                    "a refused record has changed a block"
                ),
            }
            for (_, block) in copy.blocks() {
                let values = block.values();
                assert!(
                    values.is_err() || values.is_ok_and(|values| values.len() == block.length())
                );
            }
            while copy.poll_output().is_some() {}
        }
    });
}

/// Server 2 as a copy of the shard of which server 1 is the primary.
fn copy(spec: &Arc<RunSpec>, layout: &Layout) -> Shard {
    let all = layout.blocks.iter().map(|block| block.id);
    let mut copy = Shard::new(ServerId(2), ShardId(2), spec.clone(), layout, all);
    let holders = Holders {
        primary: Some(Primary {
            server: ServerId(1),
            since: LOG,
        }),
        copies: vec![CopyHolder {
            server: ServerId(2),
            since: FILL,
            full: false,
        }],
        ..Holders::default()
    };
    let view = View {
        generation: FILL,
        groups: 3,
        ..View::default()
    };
    copy.handle_order(view, &holders, 0);
    copy
}

/// Logs: each record follows the one before it.
fn examples() -> Vec<Vec<u8>> {
    let all = records();
    let log = |order: &[usize]| {
        let follow = |(seq, which): (usize, &usize)| v1::Record {
            previous: seq as u64,
            seq: seq as u64 + 1,
            ..all[*which].clone()
        };
        framed(&order.iter().enumerate().map(follow).collect::<Vec<_>>())
    };
    vec![
        log(&[0]),
        log(&[1, 2, 2]),
        log(&[3, 2, 0, 2]),
        log(&[1, 3, 1, 2]),
    ]
}
