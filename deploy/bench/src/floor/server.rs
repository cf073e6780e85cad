//! A server of the floor: reads gradients, applies them, writes the values back.

use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use rustix::event::{PollFd, PollFlags, poll};
use tradewind_core::optimizer::{Optimizer, from_spec};

use super::store::{Held, Store};
use super::{FloorPlan, tune};
use tradewind_process::whole;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    plan: FloorPlan,
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

/// One client's connection, and how far it has come.
struct Connection {
    stream: TcpStream,
    part: Arc<Vec<Held>>,
    piece: usize,
    /// The gradient of the piece, and how many of its bytes have been read.
    scratch: Vec<f32>,
    filled: usize,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let listener = TcpListener::bind(&arguments.listen)
        .with_context(|| format!("cannot listen on {}", arguments.listen))?;
    let store = Store::new(&arguments.plan, arguments.index as usize)?;
    write_address(arguments, &listener)?;
    serve(&listener, &store, &arguments.plan, arguments.threads.max(1))
}

/// Serves all connections of the plan until they have ended.
pub(super) fn serve(
    listener: &TcpListener,
    store: &Store,
    plan: &FloorPlan,
    threads: usize,
) -> anyhow::Result<()> {
    let clients_of_part = plan.model.clients as usize / plan.shares();
    let mut dealt: Vec<Vec<Connection>> = Vec::new();
    dealt.resize_with(threads, Vec::new);
    for number in 0..store.len() * clients_of_part {
        dealt[number % threads].push(Connection::accept(listener, store)?);
    }
    std::thread::scope(|scope| {
        let serving = dealt.into_iter().map(|connections| {
            let optimizer = from_spec(plan.model.optimizer.spec());
            let rate = plan.model.rate();
            scope.spawn(move || serve_some(connections, &*optimizer, rate))
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
    let address = listener.local_addr()?.to_string();
    Ok(whole::write(&arguments.address_file, address)?)
}

fn serve_some(
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

/// Elements of the largest piece.
fn longest(part: &[Held]) -> usize {
    let lengths = part.iter().map(|held| held.piece.elements.len());
    lengths.max().unwrap_or(0)
}

impl Connection {
    fn accept(listener: &TcpListener, store: &Store) -> anyhow::Result<Self> {
        let (mut stream, peer) = listener.accept()?;
        tune(&stream)?;
        let mut number = [0; 4];
        stream.read_exact(&mut number)?;
        let number = u32::from_le_bytes(number) as usize;
        let part = store.part(number);
        let part =
            part.with_context(|| format!("{peer} asks for part {number}, which lies elsewhere"))?;
        Ok(Self {
            stream,
            scratch: vec![0.0; longest(&part)],
            part,
            piece: 0,
            filled: 0,
        })
    }

    /// Reads what there is; answers when a piece is whole. `false` at the end of the connection.
    fn advance(&mut self, optimizer: &dyn Optimizer, rate: f64) -> anyhow::Result<bool> {
        let held = &self.part[self.piece];
        let gradient = &mut self.scratch[..held.piece.elements.len()];
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
            held.update(gradient, optimizer, rate, &mut self.stream)?;
            self.filled = 0;
            self.piece = (self.piece + 1) % self.part.len();
        }
        Ok(true)
    }
}
