//! A server of the floor: reads gradients, applies them, writes the values back.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, bail};
use rustix::event::{PollFd, PollFlags, poll};
use tradewind_server::core::optimizer::{Optimizer, Step, from_spec};

use super::{Part, Piece, Plan, tune};
use crate::bench::model::values;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    plan: Plan,
    /// Number of this server, from 0.
    #[arg(long)]
    index: u32,
    /// Threads that serve the connections.
    #[arg(long)]
    threads: usize,
    /// Host and port to listen on.
    #[arg(long)]
    listen: String,
    /// Write the address (host:port) into this file once the server listens.
    #[arg(long)]
    address_file: PathBuf,
}

/// The values of a piece, and what the optimizer keeps beside them.
struct Held {
    values: Vec<f32>,
    /// Of each block, because an optimizer takes whole vectors.
    slots: Vec<Vec<Vec<f32>>>,
    updates: u64,
}

/// A piece that all clients of its part update.
struct Shared {
    piece: Piece,
    held: Mutex<Held>,
}

/// One client's connection, and how far it has come.
struct Connection {
    stream: TcpStream,
    part: Arc<Vec<Shared>>,
    piece: usize,
    /// The gradient of the piece, and how many of its bytes have been read.
    scratch: Vec<f32>,
    filled: usize,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let plan = &arguments.plan;
    let listener = TcpListener::bind(&arguments.listen)
        .with_context(|| format!("cannot listen on {}", arguments.listen))?;
    let layout = plan.model.spec().check()?;
    let optimizer = from_spec(plan.model.optimizer.spec());
    let initial = values(layout.elements());
    let server = arguments.index as usize;
    let shares = 0..plan.shares();
    let parts: Vec<Part> = shares
        .flat_map(|share| plan.parts(&layout, server, share))
        .collect();
    let shared = |part: &Part| {
        let share = |piece: &Piece| Shared::new(piece, &initial, &*optimizer);
        (
            part.number,
            Arc::new(part.pieces.iter().map(share).collect()),
        )
    };
    let shared: Vec<(usize, Arc<Vec<Shared>>)> = parts.iter().map(shared).collect();
    drop(initial);
    let clients_of_part = plan.model.clients as usize / plan.shares();
    write_address(arguments, &listener)?;

    let mut threads: Vec<Vec<Connection>> = Vec::new();
    threads.resize_with(arguments.threads.max(1), Vec::new);
    for number in 0..shared.len() * clients_of_part {
        let connection = Connection::accept(&listener, &shared)?;
        let thread = number % threads.len();
        threads[thread].push(connection);
    }
    std::thread::scope(|scope| {
        let serving = threads.into_iter().map(|connections| {
            let optimizer = from_spec(plan.model.optimizer.spec());
            let rate = plan.model.rate();
            scope.spawn(move || serve(connections, &*optimizer, rate))
        });
        let serving: Vec<_> = serving.collect();
        for thread in serving {
            thread.join().expect("a serving thread does not panic")?;
        }
        Ok(())
    })
}

/// Readers see the whole address or none.
fn write_address(arguments: &Arguments, listener: &TcpListener) -> anyhow::Result<()> {
    let path = &arguments.address_file;
    let beside = path.with_extension("part");
    let address = listener.local_addr()?.to_string();
    std::fs::write(&beside, address)
        .and_then(|()| std::fs::rename(&beside, path))
        .with_context(|| format!("cannot write the address to {}", path.display()))
}

/// Serves its connections until all have ended.
fn serve(
    mut connections: Vec<Connection>,
    optimizer: &dyn Optimizer,
    rate: f64,
) -> anyhow::Result<()> {
    while !connections.is_empty() {
        let ready = ready(&connections)?;
        let mut ready = ready.into_iter();
        let mut failed = None;
        connections.retain_mut(|connection| {
            if failed.is_some() || !ready.next().unwrap_or(false) {
                return true;
            }
            match connection.advance(optimizer, rate) {
                Ok(open) => open,
                Err(error) => {
                    failed = Some(error);
                    false
                }
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
    }
    Ok(())
}

/// Which connections can be read. A single one is read at once: it may wait.
fn ready(connections: &[Connection]) -> io::Result<Vec<bool>> {
    if let [_] = connections {
        return Ok(vec![true]);
    }
    let waiting = connections.iter();
    let mut waiting: Vec<_> = waiting
        .map(|connection| PollFd::new(&connection.stream, PollFlags::IN))
        .collect();
    poll(&mut waiting, None)?;
    Ok(waiting.iter().map(|fd| !fd.revents().is_empty()).collect())
}

impl Shared {
    fn new(piece: &Piece, initial: &[f32], optimizer: &dyn Optimizer) -> Self {
        let slots =
            |block: &std::ops::Range<usize>| vec![vec![0.0; block.len()]; optimizer.slots()];
        Self {
            held: Mutex::new(Held {
                values: initial[piece.elements.clone()].to_vec(),
                slots: piece.blocks.iter().map(slots).collect(),
                updates: 0,
            }),
            piece: piece.clone(),
        }
    }

    /// Applies a gradient block by block and writes the fresh values straight from the parameters.
    fn update(
        &self,
        gradient: &[f32],
        optimizer: &dyn Optimizer,
        rate: f64,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let Held {
            values,
            slots,
            updates,
        } = &mut *held;
        *updates += 1;
        let step = Step {
            rate,
            number: *updates,
        };
        let start = self.piece.elements.start;
        for (block, slots) in self.piece.blocks.iter().zip(slots) {
            let here = block.start - start..block.end - start;
            optimizer.apply(step, &mut values[here.clone()], slots, &gradient[here]);
        }
        out.write_all(bytemuck::cast_slice(values))
    }
}

/// Elements of the largest piece.
fn longest(part: &[Shared]) -> usize {
    let lengths = part.iter().map(|shared| shared.piece.elements.len());
    lengths.max().unwrap_or(0)
}

impl Connection {
    fn accept(listener: &TcpListener, parts: &[(usize, Arc<Vec<Shared>>)]) -> anyhow::Result<Self> {
        let (mut stream, peer) = listener.accept()?;
        tune(&stream)?;
        let mut number = [0; 4];
        stream.read_exact(&mut number)?;
        let number = u32::from_le_bytes(number) as usize;
        let part = parts.iter().find(|(part, _)| *part == number);
        let (_, part) =
            part.with_context(|| format!("{peer} asks for part {number}, which lies elsewhere"))?;
        Ok(Self {
            stream,
            scratch: vec![0.0; longest(part)],
            part: part.clone(),
            piece: 0,
            filled: 0,
        })
    }

    /// Reads what there is; answers when a piece is whole. `false` at the end of the connection.
    fn advance(&mut self, optimizer: &dyn Optimizer, rate: f64) -> anyhow::Result<bool> {
        let shared = &self.part[self.piece];
        let gradient = &mut self.scratch[..shared.piece.elements.len()];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(gradient);
        let read = self.stream.read(&mut bytes[self.filled..])?;
        self.filled += read;
        if read == 0 {
            if self.filled > 0 || self.piece > 0 {
                bail!("a client has gone in the middle of an exchange");
            }
            return Ok(false);
        }
        if self.filled == bytes.len() {
            shared.update(gradient, optimizer, rate, &mut self.stream)?;
            self.filled = 0;
            self.piece = (self.piece + 1) % self.part.len();
        }
        Ok(true)
    }
}
