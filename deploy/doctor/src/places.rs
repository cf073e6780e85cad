//! Where a GPU is in the machine: the cores and memory beside it, and the network cards that it reaches by
//! the shortest way.

use std::cmp::Reverse;
use std::path::{Component, PathBuf};

use serde::Serialize;

use super::system::System;

/// Where a GPU is.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Place {
    /// Of its memory and cores; `null` where the machine has one, or does not say.
    pub(super) numa_node: Option<u32>,
    /// The cores of that node, such as `0-15`.
    pub(super) cores: Option<String>,
    /// The cards that are nearest to it: names of InfiniBand, Slingshot and network devices.
    pub(super) cards: Vec<String>,
    /// What is between it and them; `null` without cards.
    pub(super) between: Option<Between>,
}

/// What two devices have between them, from far to near, with the names of `nvidia-smi topo` behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Between {
    /// The link between processors: SYS.
    Processors,
    /// The processor, of whose node both are: NODE.
    Node,
    /// Its bridge to PCI Express: PHB.
    HostBridge,
    /// Switches of PCI Express alone: PXB, PIX.
    Switches,
}

impl Between {
    /// In words.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Processors => "across processors",
            Self::Node => "across the processor",
            Self::HostBridge => "by the host bridge",
            Self::Switches => "by PCI switches alone",
        }
    }
}

/// A device on PCI Express.
struct Device {
    name: String,
    /// The bridges that lead to it, from the host's on, and itself.
    path: Vec<String>,
    numa_node: Option<u32>,
}

impl Device {
    /// At a path below `/sys` that leads to its folder.
    fn at(system: &System, name: &str, path: &str) -> Option<Self> {
        let folder: PathBuf = system.root.join(path).canonicalize().ok()?;
        let parts = folder.components().filter_map(|part| match part {
            Component::Normal(part) => Some(part.to_string_lossy().into_owned()),
            _ => None,
        });
        let path: Vec<String> = parts.skip_while(|part| !part.starts_with("pci")).collect();
        let numa = std::fs::read_to_string(folder.join("numa_node")).ok();
        Some(Self {
            name: name.into(),
            // −1 where there is one node only.
            numa_node: numa.and_then(|number| number.trim().parse().ok()),
            path,
        })
        .filter(|device| !device.path.is_empty())
    }

    fn between(&self, other: &Self) -> Between {
        let same = self.path.iter().zip(&other.path);
        let shared = same.take_while(|(a, b)| a == b).count();
        match shared {
            0 if self.numa_node.is_some() && self.numa_node == other.numa_node => Between::Node,
            0 => Between::Processors,
            1 => Between::HostBridge,
            _ => Between::Switches,
        }
    }
}

/// Of the GPU at a PCI address as NVML tells it, such as `00000000:07:00.0`.
pub(super) fn place(system: &System, address: &str) -> Place {
    let address = address.to_lowercase();
    // The kernel's domains have four digits.
    let address = match address.split_once(':') {
        Some((domain, rest)) => format!("{}:{rest}", &domain[domain.len().saturating_sub(4)..]),
        None => address,
    };
    let path = format!("sys/bus/pci/devices/{address}");
    let Some(gpu) = Device::at(system, "GPU", &path) else {
        return Place::default();
    };
    let all = cards(system);
    let nearest = all.iter().map(|card| gpu.between(card)).max();
    let cards = all.iter().filter(|card| Some(gpu.between(card)) == nearest);
    let mut names: Vec<_> = cards.map(|card| card.name.clone()).collect();
    // A card has several names: what NCCL is told comes first.
    names.sort_by_key(|name| Reverse(name.starts_with("mlx") || name.starts_with("cxi")));
    let cores = gpu.numa_node.and_then(|node| {
        let list = format!("sys/devices/system/node/node{node}/cpulist");
        system.read(&list)
    });
    Place {
        numa_node: gpu.numa_node,
        cores,
        cards: names,
        between: nearest,
    }
}

/// All network cards on PCI Express.
fn cards(system: &System) -> Vec<Device> {
    let of = |class: &'static str| {
        let folder = format!("sys/class/{class}");
        let names = system.list(&folder).into_iter();
        names.filter_map(move |name| Device::at(system, &name, &format!("{folder}/{name}/device")))
    };
    let classes = ["infiniband", "cxi", "net"];
    classes.into_iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    /// Two processors: on the first one a switch with a GPU and two cards of one, and a card beside; on the
    /// second one a GPU.
    fn machine(root: &Path) {
        let device = |path: &str, node: &str| {
            let folder = root.join("sys/devices").join(path);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("numa_node"), node).unwrap();
            folder
        };
        let link = |to: &Path, at: &str| {
            let at = root.join(at);
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            symlink(to, at).unwrap();
        };
        for (address, path, node) in [
            (
                "0000:07:00.0",
                "pci0000:00/0000:00:01.0/0000:07:00.0",
                "0\n",
            ),
            (
                "0000:81:00.0",
                "pci0000:80/0000:80:01.0/0000:81:00.0",
                "1\n",
            ),
        ] {
            let folder = device(path, node);
            link(&folder, &format!("sys/bus/pci/devices/{address}"));
        }
        let near = device("pci0000:00/0000:00:01.0/0000:08:00.0", "0\n");
        link(&near, "sys/class/infiniband/mlx5_0/device");
        link(&near, "sys/class/net/ib0/device");
        let far = device("pci0000:00/0000:00:02.0/0000:09:00.0", "0\n");
        link(&far, "sys/class/net/eth0/device");
        let cpus = root.join("sys/devices/system/node/node0");
        fs::create_dir_all(&cpus).unwrap();
        fs::write(cpus.join("cpulist"), "0-15\n").unwrap();
        // Without a device: not on PCI Express.
        fs::create_dir_all(root.join("sys/class/net/lo")).unwrap();
    }

    #[test]
    fn each_gpu_is_told_its_node_and_the_nearest_cards() {
        let root = tempfile::tempdir().unwrap();
        machine(root.path());
        let mut system = System::this();
        system.root = root.path().into();
        let told = |address| {
            let place = place(&system, address);
            (place.numa_node, place.cores, place.cards, place.between)
        };
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(
            told("00000000:07:00.0"),
            (
                Some(0),
                Some("0-15".into()),
                names(&["mlx5_0", "ib0"]),
                Some(Between::Switches)
            )
        );
        assert_eq!(
            told("00000000:81:00.0"),
            (
                Some(1),
                None,
                names(&["mlx5_0", "eth0", "ib0"]),
                Some(Between::Processors)
            )
        );
        assert_eq!(told("00000000:99:00.0"), (None, None, vec![], None));

        fs::remove_dir_all(root.path().join("sys/class/infiniband")).unwrap();
        fs::remove_dir_all(root.path().join("sys/class/net/ib0")).unwrap();
        assert_eq!(told("00000000:07:00.0").3, Some(Between::HostBridge));
    }
}
