//! The address of this node under which others reach it.

use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};

use anyhow::{Context, bail};

/// How many ports are tried after the first.
const PORTS_MAX: u16 = 255;

/// The address of a network interface, IPv4 before IPv6; without one that of the node's name.
pub(super) fn of_node(node: &str, interface: Option<&str>) -> anyhow::Result<IpAddr> {
    match interface {
        Some(name) => of_interface(name),
        None => of_name(node),
    }
}

fn of_interface(name: &str) -> anyhow::Result<IpAddr> {
    let all = if_addrs::get_if_addrs().context("cannot list the network interfaces")?;
    let own = all.iter().filter(|found| found.name == name);
    // Addresses of the link alone are reached by nobody elsewhere.
    let mut own: Vec<IpAddr> = own
        .map(|found| found.ip())
        .filter(|ip| !matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local()))
        .collect();
    own.sort_by_key(IpAddr::is_ipv6);
    own.first().copied().with_context(|| {
        let mut names: Vec<&str> = all.iter().map(|found| found.name.as_str()).collect();
        names.dedup();
        format!(
            "slurm.interface = {name:?} has no address on this node, which has {}",
            names.join(", ")
        )
    })
}

fn of_name(node: &str) -> anyhow::Result<IpAddr> {
    let found = (node, 0).to_socket_addrs();
    let found = found.with_context(|| {
        format!(
            "the node's name {node} has no address; name its network interface in slurm.interface"
        )
    })?;
    let mut own: Vec<IpAddr> = found.map(|address| address.ip()).collect();
    own.sort_by_key(|ip| (ip.is_loopback(), ip.is_ipv6()));
    match own.first() {
        Some(ip) if !ip.is_loopback() => Ok(*ip),
        Some(ip) => bail!(
            "the node's name {node} stands for {ip}, which no other node reaches; name its network interface in slurm.interface"
        ),
        None => bail!("the node's name {node} has no address"),
    }
}

/// The first address from this one on, by its port, on which nobody listens: servers of several runs
/// may share a node.
pub(super) fn free(first: SocketAddr) -> anyhow::Result<SocketAddr> {
    let last = first.port().saturating_add(PORTS_MAX);
    let mut all = (first.port()..=last).map(|port| SocketAddr::new(first.ip(), port));
    let free = all.find(|address| TcpListener::bind(address).is_ok());
    free.with_context(|| {
        format!(
            "telemetry.prometheus: nobody can listen on {first} here, nor on ports up to {last}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_taken_is_passed_over() {
        let listening = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = listening.local_addr().unwrap();
        let found = free(taken).unwrap();
        assert!(found.port() > taken.port(), "{found} after {taken}");
        // Documentation's own address: of no machine.
        let error = free("192.0.2.1:9000".parse().unwrap())
            .unwrap_err()
            .to_string();
        assert!(error.contains("192.0.2.1:9000 here"), "{error}");
    }

    #[test]
    fn what_others_cannot_reach_is_told() {
        assert_eq!(of_node("x", Some("lo")).unwrap().to_string(), "127.0.0.1");
        let error = of_node("x", Some("hsn7")).unwrap_err().to_string();
        assert!(
            error.contains("\"hsn7\" has no address on this node, which has lo"),
            "{error}"
        );
        let error = of_node("localhost", None).unwrap_err().to_string();
        assert!(error.contains("which no other node reaches"), "{error}");
        let error = format!("{:#}", of_node("no-such-node.invalid", None).unwrap_err());
        assert!(error.contains("name its network interface"), "{error}");
    }
}
