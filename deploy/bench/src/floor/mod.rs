//! The floor of an exchange: the same bytes, blocks, updates and overlap on bare TCP, without
//! gRPC, membership, clocks or checks. What `bench exchange` compares an exchange with.
//!
//! The vector is cut into parts, each a run of whole blocks that moves over one connection of one
//! client to one server. A client says which part a connection carries (4 bytes, once) and then
//! streams gradients up, while the server applies block by block and streams the values down.

pub mod client;
pub mod server;
mod store;
#[cfg(test)]
mod tests;

use std::io;
use std::net::TcpStream;
use std::ops::Range;

use tradewind_common::Layout;
use tradewind_proto::socket;

use super::model::Model;

/// Blocks that are smaller are read, and written back, several at a time.
const PIECE_BYTES: usize = 256 << 10;

/// Who holds and moves what; the same in every process of a floor.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub struct FloorPlan {
    #[command(flatten)]
    pub model: Model,
    /// Servers of the floor.
    #[arg(long)]
    pub servers: u32,
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

impl FloorPlan {
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = self.model.arguments();
        arguments.push(format!("--servers={}", self.servers));
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
        let connections = self.model.connections as usize;
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

/// Sets a connection up as an exchange's are.
fn tune(stream: &TcpStream) -> io::Result<()> {
    socket::tune_fd(stream, stream.peer_addr()?.ip().is_loopback());
    Ok(())
}
