//! A client of the floor: streams its gradients up while it receives fresh values into its flat
//! vector.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use anyhow::{Context, bail};

use super::{FloorPlan, PIECE_BYTES, Part, tune};
use crate::model::{gradient, values};
use crate::orders::{Ready, Work, obey};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    plan: FloorPlan,
    /// Number of this client, from 0.
    #[arg(long)]
    index: u32,
    /// Address (host:port) of a server; given for each, in order.
    #[arg(long = "server", value_name = "ADDRESS")]
    addresses: Vec<String>,
}

/// A connection, and where its part lies in the client's vectors.
pub(super) struct Connection<'a> {
    stream: TcpStream,
    gradient: &'a [f32],
    values: &'a mut [f32],
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let plan = &arguments.plan;
    if arguments.addresses.len() != plan.servers as usize {
        let given = arguments.addresses.len();
        bail!("{given} addresses are given for {} servers", plan.servers);
    }
    let elements = plan.model.spec().check()?.elements();
    let gradient = gradient(elements);
    let mut values = values(elements);
    let index = arguments.index as usize;
    let mut connections = connect_all(plan, index, &arguments.addresses, &gradient, &mut values)?;
    let ready = Ready {
        servers: arguments.addresses.len(),
        bytes: connections.iter().map(Connection::bytes).sum(),
    };
    obey(&ready, |work| match work {
        Work::Exchange => Ok(exchange(&mut connections)?),
        Work::Push | Work::Pull | Work::Return => bail!("the floor only exchanges"),
    })
}

/// The connections of a client, one for each part of its share that any server holds.
pub(super) fn connect_all<'a>(
    plan: &FloorPlan,
    index: usize,
    addresses: &[String],
    gradient: &'a [f32],
    mut values: &'a mut [f32],
) -> anyhow::Result<Vec<Connection<'a>>> {
    let layout = plan.model.spec().check()?;
    let share = if plan.model.group { index } else { 0 };
    let mut connections = Vec::new();
    let mut passed = 0;
    for (server, address) in addresses.iter().enumerate() {
        // Parts ascend in the vector from server to server, so it can be divided on the way.
        for part in plan.parts(&layout, server, share) {
            let elements = part.elements();
            let (_, from) = values.split_at_mut(elements.start - passed);
            let (here, after) = from.split_at_mut(elements.len());
            (values, passed) = (after, elements.end);
            connections.push(Connection {
                stream: connect(address, &part)?,
                gradient: &gradient[elements],
                values: here,
            });
        }
    }
    Ok(connections)
}

/// Pushes the whole share and receives its fresh values.
pub(super) fn exchange(connections: &mut [Connection<'_>]) -> io::Result<()> {
    let bytes: usize = connections.iter().map(Connection::bytes).sum();
    match bytes <= PIECE_BYTES {
        true => in_turn(connections),
        false => at_once(connections),
    }
}

impl Connection<'_> {
    fn bytes(&self) -> usize {
        self.values.len() * 4
    }
}

fn connect(address: &str, part: &Part) -> anyhow::Result<TcpStream> {
    let reach = || -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(address)?;
        tune(&stream)?;
        stream.write_all(&(part.number as u32).to_le_bytes())?;
        Ok(stream)
    };
    reach().with_context(|| format!("cannot reach {address}"))
}

/// For what fits into a socket and is one piece to its server: there is nothing to overlap, and
/// threads would only cost.
fn in_turn(connections: &mut [Connection<'_>]) -> io::Result<()> {
    for connection in &mut *connections {
        let gradient = bytemuck::cast_slice(connection.gradient);
        connection.stream.write_all(gradient)?;
    }
    for connection in connections {
        let values = bytemuck::cast_slice_mut(connection.values);
        connection.stream.read_exact(values)?;
    }
    Ok(())
}

/// A thread that writes and one that reads for every connection.
fn at_once(connections: &mut [Connection<'_>]) -> io::Result<()> {
    std::thread::scope(|scope| {
        let mut moving = Vec::new();
        for connection in connections {
            let gradient: &[u8] = bytemuck::cast_slice(connection.gradient);
            let values: &mut [u8] = bytemuck::cast_slice_mut(connection.values);
            let (mut up, mut down) = (&connection.stream, &connection.stream);
            moving.push(scope.spawn(move || up.write_all(gradient)));
            moving.push(scope.spawn(move || down.read_exact(values)));
        }
        let mut done = moving.into_iter().map(|thread| thread.join());
        done.try_for_each(|moved| moved.expect("a moving thread does not panic"))
    })
}
