//! What is missing, and how it is come by.

use serde::Serialize;
use tradewind_config::{Config, DeviceChoice};

use super::Node;
use super::nccl::HALF;

/// Something that a node lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Missing {
    pub(super) needed_for: NeededFor,
    pub(super) what: String,
    pub(super) way_out: String,
}

/// What does not work without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum NeededFor {
    /// A rank on a GPU.
    Gpu,
    /// A group of several ranks on GPUs.
    Groups,
    /// The speed that the network has.
    Speed,
}

/// Memory that registering buffers with a network may well take; less is a limit that was not
/// made for it.
const MEMORY_LOCK_BYTES_MIN: u64 = 1 << 30;

/// All that the node lacks for training on GPUs, what is needed first at the beginning.
pub(super) fn missing(node: &Node) -> Vec<Missing> {
    let mut all: Vec<Missing> = driver(node).into_iter().collect();
    all.extend(libtorch(node));
    all.extend(nccl(node));
    all.extend(network(node));
    all.sort_by_key(|missing| missing.needed_for);
    all
}

fn lacks(
    needed_for: NeededFor,
    what: impl Into<String>,
    way_out: impl Into<String>,
) -> Option<Missing> {
    Some(Missing {
        needed_for,
        what: what.into(),
        way_out: way_out.into(),
    })
}

fn driver(node: &Node) -> Option<Missing> {
    let driver = &node.driver;
    let gpu = NeededFor::Gpu;
    if let Some(error) = &driver.error {
        return match driver.loaded {
            false => lacks(
                gpu,
                "no NVIDIA driver",
                "a node with an NVIDIA GPU and its driver; this one trains on the CPU",
            ),
            true => lacks(
                gpu,
                format!("the driver is loaded, but its library says nothing: {error}"),
                "in a container, start it with the GPUs (docker --gpus all, apptainer --nv); else install the driver's user part, which holds libnvidia-ml.so.1 and libcuda.so.1",
            ),
        };
    }
    if driver.gpus.is_empty() {
        return lacks(
            gpu,
            "the driver sees no GPU",
            "on a cluster, ask for some (sbatch --gpus-per-node=N)",
        );
    }
    if driver.visible() == 0 {
        return lacks(
            gpu,
            "CUDA_VISIBLE_DEVICES hides all GPUs",
            "unset it, or name GPUs that are there: numbers or UUIDs",
        );
    }
    let (has, wants) = (driver.cuda?, node.libtorch.cuda?);
    if has.0 < wants.0 {
        let version = driver.version.as_deref().unwrap_or("unknown");
        return lacks(
            gpu,
            format!(
                "driver {version} supports CUDA up to {}.{}, libtorch was built for {}.{}",
                has.0, has.1, wants.0, wants.1
            ),
            format!(
                "a driver for CUDA {}, or a libtorch 2.11 built for CUDA {} (LIBTORCH names its folder)",
                wants.0, has.0
            ),
        );
    }
    None
}

fn libtorch(node: &Node) -> Option<Missing> {
    let libtorch = &node.libtorch;
    let gpu = NeededFor::Gpu;
    let Some(worker) = &libtorch.worker else {
        return lacks(
            gpu,
            "no tradewind-worker beside this program, so nothing is known of libtorch",
            "cargo build --package tradewind-worker, in the same profile",
        );
    };
    let Some(folder) = &libtorch.folder else {
        return lacks(
            gpu,
            format!("{} does not find libtorch_cpu.so", worker.display()),
            "make setup and build again; or name libtorch's lib folder in LD_LIBRARY_PATH",
        );
    };
    if !libtorch.has_cuda_half {
        return lacks(
            gpu,
            format!("no libtorch_cuda.so in {}", folder.display()),
            "build against a libtorch with CUDA: unset LIBTORCH and run make cuda, which fetches one",
        );
    }
    if !libtorch.absent.is_empty() {
        return lacks(
            gpu,
            format!(
                "libtorch_cuda.so does not find {}",
                libtorch.absent.join(", ")
            ),
            "make cuda, which fetches NVIDIA's libraries; or name their folders in LD_LIBRARY_PATH",
        );
    }
    None
}

fn nccl(node: &Node) -> Option<Missing> {
    let nccl = &node.nccl;
    let Some(half) = &nccl.half else {
        let searched: Vec<String> = nccl
            .half_searched
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        return lacks(
            NeededFor::Groups,
            format!("no {HALF}; looked for {}", searched.join(", ")),
            "make nccl, which builds it; or name the file in TRADEWIND_NCCL",
        );
    };
    if !nccl.half_absent.is_empty() && node.libtorch.has_cuda_half {
        return lacks(
            NeededFor::Groups,
            format!(
                "{} does not find {}",
                half.display(),
                nccl.half_absent.join(", ")
            ),
            "make nccl again, against the libtorch that the worker loads",
        );
    }
    None
}

fn network(node: &Node) -> Vec<Missing> {
    let speed = NeededFor::Speed;
    let mut all = Vec::new();
    let network = &node.network;
    let plugin = &node.nccl.plugin;
    if let Some(asked) = plugin.asked.as_ref().filter(|asked| *asked != "none")
        && plugin.library.is_none()
    {
        all.extend(lacks(
            NeededFor::Groups,
            format!("NCCL_NET_PLUGIN={asked}, but no such plugin is in LD_LIBRARY_PATH or the system's folders"),
            "add its folder to LD_LIBRARY_PATH, or unset NCCL_NET_PLUGIN",
        ));
    }
    if network.has_slingshot() && plugin.library.is_none() {
        let way_out = match plugin.others.first() {
            Some(other) => format!(
                "NCCL looks for libnccl-net.so only: NCCL_NET_PLUGIN={} has it load the one that is there",
                other.display()
            ),
            None => "load the site's module (on Perlmutter `module load nccl`), or build aws-ofi-nccl and add its folder to LD_LIBRARY_PATH".into(),
        };
        all.extend(lacks(
            speed,
            "Slingshot is there, but no plugin for NCCL: it would use TCP",
            way_out,
        ));
    }
    let registers = network.has_slingshot() || network.has_hca();
    if let Some(bytes) = node.host.memory_lock_bytes
        && registers
        && bytes < MEMORY_LOCK_BYTES_MIN
    {
        all.extend(lacks(
            speed,
            format!("a process may lock {} KiB, and buffers of the network are locked memory", bytes >> 10),
            "ulimit -l unlimited (docker --ulimit memlock=-1; in Slurm PropagateResourceLimits and the limit of slurmd)",
        ));
    }
    if network.has_hca() && !node.driver.gpus.is_empty() && !network.peermem {
        all.extend(lacks(
            speed,
            "nvidia_peermem is not loaded: unless kernel and driver share memory by dma-buf, NCCL copies through main memory",
            "modprobe nvidia_peermem, by whoever runs the node; NCCL_DEBUG=INFO tells GDRDMA where it is used",
        ));
    }
    all
}

/// Why this node cannot do what a configuration asks for: one rank of it at least, and where groups
/// have several, a part of one.
pub(super) fn cannot(config: &Config, node: &Node) -> Vec<String> {
    let visible = node.driver.visible();
    let seen = match (visible, &node.driver.error) {
        (0, Some(error)) => format!("none was found ({error})"),
        (0, None) => "none was found".to_owned(),
        (1, _) => "one was found".to_owned(),
        (n, _) => format!("{n} were found"),
    };
    let mut why = Vec::new();
    let gpus = match config.compute.device {
        DeviceChoice::Cpu => false,
        // It takes the CPU only where there is no GPU.
        DeviceChoice::Auto => visible > 0,
        DeviceChoice::Cuda if visible == 0 => {
            why.push(format!("compute.device = \"cuda\" asks for a GPU; {seen}"));
            true
        }
        DeviceChoice::CudaAt(number) if number as usize >= visible => {
            why.push(format!(
                "compute.device = \"cuda:{number}\" asks for GPU {number}; {seen}"
            ));
            true
        }
        DeviceChoice::Cuda | DeviceChoice::CudaAt(_) => true,
    };
    if !gpus {
        if config.compute.precision.scales_loss() {
            why.push(format!("compute.precision = \"fp16\" needs a GPU; {seen}"));
        }
        return why;
    }
    let groups = config.cluster.groups.iter().any(|ranks| *ranks > 1);
    let matters = |missing: &Missing| match missing.needed_for {
        NeededFor::Gpu => visible > 0,
        NeededFor::Groups => groups,
        NeededFor::Speed => false,
    };
    let lacking = missing(node).into_iter().filter(matters);
    why.extend(lacking.map(|missing| format!("{}: {}", missing.what, missing.way_out)));
    why
}
