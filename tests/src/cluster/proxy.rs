//! A way to a server that breaks: connections are passed on and cut after so many bytes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// When a connection breaks: after so many bytes in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// To the server.
    Up(usize),
    /// To the client.
    Down(usize),
}

/// A listener that passes connections on; it ends when it is dropped.
pub struct Proxy {
    address: String,
    cuts: Cuts,
    serving: JoinHandle<()>,
}

impl Proxy {
    /// Passes connections on to host:port. Each connection takes the next of `cuts`, and leaves it
    /// to a later one if it ends before; once there are none left connections last.
    ///
    /// # Panics
    /// If a port cannot be had.
    pub async fn start(to: &str, cuts: impl IntoIterator<Item = Cut>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound port").to_string();
        let cuts = Cuts(Arc::new(Mutex::new((cuts.into_iter().collect(), 0))));
        let serving = tokio::spawn(serve(listener, to.to_owned(), cuts.clone()));
        Self {
            address,
            cuts,
            serving,
        }
    }

    /// host:port to connect to.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Cuts that have been made.
    pub fn made(&self) -> usize {
        self.cuts.with(|_, made| *made)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Cuts to come, and the number of those made.
#[derive(Clone)]
struct Cuts(Arc<Mutex<(VecDeque<Cut>, usize)>>);

impl Cuts {
    fn with<T>(&self, act: impl FnOnce(&mut VecDeque<Cut>, &mut usize) -> T) -> T {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, made) = &mut *inner;
        act(left, made)
    }
}

async fn serve(listener: TcpListener, to: String, cuts: Cuts) {
    while let Ok((client, _)) = listener.accept().await {
        let server = TcpStream::connect(&to).await.expect("a server listens");
        for socket in [&client, &server] {
            socket.set_nodelay(true).expect("a fresh connection");
        }
        let cut = cuts.with(|left, _| left.pop_front());
        let (up, down) = match cut {
            Some(Cut::Up(bytes)) => (bytes, usize::MAX),
            Some(Cut::Down(bytes)) => (usize::MAX, bytes),
            None => (usize::MAX, usize::MAX),
        };
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let cuts = cuts.clone();
        tokio::spawn(async move {
            // The first direction to end takes the other one with it.
            let made = tokio::select! {
                made = pass(from_client, to_server, up) => made,
                made = pass(from_server, to_client, down) => made,
            };
            cuts.with(|left, count| match cut {
                Some(cut) if !made => left.push_front(cut),
                _ => *count += usize::from(made),
            });
        });
    }
}

/// Passes on at most `left` bytes; whether it were as many.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut left: usize) -> bool {
    let mut buffer = vec![0; 4096];
    while left > 0 {
        let most = left.min(buffer.len());
        match from.read(&mut buffer[..most]).await {
            Ok(0) | Err(_) => return false,
            Ok(read) => {
                left -= read;
                if to.write_all(&buffer[..read]).await.is_err() {
                    return false;
                }
            }
        }
    }
    true
}
