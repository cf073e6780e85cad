//! The floor of an exchange: the same bytes, blocks, updates and overlap on bare TCP, without
//! gRPC, membership, clocks or checks. What `bench exchange` compares an exchange with.
//!
//! The vector is cut into parts, each a run of whole blocks that moves over one connection of one
//! client to one server. A client says which part a connection carries (4 bytes, once) and then
//! streams gradients up, while the server applies block by block and streams the values down.

pub(crate) mod client;
pub(crate) mod server;

use std::io;
use std::net::TcpStream;
use std::ops::Range;

use tradewind_common::Layout;

use super::model::Model;

/// Blocks that are smaller are read, and written back, several at a time.
const PIECE_BYTES: usize = 256 << 10;

/// Who holds and moves what; the same in every process of a floor.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub(crate) struct Plan {
    #[command(flatten)]
    pub(crate) model: Model,
    /// Servers of the floor.
    #[arg(long)]
    pub(crate) servers: u32,
    /// Connections between each client and each server.
    #[arg(long)]
    pub(crate) connections: u32,
}

/// Whole blocks, one after the other, that are read and written at once.
#[derive(Clone, Debug, PartialEq)]
struct Piece {
    /// Of the flat vector.
    elements: Range<usize>,
    /// Each block, in elements of the flat vector.
    blocks: Vec<Range<usize>>,
}

/// A run of pieces.
#[derive(Clone, Debug, PartialEq)]
struct Part {
    number: usize,
    pieces: Vec<Piece>,
}

impl Plan {
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut arguments = self.model.arguments();
        arguments.push(format!("--servers={}", self.servers));
        arguments.push(format!("--connections={}", self.connections));
        arguments
    }

    /// Shares of the vector: one for each rank of a group, else one that all clients move.
    fn shares(&self) -> usize {
        match self.model.group {
            true => self.model.clients as usize,
            false => 1,
        }
    }

    /// The parts of one share on one server that hold any block, one a connection.
    fn parts(&self, layout: &Layout, server: usize, share: usize) -> Vec<Part> {
        let connections = self.connections as usize;
        let count = self.servers as usize * self.shares() * connections;
        let first = (server * self.shares() + share) * connections;
        let cut = |number: usize| number * layout.blocks.len() / count;
        let parts = (first..first + connections).map(|number| Part {
            number,
            pieces: pieces(&layout.blocks[cut(number)..cut(number + 1)]),
        });
        parts.filter(|part| !part.pieces.is_empty()).collect()
    }
}

impl Part {
    /// Elements of the flat vector.
    fn elements(&self) -> Range<usize> {
        let end = |pieces: &[Piece]| pieces.last().map_or(0, |piece| piece.elements.end);
        self.pieces.first().map_or(0, |p| p.elements.start)..end(&self.pieces)
    }
}

fn pieces(blocks: &[tradewind_common::layout::Block]) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for block in blocks {
        match pieces.last_mut() {
            Some(open) if (block.elements.end - open.elements.start) * 4 <= PIECE_BYTES => {
                open.elements.end = block.elements.end;
                open.blocks.push(block.elements.clone());
            }
            _ => pieces.push(Piece {
                elements: block.elements.clone(),
                blocks: vec![block.elements.clone()],
            }),
        }
    }
    pieces
}

/// Sets a connection up as an exchange's are: small writes leave at once, and on loopback nothing
/// paces them (the default there may be bbr, which does).
fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    if stream.peer_addr()?.ip().is_loopback() {
        // Refused where the kernel does not allow it; the default is then what there is.
        let _ = rustix::net::sockopt::set_tcp_congestion(stream, "reno");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        plan: Plan,
    }

    fn plan(arguments: &[&str]) -> Plan {
        Line::try_parse_from(["x"].iter().chain(arguments))
            .unwrap()
            .plan
    }

    #[test]
    fn parts_hold_every_block_once() {
        let check = |arguments: &[&str], parts_wanted: usize| {
            let plan = plan(arguments);
            let layout = plan.model.spec().check().unwrap();
            let mut blocks = Vec::new();
            let mut parts = 0;
            for server in 0..plan.servers as usize {
                for share in 0..plan.shares() {
                    for part in plan.parts(&layout, server, share) {
                        parts += 1;
                        let pieces = &part.pieces;
                        assert!(
                            pieces
                                .windows(2)
                                .all(|p| p[0].elements.end == p[1].elements.start)
                        );
                        assert_eq!(part.elements().end, pieces.last().unwrap().elements.end);
                        blocks.extend(pieces.iter().flat_map(|p| p.blocks.clone()));
                    }
                }
            }
            let all: Vec<_> = layout.blocks.iter().map(|b| b.elements.clone()).collect();
            assert_eq!(blocks, all);
            assert_eq!(parts, parts_wanted, "{arguments:?}");
        };
        check(&["--servers=1", "--connections=1"], 1);
        check(&["--servers=2", "--connections=3", "--clients=4"], 6);
        check(
            &["--servers=2", "--connections=1", "--clients=4", "--group"],
            8,
        );
        check(&["--servers=2", "--connections=1", "--bytes=4KB"], 1);
        check(
            &[
                "--servers=4",
                "--connections=2",
                "--bytes=100MB",
                "--block-bytes=25MB",
            ],
            4,
        );
    }

    #[test]
    fn small_blocks_are_moved_together_and_large_ones_alone() {
        let plan = plan(&[
            "--servers=1",
            "--connections=1",
            "--bytes=1MiB",
            "--block-bytes=4KiB",
        ]);
        let layout = plan.model.spec().check().unwrap();
        let part = &plan.parts(&layout, 0, 0)[0];
        assert_eq!(part.pieces.len(), 4);
        assert!(part.pieces.iter().all(|piece| piece.blocks.len() == 64));
    }

    #[test]
    fn it_travels_as_arguments() {
        let given = plan(&[
            "--servers=2",
            "--connections=3",
            "--clients=4",
            "--optimizer=adam",
        ]);
        let arguments = given.arguments();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        assert_eq!(plan(&arguments), given);
    }
}
