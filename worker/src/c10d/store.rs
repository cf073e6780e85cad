//! Where the ranks of a group find each other.

use std::net::{TcpListener, ToSocketAddrs};
use std::os::fd::IntoRawFd;
use std::ptr::NonNull;
use std::time::Duration;

use super::{C10dError, c_string, ffi, made, millis};

/// A key-value store over TCP in which the ranks of a group find each other. It has no password:
/// serve it on an address that only the machine's own network reaches.
#[derive(Debug)]
pub struct Store {
    pub(super) raw: NonNull<ffi::Store>,
    port: u16,
}

// SAFETY: the C++ object has no thread affinity; `&mut` and the lack of Sync keep it to one
// thread at a time.
unsafe impl Send for Store {}

impl Store {
    /// Serves a store on a free port of `host`, an address or name of this machine, and connects
    /// to it. It lives until this value and all groups made from it are dropped. `timeout` bounds
    /// every wait for a key.
    pub fn serve(host: &str, timeout: Duration) -> Result<Self, C10dError> {
        let listen = || {
            let addresses: Vec<_> = (host, 0).to_socket_addrs()?.collect();
            let listener = TcpListener::bind(&addresses[..])?;
            let port = listener.local_addr()?.port();
            Ok((listener, port))
        };
        let (listener, port) = listen().map_err(|source| C10dError::Listen {
            host: host.into(),
            source,
        })?;
        let host = c_string(host)?;
        let mut out = std::ptr::null_mut();
        // SAFETY: `host` and `out` outlive the call. The store takes the socket over; whether it
        // already has when it fails cannot be told, so that the error path leaves it open rather
        // than closing it twice.
        let message = unsafe {
            let socket = listener.into_raw_fd();
            ffi::tradewind_store_serve(host.as_ptr(), port, socket, millis(timeout), &mut out)
        };
        Ok(Self {
            raw: made("serving the group's store", message, out)?,
            port,
        })
    }

    /// Connects to the store that another process serves. Tries again until `timeout`, which also
    /// bounds every later wait for a key.
    pub fn connect(host: &str, port: u16, timeout: Duration) -> Result<Self, C10dError> {
        let host = c_string(host)?;
        let mut out = std::ptr::null_mut();
        // SAFETY: `host` and `out` outlive the call.
        let message =
            unsafe { ffi::tradewind_store_connect(host.as_ptr(), port, millis(timeout), &mut out) };
        Ok(Self {
            raw: made("connecting to the group's store", message, out)?,
            port,
        })
    }

    /// The port on which the store is served.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // SAFETY: `raw` came from this library and is freed once.
        unsafe { ffi::tradewind_store_free(self.raw.as_ptr()) }
    }
}
