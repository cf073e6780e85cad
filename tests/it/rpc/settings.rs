//! What a server tells every connection at its beginning, and calls that it does not have.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

use http::{Method, Request};
use tonic::Code;
use tradewind_proto::limits::{HTTP2_FRAME_BYTES, WINDOW_BYTES};
use tradewind_tests::cluster::fleet::Fleet;

use super::TOKEN;

/// The beginning of a connection, and settings of which none is said.
const BEGIN: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// As RFC 9113 numbers frames and settings.
const SETTINGS: u8 = 4;
const HEADER_TABLE_SIZE: u16 = 1;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;

#[test]
fn headers_are_not_remembered_and_frames_and_windows_are_large() {
    let fleet = Fleet::start(1, TOKEN);
    let mut socket = TcpStream::connect(&fleet.addresses()[0]).unwrap();
    socket.write_all(BEGIN).unwrap();
    let mut head = [0; 9];
    socket.read_exact(&mut head).unwrap();
    let [a, b, c, kind, ..] = head;
    assert_eq!(kind, SETTINGS);
    let mut said = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
    socket.read_exact(&mut said).unwrap();
    let settings: BTreeMap<u16, u32> = (said.chunks_exact(6))
        .map(|setting| {
            let (name, value) = setting.split_at(2);
            let name = u16::from_be_bytes(name.try_into().unwrap());
            (name, u32::from_be_bytes(value.try_into().unwrap()))
        })
        .collect();
    assert_eq!(settings[&HEADER_TABLE_SIZE], 0);
    assert_eq!(settings[&INITIAL_WINDOW_SIZE], WINDOW_BYTES);
    assert_eq!(settings[&MAX_FRAME_SIZE], HTTP2_FRAME_BYTES);
}

#[test]
fn a_call_that_there_is_not_is_answered() {
    let fleet = Fleet::start(1, TOKEN);
    fleet.block_on(async {
        let address = &fleet.addresses()[0];
        let socket = tokio::net::TcpStream::connect(address).await.unwrap();
        let (sender, connection) = h2::client::handshake(socket).await.unwrap();
        tokio::spawn(connection);
        for path in ["/tradewind.v1.Nothing/Exchange", "/Exchange", "/"] {
            let request = Request::builder()
                .method(Method::POST)
                .uri(format!("http://{address}{path}"))
                .header("content-type", "application/grpc")
                .header("te", "trailers")
                .header("authorization", format!("Bearer {TOKEN}"))
                .body(())
                .unwrap();
            let mut sender = sender.clone().ready().await.unwrap();
            let (response, _) = sender.send_request(request, true).unwrap();
            let response = response.await.unwrap();
            let status = response.headers()["grpc-status"].to_str().unwrap();
            assert_eq!(status, (Code::Unimplemented as i32).to_string(), "{path}");
        }
    });
}
