//! Network interfaces, InfiniBand adapters, and Slingshot.

use std::net::Ipv4Addr;

use serde::Serialize;

use super::system::System;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Network {
    pub(super) interfaces: Vec<Interface>,
    pub(super) hcas: Vec<Hca>,
    /// Slingshot's devices: `cxi0`, …
    pub(super) cxi: Vec<String>,
    /// The kernel module that lets InfiniBand adapters reach GPU memory.
    pub(super) peermem: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Interface {
    pub(super) name: String,
    /// Such as `up`.
    pub(super) state: String,
    pub(super) megabits_per_second: Option<u64>,
    pub(super) mtu: Option<u64>,
    pub(super) addresses: Vec<Ipv4Addr>,
}

/// A port of an InfiniBand (or RoCE) adapter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Hca {
    pub(super) name: String,
    pub(super) port: String,
    /// Such as `ACTIVE`.
    pub(super) state: String,
    /// Such as `200 Gb/sec (4X HDR)`.
    pub(super) rate: String,
    /// `InfiniBand`, or `Ethernet` for RoCE.
    pub(super) link: String,
}

impl Network {
    pub(super) fn look(system: &System) -> Self {
        let addresses = addresses(system);
        let interface = |name: String| {
            let read = |file: &str| system.read(&format!("sys/class/net/{name}/{file}"));
            let own = addresses.iter().filter(|(at, _)| *at == name);
            Interface {
                state: read("operstate").unwrap_or_else(|| "unknown".into()),
                // −1, or no answer, where it has none.
                megabits_per_second: read("speed").and_then(|speed| speed.parse().ok()),
                mtu: read("mtu").and_then(|mtu| mtu.parse().ok()),
                addresses: own.map(|(_, address)| *address).collect(),
                name,
            }
        };
        Self {
            interfaces: system
                .list("sys/class/net")
                .into_iter()
                .map(interface)
                .collect(),
            hcas: hcas(system),
            cxi: system.list("sys/class/cxi"),
            peermem: system.exists("sys/module/nvidia_peermem"),
        }
    }

    /// Whether a Slingshot network is there: its devices, or its interfaces by their usual name.
    pub(super) fn has_slingshot(&self) -> bool {
        !self.cxi.is_empty() || self.interfaces.iter().any(|i| i.name.starts_with("hsn"))
    }

    /// Whether an InfiniBand or RoCE port is active.
    pub(super) fn has_hca(&self) -> bool {
        self.hcas.iter().any(|hca| hca.state == "ACTIVE")
    }
}

fn hcas(system: &System) -> Vec<Hca> {
    let mut found = Vec::new();
    for name in system.list("sys/class/infiniband") {
        let ports = format!("sys/class/infiniband/{name}/ports");
        for port in system.list(&ports) {
            let read = |file: &str| system.read(&format!("{ports}/{port}/{file}"));
            let state = read("state").unwrap_or_default();
            found.push(Hca {
                name: name.clone(),
                // Of `4: ACTIVE`.
                state: state.rsplit(": ").next().unwrap_or_default().to_owned(),
                rate: read("rate").unwrap_or_default(),
                link: read("link_layer").unwrap_or_default(),
                port,
            });
        }
    }
    found
}

/// IPv4 addresses with their interfaces: the kernel's table of local addresses, each matched with
/// the narrowest route that leads to it directly.
fn addresses(system: &System) -> Vec<(String, Ipv4Addr)> {
    let table = system.read("proc/net/route").unwrap_or_default();
    let routes: Vec<_> = table.lines().skip(1).filter_map(route).collect();
    let trie = system.read("proc/net/fib_trie").unwrap_or_default();
    let mut local: Vec<Ipv4Addr> = Vec::new();
    let mut last = None;
    for line in trie.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse().ok();
        } else if line == "/32 host LOCAL" {
            local.extend(last.filter(|address| !local.contains(address)));
        }
    }
    let interface = |address: &Ipv4Addr| {
        if address.is_loopback() {
            return Some("lo".to_owned());
        }
        let leads = |r: &&Route| u32::from(*address) & r.mask == r.target && r.mask != 0;
        let routes = routes.iter().filter(leads);
        routes.max_by_key(|r| r.mask).map(|r| r.interface.clone())
    };
    let with = |address: Ipv4Addr| Some((interface(&address)?, address));
    local.into_iter().filter_map(with).collect()
}

struct Route {
    interface: String,
    target: u32,
    mask: u32,
}

/// A row of `/proc/net/route`: interface, target, gateway, flags, …, and in the eighth place the
/// mask; addresses are hexadecimal in the machine's byte order.
fn route(line: &str) -> Option<Route> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let address = |word: &str| Some(u32::from_be(u32::from_str_radix(word, 16).ok()?));
    Some(Route {
        interface: (*words.first()?).to_owned(),
        target: address(words.get(1)?)?,
        mask: address(words.get(7)?)?,
    })
}
