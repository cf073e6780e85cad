//! NCCL, the library that binds libtorch's c10d to it, and NCCL's plugin for the network.

use std::ffi::c_int;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tradewind_common::environment;

use super::libtorch::Libtorch;
use super::loader::{absent, found, needs};
use super::system::{System, names};

/// Binds c10d to NCCL; built by `make nccl`.
pub(super) const HALF: &str = "libtradewind_nccl.so";

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Nccl {
    /// The `libnccl.so.2` that libtorch loads.
    pub(super) library: Option<PathBuf>,
    /// Such as `2.28.9`.
    pub(super) version: Option<String>,
    pub(super) half: Option<PathBuf>,
    /// What the half needs and nobody has.
    pub(super) half_absent: Vec<String>,
    /// Where the half was looked for.
    pub(super) half_searched: Vec<PathBuf>,
    pub(super) plugin: Plugin,
}

/// What moves NCCL's bytes between nodes, if it is not NCCL itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Plugin {
    /// `NCCL_NET_PLUGIN`.
    pub(super) asked: Option<String>,
    /// The one that NCCL would load.
    pub(super) library: Option<PathBuf>,
    /// Others that are there under names that NCCL looks for only when it is told to.
    pub(super) others: Vec<PathBuf>,
}

impl Nccl {
    pub(super) fn look(system: &System, libtorch: &Libtorch) -> Self {
        let library = found(&libtorch.needed, "libnccl.so.2").map(Path::to_owned);
        let version = library.as_deref().and_then(version);
        let half_searched = half_places(system);
        let half = half_searched.iter().find(|path| path.is_file()).cloned();
        Self {
            library,
            version,
            half_absent: half
                .as_deref()
                .map_or(Vec::new(), |half| half_absent(system, half, libtorch)),
            half,
            half_searched,
            plugin: Plugin::look(system),
        }
    }
}

/// In the worker's order.
fn half_places(system: &System) -> Vec<PathBuf> {
    if let Some(path) = system.variable(environment::NCCL) {
        return vec![path.into()];
    }
    let folders = ["", "../nccl", "../../nccl"];
    let place = |folder| system.programs.join(folder).join(HALF);
    folders.map(place).into()
}

/// The worker has libtorch's libraries, and what they need, loaded before it opens the half.
fn half_absent(system: &System, half: &Path, libtorch: &Libtorch) -> Vec<String> {
    let needed = needs(system, half).unwrap_or_default();
    let mut names = absent(&needed);
    names.retain(|name| {
        let beside = |folder: &PathBuf| folder.join(name).is_file();
        let there = libtorch.folder.as_ref().is_some_and(beside);
        !there && found(&libtorch.needed, name).is_none()
    });
    names
}

/// Asks the library itself.
fn version(library: &Path) -> Option<String> {
    let mut number: c_int = 0;
    // SAFETY: NCCL's initialisers only read the environment; `ncclGetVersion` has had this
    // signature since NCCL 2, and writes the number.
    let result = unsafe {
        let nccl = libloading::Library::new(library).ok()?;
        let ask = nccl.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"ncclGetVersion\0");
        ask.ok()?(&raw mut number)
    };
    // 22809 is 2.28.9; before 2.9 it was written 2804 for 2.8.4.
    let (major, rest) = match number {
        10_000.. => (number / 10_000, number % 10_000),
        _ => (number / 1000, number % 1000),
    };
    (result == 0).then(|| format!("{major}.{}.{}", rest / 100, rest % 100))
}

impl Plugin {
    /// As NCCL looks for it: `libnccl-net.so`, or what `NCCL_NET_PLUGIN` names: a file, or `X` for
    /// `libnccl-net-X.so`, or `none`.
    fn look(system: &System) -> Self {
        let folders = system.library_folders();
        let asked = system.variable("NCCL_NET_PLUGIN").map(str::to_owned);
        let wanted = match asked.as_deref() {
            Some("none") => Vec::new(),
            Some(name) => vec![name.to_owned(), format!("libnccl-net-{name}.so")],
            None => vec!["libnccl-net.so".to_owned()],
        };
        let at = |name: &String| match name.contains('/') {
            true => Some(PathBuf::from(name)).filter(|path| path.is_file()),
            false => folders.iter().map(|f| f.join(name)).find(|p| p.is_file()),
        };
        let library = wanted.iter().find_map(at);
        let is_plugin = |name: &String| name.starts_with("libnccl-net") && name.ends_with(".so");
        let others = folders.iter().flat_map(|folder| {
            let plugins = names(folder).into_iter().filter(is_plugin);
            plugins.map(|name| folder.join(name))
        });
        let others = others.filter(|path| Some(path) != library.as_ref());
        Self {
            others: others.collect(),
            asked,
            library,
        }
    }
}
