//! What a node has, for people.

use std::fmt::Write;

use super::host::Host;
use super::libtorch::Libtorch;
use super::nccl::Nccl;
use super::network::Network;
use super::places::Place;
use super::verdict::NeededFor;
use super::{DoctorReport, Node};
use indicatif::HumanBytes;

/// Everything.
pub(super) fn all(report: &DoctorReport) -> String {
    let Node {
        driver,
        libtorch,
        nccl,
        network,
        host,
    } = &report.node;
    let mut rows: Vec<(String, String)> = Vec::new();
    let mut row = |name: &str, text: String| rows.push((name.into(), text));
    let version = driver.version.clone();
    row(
        "driver",
        match (version, driver.cuda, &driver.error) {
            (Some(version), Some((major, minor)), _) => {
                format!("{version}, CUDA up to {major}.{minor}")
            }
            (Some(version), _, Some(error)) => {
                format!("{version}; its library says nothing: {error}")
            }
            _ => "none".into(),
        },
    );
    for (number, gpu) in driver.gpus.iter().enumerate() {
        let mode = |name, on: Option<bool>| match on {
            Some(true) => format!(", {name} on"),
            Some(false) => format!(", {name} off"),
            None => String::new(),
        };
        let hidden = if gpu.visible { "" } else { ", hidden" };
        row(
            &format!("GPU {number}"),
            format!(
                "{}, {} of {} used, {}{}{}{hidden}",
                gpu.name,
                HumanBytes(gpu.memory_used_bytes),
                HumanBytes(gpu.memory_bytes),
                gpu.uuid,
                mode("ECC", gpu.ecc),
                mode("MIG", gpu.mig),
            ),
        );
        if let Some(place) = placed(&gpu.place) {
            row("", place);
        }
    }
    libtorch_rows(libtorch, &mut row);
    nccl_rows(nccl, &mut row);
    network_rows(network, &mut row);
    host_rows(host, &mut row);
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value) in rows {
        let _ = writeln!(text, "{name:width$}   {value}");
    }
    verdict(report, &mut text);
    text.truncate(text.trim_end().len());
    text
}

/// Where a GPU is; `None` where nothing is known.
fn placed(place: &Place) -> Option<String> {
    let node = place.numa_node.map(|node| match &place.cores {
        Some(cores) => format!("NUMA node {node}, cores {cores}"),
        None => format!("NUMA node {node}"),
    });
    let cards = place.between.map(|between| {
        format!(
            "nearest network {}, {}",
            place.cards.join(" "),
            between.words()
        )
    });
    let known: Vec<String> = node.into_iter().chain(cards).collect();
    (!known.is_empty()).then(|| known.join("; "))
}

fn libtorch_rows(libtorch: &Libtorch, row: &mut dyn FnMut(&str, String)) {
    let Some(folder) = &libtorch.folder else {
        return row("libtorch", "not found".into());
    };
    let version = libtorch.version.as_deref().unwrap_or("of unknown version");
    row("libtorch", format!("{version} in {}", folder.display()));
    row(
        "",
        match (libtorch.has_cuda_half, libtorch.absent.len()) {
            (false, _) => "without CUDA".into(),
            (true, 0) => "with CUDA's libraries".into(),
            (true, n) => format!("with CUDA, {n} libraries missing"),
        },
    );
}

fn nccl_rows(nccl: &Nccl, row: &mut dyn FnMut(&str, String)) {
    let version = nccl.version.as_deref().unwrap_or("of unknown version");
    let at = |path: &std::path::PathBuf| path.display().to_string();
    row(
        "NCCL",
        match &nccl.library {
            Some(path) => format!("{version} in {}", at(path)),
            None => "not found".into(),
        },
    );
    row(
        "NCCL half",
        nccl.half.as_ref().map_or("not found".into(), at),
    );
    let plugin = &nccl.plugin;
    row(
        "NCCL plugin",
        match (&plugin.library, plugin.asked.as_deref()) {
            (Some(path), _) => at(path),
            (None, Some("none")) => "none, as NCCL_NET_PLUGIN says".into(),
            (None, _) => "none: InfiniBand and TCP are NCCL's own".into(),
        },
    );
    for other in &plugin.others {
        row("", format!("not loaded by itself: {}", at(other)));
    }
}

fn network_rows(network: &Network, row: &mut dyn FnMut(&str, String)) {
    for interface in &network.interfaces {
        let mut text = format!("{} {}", interface.name, interface.state);
        if let Some(speed) = interface.megabits_per_second {
            let _ = write!(text, ", {} Gb/s", speed as f64 / 1000.0);
        }
        if let Some(mtu) = interface.mtu {
            let _ = write!(text, ", MTU {mtu}");
        }
        for address in &interface.addresses {
            let _ = write!(text, ", {address}");
        }
        row("interface", text);
    }
    for hca in &network.hcas {
        row(
            "InfiniBand",
            format!(
                "{} port {} {}, {}, {}",
                hca.name, hca.port, hca.state, hca.rate, hca.link
            ),
        );
    }
    if !network.hcas.is_empty() {
        row(
            "",
            format!(
                "nvidia_peermem is {}loaded",
                if network.peermem { "" } else { "not " }
            ),
        );
    }
    if network.has_slingshot() {
        let devices = match network.cxi.is_empty() {
            true => "interfaces named hsn, but no device in /sys/class/cxi".into(),
            false => network.cxi.join(", "),
        };
        row("Slingshot", devices);
    }
}

fn host_rows(host: &Host, row: &mut dyn FnMut(&str, String)) {
    let bf16 = match host.bf16.is_empty() {
        true => "bf16 is emulated".into(),
        false => format!("bf16 by {}", host.bf16.join(", ")),
    };
    let cpu = host.cpu.as_deref().unwrap_or("unknown");
    row("CPU", format!("{cpu}, {} cores, {bf16}", host.cores));
    row(
        "memory lock",
        match host.memory_lock_bytes {
            Some(bytes) => HumanBytes(bytes).to_string(),
            None => "unlimited".into(),
        },
    );
    for (name, value) in &host.environment {
        row("variable", format!("{name}={value}"));
    }
}

fn verdict(report: &DoctorReport, text: &mut String) {
    for (needed_for, title) in [
        (NeededFor::Gpu, "a rank on a GPU lacks"),
        (NeededFor::Groups, "a group of several GPUs lacks"),
        (NeededFor::Speed, "for the network's speed"),
    ] {
        let own = report.missing.iter().filter(|m| m.needed_for == needed_for);
        for (number, missing) in own.enumerate() {
            if number == 0 {
                let _ = write!(text, "\n{title}\n");
            }
            let _ = writeln!(text, "  {}\n    {}", missing.what, missing.way_out);
        }
    }
    if report.missing.is_empty() {
        text.push_str("\nnothing is missing for training on GPUs\n");
    }
    match report.cannot.as_deref() {
        None => {}
        Some([]) => text.push_str("\nthis node can do what the configuration asks for\n"),
        Some(why) => {
            text.push_str("\nthis node cannot do what the configuration asks for\n");
            for why in why {
                let _ = writeln!(text, "  {why}");
            }
        }
    }
}
