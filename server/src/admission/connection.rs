//! A connection as it is served: closed when it is a stranger's for too long.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};
use tonic::service::Interceptor;
use tonic::transport::server::Connected;
use tonic::{Request, Status};
use tradewind_proto::auth::AskToken;

use super::{Place, SHOW};
use crate::limits::Limit;

/// What a connection has shown, as its calls find it among their extensions.
#[derive(Clone, Debug)]
pub(crate) struct Standing(Arc<Shown>);

#[derive(Debug)]
struct Shown {
    known: AtomicBool,
    place: Place,
}

impl Standing {
    fn is_known(&self) -> bool {
        self.0.known.load(Ordering::Relaxed)
    }

    /// A call on it was let in.
    fn show(&self) {
        // Most calls find that it was before, and write nothing.
        if !self.is_known() && !self.0.known.swap(true, Ordering::Relaxed) {
            self.0.place.show();
        }
    }
}

/// Asks for the token as [`AskToken`] does, and notes on the connection that it was shown.
#[derive(Clone, Debug)]
pub(crate) struct Admit(pub(crate) AskToken);

impl Interceptor for Admit {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let request = self.0.call(request)?;
        if let Some(standing) = request.extensions().get::<Standing>() {
            standing.show();
        }
        Ok(request)
    }
}

/// A connection that was admitted; its place is free when it is dropped.
pub(crate) struct Connection {
    stream: TcpStream,
    standing: Standing,
    watch: Watch,
}

/// Whether it is watched.
enum Watch {
    /// Until it has shown a token.
    Stranger(Box<Closing>),
    /// Not any more.
    Known,
    /// It was found to have to close.
    Over,
}

/// What ends a stranger's connection.
struct Closing {
    /// It has had its time.
    late: Pin<Box<Sleep>>,
    /// Others need its place.
    told: oneshot::Receiver<()>,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, place: Place, told: oneshot::Receiver<()>) -> Self {
        let shown = Shown {
            known: AtomicBool::new(false),
            place,
        };
        let late = Box::pin(sleep(SHOW));
        Self {
            stream,
            standing: Standing(Arc::new(shown)),
            watch: Watch::Stranger(Box::new(Closing { late, told })),
        }
    }

    /// Whether it may go on. A stranger's task is woken when it may not.
    fn look(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let Watch::Stranger(closing) = &mut self.watch else {
            return match self.watch {
                Watch::Over => Err(io::ErrorKind::TimedOut.into()),
                Watch::Known | Watch::Stranger(_) => Ok(()),
            };
        };
        if self.standing.is_known() {
            self.watch = Watch::Known;
            return Ok(());
        }
        match Pin::new(&mut closing.told).poll(context) {
            Poll::Pending if closing.late.as_mut().poll(context).is_pending() => return Ok(()),
            Poll::Pending => self.standing.0.place.reached(Limit::Unshown),
            Poll::Ready(Ok(())) => {}
            // Nobody can tell it any more: it has shown its token just now.
            Poll::Ready(Err(_)) => {
                self.watch = Watch::Known;
                return Ok(());
            }
        }
        self.watch = Watch::Over;
        Err(io::ErrorKind::TimedOut.into())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Its calls may outlast it for a moment.
        self.standing.0.place.leave();
    }
}

impl Connected for Connection {
    type ConnectInfo = Standing;

    fn connect_info(&self) -> Standing {
        self.standing.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.look(context)?;
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.look(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.look(context)?;
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
