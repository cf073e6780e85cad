//! A node made of files: what `/sys` and `/proc` hold, and libraries that a C compiler makes, which
//! the system's own loader reads.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use tradewind_config::Config;

use super::system::System;
use super::verdict::NeededFor;
use super::{DoctorReport, Node, cannot, missing, text};

/// A GPU node on Slingshot that lacks nothing: what a case changes is lacking then.
struct Fake {
    folder: TempDir,
    environment: BTreeMap<String, String>,
}

impl Fake {
    fn new() -> Self {
        let fake = Self {
            folder: tempfile::tempdir().unwrap(),
            environment: BTreeMap::new(),
        };
        for (path, content) in [
            (
                "proc/driver/nvidia/version",
                "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27\n",
            ),
            (
                "proc/cpuinfo",
                "processor\t: 0\nmodel name\t: AMD EPYC 7763\nflags\t\t: fpu avx2\n\nprocessor\t: 1\nmodel name\t: AMD EPYC 7763\nflags\t\t: fpu avx2\n",
            ),
            (
                "proc/self/limits",
                "Limit                     Soft Limit           Hard Limit           Units\nMax locked memory         unlimited            unlimited            bytes\n",
            ),
            (
                "proc/net/route",
                "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\nhsn0\t0000F90A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\neth0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n",
            ),
            (
                "proc/net/fib_trie",
                "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.249.1.2\n        /32 host LOCAL\n     |-- 127.0.0.1\n        /32 host LOCAL\n     |-- 10.249.255.255\n        /32 link BROADCAST\n",
            ),
            ("sys/class/net/hsn0/operstate", "up\n"),
            ("sys/class/net/hsn0/speed", "200000\n"),
            ("sys/class/net/hsn0/mtu", "9000\n"),
            ("sys/class/net/lo/operstate", "unknown\n"),
            ("sys/class/net/lo/speed", "-1\n"),
            ("sys/class/cxi/cxi0", ""),
            (
                "venv/torch/version.py",
                "__version__ = '2.11.0+cu130'\ncuda: Optional[str] = '13.0'\n",
            ),
            ("opt/ofi/libnccl-net.so", ""),
        ] {
            fake.write(path, content);
        }
        let nvml = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fake/nvidia_ml.c");
        fake.library("libnvidia-ml.so.1", &fs::read_to_string(nvml).unwrap(), &[]);
        let version = "int ncclGetVersion(int *v) { *v = 22809; return 0; }";
        fake.library("venv/nvidia/libnccl.so.2", version, &[]);
        fake.library("venv/nvidia/libcublas.so.13", "", &[]);
        fake.library("venv/torch/lib/libtorch_cpu.so", "int cpu;", &[]);
        let beside = ["venv/nvidia/libnccl.so.2", "venv/nvidia/libcublas.so.13"];
        fake.library("venv/torch/lib/libtorch_cuda.so", "", &beside);
        let libtorch = ["venv/torch/lib/libtorch_cpu.so"];
        fake.compile(
            "target/debug/tradewind-worker",
            "int main(void) { return 0; }",
            &libtorch,
            &[],
        );
        fake.library("target/nccl/libtradewind_nccl.so", "", &[]);
        let plugins = fake.path("opt/ofi").display().to_string();
        fake.variable("LD_LIBRARY_PATH", &plugins)
            .variable("NCCL_DEBUG", "INFO")
            .variable("TRADEWIND_TOKEN", "secret")
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn write(&self, path: &str, content: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn library(&self, path: &str, source: &str, needs: &[&str]) {
        self.compile(path, source, needs, &["-shared", "-fPIC"]);
    }

    /// Needs what it is told, used or not, and knows the folder of each.
    fn compile(&self, path: &str, source: &str, needs: &[&str], flags: &[&str]) {
        let out = self.path(path);
        fs::create_dir_all(out.parent().unwrap()).unwrap();
        self.write("source.c", source);
        let mut cc = Command::new("cc");
        cc.args(flags)
            .arg("-o")
            .arg(&out)
            .arg(self.path("source.c"));
        if flags.contains(&"-shared") {
            let name = out.file_name().unwrap().to_str().unwrap();
            cc.arg(format!("-Wl,-soname,{name}"));
        }
        cc.arg("-Wl,--no-as-needed");
        for needed in needs {
            let needed = self.path(needed);
            cc.arg(&needed);
            cc.arg(format!("-Wl,-rpath,{}", needed.parent().unwrap().display()));
        }
        assert!(cc.status().expect("a C compiler").success(), "{path}");
    }

    fn without(self, path: &str) -> Self {
        let at = self.path(path);
        match at.is_dir() {
            true => fs::remove_dir_all(at).unwrap(),
            false => fs::remove_file(at).unwrap(),
        }
        self
    }

    fn with(self, path: &str, content: &str) -> Self {
        self.write(path, content);
        self
    }

    fn link(self, to: &str, at: &str) -> Self {
        let at = self.path(at);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(self.path(to), at).unwrap();
        self
    }

    fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.insert(name.into(), value.into());
        self
    }

    fn node(&self) -> Node {
        Node::look(&System {
            root: self.folder.path().to_owned(),
            environment: self.environment.clone(),
            programs: self.path("target/debug"),
            nvml: self.path("libnvidia-ml.so.1").into(),
        })
    }
}

fn config(set: &[&str]) -> Config {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../configs/climate-forecast.toml");
    let set = ["compute.device=\"auto\""].iter().chain(set);
    let set: Vec<String> = set.map(|set| (*set).to_owned()).collect();
    tradewind_folder::config::read(&path, &set).unwrap()
}

#[test]
fn a_node_is_told_line_by_line() {
    let fake = Fake::new()
        .with("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n")
        .with(
            "sys/class/infiniband/mlx5_0/ports/1/rate",
            "200 Gb/sec (4X HDR)\n",
        )
        .with(
            "sys/class/infiniband/mlx5_0/ports/1/link_layer",
            "InfiniBand\n",
        )
        .with("sys/module/nvidia_peermem/refcnt", "1\n")
        .with("sys/devices/pci0000:00/0000:07:00.0/numa_node", "0\n")
        .with("sys/devices/system/node/node0/cpulist", "0-15\n")
        .link(
            "sys/devices/pci0000:00/0000:07:00.0",
            "sys/bus/pci/devices/0000:07:00.0",
        )
        .with("sys/devices/pci0000:00/0000:09:00.0/numa_node", "0\n")
        .link(
            "sys/devices/pci0000:00/0000:09:00.0",
            "sys/class/net/hsn0/device",
        )
        .variable("CUDA_VISIBLE_DEVICES", "1");
    let node = fake.node();
    let report = DoctorReport {
        missing: missing(&node),
        cannot: None,
        node,
    };
    let at = fake.folder.path().display().to_string();
    let want = "\
driver        580.65.06, CUDA up to 13.0
GPU 0         NVIDIA A100-SXM4-40GB, 12.00 GiB of 40.00 GiB used, GPU-00000000-1111-2222-3333-444444444444, ECC on, MIG off, hidden
              NUMA node 0, cores 0-15; nearest network hsn0, by the host bridge
GPU 1         NVIDIA A100-SXM4-40GB, 12.00 GiB of 40.00 GiB used, GPU-00000001-1111-2222-3333-444444444444
libtorch      2.11.0+cu130 in ROOT/venv/torch/lib
              with CUDA's libraries
NCCL          2.28.9 in ROOT/venv/nvidia/libnccl.so.2
NCCL half     ROOT/target/debug/../nccl/libtradewind_nccl.so
NCCL plugin   ROOT/opt/ofi/libnccl-net.so
interface     hsn0 up, 200 Gb/s, MTU 9000, 10.249.1.2
interface     lo unknown, 127.0.0.1
InfiniBand    mlx5_0 port 1 ACTIVE, 200 Gb/sec (4X HDR), InfiniBand
              nvidia_peermem is loaded
Slingshot     cxi0
CPU           AMD EPYC 7763, 2 cores, bf16 is emulated
memory lock   unlimited
variable      CUDA_VISIBLE_DEVICES=1
variable      LD_LIBRARY_PATH=ROOT/opt/ofi
variable      NCCL_DEBUG=INFO

nothing is missing for training on GPUs";
    assert_eq!(text::all(&report).replace(&at, "ROOT"), want);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["driver"]["gpus"][1]["memory_bytes"], 40u64 << 30);
    assert_eq!(json["nccl"]["version"], "2.28.9");
    assert_eq!(json["missing"], serde_json::json!([]));
}

#[test]
fn what_is_missing_is_told_with_its_use_and_a_way_out() {
    use NeededFor::{Gpu, Groups, Speed};
    // What is needed, words of what is missing, a word of the way out.
    let check = |fake: Fake, want: &[(NeededFor, &str, &str)]| {
        let got = missing(&fake.node());
        let fits = |(missing, want): (&super::Missing, &(NeededFor, &str, &str))| {
            missing.needed_for == want.0
                && missing.what.contains(want.1)
                && missing.way_out.contains(want.2)
        };
        let all = got.len() == want.len() && got.iter().zip(want).all(fits);
        assert!(all, "{got:#?}\nis not\n{want:#?}");
    };
    let fake = Fake::new;
    check(fake(), &[]);
    let no_driver = || fake().without("libnvidia-ml.so.1").without("proc/driver");
    check(
        no_driver(),
        &[(Gpu, "no NVIDIA driver", "trains on the CPU")],
    );
    check(
        fake().without("libnvidia-ml.so.1"),
        &[(Gpu, "its library says nothing", "--gpus all")],
    );
    check(
        fake().variable("CUDA_VISIBLE_DEVICES", ""),
        &[(Gpu, "hides all GPUs", "unset it")],
    );
    check(
        fake().with(
            "venv/torch/version.py",
            "__version__ = '2.11.0'\ncuda = '14.1'\n",
        ),
        &[(
            Gpu,
            "supports CUDA up to 13.0, libtorch was built for 14.1",
            "a driver for CUDA 14",
        )],
    );
    check(
        fake().without("target/debug/tradewind-worker"),
        &[(Gpu, "no tradewind-worker", "cargo build")],
    );
    check(
        fake().without("venv/torch/lib"),
        &[(Gpu, "does not find libtorch_cpu.so", "make setup")],
    );
    check(
        fake().without("venv/torch/lib/libtorch_cuda.so"),
        &[(Gpu, "no libtorch_cuda.so in ", "make cuda")],
    );
    check(
        fake().without("venv/nvidia/libcublas.so.13"),
        &[(
            Gpu,
            "libtorch_cuda.so does not find libcublas.so.13",
            "make cuda",
        )],
    );
    check(
        fake().without("target/nccl"),
        &[(Groups, "debug/../nccl/libtradewind_nccl.so", "make nccl")],
    );
    check(
        fake().variable("TRADEWIND_NCCL", "/nowhere/half.so"),
        &[(Groups, "looked for /nowhere/half.so", "TRADEWIND_NCCL")],
    );
    let broken = fake();
    broken.library("other/libodd.so", "", &[]);
    broken.library("target/nccl/libtradewind_nccl.so", "", &["other/libodd.so"]);
    check(
        broken.without("other/libodd.so"),
        &[(Groups, "does not find libodd.so", "make nccl again")],
    );
    check(
        fake().without("opt/ofi/libnccl-net.so"),
        &[(Speed, "no plugin for NCCL", "aws-ofi-nccl")],
    );
    check(
        fake()
            .without("opt/ofi/libnccl-net.so")
            .with("opt/ofi/libnccl-net-ofi.so", ""),
        &[(Speed, "no plugin for NCCL", "NCCL_NET_PLUGIN=")],
    );
    check(
        fake()
            .with("opt/ofi/libnccl-net-ofi.so", "")
            .variable("NCCL_NET_PLUGIN", "ofi"),
        &[],
    );
    check(
        fake().variable("NCCL_NET_PLUGIN", "efa"),
        &[
            (Groups, "NCCL_NET_PLUGIN=efa", "LD_LIBRARY_PATH"),
            (Speed, "no plugin for NCCL", "NCCL_NET_PLUGIN"),
        ],
    );
    check(
        fake().with(
            "proc/self/limits",
            "Max locked memory  8388608  8388608  bytes\n",
        ),
        &[(Speed, "may lock 8192 KiB", "memlock=-1")],
    );
    check(
        fake().with("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n"),
        &[(Speed, "nvidia_peermem is not loaded", "modprobe")],
    );
    check(
        no_driver().without("target/nccl").without("sys/class"),
        &[
            (Gpu, "no NVIDIA driver", ""),
            (Groups, "libtradewind_nccl.so", ""),
        ],
    );
}

#[test]
fn a_configuration_is_held_against_the_node() {
    let whole = Fake::new().node();
    let bare = Fake::new()
        .without("libnvidia-ml.so.1")
        .without("proc/driver")
        .without("target/nccl")
        .node();
    let alone = Fake::new().without("target/nccl").node();
    let check = |node: &Node, set: &[&str], want: &[&str]| {
        let got = cannot(&config(set), node);
        let fits = |(got, want): (&String, &&str)| got.contains(want);
        let all = got.len() == want.len() && got.iter().zip(want).all(fits);
        assert!(all, "{set:?}: {got:#?}\nis not\n{want:#?}");
    };
    for device in ["auto", "cpu", "cuda", "cuda:1"] {
        check(&whole, &[&format!("compute.device=\"{device}\"")], &[]);
    }
    let third = ["compute.device=\"cuda:2\""];
    check(&whole, &third, &["asks for GPU 2; 2 were found"]);
    check(&bare, &["compute.device=\"auto\""], &[]);
    check(&bare, &["compute.device=\"cpu\""], &[]);
    let cuda = "compute.device=\"cuda\"";
    check(
        &bare,
        &[cuda, "cluster.groups=[1]"],
        &["asks for a GPU; none was found"],
    );
    let fp16 = "compute.precision=\"fp16\"";
    check(&bare, &[fp16], &["needs a GPU; none was found"]);
    check(&whole, &[fp16], &[]);
    check(&alone, &[cuda, "cluster.groups=[1, 1]"], &[]);
    check(
        &alone,
        &[cuda, "cluster.groups=[1, 2]"],
        &["no libtradewind_nccl.so"],
    );
    check(
        &alone,
        &["cluster.groups=[2]"],
        &["no libtradewind_nccl.so"],
    );
    check(
        &alone,
        &["compute.device=\"cpu\"", "cluster.groups=[2]"],
        &[],
    );
}
