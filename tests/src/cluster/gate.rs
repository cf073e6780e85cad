//! A way to a server that can be shut: nothing passes then, and nobody is told, as when a cable is
//! pulled. What was under way arrives when it is opened again.

use std::net::TcpListener as Bound;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A listener that passes connections on while it is open; it ends when it is dropped.
pub struct Gate {
    address: String,
    open: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

impl Gate {
    /// Passes connections on to host:port. Call it within a runtime.
    ///
    /// # Panics
    /// If a port cannot be had.
    pub fn start(to: &str) -> Self {
        let bound = Bound::bind("127.0.0.1:0").expect("a free port");
        bound.set_nonblocking(true).expect("a fresh socket");
        let listener = TcpListener::from_std(bound).expect("within a runtime");
        let address = listener.local_addr().expect("a bound port").to_string();
        let (open, state) = watch::channel(true);
        let serving = tokio::spawn(serve(listener, to.to_owned(), state));
        Self {
            address,
            open,
            serving,
        }
    }

    /// host:port to connect to.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Opens or shuts it.
    pub fn set(&self, open: bool) {
        self.open.send_replace(open);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, to: String, open: watch::Receiver<bool>) {
    while let Ok((client, _)) = listener.accept().await {
        let (to, mut open) = (to.clone(), open.clone());
        tokio::spawn(async move {
            if open.wait_for(|open| *open).await.is_err() {
                return;
            }
            let Ok(server) = TcpStream::connect(to).await else {
                return;
            };
            for socket in [&client, &server] {
                socket.set_nodelay(true).expect("a fresh connection");
            }
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            // The first direction to end takes the other one with it.
            tokio::select! {
                () = pass(from_client, to_server, open.clone()) => {}
                () = pass(from_server, to_client, open) => {}
            }
        });
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut open: watch::Receiver<bool>) {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = from.read(&mut buffer).await;
        // Nor does the end of a connection pass.
        if open.wait_for(|open| *open).await.is_err() {
            return;
        }
        match read {
            Ok(0) | Err(_) => return,
            Ok(read) => {
                if to.write_all(&buffer[..read]).await.is_err() {
                    return;
                }
            }
        }
    }
}
