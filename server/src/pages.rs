//! Pages of memory. The allocator asks for huge pages (2 MiB), which save time where values are moved. But whatever has
//! a byte of one has all of it, and of a connection's buffers, which HTTP/2's library makes at once for the longest that
//! may come, small messages touch the beginning alone.

use std::sync::Once;

/// A server with more connections, of eight ranks, takes small pages from then on: what it has stays as it is.
const CONNECTIONS: usize = 16;

static SMALL: Once = Once::new();

/// There are so many connections.
pub(crate) fn connected(connections: usize) {
    if connections > CONNECTIONS {
        SMALL.call_once(
            || match rustix::thread::disable_transparent_huge_pages(true) {
                Ok(()) => tracing::info!(connections, "memory comes in small pages from here on"),
                Err(error) => tracing::warn!(%error, "memory still comes in huge pages"),
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of this process, which other tests share: they move few bytes.
    #[test]
    fn many_connections_have_small_pages_and_few_do_not() {
        let small = || rustix::thread::transparent_huge_pages_are_disabled().unwrap();
        if small() {
            // As whoever has started the tests wants it.
            return;
        }
        connected(CONNECTIONS);
        assert!(!small());
        connected(CONNECTIONS + 1);
        assert!(small());
        connected(1);
        assert!(small(), "they stay");
    }
}
