//! Where the ranks of a group find each other.

use std::net::{TcpListener, ToSocketAddrs};
use std::os::fd::IntoRawFd;
use std::ptr::NonNull;
use std::time::Duration;

use tradewind_client::group_key::{self, GroupKey, KEY_BYTES};

use super::{C10dError, c_string, check, ffi, made, millis};

/// Longest value that is read here; addresses are much shorter.
const VALUE_BYTES_MAX: usize = 64 << 10;

/// A key-value store over TCP in which the ranks of a group find each other. It has no password: whoever reaches it
/// can read, write and delete. So ranks meet in the [sealed](Self::sealed) form of it, and it is served on
/// an address that only the machines of a run reach.
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

    /// The same store, in which values carry a seal of this key. One that does not is an error when it is read: somebody
    /// else has written it. The names of keys, and that they are there, tell nothing.
    pub fn sealed(&self, key: &GroupKey) -> Result<Self, C10dError> {
        let mut out = std::ptr::null_mut();
        // SAFETY: the store is there; the key is copied, of which the C side knows the length.
        let message = unsafe {
            let (raw, key) = (self.raw.as_ptr(), key.as_bytes().as_ptr());
            ffi::tradewind_store_sealed(raw, seal, key, &mut out)
        };
        Ok(Self {
            raw: made("sealing the group's store", message, out)?,
            port: self.port,
        })
    }

    /// Puts a value under a key.
    pub fn set(&mut self, key: &str, value: &[u8]) -> Result<(), C10dError> {
        let key = c_string(key)?;
        // SAFETY: key and value outlive the call.
        let message = unsafe {
            let raw = self.raw.as_ptr();
            ffi::tradewind_store_set(raw, key.as_ptr(), value.as_ptr(), value.len())
        };
        check("writing to the group's store", message)
    }

    /// The value under a key, of at most 64 KiB, when there is one.
    pub fn get(&mut self, key: &str) -> Result<Vec<u8>, C10dError> {
        let key = c_string(key)?;
        let mut value = vec![0; VALUE_BYTES_MAX];
        let mut length = 0;
        // SAFETY: all outlive the call, and the C side writes no more than the capacity.
        let message = unsafe {
            let (raw, into) = (self.raw.as_ptr(), value.as_mut_ptr());
            ffi::tradewind_store_get(raw, key.as_ptr(), into, VALUE_BYTES_MAX, &mut length)
        };
        check("reading the group's store", message)?;
        value.truncate(length);
        Ok(value)
    }

    /// The port on which the store is served.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// Makes a seal for the C side.
///
/// # Safety
/// `key` and `made` have [`KEY_BYTES`], `name` and `value` as many as is said.
unsafe extern "C" fn seal(
    key: *const u8,
    name: *const u8,
    name_bytes: usize,
    value: *const u8,
    value_bytes: usize,
    made: *mut u8,
) {
    let slice = |start: *const u8, bytes: usize| match bytes {
        // Of nothing C++ may give no address.
        0 => &[][..],
        // SAFETY: so the caller promises.
        _ => unsafe { std::slice::from_raw_parts(start, bytes) },
    };
    // SAFETY: so the caller promises.
    let (key, made) = unsafe { (&*key.cast::<[u8; KEY_BYTES]>(), &mut *made.cast()) };
    *made = group_key::seal(key, slice(name, name_bytes), slice(value, value_bytes));
}

impl Drop for Store {
    fn drop(&mut self) {
        // SAFETY: `raw` came from this library and is freed once.
        unsafe { ffi::tradewind_store_free(self.raw.as_ptr()) }
    }
}

#[cfg(test)]
mod tests {
    use tradewind_proto::auth::Token;

    use super::*;

    const SHORT: Duration = Duration::from_secs(5);

    /// The C side's call of the sealer, in its place: nothing of libtorch is called, so that Miri can look.
    #[test]
    fn the_seal_for_the_c_side_is_that_of_the_key() {
        let key = GroupKey::of(&Token::new("run").unwrap(), "r/0/1");
        for (name, value) in [(&b"0"[..], &b"10.0.0.1:4000"[..]), (b"1", b""), (b"", b"1")] {
            let at = |bytes: &[u8]| match bytes.len() {
                0 => std::ptr::null(),
                _ => bytes.as_ptr(),
            };
            let mut made = [0; KEY_BYTES];
            // SAFETY: all have as many bytes as is said.
            unsafe {
                let (key, made) = (key.as_bytes().as_ptr(), made.as_mut_ptr());
                seal(key, at(name), name.len(), at(value), value.len(), made);
            }
            assert_eq!(made, key.seal(name, value));
        }
    }

    /// Whoever reaches the store may write what it likes; ranks believe what one of them has written.
    #[test]
    fn what_a_stranger_writes_is_not_believed() {
        let mut stranger = Store::serve("127.0.0.1", SHORT).unwrap();
        let sealed = |secret: &str| {
            let token = Token::new(secret).unwrap();
            stranger.sealed(&GroupKey::of(&token, "r/0/1")).unwrap()
        };
        let (mut one, mut other, mut of_another) = (sealed("run"), sealed("run"), sealed("other"));
        one.set("0", b"10.0.0.1:4000").unwrap();
        assert_eq!(other.get("0").unwrap(), b"10.0.0.1:4000");
        one.set("1", b"10.0.0.2:4000").unwrap();
        let of_one = stranger.get("1").unwrap();
        let refused = |store: &mut Store| {
            let error = store.get("0").unwrap_err().to_string();
            assert!(error.contains("does not know the run's token"), "{error}");
        };
        let foreign = [&b""[..], b"10.6.6.6:4000", &[7; 100], &of_one];
        for value in foreign {
            stranger.set("0", value).unwrap();
            refused(&mut one);
        }
        of_another.set("0", b"10.6.6.6:4000").unwrap();
        refused(&mut other);
        one.set("0", b"").unwrap();
        assert_eq!(other.get("0").unwrap(), b"");
    }

    /// It is served on the address that is named, not on all of the machine.
    #[test]
    fn nobody_reaches_it_on_another_address() {
        let store = Store::serve("127.0.0.1", SHORT).unwrap();
        let on = |host: &str| std::net::TcpStream::connect((host, store.port()));
        on("127.0.0.1").unwrap();
        on("127.0.0.2").unwrap_err();
    }
}
