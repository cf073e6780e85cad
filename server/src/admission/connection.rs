//! A connection as it is served: closed when it is a stranger's for too long.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use futures_util::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep};
use tokio_rustls::Accept;
use tokio_rustls::server::TlsStream;
use tradewind_common::identity::{Identity, ShutOut};
use tradewind_proto::tls::{Tls, Unfit};

use super::{Place, SHOW};
use crate::limits::Limit;

/// What a connection has shown, as its calls find it among their extensions.
#[derive(Clone, Debug)]
pub(crate) struct Standing(Arc<Shown>);

#[derive(Debug)]
pub(super) struct Shown {
    known: AtomicBool,
    /// Its certificate was taken back, with whom: it is closed, by its own task, which is woken.
    revoked: OnceLock<ShutOut>,
    task: AtomicWaker,
    /// Who its certificate says that it is, once the handshake is over.
    identity: OnceLock<Result<Arc<Identity>, Unfit>>,
    place: Place,
}

impl Shown {
    /// Who has connected under TLS.
    pub(super) fn identity(&self) -> Result<Arc<Identity>, Unfit> {
        if let Some(what) = self.revoked.get() {
            return Err(Unfit::Revoked(*what));
        }
        let identity = self.identity.get();
        identity.cloned().unwrap_or(Err(Unfit::NoCertificate))
    }

    /// The handshake is over; said once.
    pub(super) fn is_named(&self, identity: Result<Identity, Unfit>) {
        let _ = self.identity.set(identity.map(Arc::new));
    }

    /// Closes it; whether that is new.
    pub(super) fn revoke(&self, what: ShutOut) -> bool {
        let first = self.revoked.set(what).is_ok();
        self.task.wake();
        first
    }
}

impl Standing {
    fn is_known(&self) -> bool {
        self.0.known.load(Ordering::Relaxed)
    }

    /// Who has connected under TLS.
    pub(super) fn identity(&self) -> Result<Arc<Identity>, Unfit> {
        self.0.identity()
    }

    /// With whom its certificate was taken back since the handshake, if it was.
    pub(super) fn shut_out(&self) -> Option<ShutOut> {
        self.0.revoked.get().copied()
    }

    /// A call on it was let in.
    pub(super) fn show(&self) {
        // Most calls find that it was before, and write nothing.
        if !self.is_known() && !self.0.known.swap(true, Ordering::Relaxed) {
            self.0.place.show();
        }
    }
}

/// A connection that was admitted; its place is free when it is dropped.
pub(crate) struct Connection {
    stream: Wire,
    standing: Standing,
    watch: Watch,
}

/// What is read and written.
enum Wire {
    Clear(TcpStream),
    /// The handshake goes on, in the connection's own task, whenever that reads or writes.
    Shaking(Tls, Box<Accept<TcpStream>>),
    Tls(Box<TlsStream<TcpStream>>),
    /// There is nothing to be read any more.
    Broken,
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
    pub(super) fn new(
        stream: TcpStream,
        tls: Option<&Tls>,
        place: Place,
        told: oneshot::Receiver<()>,
    ) -> Self {
        let shown = Shown {
            known: AtomicBool::new(false),
            revoked: OnceLock::new(),
            task: AtomicWaker::new(),
            identity: OnceLock::new(),
            place,
        };
        let stream = match tls {
            None => Wire::Clear(stream),
            Some(tls) => Wire::Shaking(tls.clone(), Box::new(tls.acceptor().accept(stream))),
        };
        let late = Box::pin(sleep(SHOW));
        Self {
            stream,
            standing: Standing(Arc::new(shown)),
            watch: Watch::Stranger(Box::new(Closing { late, told })),
        }
    }

    /// What its calls find out about it.
    pub(crate) fn standing(&self) -> Standing {
        self.standing.clone()
    }

    /// Whether it may go on. Its task is woken when it may not.
    fn look(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if matches!(self.stream, Wire::Tls(_)) {
            // Before it is looked at, so that no revocation is missed.
            self.standing.0.task.register(context.waker());
            if self.standing.shut_out().is_some() {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
        }
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

    /// The stream, once it may go on and the handshake is over.
    fn ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Pin<&mut dyn Stream>>> {
        self.look(context)?;
        if let Wire::Shaking(tls, accept) = &mut self.stream {
            match ready!(Pin::new(accept).poll(context)) {
                Ok(stream) => {
                    let identity = tls.judge(stream.get_ref().1.peer_certificates());
                    let shown = &self.standing.0;
                    // Before it can be found, so that whoever finds it wakes this task.
                    shown.task.register(context.waker());
                    shown.place.enter(identity, shown);
                    self.stream = Wire::Tls(Box::new(stream));
                }
                Err(error) => {
                    // Otherwise the peer has gone away meanwhile, as a process does that ends.
                    if error.kind() == io::ErrorKind::InvalidData {
                        self.standing.0.place.no_tls();
                    }
                    self.stream = Wire::Broken;
                    return Poll::Ready(Err(error));
                }
            }
        }
        Poll::Ready(match &mut self.stream {
            Wire::Clear(stream) => Ok(Pin::new(stream)),
            Wire::Tls(stream) => Ok(Pin::new(&mut **stream)),
            Wire::Shaking(..) | Wire::Broken => Err(io::ErrorKind::NotConnected.into()),
        })
    }
}

/// What both kinds of streams do.
trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Stream for T {}

impl Drop for Connection {
    fn drop(&mut self) {
        // Its calls may outlast it for a moment.
        self.standing.0.place.leave();
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.ready(context))?.poll_read(context, into)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.ready(context))?.poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.ready(context))?.poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        // Both kinds are.
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.ready(context))?.poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            // There is nobody yet to whom it could be said.
            Wire::Shaking(..) | Wire::Broken => Poll::Ready(Ok(())),
            Wire::Clear(stream) => Pin::new(stream).poll_shutdown(context),
            Wire::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(context),
        }
    }
}
