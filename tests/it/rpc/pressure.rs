//! A client that sends and does not read: the server takes no more of it than its bound.

use std::future::poll_fn;
use std::time::Duration;

use ::bytes::Bytes;
use h2::SendStream;
use http::{Method, Request};
use prost::Message;
use tokio::net::TcpStream;
use tradewind_proto::limits::{BYTES_IN_FLIGHT_MAX, WINDOW_BYTES};
use tradewind_proto::v1::{JoinRequest, RunSpec};
use tradewind_tests::cluster::client::Client;
use tradewind_tests::cluster::fleet::Fleet;
use tradewind_tests::cluster::raw::framed;

use super::stage::{await_ready, join_as};
use super::{TOKEN, create, push, spec, tensor};

const RUN: &str = "pressed";

/// Values of the only block: 1 MiB.
const LENGTH: usize = 1 << 18;

/// Pushes that are sent: twice what may be in flight.
const PUSHES: u64 = 100;

/// Looks in a row that find nothing new, after which nothing more is taken.
const QUIET: u32 = 20;
const LOOK: Duration = Duration::from_millis(50);

/// A run of one group, ready, with one block.
async fn ready(client: &Client) {
    let spec = RunSpec {
        tensors: vec![tensor("a", LENGTH as u64)],
        block_bytes: LENGTH as u64 * 4,
        samples: 1 << 40,
        ..spec(&[1])
    };
    let request = JoinRequest {
        run: RUN.into(),
        life: 1,
        spec: Some(spec),
        ..Default::default()
    };
    join_as(client, request).await.unwrap();
    let told = await_ready(client, (RUN, 0, 1), false).await.unwrap();
    assert!(told.create);
    let zeros = create((RUN, 0, 1), 0, &vec![0.0; LENGTH]);
    client.push(0, zeros).await.unwrap();
    await_ready(client, (RUN, 0, 1), true).await.unwrap();
}

/// Sends all of it, as fast as the server takes it.
async fn send(mut stream: SendStream<Bytes>, mut bytes: Bytes) {
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let room = poll_fn(|context| stream.poll_capacity(context)).await;
        let room = room.expect("the stream is open").unwrap();
        stream
            .send_data(bytes.split_to(room.min(bytes.len())), false)
            .unwrap();
    }
}

async fn applied(client: &Client) -> u64 {
    client.shard_status(0, RUN).await.unwrap().applied
}

/// How many are applied when nothing more comes.
async fn settled(client: &Client) -> u64 {
    let (mut last, mut quiet) = (applied(client).await, 0);
    while quiet < QUIET && last < PUSHES {
        tokio::time::sleep(LOOK).await;
        let now = applied(client).await;
        quiet = if now == last { quiet + 1 } else { 0 };
        last = now;
    }
    last
}

#[test]
fn a_client_that_does_not_read_is_held_up_and_goes_on_when_it_reads() {
    let fleet = Fleet::start(1, TOKEN);
    fleet.block_on(async {
        let client = fleet.client().await;
        ready(&client).await;

        let address = &fleet.addresses()[0];
        let socket = TcpStream::connect(address).await.unwrap();
        let (mut sender, connection) = h2::client::handshake(socket).await.unwrap();
        tokio::spawn(connection);
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("http://{address}/tradewind.v1.Shard/Exchange"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("authorization", format!("Bearer {TOKEN}"))
            .body(())
            .unwrap();
        let (response, stream) = sender.send_request(request, false).unwrap();
        let values = vec![1.0; LENGTH];
        let frames = (0..PUSHES).map(|clock| {
            let frame = push((RUN, 0, 1), (clock, 0), clock, &values);
            framed(&frame.encode_to_vec())
        });
        let sending = tokio::spawn(send(stream, frames.flatten().collect()));

        let taken = settled(&client).await;
        // What is in flight, and what has left for the client's own window.
        let most = (BYTES_IN_FLIGHT_MAX + WINDOW_BYTES as usize) / (LENGTH * 4);
        assert!(
            (1..=most as u64 + 1).contains(&taken),
            "{taken} of {PUSHES} were taken; at most {most} may be in flight"
        );
        assert!(!sending.is_finished());

        let mut body = response.await.unwrap().into_body();
        let mut read = 0;
        while read < PUSHES as usize * LENGTH * 4 {
            let data = body.data().await.expect("answers come").unwrap();
            read += data.len();
            let _ = body.flow_control().release_capacity(data.len());
        }
        sending.await.unwrap();
        assert_eq!(applied(&client).await, PUSHES);
    });
}
