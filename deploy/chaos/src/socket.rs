//! Whose a socket is, as Linux tells it.

use std::fs;

/// The inode of the socket of this machine that has `local` as its own port and `remote` as that of
/// its peer.
pub(super) fn inode(local: u16, remote: u16) -> Option<u64> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let texts = tables
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok());
    texts
        .into_iter()
        .find_map(|text| text.lines().find_map(|line| matching(line, local, remote)))
}

/// The inode in a line of the table of sockets, if it is the one that is looked for.
fn matching(line: &str, local: u16, remote: u16) -> Option<u64> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let port = |field: &str| u16::from_str_radix(field.rsplit_once(':')?.1, 16).ok();
    let of = (port(fields.get(1)?)?, port(fields.get(2)?)?);
    let inode = fields.get(9)?.parse().ok()?;
    (of == (local, remote) && inode != 0).then_some(inode)
}

/// Whether a process holds the socket.
pub(super) fn belongs(pid: u32, inode: u64) -> bool {
    let name = format!("socket:[{inode}]");
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    let mut links = files
        .flatten()
        .filter_map(|file| fs::read_link(file.path()).ok());
    links.any(|link| link.to_str() == Some(&name))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_is_known_by_its_ports() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect(address).unwrap();
        let own = client.local_addr().unwrap().port();
        let inode = inode(own, address.port()).unwrap();
        assert!(belongs(std::process::id(), inode));
        assert!(!belongs(1, inode));
    }
}
